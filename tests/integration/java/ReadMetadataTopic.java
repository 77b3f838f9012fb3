import java.util.*;
import org.apache.kafka.common.*;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.*;
/** Prints the rows that Kafka's own metadata manager has of the given partitions. */
public class ReadMetadataTopic {
  public static void main(String[] a) throws Exception {
    // bootstrap, log dir, metadata partitions, then topic:topicId:partition ...
    Map<String,Object> c = new HashMap<>();
    c.put("remote.log.metadata.common.client.bootstrap.servers", a[0]);
    c.put("bootstrap.servers", a[0]);
    c.put("broker.id", "9"); c.put("log.dir", a[1]); c.put("cluster.id", "c");
    c.put("remote.log.metadata.topic.num.partitions", a[2]);
    c.put("remote.log.metadata.topic.replication.factor", "1");
    c.put("remote.log.metadata.topic.min.isr", "1");
    Set<TopicIdPartition> tips = new HashSet<>();
    for (int i = 3; i < a.length; i++) { String[] p = a[i].split(":");
      tips.add(new TopicIdPartition(Uuid.fromString(p[1]), new TopicPartition(p[0], Integer.parseInt(p[2])))); }
    TopicBasedRemoteLogMetadataManager m = new TopicBasedRemoteLogMetadataManager();
    m.configure(c);
    m.onPartitionLeadershipChanges(tips, Set.of());
    try { java.lang.reflect.Method r = m.getClass().getMethod("onBrokerReady"); r.invoke(m); } catch (NoSuchMethodException e) { }
    long end = System.currentTimeMillis() + 20000;
    for (TopicIdPartition t : tips) {
      while (true) {
        try { if (m.isReady(t)) break; } catch (RuntimeException e) { }
        if (System.currentTimeMillis() > end) { System.out.println("not ready: " + t); System.exit(1); }
        Thread.sleep(100);
      }
      for (Iterator<RemoteLogSegmentMetadata> s = m.listRemoteLogSegments(t); s.hasNext(); ) { RemoteLogSegmentMetadata x = s.next();
        System.out.println("ROW " + t.topicPartition().partition() + " " + x.remoteLogSegmentId().id() + " " + x.state() + " " + x.startOffset() + " " + x.endOffset()); }
    }
    System.out.println("DONE"); System.exit(0);
  }
}
