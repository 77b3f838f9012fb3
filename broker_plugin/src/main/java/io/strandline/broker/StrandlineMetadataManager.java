package io.strandline.broker;

import io.strandline.broker.Bodies.Readiness;
import io.strandline.broker.NodeClient.Fields;
import io.strandline.broker.NodeException.Kind;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/**
 * Kafka's RemoteLogMetadataManager whose records are those of the Strandline node beside the
 * broker. It decides nothing. Each method catches every Throwable: a broker loses the task,
 * silently and for good, that sees another exception than the ones it expects.
 */
public final class StrandlineMetadataManager implements RemoteLogMetadataManager {
    private static final Logger LOG = LoggerFactory.getLogger(StrandlineMetadataManager.class);

    /** So long a call waits for the announcer, at most. */
    private static final long ANNOUNCED_WITHIN_MS = 1_000;

    private final Session session = new Session();
    private final ChangeQueue changes = new ChangeQueue();
    private PluginStats stats;
    private Trouble trouble;
    private Announcer announcer;
    private volatile NodeClient client;
    private volatile SegmentLists lists;

    /** For the broker, which makes one and configures it. */
    public StrandlineMetadataManager() {}

    /** Reads the settings; those that are wrong end the broker's start. The node is not asked. */
    @Override
    public void configure(Map<String, ?> settings) {
        PluginConfig config = PluginConfig.ofMetadata(settings);
        stats = new PluginStats("metadata", config.brokerId());
        trouble = new Trouble(config.node());
        NodeClient opened = new NodeClient(config, stats, trouble);
        lists = new SegmentLists(this::page, stats);
        stats.watch(opened);
        stats.watch(session, lists, changes::pending);
        stats.register();
        client = opened;
        announcer = new Announcer(session, opened, config);
        announcer.start();
        LOG.info(
                "Strandline's plug-in {}: metadata of tiered segments at the node {}",
                PluginVersion.TEXT,
                config.node());
    }

    @Override
    public void onPartitionLeadershipChanges(
            Set<TopicIdPartition> leaders, Set<TopicIdPartition> followers) {
        try {
            session.leadershipChanged(leaders, followers);
        } catch (Throwable e) {
            LOG.error("Strandline's plug-in did not take the partitions that changed", e);
        }
    }

    /** The replicas went away from here; their segments stay. */
    @Override
    public void onStopPartitions(Set<TopicIdPartition> partitions) {
        try {
            session.stopped(partitions);
            SegmentLists current = lists;
            if (current != null) {
                partitions.forEach(current::forget);
            }
        } catch (Throwable e) {
            LOG.error("Strandline's plug-in did not take the partitions that stopped", e);
        }
    }

    /** Asked by Kafka 4.0 and newer. False makes the broker skip one run. */
    public boolean isReady(TopicIdPartition tip) {
        try {
            Readiness found = ask(Call.READY, Bodies.ready(tip), Bodies::readiness);
            if (!found.ready()) {
                trouble.notReady(tip, found.why());
            }
            return found.ready();
        } catch (Throwable e) {
            LOG.debug("{} is not ready", tip, e);
            return false;
        }
    }

    @Override
    public Optional<RemoteLogSegmentMetadata> remoteLogSegmentMetadata(
            TopicIdPartition tip, int epoch, long offset) throws RemoteStorageException {
        try {
            return lookUp(tip, epoch, offset, false);
        } catch (Throwable e) {
            throw Failures.ofLookUp(e);
        }
    }

    /** Asked by Kafka 4.0 and newer. */
    public Optional<RemoteLogSegmentMetadata> nextSegmentWithTxnIndex(
            TopicIdPartition tip, int epoch, long offset) throws RemoteStorageException {
        try {
            return lookUp(tip, epoch, offset, true);
        } catch (Throwable e) {
            throw Failures.ofLookUp(e);
        }
    }

