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
import java.util.Map;
import java.util.Optional;

/**
 * Kafka's RemoteStorageManager: the Strandline node beside the broker copies, verifies, reads and
 * deletes. Each method catches every Throwable and throws one of the kinds that a broker survives.
 */
public final class StrandlineStorageManager implements RemoteStorageManager {
    private static final Logger LOG = LoggerFactory.getLogger(StrandlineStorageManager.class);

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
            throws NodeException {
        NodeClient node = configured();
        Deadline deadline = Call.COPY.deadline();
        byte[] body = Bodies.copy(segment, files);
        try (HttpAnswer answer = node.open(Call.COPY, null, body, deadline)) {
            Optional<CustomMetadata> custom = new CopyAnswer(answer).result();
            stats.copied();
            return custom;
        } catch (IOException | RuntimeException e) {
            throw node.failed(Call.COPY, e, deadline);
        }
    }

    private InputStream stream(RemoteLogSegmentMetadata segment, long start, long end)
            throws NodeException {
        if (start < 0 || start >= end) {
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
        switch (type) {
            case OFFSET:
                return 0;
            case TIMESTAMP:
                return 1;
            case PRODUCER_SNAPSHOT:
                return 2;
            case TRANSACTION:
                return 3;
            case LEADER_EPOCH:
                return 4;
            default:
                throw new IllegalArgumentException("No such index: " + type);
        }
    }
}
