package io.strandline.broker;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;

/** In the place of Kafka's own manager: an answer of its own, and futures that a test ends. */
public final class KafkaStub implements RemoteLogMetadataManager {
    /** As the highest offset, which tells its answers from the node's. */
    static final long HIGHEST = 77;

    final List<CompletableFuture<Void>> changes = new CopyOnWriteArrayList<>();
    final Set<TopicIdPartition> partitions = Collections.synchronizedSet(new HashSet<>());
    volatile Exception problem;
    volatile boolean configured;
    volatile boolean brokerReady;
    volatile boolean closed;

    private void check() throws RemoteStorageException {
        if (problem instanceof RemoteStorageException known) {
            throw known;
        }
        if (problem != null) {
            throw (RuntimeException) problem;
        }
    }

    private CompletableFuture<Void> change() throws RemoteStorageException {
        check();
        changes.add(new CompletableFuture<>());
        return changes.get(changes.size() - 1);
    }

    @Override
    public CompletableFuture<Void> addRemoteLogSegmentMetadata(RemoteLogSegmentMetadata segment)
            throws RemoteStorageException {
        return change();
    }

    @Override
    public CompletableFuture<Void> updateRemoteLogSegmentMetadata(
            RemoteLogSegmentMetadataUpdate update) throws RemoteStorageException {
        return change();
    }

    @Override
    public CompletableFuture<Void> putRemotePartitionDeleteMetadata(
            RemotePartitionDeleteMetadata delete) throws RemoteStorageException {
        return change();
    }

    @Override
    public Optional<RemoteLogSegmentMetadata> remoteLogSegmentMetadata(
            TopicIdPartition tip, int epoch, long offset) throws RemoteStorageException {
        check();
        return Optional.empty();
    }

    /** As of 4.0. */
    public Optional<RemoteLogSegmentMetadata> nextSegmentWithTxnIndex(
            TopicIdPartition tip, int epoch, long offset) throws RemoteStorageException {
        check();
        return Optional.empty();
    }

    @Override
    public Optional<Long> highestOffsetForEpoch(TopicIdPartition tip, int epoch)
            throws RemoteStorageException {
        check();
        return Optional.of(HIGHEST);
    }

    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tip)
            throws RemoteStorageException {
        check();
        return Collections.emptyIterator();
    }

    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tip, int epoch)
            throws RemoteStorageException {
        check();
        return Collections.emptyIterator();
    }

    @Override
    public long remoteLogSize(TopicIdPartition tip, int epoch) throws RemoteStorageException {
        check();
        return 0;
    }

    /** As of 4.0. */
    public boolean isReady(TopicIdPartition tip) {
        return configured;
    }

    /** As of 4.2. */
    public void onBrokerReady() {
        brokerReady = configured;
    }

    @Override
    public void onPartitionLeadershipChanges(
            Set<TopicIdPartition> leaders, Set<TopicIdPartition> followers) {
        partitions.addAll(leaders);
        partitions.addAll(followers);
    }

    @Override
    public void onStopPartitions(Set<TopicIdPartition> stopped) {
        partitions.removeAll(stopped);
    }

    @Override
    public void configure(Map<String, ?> settings) {
        configured = settings.keySet().stream().noneMatch(name -> name.startsWith("strandline."));
    }

    @Override
    public void close() {
        closed = true;
    }
}