    @Override
    public Optional<Long> highestOffsetForEpoch(TopicIdPartition tip, int epoch)
            throws RemoteStorageException {
        try {
            return ask(Call.HIGHEST, Bodies.highest(tip, epoch), Bodies::highestFound);
        } catch (Throwable e) {
            throw Failures.ofLookUp(e);
        }
    }

    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tip)
            throws RemoteStorageException {
        return listRemoteLogSegments(tip, Bodies.ALL_EPOCHS);
    }

    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tip, int epoch)
            throws RemoteStorageException {
        try {
            return configured(lists).list(tip, epoch);
        } catch (Throwable e) {
            throw Failures.ofLookUp(e);
        }
    }

    @Override
    public long remoteLogSize(TopicIdPartition tip, int epoch) throws RemoteStorageException {
        try {
            long bytes = 0;
            Iterator<RemoteLogSegmentMetadata> segments = configured(lists).list(tip, epoch);
            while (segments.hasNext()) {
                bytes += segments.next().segmentSizeInBytes();
            }
            return bytes;
        } catch (Throwable e) {
            throw Failures.ofLookUp(e);
        }
    }

    @Override
    public CompletableFuture<Void> addRemoteLogSegmentMetadata(RemoteLogSegmentMetadata segment) {
        try {
            return change(Call.ADD, Bodies.add(segment));
        } catch (Throwable e) {
            return CompletableFuture.failedFuture(Failures.ofChange(e));
        }
    }

    @Override
    public CompletableFuture<Void> updateRemoteLogSegmentMetadata(
            RemoteLogSegmentMetadataUpdate update) {
        try {
            return change(Call.UPDATE, Bodies.update(update));
        } catch (Throwable e) {
            return CompletableFuture.failedFuture(Failures.ofChange(e));
        }
    }

    @Override
    public CompletableFuture<Void> putRemotePartitionDeleteMetadata(
            RemotePartitionDeleteMetadata delete) {
        try {
            return change(Call.DELETE_PARTITION, Bodies.deletePartition(delete));
        } catch (Throwable e) {
            return CompletableFuture.failedFuture(Failures.ofChange(e));
        }
    }

    @Override
    public void close() {
        try {
            changes.close();
            if (announcer != null) {
                announcer.close();
                client.close();
                stats.unregister();
            }
        } catch (Throwable e) {
            LOG.warn("Strandline's plug-in did not close cleanly", e);
        }
    }

    private CompletableFuture<Void> change(Call call, byte[] body) {
        Stamp made = stamp();
        return changes.send(() -> ask(call, made, body, Bodies::applied));
    }

    private Optional<RemoteLogSegmentMetadata> lookUp(
            TopicIdPartition tip, int epoch, long offset, boolean withTxnIndex)
            throws NodeException {
        byte[] body = Bodies.lookUp(tip, epoch, offset, withTxnIndex);
        return ask(Call.LOOKUP, body, in -> Bodies.found(in, tip));
    }

    private Bodies.Page page(TopicIdPartition tip, int epoch, byte[] tag, byte[] cursor)
            throws NodeException {
        byte[] body = Bodies.list(tip, epoch, tag, cursor);
        return ask(Call.LIST, body, in -> Bodies.page(in, tip));
    }

    private Stamp stamp() {
        return new Stamp(session.id(), session.seq(), configured(client).applied());
    }

    private <T> T ask(Call call, byte[] body, Fields<T> fields) throws NodeException {
        return ask(call, stamp(), body, fields);
    }

    /** The call as it was made; once more where the node asks for the announcement. */
    private <T> T ask(Call call, Stamp made, byte[] body, Fields<T> fields) throws NodeException {
        NodeClient node = configured(client);
        Deadline deadline = call.deadline();
        long told = heard(made.seq());
        try {
            return node.ask(call, made, body, deadline, fields);
        } catch (NodeException e) {
            if (!e.is(Kind.RETRY_LATER, "ANNOUNCE")) {
                throw e;
            }
            session.forgotten(told);
        }
        heard(made.seq());
        return node.ask(call, made, body, deadline, fields);
    }

    private long heard(long seq) throws NodeException {
        Deadline deadline = Deadline.afterMs(ANNOUNCED_WITHIN_MS);
        try {
            return session.awaitHeard(seq, deadline);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw NodeException.of(e, deadline);
        }
    }

    private static <T> T configured(T part) {
        if (part == null) {
            throw new IllegalStateException("It was not configured");
        }
        return part;
    }
}
