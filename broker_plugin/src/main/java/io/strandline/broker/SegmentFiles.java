package io.strandline.broker;

import io.strandline.broker.NodeException.Kind;

import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32C;

/**
 * The files of a segment, for a node that does not see the broker's disk. The leader epochs go
 * last, as they are then.
 */
final class SegmentFiles {
    private static final int PIECE_BYTES = 1024 * 1024;

    private final Path[] paths;
    private final Path following;
    private final long[] sizes;
    private long bytes;

    SegmentFiles(RemoteLogSegmentMetadata segment, LogSegmentData files) throws IOException {
        Path log = files.logSegment();
        paths =
                new Path[] {
                    log,
                    files.offsetIndex(),
                    files.timeIndex(),
                    files.transactionIndex().orElse(null),
                    files.producerSnapshotIndex(),
                    log.resolveSibling("partition.metadata"),
                    log.resolveSibling("leader-epoch-checkpoint")
                };
        following = log.resolveSibling(String.format("%020d.log", segment.endOffset() + 1));
        sizes = new long[paths.length];
        for (int i = 0; i < paths.length; i++) {
            boolean there = paths[i] != null && Files.exists(paths[i]);
            sizes[i] = there ? Files.size(paths[i]) : -1;
            bytes += Math.max(0, sizes[i]);
        }
    }

    /** The size of each file, -1 of one that is not there. */
    long[] sizes() {
        return sizes;
    }

    /** So many bytes are sent. */
    long length() {
        return bytes + 4;
    }

    /** Sends the files and their checksum; each piece has the deadline of a heartbeat. */
    void send(HttpAnswer to) throws IOException {
        CRC32C crc = new CRC32C();
        for (int i = 0; i < paths.length; i++) {
            if (sizes[i] >= 0) {
                send(i, crc, to);
            }
        }
        check(0, Files.exists(paths[0]) && Files.size(paths[0]) == sizes[0]);
        check(0, Files.exists(following));
        to.send(new ByteWriter().int32((int) crc.getValue()).toBytes());
    }

    private void send(int file, CRC32C crc, HttpAnswer to) throws IOException {
        try (InputStream in = Files.newInputStream(paths[file])) {
            for (long left = sizes[file]; left > 0; ) {
                byte[] piece = in.readNBytes((int) Math.min(left, PIECE_BYTES));
                check(file, piece.length > 0);
                crc.update(piece);
                to.send(piece);
                left -= piece.length;
            }
            check(file, in.read() < 0);
        } catch (FileSystemException e) {
            throw changed(file, e);
        }
    }

    private void check(int file, boolean same) throws NodeException {
        if (!same) {
            throw changed(file, null);
        }
    }

    private NodeException changed(int file, Throwable cause) {
        String text = paths[file] + " changed while it was sent";
        return new NodeException(Kind.RETRY_LATER, "", text, cause);
    }
}
