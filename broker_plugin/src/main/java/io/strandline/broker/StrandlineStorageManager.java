package io.strandline.broker;

import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Kafka's RemoteStorageManager: the Strandline node beside the broker copies, verifies, reads and
 * deletes. Each method catches every Throwable and throws one of the kinds that a broker survives.
 */
public final class StrandlineStorageManager implements RemoteStorageManager {
    private static final Logger LOG = LoggerFactory.getLogger(StrandlineStorageManager.class);

    /** By the protocol's numbers. */
    private static final List<IndexType> INDEXES =
            List.of(
                    IndexType.OFFSET,
                    IndexType.TIMESTAMP,
                    IndexType.PRODUCER_SNAPSHOT,
                    IndexType.TRANSACTION,
                    IndexType.LEADER_EPOCH);

    private PluginStats stats;
    private volatile NodeClient client;

    /** For the broker, which makes one and configures it. */
    public StrandlineStorageManager() {}

    /** Reads the settings; those that are wrong end the broker's start. The node is not asked. */
    @Override
    public void configure(Map<String, ?> settings) {
        PluginConfig config = PluginConfig.ofStorage(settings);
        stats = new PluginStats("storage", config.brokerId());
        NodeClient opened = new NodeClient(config, stats, new Trouble(config.node()));
        stats.watch(opened);
        stats.register();
        client = opened;
        LOG.info(
                "Strandline's plug-in {}: tiered segments by the node {}",
                PluginVersion.TEXT,
                config.node());
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData files) throws RemoteStorageException {
        try {
            return copy(segment, files);
        } catch (Throwable e) {
            throw Failures.ofStorage(e);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int startPosition)
            throws RemoteStorageException {
        try {
            return stream(segment, startPosition, segment.segmentSizeInBytes());
        } catch (Throwable e) {
            throw Failures.ofStorage(e);
        }
    }

    /** Both positions are inclusive; an end behind the segment's is the segment's. */
    @Override
    public InputStream fetchLogSegment(
            RemoteLogSegmentMetadata segment, int startPosition, int endPosition)
            throws RemoteStorageException {
        try {
            long end = Math.min(segment.segmentSizeInBytes(), endPosition + 1L);
            return stream(segment, startPosition, end);
        } catch (Throwable e) {
            throw Failures.ofStorage(e);
        }
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType indexType)
            throws RemoteStorageException {
        try {
            byte[] body = Bodies.index(segment, numberOf(indexType));
            HttpAnswer answer = configured().open(Call.INDEX, null, body, Call.INDEX.deadline());
            return new ExactStream(client, stats, Call.INDEX, answer);
        } catch (Throwable e) {
            throw Failures.ofIndex(e);
        }
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment)
            throws RemoteStorageException {
        try {
            byte[] body = Bodies.segment(segment).toBytes();
            configured().ask(Call.DELETE, null, body, Call.DELETE.deadline(), Bodies::applied);
        } catch (Throwable e) {
            throw Failures.ofStorage(e);
        }
    }

    @Override
    public void close() {
        try {
            NodeClient open = client;
            if (open != null) {
                open.close();
                stats.unregister();
            }
        } catch (Throwable e) {
            LOG.warn("Strandline's plug-in did not close cleanly", e);
        }
    }

    private Optional<CustomMetadata> copy(RemoteLogSegmentMetadata segment, LogSegmentData files)
            throws IOException {
        byte[] body = Bodies.copy(segment, files);
        Optional<CustomMetadata> custom = copy(Call.COPY, body, null);
        if (custom == null) {
            SegmentFiles sent = new SegmentFiles(segment, files);
            custom = copy(Call.COPY_FILES, Bodies.copyFiles(body, sent.sizes()), sent);
        }
        stats.copied();
        return custom;
    }

    /** Null: the node asks for the files, which were not sent. */
    private Optional<CustomMetadata> copy(Call call, byte[] body, SegmentFiles sent)
            throws NodeException {
        NodeClient node = configured();
        long more = sent == null ? 0 : sent.length();
        try (HttpAnswer answer = node.open(call, null, body, more, call.deadline())) {
            CopyAnswer copy = new CopyAnswer(answer);
            Optional<CustomMetadata> custom = copy.result();
            if (sent == null || custom != null) {
                return custom;
            }
            sent.send(answer);
            custom = copy.result();
            if (custom == null) {
                throw NodeException.wrongAnswer("a second question for the files");
            }
            return custom;
        } catch (IOException | RuntimeException e) {
            // Each part had a deadline of its own: what broke off after the first one is not late.
            throw node.failed(call, e, call.deadline());
        }
    }

    private InputStream stream(RemoteLogSegmentMetadata segment, long start, long end)
            throws NodeException {
        // Compaction leaves segments without a byte, which a broker reads on its way to the next.
        if (start < 0 || start >= end && (start > 0 || segment.segmentSizeInBytes() > 0)) {
            throw new IllegalArgumentException(
                    String.format(
                            "No bytes stand at [%d, %d) of a segment of %d",
                            start, end, segment.segmentSizeInBytes()));
        }
        byte[] row = Bodies.segment(segment).toBytes();
        return new SegmentStream(
                configured(), stats, row, segment.segmentSizeInBytes(), start, end);
    }

    private NodeClient configured() {
        if (client == null) {
            throw new IllegalStateException("It was not configured");
        }
        return client;
    }

    private static int numberOf(IndexType type) {
        int number = INDEXES.indexOf(type);
        if (number < 0) {
            throw new IllegalArgumentException("No such index: " + type);
        }
        return number;
    }
}
