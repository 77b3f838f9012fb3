package io.strandline.broker;

import io.strandline.broker.Phase.Side;
import io.strandline.broker.PhaseLease.Change;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManagerConfig;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/**
 * The bridge of a move from Kafka's own metadata topic: Kafka's manager and Strandline's, of which
 * the phase that the node tells says which one is asked. Kafka's hears of every partition in every
 * phase, so that the way back is open; the node hears of them where the truth is its own.
 */
public final class MigratingMetadataManager implements RemoteLogMetadataManager {
    private static final Logger LOG = LoggerFactory.getLogger(MigratingMetadataManager.class);

    private final RemoteLogMetadataManager ofKafka;
    private final StrandlineMetadataManager node = new StrandlineMetadataManager();
    private final PhaseLease lease = new PhaseLease();

    /** The broker's partitions, true for those that it leads. Guarded by itself. */
    private final Map<TopicIdPartition, Boolean> partitions = new HashMap<>();

    /** The node was told of the partitions. Guarded by them. */
    private boolean nodeWasTold;

    private int turnedTo = PhaseLease.NONE;
    private volatile TopicManager topic;
    private PhaseAsker asker;

    /** For the broker, which makes one and configures it. */
    public MigratingMetadataManager() {
        this(new TopicBasedRemoteLogMetadataManager());
    }

    MigratingMetadataManager(RemoteLogMetadataManager ofKafka) {
        this.ofKafka = ofKafka;
    }

    /** Settings of either manager that are wrong end the broker's start. The node is not asked. */
    @Override
    public void configure(Map<String, ?> settings) {
        PluginConfig config = PluginConfig.ofMetadata(settings);
        Map<String, Object> ofTopic = new HashMap<>(settings);
        ofTopic.keySet().removeIf(name -> name.startsWith("strandline."));
        new TopicBasedRemoteLogMetadataManagerConfig(ofTopic);
        topic = new TopicManager(ofKafka, ofTopic, config.bootstrap());
        node.configure(settings);
        // Tells the node that this broker lives, and has no partition for it.
        node.onPartitionLeadershipChanges(Set.of(), Set.of());
        asker = new PhaseAsker(config, lease, this::heard);
        asker.start();
        LOG.info("Strandline's bridge: the node tells where metadata of tiered segments is");
    }

    @Override
    public void onPartitionLeadershipChanges(
            Set<TopicIdPartition> leaders, Set<TopicIdPartition> followers) {
        try {
            synchronized (partitions) {
                leaders.forEach(tip -> partitions.put(tip, true));
                followers.forEach(tip -> partitions.put(tip, false));
                if (nodeWasTold) {
                    node.onPartitionLeadershipChanges(leaders, followers);
                }
            }
            if (!configured(topic).isClosed()) {
                ofKafka.onPartitionLeadershipChanges(leaders, followers);
            }
        } catch (Throwable e) {
            LOG.error("Strandline's bridge did not take the partitions that changed", e);
        }
    }

    @Override
    public void onStopPartitions(Set<TopicIdPartition> stopped) {
        try {
            synchronized (partitions) {
                partitions.keySet().removeAll(stopped);
                if (nodeWasTold) {
                    node.onStopPartitions(stopped);
                }
            }
            if (!configured(topic).isClosed()) {
                ofKafka.onStopPartitions(stopped);
            }
        } catch (Throwable e) {
            LOG.error("Strandline's bridge did not take the partitions that stopped", e);
        }
    }

    /** Asked by Kafka 4.0 and newer. False makes the broker skip one run. */
    public boolean isReady(TopicIdPartition tip) {
        try {
            if (!lease.isOpen(System.nanoTime())) {
                return false;
            }
            return lease.lookUps() == Side.TOPIC ? topic.isReady(tip) : node.isReady(tip);
        } catch (Throwable e) {
            LOG.debug("{} is not ready", tip, e);
            return false;
        }
    }

    @Override
    public Optional<RemoteLogSegmentMetadata> remoteLogSegmentMetadata(
            TopicIdPartition tip, int epoch, long offset) throws RemoteStorageException {
        return ask(manager -> manager.remoteLogSegmentMetadata(tip, epoch, offset));
    }

    /** Asked by Kafka 4.0 and newer. */
    public Optional<RemoteLogSegmentMetadata> nextSegmentWithTxnIndex(
            TopicIdPartition tip, int epoch, long offset) throws RemoteStorageException {
        return ask(
                manager ->
                        manager == node
                                ? node.nextSegmentWithTxnIndex(tip, epoch, offset)
                                : topic.nextWithTxnIndex(tip, epoch, offset));
    }

    @Override
    public Optional<Long> highestOffsetForEpoch(TopicIdPartition tip, int epoch)
            throws RemoteStorageException {
        return ask(manager -> manager.highestOffsetForEpoch(tip, epoch));
    }

