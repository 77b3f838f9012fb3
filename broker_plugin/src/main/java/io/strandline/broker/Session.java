package io.strandline.broker;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The partitions that the broker leads or follows, and how much of that the node was told. The
 * broker's callbacks only write here; the announcer sends it, and calls wait until it was heard.
 */
final class Session {
    /** Announce everything, not the change to what was announced before. */
    static final long WHOLE_SET = -1;

    private static final long NEVER = -1;

    /** However long the topics' names are, so many fit into the 1 MiB that a node reads. */
    private static final int PARTITIONS_OF_ONE_MAX = 3_500;

    /** The broker's part in a partition. */
    enum Role {
        LEADER,
        FOLLOWER,
        /** No longer here; kept until the node was told. */
        STOPPED
    }

    private record Change(Role role, long seq) {}

    /** Sets to announce: the whole (`base` is WHOLE_SET), or what changed since `base`. */
    record Announcement(
            long seq,
            long base,
            List<TopicIdPartition> leaders,
            List<TopicIdPartition> followers,
            List<TopicIdPartition> stopped) {

        Announcement(long seq, long base) {
            this(seq, base, new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
        }

        private int size() {
            return leaders.size() + followers.size() + stopped.size();
        }

        private List<TopicIdPartition> of(Role role) {
            if (role == Role.LEADER) {
                return leaders;
            }
            return role == Role.FOLLOWER ? followers : stopped;
        }
    }

    private final Uuid id = Uuid.randomUuid();
    private final Map<TopicIdPartition, Change> partitions = new LinkedHashMap<>();

    /** Counts the changes; 0: the broker has not said anything yet. */
    private long seq;

    private long acknowledged = NEVER;

    /** Why the last announcement failed, or null. */
    private NodeException failure;

    private boolean closed;

    Uuid id() {
        return id;
    }

    synchronized long seq() {
        return seq;
    }

    synchronized long acknowledgedSeq() {
        return acknowledged;
    }

    synchronized void leadershipChanged(
            Collection<TopicIdPartition> leaders, Collection<TopicIdPartition> followers) {
        seq++;
        leaders.forEach(tip -> partitions.put(tip, new Change(Role.LEADER, seq)));
        followers.forEach(tip -> partitions.put(tip, new Change(Role.FOLLOWER, seq)));
        notifyAll();
    }

    synchronized void stopped(Collection<TopicIdPartition> tips) {
        seq++;
        tips.forEach(tip -> partitions.put(tip, new Change(Role.STOPPED, seq)));
        notifyAll();
    }

    /** Wait until there is something that the node was not told, or until it is time to tell it. */
    synchronized void awaitNews(long ms) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
        while (!closed && (seq == 0 || seq == acknowledged)) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                return;
            }
            TimeUnit.NANOSECONDS.timedWait(this, left);
        }
    }

    /**
     * What to announce: in order, and heard only when all are. Parts of a set that is too large for
     * one request follow as changes, with numbers of their own. None while the broker said nothing.
     */
    synchronized List<Announcement> announcements() {
        List<Announcement> parts = new ArrayList<>();
        if (seq == 0) {
            return parts;
        }
        long base = acknowledged == NEVER ? WHOLE_SET : acknowledged;
        Announcement part = new Announcement(seq, base);
        parts.add(part);
        for (Map.Entry<TopicIdPartition, Change> each : partitions.entrySet()) {
            Change change = each.getValue();
            boolean told = base == WHOLE_SET ? change.role == Role.STOPPED : change.seq <= base;
            if (told) {
                continue;
            }
            if (part.size() == PARTITIONS_OF_ONE_MAX) {
                part = new Announcement(++seq, part.seq);
                parts.add(part);
            }
            part.of(change.role).add(each.getKey());
        }
        return parts;
    }

    /** The node has heard everything up to this number. */
    synchronized void acknowledged(long heard) {
        acknowledged = Math.max(acknowledged, heard);
        failure = null;
        partitions.values().removeIf(each -> each.role == Role.STOPPED && each.seq <= heard);
        notifyAll();
    }

    /**
     * The node knows nothing (any more) of what was told up to this number. What is told now has a
     * number of its own, above those of all calls that were made before.
     */
    synchronized void forgotten(long told) {
        if (acknowledged != NEVER && acknowledged <= told) {
            acknowledged = NEVER;
            seq++;
            notifyAll();
        }
    }

    /** The announcement failed: until one is heard nobody waits for it. */
    synchronized void unheard(NodeException why) {
        failure = why;
        notifyAll();
    }

    /** What the node has heard, once it is up to this number. Never waits where that fails. */
    synchronized long awaitHeard(long wanted, Deadline deadline)
            throws NodeException, InterruptedException {
        while (acknowledged < wanted) {
            if (closed || failure != null || deadline.passed()) {
                throw unannounced();
            }
            wait(deadline.remainingMs());
        }
        return acknowledged;
    }

    private NodeException unannounced() {
        String why = failure == null ? "" : ": " + failure.getMessage();
        return new NodeException(
                NodeException.Kind.RETRY_LATER,
                "ANNOUNCE",
                "The node was not told yet which partitions this broker has" + why,
                failure);
    }

    synchronized void close() {
        closed = true;
        notifyAll();
    }
}
