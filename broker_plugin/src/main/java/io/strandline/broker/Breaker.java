package io.strandline.broker;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Spares callers the wait for a node that hangs: after a timeout calls are refused for a second,
 * then one is let through each second until one is answered.
 */
final class Breaker {
    private static final long HOLD_NANOS = 1_000_000_000L;

    private final AtomicLong closedUntilNanos = new AtomicLong();
    private volatile boolean tripped;

    boolean refuses() {
        if (!tripped) {
            return false;
        }
        long now = System.nanoTime();
        long until = closedUntilNanos.get();
        return now - until < 0 || !closedUntilNanos.compareAndSet(until, now + HOLD_NANOS);
    }

    void timedOut() {
        closedUntilNanos.set(System.nanoTime() + HOLD_NANOS);
        tripped = true;
    }

    void answered() {
        tripped = false;
    }
}
