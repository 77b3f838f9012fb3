package io.strandline.broker;

/** A moment of the monotonic clock by which something must be done. */
record Deadline(long atNanos) {
    private static final long NANOS_PER_MS = 1_000_000;

    static Deadline afterMs(long ms) {
        return new Deadline(System.nanoTime() + ms * NANOS_PER_MS);
    }

    boolean passed() {
        return atNanos - System.nanoTime() <= 0;
    }

    /** Milliseconds left, at least 1; a timeout where none is left. */
    int remainingMs() throws NodeException {
        long nanos = atNanos - System.nanoTime();
        if (nanos <= 0) {
            throw NodeException.timeout("No answer in time");
        }
        return (int) Math.min(Integer.MAX_VALUE, nanos / NANOS_PER_MS + 1);
    }
}
