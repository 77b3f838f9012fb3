package io.strandline.broker;

import io.strandline.broker.Session.Announcement;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;

/** The bodies of docs/BROKER_PROTOCOL.md, both ways. No input or output happens here. */
final class Bodies {
    static final int ALL_EPOCHS = -1;

    private Bodies() {}

    /** Of this jar, and of the broker. */
    record Versions(String plugin, String kafka) {}

    /** What a `ready` hears. */
    record Readiness(boolean ready, String why) {}

    /**
     * The answer to a list: a page; or, with `gone`, the changes since the tag that was sent;
     * `rows` is null where nothing changed.
     */
    record Page(byte[] tag, byte[] rows, byte[] nextCursor, List<Uuid> gone) {
        boolean same() {
            return rows == null;
        }

        boolean changes() {
            return gone != null;
        }
    }

    private static final int PAGE = 0;
    private static final int SAME = 1;
    private static final int CHANGES = 2;
    private static final int UUID_BYTES = 16;

    static byte[] announce(
            PluginConfig config, Versions versions, Uuid session, Announcement sets) {
        ByteWriter out = new ByteWriter().string(config.clusterId()).int32(config.brokerId());
        out.string(versions.plugin()).string(versions.kafka()).string(config.bootstrap());
        out.uuid(session).int64(sets.seq()).int64(sets.base());
        tips(out, sets.leaders());
        tips(out, sets.followers());
        tips(out, sets.stopped());
        return out.toBytes();
    }

    /** The node's boot, which tells one start of it from the next. */
    static long announced(ByteReader in) throws NodeException {
        applied(in);
        in.int32();
        return in.int64();
    }

    static byte[] ready(TopicIdPartition tip) {
        return tip(tip).toBytes();
    }

    static Readiness readiness(ByteReader in) throws NodeException {
        applied(in);
        return new Readiness(in.bool(), in.string());
    }

    static byte[] lookUp(TopicIdPartition tip, int epoch, long offset, boolean withTxnIndex) {
        return tip(tip).int32(epoch).int64(offset).bool(withTxnIndex).toBytes();
    }

    static Optional<RemoteLogSegmentMetadata> found(ByteReader in, TopicIdPartition tip)
            throws NodeException {
        applied(in);
        return in.bool() ? Optional.of(SegmentRow.read(in, tip).toKafka()) : Optional.empty();
    }

    static byte[] highest(TopicIdPartition tip, int epoch) {
        return tip(tip).int32(epoch).toBytes();
    }

    static Optional<Long> highestFound(ByteReader in) throws NodeException {
        applied(in);
        if (!in.bool()) {
            return Optional.empty();
        }
        long offset = in.int64();
        if (offset < 0) {
            throw NodeException.wrongAnswer("an offset of " + offset);
        }
        return Optional.of(offset);
    }

    static byte[] list(TopicIdPartition tip, int epoch, byte[] tag, byte[] cursor) {
        return tip(tip).int32(epoch).bytes(tag).bytes(cursor).toBytes();
    }

    /** The rows stay bytes, and each of them was read once: none can turn out broken later. */
    static Page page(ByteReader in, TopicIdPartition tip) throws NodeException {
        applied(in);
        byte[] tag = in.bytes();
        if (tag == null) {
            throw NodeException.wrongAnswer("no tag");
        }
        int form = in.int8();
        if (form == SAME) {
            return new Page(tag, null, null, null);
        }
        if (form != PAGE && form != CHANGES) {
            throw NodeException.wrongAnswer("a list of the form " + form);
        }
        List<Uuid> gone = null;
        if (form == CHANGES) {
            gone = new ArrayList<>();
            for (int left = in.count(UUID_BYTES); left > 0; left--) {
                gone.add(in.uuid());
            }
        }
        int start = in.position();
        for (int left = in.count(SegmentRow.BYTES_MIN); left > 0; left--) {
            SegmentRow.read(in, tip).toKafka();
        }
        byte[] rows = in.since(start);
        return new Page(tag, rows, form == PAGE ? in.bytes() : null, gone);
    }

    static byte[] add(RemoteLogSegmentMetadata segment) {
        return segment(segment).toBytes();
    }

    static byte[] update(RemoteLogSegmentMetadataUpdate update) {
        ByteWriter out = tip(update.topicIdPartition()).uuid(update.remoteLogSegmentId().id());
        out.int32(update.brokerId()).int64(update.eventTimestampMs()).int8(update.state().id());
        return out.bytes(update.customMetadata().map(CustomMetadata::value).orElse(null)).toBytes();
    }

    static byte[] deletePartition(RemotePartitionDeleteMetadata delete) {
        ByteWriter out = tip(delete.topicIdPartition()).int32(delete.brokerId());
        return out.int64(delete.eventTimestampMs()).int8(delete.state().id()).toBytes();
    }

    /** Reads the answer of which only the offset is said. */
    static Long applied(ByteReader in) throws NodeException {
        return in.int64();
    }

    static byte[] copy(RemoteLogSegmentMetadata segment, LogSegmentData files) {
        ByteWriter out = segment(segment).string(path(files.logSegment()));
        out.string(path(files.offsetIndex())).string(path(files.timeIndex()));
        out.string(files.transactionIndex().map(Bodies::path).orElse(""));
        out.string(path(files.producerSnapshotIndex()));
        ByteBuffer epochs = files.leaderEpochIndex().duplicate();
        byte[] bytes = new byte[epochs.remaining()];
        epochs.get(bytes);
        return out.bytes(bytes).toBytes();
    }

    /** The head of the files that follow: the body of the copy, and their sizes. */
    static byte[] copyFiles(byte[] copy, long[] sizes) {
        ByteWriter out = new ByteWriter().int32(copy.length + 8 * sizes.length).raw(copy);
        for (long size : sizes) {
            out.int64(size);
        }
        return out.toBytes();
    }

    /** Bytes from `start` up to, not including, `end`. */
    static byte[] fetch(byte[] segment, long start, long end) {
        return new ByteWriter().raw(segment).int64(start).int64(end).toBytes();
    }

    static byte[] index(RemoteLogSegmentMetadata segment, int index) {
        return segment(segment).int8(index).toBytes();
    }

    /** A partition and the row of a segment, as most calls of the storage manager begin. */
    static ByteWriter segment(RemoteLogSegmentMetadata segment) {
        ByteWriter out = tip(segment.topicIdPartition());
        SegmentRow.of(segment).write(out);
        return out;
    }

    private static ByteWriter tip(TopicIdPartition tip) {
        return writeTip(new ByteWriter(), tip);
    }

    private static ByteWriter writeTip(ByteWriter out, TopicIdPartition tip) {
        return out.uuid(tip.topicId()).string(tip.topic()).int32(tip.partition());
    }

    private static void tips(ByteWriter out, Collection<TopicIdPartition> tips) {
        out.int32(tips.size());
        tips.forEach(tip -> writeTip(out, tip));
    }

    private static String path(Path path) {
        return path.toAbsolutePath().toString();
    }
}
