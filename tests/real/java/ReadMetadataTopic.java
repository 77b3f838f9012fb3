import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/** Prints the rows that Kafka's own metadata manager has of partitions, and what it looks up. */
public class ReadMetadataTopic {
  private static final long READY_MS = 20_000;

  /** Arguments: bootstrap, log dir, metadata partitions, then topic:topicId:partition ... */
  public static void main(String[] a) throws Exception {
    Map<String, Object> c = new HashMap<>();
    c.put("remote.log.metadata.common.client.bootstrap.servers", a[0]);
    c.put("bootstrap.servers", a[0]);
    c.put("broker.id", "9");
    c.put("log.dir", a[1]);
    c.put("cluster.id", "c");
    c.put("remote.log.metadata.topic.num.partitions", a[2]);
    c.put("remote.log.metadata.topic.replication.factor", "1");
    c.put("remote.log.metadata.topic.min.isr", "1");
    Set<TopicIdPartition> tips = new HashSet<>();
    for (int i = 3; i < a.length; i++) {
      String[] p = a[i].split(":");
      TopicPartition named = new TopicPartition(p[0], Integer.parseInt(p[2]));
      tips.add(new TopicIdPartition(Uuid.fromString(p[1]), named));
    }
    TopicBasedRemoteLogMetadataManager m = new TopicBasedRemoteLogMetadataManager();
    m.configure(c);
    m.onPartitionLeadershipChanges(tips, Set.of());
    try {
      m.getClass().getMethod("onBrokerReady").invoke(m);
    } catch (NoSuchMethodException e) {
      // of an older version
    }
    long end = System.currentTimeMillis() + READY_MS;
    for (TopicIdPartition t : tips) {
      while (!isReady(m, t)) {
        if (System.currentTimeMillis() > end) {
          System.out.println("not ready: " + t);
          System.exit(1);
        }
        Thread.sleep(100);
      }
      print(m, t);
    }
    System.out.println("DONE");
    System.exit(0);
  }

  private static boolean isReady(TopicBasedRemoteLogMetadataManager m, TopicIdPartition t) {
    try {
      return m.isReady(t);
    } catch (RuntimeException e) {
      return false;
    }
  }

  private static void print(TopicBasedRemoteLogMetadataManager m, TopicIdPartition t)
      throws Exception {
    String where = t.topicPartition().topic() + " " + t.topicPartition().partition() + " ";
    for (Iterator<RemoteLogSegmentMetadata> s = m.listRemoteLogSegments(t); s.hasNext(); ) {
      RemoteLogSegmentMetadata x = s.next();
      TreeMap<Integer, Long> epochs = new TreeMap<>(x.segmentLeaderEpochs());
      String told = epochs.entrySet().stream()
          .map(e -> e.getKey() + "@" + e.getValue()).collect(Collectors.joining(","));
      System.out.println("ROW " + where + x.remoteLogSegmentId().id() + " " + x.state() + " "
          + x.startOffset() + " " + x.endOffset() + " " + x.segmentSizeInBytes() + " " + told);
      for (Map.Entry<Integer, Long> e : epochs.entrySet()) {
        Map.Entry<Integer, Long> next = epochs.higherEntry(e.getKey());
        long last = next == null ? x.endOffset() : next.getValue() - 1;
        for (long offset : new long[] {Math.max(e.getValue(), x.startOffset()), last}) {
          String found = m.remoteLogSegmentMetadata(t, e.getKey(), offset)
              .map(y -> y.remoteLogSegmentId().id().toString()).orElse("-");
          System.out.println("LOOK " + where + e.getKey() + " " + offset + " " + found);
        }
      }
    }
  }
}