    /**
     * For expirations, and whoever deletes all. A broker's expiration moves its log start before it
     * deletes, and by retention.bytes each run whose deletions are refused takes as much again. A
     * broker before 4.0 does not ask `isReady`, so it gets no list while changes are refused.
     */
    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tip)
            throws RemoteStorageException {
        return ask(
                manager -> {
                    if (!lease.isOpen(System.nanoTime())) {
                        throw wait(null);
                    }
                    return manager.listRemoteLogSegments(tip);
                });
    }

    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tip, int epoch)
            throws RemoteStorageException {
        return ask(manager -> manager.listRemoteLogSegments(tip, epoch));
    }

    @Override
    public long remoteLogSize(TopicIdPartition tip, int epoch) throws RemoteStorageException {
        return ask(manager -> manager.remoteLogSize(tip, epoch));
    }

    @Override
    public CompletableFuture<Void> addRemoteLogSegmentMetadata(RemoteLogSegmentMetadata segment) {
        return change(manager -> manager.addRemoteLogSegmentMetadata(segment));
    }

    @Override
    public CompletableFuture<Void> updateRemoteLogSegmentMetadata(
            RemoteLogSegmentMetadataUpdate update) {
        return change(manager -> manager.updateRemoteLogSegmentMetadata(update));
    }

    @Override
    public CompletableFuture<Void> putRemotePartitionDeleteMetadata(
            RemotePartitionDeleteMetadata delete) {
        return change(manager -> manager.putRemotePartitionDeleteMetadata(delete));
    }

    @Override
    public void close() {
        try {
            if (asker != null) {
                asker.close();
                topic.close();
            }
        } catch (Throwable e) {
            LOG.warn("Strandline's bridge did not close cleanly", e);
        } finally {
            node.close();
        }
    }

    /** A question to whichever manager has the truth. */
    private interface Question<T> {
        T of(RemoteLogMetadataManager manager) throws Exception;
    }

    private <T> T ask(Question<T> question) throws RemoteStorageException {
        try {
            Side side = lease.lookUps();
            if (side == null) {
                throw new IllegalStateException(lease.why(System.nanoTime()));
            }
            return question.of(side == Side.TOPIC ? ofKafka : node);
        } catch (RemoteStorageException | ReplicaNotAvailableException e) {
            throw e;
        } catch (Throwable e) {
            throw Failures.ofLookUp(e);
        }
    }

    private CompletableFuture<Void> change(Question<CompletableFuture<Void>> change) {
        Change begun = lease.begin(System.nanoTime());
        if (begun == null) {
            return CompletableFuture.failedFuture(wait(null));
        }
        if (begun.side() == Side.NODE) {
            try {
                return change.of(node);
            } catch (Throwable e) {
                return CompletableFuture.failedFuture(Failures.ofChange(e));
            }
        }
        CompletableFuture<Void> told = new CompletableFuture<>();
        try {
            change.of(ofKafka).whenComplete((done, problem) -> ended(begun, problem, told));
        } catch (Throwable e) {
            ended(begun, e, told);
        }
        return told;
    }

    private void ended(Change change, Throwable problem, CompletableFuture<Void> told) {
        boolean believed = lease.ended(change, problem != null, System.nanoTime());
        if (believed) {
            told.complete(null);
            return;
        }
        boolean wrapped = problem instanceof CompletionException && problem.getCause() != null;
        Throwable cause = wrapped ? problem.getCause() : problem;
        told.completeExceptionally(cause instanceof RemoteStorageException ? cause : wait(cause));
    }

    private ReplicaNotAvailableException wait(Throwable problem) {
        String why = problem == null ? lease.why(System.nanoTime()) : problem.toString();
        return new ReplicaNotAvailableException("Strandline bridge: " + why, problem);
    }

    /** On the asker's thread, behind each answer. */
    private void heard() {
        Phase phase = Phase.values()[lease.seen()];
        if (turnedTo != phase.ordinal()) {
            turnedTo = phase.ordinal();
            LOG.info("Strandline's bridge: the move from Kafka's topic is in phase {}", phase);
            tellNode(phase.side() == Side.NODE);
        }
        if (phase != Phase.DONE) {
            topic.start();
        } else if (!topic.isClosed()) {
            // Kafka's clients take their time, and the next question must not.
            ConnectionPool.daemon(topic::close, "strandline-topic-close").start();
        }
    }

    /** The whole set at the turn, or that there is none for the node. */
    private void tellNode(boolean tell) {
        synchronized (partitions) {
            if (tell == nodeWasTold) {
                return;
            }
            nodeWasTold = tell;
            Set<TopicIdPartition> leaders = new HashSet<>();
            Set<TopicIdPartition> followers = new HashSet<>();
            partitions.forEach((tip, leads) -> (leads ? leaders : followers).add(tip));
            if (tell) {
                node.onPartitionLeadershipChanges(leaders, followers);
            } else {
                node.onStopPartitions(new HashSet<>(partitions.keySet()));
            }
        }
    }

    private static TopicManager configured(TopicManager topic) {
        if (topic == null) {
            throw new IllegalStateException("It was not configured");
        }
        return topic;
    }
}
