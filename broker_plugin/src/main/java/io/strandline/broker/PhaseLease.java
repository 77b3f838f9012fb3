package io.strandline.broker;

import io.strandline.broker.Phase.Side;

/**
 * What the broker may do now, by the last phase that the node told. An answer is a lease of 10 s
 * from when it was asked for: whoever moves the truth waits for that long, and need not hear a
 * broker that died. Without a fresh answer nothing is changed, on either side. Reads no clock: all
 * moments are of one monotonic clock, in nanoseconds.
 */
final class PhaseLease {
    static final long LEASE_NANOS = 10_000_000_000L;

    /** So long a change of the topic counts as under way after it failed: it may still arrive. */
    static final long SETTLES_NANOS = 15_000_000_000L;

    /** No phase was heard yet. */
    static final int NONE = -1;

    /** A change that may be made, and how often the lease had lapsed by then. */
    record Change(Side side, long lapses) {}

    private Phase phase;
    private long since;
    private long askedNanos;
    private long lapses;
    private int atTopic;
    private boolean settling;
    private long failedNanos;

    /**
     * Take an answer that was asked for at `asked` and came at `now`. False for one from before
     * what was heard already, or against it: it is no lease.
     */
    synchronized boolean heard(Phase told, long toldSince, long asked, long now) {
        boolean known = phase != null;
        boolean older = known && toldSince < since;
        boolean other = known && toldSince == since && told != phase;
        if (older || other || (known && asked - askedNanos < 0)) {
            return false;
        }
        if (!isFresh(now)) {
            lapses++;
        }
        phase = told;
        since = toldSince;
        askedNanos = asked;
        return true;
    }

    /** Where look-ups go, also where the lease has lapsed; null before the first answer. */
    synchronized Side lookUps() {
        return phase == null ? null : phase.side();
    }

    /** Tasks of the broker may run: their changes would be accepted. */
    synchronized boolean isOpen(long now) {
        return isFresh(now) && phase.isOpen();
    }

    /** A change begins; null: it must not. One of the topic is outstanding until it `ended`. */
    synchronized Change begin(long now) {
        if (!isOpen(now)) {
            return null;
        }
        if (phase.side() == Side.TOPIC) {
            atTopic++;
        }
        return new Change(phase.side(), lapses);
    }

    /**
     * A change of the topic has its end. True if it is known to be in what a switch reads: the
     * lease held all the while, so nobody went on without hearing that nothing is outstanding.
     */
    synchronized boolean ended(Change change, boolean failed, long now) {
        atTopic--;
        if (failed) {
            settling = true;
            failedNanos = now;
        }
        return !failed && isFresh(now) && lapses == change.lapses();
    }

    /** Changes that may still come into the topic. Said together with the phase, it is true. */
    synchronized int outstanding(long now) {
        settling = settling && now - failedNanos < SETTLES_NANOS;
        return atTopic + (settling ? 1 : 0);
    }

    /** The number of the last phase heard, or NONE. */
    synchronized int seen() {
        return phase == null ? NONE : phase.ordinal();
    }

    /** Why changes wait, for the broker's log. */
    synchronized String why(long now) {
        if (phase == null) {
            return "The node has not told yet which phase the move from Kafka's topic is in";
        }
        return isFresh(now)
                ? "The move from Kafka's topic is in phase " + phase + ": changes wait for its end"
                : "The node has not confirmed the phase " + phase + " for 10 s";
    }

    private boolean isFresh(long now) {
        return phase != null && now - askedNanos < LEASE_NANOS;
    }
}
