package io.strandline.suites;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.server.log.remote.metadata.storage.RemotePartitionMetadataStore;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/**
 * Kafka's metadata manager by type, ours by what it does, with one node behind it. Each change goes
 * to ours first, then to Kafka's store, whose calls its tests count; answers are ours. The node has
 * no broker, so the replicas that a test names are made here.
 */
public final class LedgerMetadataManager extends TopicBasedRemoteLogMetadataManager {
    private static final String OURS = "io.strandline.broker.StrandlineMetadataManager";
    private static final int READY_DEADLINE_S = 60;
    private static final int POLL_MS = 100;

    /** The leader epochs of the log that a test's segments are of; of the others only epoch 0. */
    private static final Map<String, List<String>> LEADER_EPOCHS =
            Map.of(
                    "testRemoteLogSegmentLifeCycle", List.of("0 0", "1 20", "2 80", "3 240", "4 370"),
                    "testRemotePartitionDeletion", List.of("0 0", "1 20", "2 50", "3 80"),
                    "testCacheListSegments", List.of("0 0", "1 301"));

    private final RemoteLogMetadataManager ours = Nodes.load(RemoteLogMetadataManager.class, OURS);
    private final RemotePartitionMetadataStore ledger;
    private final Path logDir;
    private final Nodes nodes;

    /** Starts the node. */
    public LedgerMetadataManager(RemotePartitionMetadataStore ledger) throws IOException {
        this.ledger = ledger;
        logDir = Files.createTempDirectory("log");
        Properties broker = new Properties();
        broker.put("node.id", "0");
        broker.put("log.dirs", logDir.toString());
        String clusterId = Uuid.randomUuid().toString();
        nodes = new Nodes(clusterId, List.of(broker), Nodes.WITHOUT_BROKERS);
        Map<String, Object> settings =
                Map.of("broker.id", 0, "cluster.id", clusterId, Nodes.NODE_URL, nodes.url(broker));
        ours.configure(settings);
    }

    /** A test configures it once more, with nothing. */
    @Override
    public void configure(Map<String, ?> settings) {}

    @Override
    public void onPartitionLeadershipChanges(
            Set<TopicIdPartition> leaders, Set<TopicIdPartition> followers) {
        for (TopicIdPartition tip : leaders) {
            makeReplica(tip);
            ledger.maybeLoadPartition(tip);
        }
        ours.onPartitionLeadershipChanges(leaders, followers);
        leaders.forEach(this::waitUntilReady);
    }

    private void makeReplica(TopicIdPartition tip) {
        List<String> epochs =
                StackWalker.getInstance()
                        .walk(
                                frames ->
                                        frames.map(frame -> LEADER_EPOCHS.get(frame.getMethodName()))
                                                .filter(found -> found != null)
                                                .findFirst())
                        .orElse(List.of("0 0"));
        Path replica = logDir.resolve(tip.topic() + "-" + tip.partition());
        String checkpoint = "0\n" + epochs.size() + "\n" + String.join("\n", epochs) + "\n";
        String metadata = "version: 0\ntopic_id: " + tip.topicId() + "\n";
        try {
            Files.createDirectory(replica);
            Files.writeString(replica.resolve("leader-epoch-checkpoint"), checkpoint);
            Files.writeString(replica.resolve("partition.metadata"), metadata);
            Files.createFile(replica.resolve("00000000000000000000.log"));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void waitUntilReady(TopicIdPartition tip) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(READY_DEADLINE_S);
        while (true) {
            try {
                ours.highestOffsetForEpoch(tip, 0);
                return;
            } catch (RetriableException e) {
                if (System.nanoTime() > end) {
                    throw e;
                }
                pause();
            } catch (RemoteStorageException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(POLL_MS);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public void onStopPartitions(Set<TopicIdPartition> partitions) {
        ours.onStopPartitions(partitions);
    }

    @Override
    public CompletableFuture<Void> addRemoteLogSegmentMetadata(RemoteLogSegmentMetadata segment)
            throws RemoteStorageException {
        return ours.addRemoteLogSegmentMetadata(segment)
                .thenRun(() -> ledger.handleRemoteLogSegmentMetadata(segment));
    }

    @Override
    public CompletableFuture<Void> updateRemoteLogSegmentMetadata(
            RemoteLogSegmentMetadataUpdate update) throws RemoteStorageException {
        return ours.updateRemoteLogSegmentMetadata(update)
                .thenRun(() -> ledger.handleRemoteLogSegmentMetadataUpdate(update));
    }

    @Override
    public CompletableFuture<Void> putRemotePartitionDeleteMetadata(
            RemotePartitionDeleteMetadata delete) throws RemoteStorageException {
        return ours.putRemotePartitionDeleteMetadata(delete)
                .thenRun(() -> ledger.handleRemotePartitionDeleteMetadata(delete));
    }

    @Override
    public Optional<RemoteLogSegmentMetadata> remoteLogSegmentMetadata(
            TopicIdPartition tip, int epoch, long offset) throws RemoteStorageException {
        return ours.remoteLogSegmentMetadata(tip, epoch, offset);
    }

    @Override
    public Optional<Long> highestOffsetForEpoch(TopicIdPartition tip, int epoch)
            throws RemoteStorageException {
        return ours.highestOffsetForEpoch(tip, epoch);
    }

    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tip)
            throws RemoteStorageException {
        return ours.listRemoteLogSegments(tip);
    }

    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tip, int epoch)
            throws RemoteStorageException {
        return ours.listRemoteLogSegments(tip, epoch);
    }

    @Override
    public void close() throws IOException {
        ours.close();
        nodes.close();
    }
}
