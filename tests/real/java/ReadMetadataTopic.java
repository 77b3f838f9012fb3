import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

/** Prints what Kafka's own metadata manager has of partitions: a line of JSON for each. */
public class ReadMetadataTopic {
  private static final long READY_MS = 20_000;
  private static final ObjectMapper JSON = new ObjectMapper();

  /**
   * Arguments: bootstrap, log dir, metadata partitions, number of leader epochs that are asked
   * about, 0 and up, then topic:topicId:partition ...
   */
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
    int epochs = Integer.parseInt(a[3]);
    Set<TopicIdPartition> tips = new HashSet<>();
    for (String each : Arrays.asList(a).subList(4, a.length)) {
      String[] p = each.split(":");
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
      System.out.println("PARTITION " + JSON.writeValueAsString(partition(m, t, epochs)));
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

  private static Map<String, Object> partition(
      TopicBasedRemoteLogMetadataManager m, TopicIdPartition t, int epochs) throws Exception {
    List<Object> rows = new ArrayList<>();
    List<Object> found = new ArrayList<>();
    for (Iterator<RemoteLogSegmentMetadata> s = m.listRemoteLogSegments(t); s.hasNext(); ) {
      RemoteLogSegmentMetadata x = s.next();
      rows.add(row(x));
      found.addAll(lookUps(m, t, x));
    }
    List<Object> byEpoch = new ArrayList<>();
    for (int epoch = 0; epoch < epochs; epoch++) {
      List<String> ids = new ArrayList<>();
      m.listRemoteLogSegments(t, epoch)
          .forEachRemaining(x -> ids.add(x.remoteLogSegmentId().id().toString()));
      byEpoch.add(Arrays.asList(epoch, ids, m.highestOffsetForEpoch(t, epoch).orElse(null)));
    }
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("topic", t.topic());
    told.put("partition", t.partition());
    told.put("rows", rows);
    told.put("epochs", byEpoch);
    told.put("found", found);
    return told;
  }

  /** The fields of a row in the order of KafkasSegment. */
  private static List<Object> row(RemoteLogSegmentMetadata x) {
    List<Object> epochs = new ArrayList<>();
    new TreeMap<>(x.segmentLeaderEpochs()).forEach((e, at) -> epochs.add(List.of(e, at)));
    Optional<byte[]> custom = x.customMetadata().map(CustomMetadata::value);
    return Arrays.asList(
        x.remoteLogSegmentId().id().toString(), x.state().name(), x.startOffset(), x.endOffset(),
        x.segmentSizeInBytes(), epochs, x.brokerId(), x.maxTimestampMs(), x.eventTimestampMs(),
        custom.orElse(null));
  }

  /** Epoch, offset and the segment found there, at the first and last offset of each epoch. */
  private static List<Object> lookUps(
      TopicBasedRemoteLogMetadataManager m, TopicIdPartition t, RemoteLogSegmentMetadata x)
      throws Exception {
    List<Object> found = new ArrayList<>();
    TreeMap<Integer, Long> epochs = new TreeMap<>(x.segmentLeaderEpochs());
    for (Map.Entry<Integer, Long> e : epochs.entrySet()) {
      Map.Entry<Integer, Long> next = epochs.higherEntry(e.getKey());
      long last = next == null ? x.endOffset() : next.getValue() - 1;
      for (long offset : new long[] {Math.max(e.getValue(), x.startOffset()), last}) {
        String id = m.remoteLogSegmentMetadata(t, e.getKey(), offset)
            .map(y -> y.remoteLogSegmentId().id().toString()).orElse(null);
        found.add(Arrays.asList(e.getKey(), offset, id));
      }
    }
    return found;
  }
}
