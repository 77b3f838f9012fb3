package io.strandline.broker;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongSupplier;

import javax.management.JMException;
import javax.management.ObjectName;

/** Counts what the plug-in does, for JMX. */
final class PluginStats implements PluginStatsMXBean {
    private static final Logger LOG = LoggerFactory.getLogger(PluginStats.class);

    private final ObjectName name;
    private final Map<Call, LongAdder> requests = new ConcurrentHashMap<>();
    private final Map<NodeException.Kind, LongAdder> failures = new ConcurrentHashMap<>();
    private final LongAdder refused = new LongAdder();
    private final LongAdder connections = new LongAdder();
    private final LongAdder bytes = new LongAdder();
    private final LongAdder broken = new LongAdder();
    private final LongAdder copied = new LongAdder();
    private final LongAdder unchanged = new LongAdder();
    private final LongAdder changed = new LongAdder();
    private volatile LongSupplier idle = () -> 0;
    private volatile LongSupplier seq = () -> -1;
    private volatile LongSupplier acknowledged = () -> -1;
    private volatile LongSupplier listBytes = () -> 0;
    private volatile LongSupplier pending = () -> 0;

    /** `type` is metadata or storage. */
    PluginStats(String type, int brokerId) {
        name = nameOf(type, brokerId);
    }

    /** Metrics that can't be had are no reason not to start. */
    void register() {
        try {
            ManagementFactory.getPlatformMBeanServer().registerMBean(this, name);
        } catch (JMException | RuntimeException e) {
            LOG.warn("No JMX metrics of Strandline's plug-in: {}", e.toString());
        }
    }

    void unregister() {
        try {
            ManagementFactory.getPlatformMBeanServer().unregisterMBean(name);
        } catch (JMException | RuntimeException e) {
            LOG.debug("{} was not registered", name);
        }
    }

    void watch(NodeClient client) {
        idle = client::idleConnections;
    }

    void watch(Session session, SegmentLists lists, LongSupplier changesPending) {
        seq = session::seq;
        acknowledged = session::acknowledgedSeq;
        listBytes = lists::bytesKept;
        pending = changesPending;
    }

    void asked(Call call) {
        requests.computeIfAbsent(call, any -> new LongAdder()).increment();
    }

    void failed(NodeException failure) {
        failures.computeIfAbsent(failure.kind(), any -> new LongAdder()).increment();
    }

    void refusedByBreaker() {
        refused.increment();
    }

    void connected() {
        connections.increment();
    }

    void read(int count) {
        bytes.add(count);
    }

    void streamBroke() {
        broken.increment();
    }

    void copied() {
        copied.increment();
    }

    void listUnchanged() {
        unchanged.increment();
    }

    void listChanged() {
        changed.increment();
    }

    @Override
    public Map<String, Long> getRequests() {
        Map<String, Long> found = new TreeMap<>();
        requests.forEach((call, count) -> found.put(call.word(), count.sum()));
        return found;
    }

    @Override
    public Map<String, Long> getFailures() {
        Map<String, Long> found = new TreeMap<>();
        failures.forEach(
                (kind, count) -> found.put(kind.name().toLowerCase(Locale.ROOT), count.sum()));
        return found;
    }

    @Override
    public long getRefusedByBreaker() {
        return refused.sum();
    }

    @Override
    public long getConnectionsOpened() {
        return connections.sum();
    }

    @Override
    public long getConnectionsIdle() {
        return idle.getAsLong();
    }

    @Override
    public long getBytesRead() {
        return bytes.sum();
    }

    @Override
    public long getStreamsBroken() {
        return broken.sum();
    }

    @Override
    public long getSegmentsCopied() {
        return copied.sum();
    }

    @Override
    public long getSessionSeq() {
        return seq.getAsLong();
    }

    @Override
    public long getSessionAcknowledgedSeq() {
        return acknowledged.getAsLong();
    }

    @Override
    public long getListBytesKept() {
        return listBytes.getAsLong();
    }

    @Override
    public long getListsUnchanged() {
        return unchanged.sum();
    }

    @Override
    public long getListsChanged() {
        return changed.sum();
    }

    @Override
    public long getChangesPending() {
        return pending.getAsLong();
    }

    private static ObjectName nameOf(String type, int brokerId) {
        try {
            return new ObjectName("io.strandline.broker:type=" + type + ",broker=" + brokerId);
        } catch (JMException e) {
            throw new IllegalStateException(e);
        }
    }
}
