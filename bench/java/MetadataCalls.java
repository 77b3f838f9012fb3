import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/**
 * {@code MetadataCalls time|fill CLASS JAR TOPIC TOPIC_ID COUNT [SETTING=VALUE]...}: adds and
 * finishes segments of one offset each through a RemoteLogMetadataManager, as a broker would.
 * {@code time} prints for each the nanoseconds from the add until a look-up finds it; {@code fill}
 * waits only at the end.
 */
public final class MetadataCalls {
    private static final int BROKER = 1;
    private static final int PENDING_MAX = 2_000;
    private static final int READY_MS = 60_000;

    private final RemoteLogMetadataManager manager;
    private final TopicIdPartition tip;

    private MetadataCalls(RemoteLogMetadataManager manager, TopicIdPartition tip) {
        this.manager = manager;
        this.tip = tip;
    }

    /** See the class. */
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("broker.id", BROKER));
        for (int at = 6; at < args.length; at++) {
            String[] parts = args[at].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        ClassLoader loader = MetadataCalls.class.getClassLoader();
        if (!args[2].isEmpty()) {
            loader = new URLClassLoader(new URL[] {Path.of(args[2]).toUri().toURL()}, loader);
        }
        RemoteLogMetadataManager manager =
                (RemoteLogMetadataManager)
                        Class.forName(args[1], true, loader).getDeclaredConstructor().newInstance();
        manager.configure(settings);
        try { // Kafka's own begins then
            manager.getClass().getMethod("onBrokerReady").invoke(manager);
        } catch (NoSuchMethodException e) {
            // ours does not ask for it
        }
        TopicIdPartition tip =
                new TopicIdPartition(Uuid.fromString(args[4]), new TopicPartition(args[3], 0));
        manager.onPartitionLeadershipChanges(Set.of(tip), Set.of());
        MetadataCalls calls = new MetadataCalls(manager, tip);
        calls.waitUntilReady();
        int count = Integer.parseInt(args[5]);
        if (args[0].equals("fill")) {
            calls.fill(count);
        } else {
            for (int offset = 0; offset < count; offset++) {
                System.out.println("took " + calls.timed(offset));
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // a manager's threads need not end
    }

    private void waitUntilReady() throws Exception {
        long end = System.currentTimeMillis() + READY_MS;
        while (true) {
            try {
                manager.highestOffsetForEpoch(tip, 0);
                return;
            } catch (RetriableException | IllegalStateException e) {
                if (System.currentTimeMillis() > end) {
                    throw e;
                }
                Thread.sleep(20);
            }
        }
    }

    private RemoteLogSegmentMetadata started(long offset) {
        return new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(tip, Uuid.randomUuid()),
                offset,
                offset,
                System.currentTimeMillis(),
                BROKER,
                System.currentTimeMillis(),
                1_000,
                Map.of(0, offset));
    }

    private RemoteLogSegmentMetadataUpdate finished(RemoteLogSegmentMetadata segment) {
        return new RemoteLogSegmentMetadataUpdate(
                segment.remoteLogSegmentId(),
                System.currentTimeMillis(),
                Optional.empty(),
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                BROKER);
    }

    private long timed(long offset) throws Exception {
        RemoteLogSegmentMetadata segment = started(offset);
        long began = System.nanoTime();
        manager.addRemoteLogSegmentMetadata(segment).get();
        manager.updateRemoteLogSegmentMetadata(finished(segment)).get();
        while (manager.remoteLogSegmentMetadata(tip, 0, offset).isEmpty()) {
            Thread.sleep(0, 100_000);
        }
        return System.nanoTime() - began;
    }

    private void fill(int count) throws Exception {
        Semaphore room = new Semaphore(PENDING_MAX);
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (int offset = 0; offset < count; offset++) {
            room.acquire();
            RemoteLogSegmentMetadata segment = started(offset);
            all.add(manager.addRemoteLogSegmentMetadata(segment));
            CompletableFuture<Void> last =
                    manager.updateRemoteLogSegmentMetadata(finished(segment));
            all.add(last.whenComplete((nothing, error) -> room.release()));
        }
        CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get();
    }
}
