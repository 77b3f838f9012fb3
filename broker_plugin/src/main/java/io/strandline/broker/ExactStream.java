package io.strandline.broker;

import java.io.IOException;
import java.io.InputStream;

/**
 * Exactly the promised bytes of one answer. Where fewer come it throws: a broker takes the end of a
 * stream for the end of the segment and goes on behind it, or keeps half an index for good.
 */
final class ExactStream extends InputStream {
    /** Waiting for one answer's bytes takes no longer in all, however steadily they trickle. */
    private static final long WAITED_NANOS_MAX = 15_000_000_000L;

    private final NodeClient client;
    private final PluginStats stats;
    private final Call call;
    private final HttpAnswer answer;
    private long left;
    private long waitedNanos;
    private IOException broken;

    /** Takes the answer over, and closes it. */
    ExactStream(NodeClient client, PluginStats stats, Call call, HttpAnswer answer) {
        this.client = client;
        this.stats = stats;
        this.call = call;
        this.answer = answer;
        left = answer.length();
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] target, int offset, int wanted) throws IOException {
        if (broken != null) {
            throw new IOException(broken.getMessage(), broken);
        }
        if (wanted == 0) {
            return 0;
        }
        if (left == 0) {
            return -1;
        }
        Deadline deadline = call.deadline();
        try {
            int count = timed(target, offset, wanted, deadline);
            left -= count;
            stats.read(count);
            if (left == 0) {
                answer.close();
            }
            return count;
        } catch (IOException | RuntimeException e) {
            broken = client.failed(call, e, deadline);
            stats.streamBroke();
            answer.close();
            throw broken;
        }
    }

    /** Whether all bytes were read. */
    boolean ended() {
        return left == 0;
    }

    @Override
    public void close() {
        if (broken == null && left > 0) {
            broken = new IOException("The stream was closed");
        }
        answer.close();
    }

    private int timed(byte[] target, int offset, int wanted, Deadline deadline) throws IOException {
        long began = System.nanoTime();
        int count = answer.read(target, offset, wanted, deadline);
        waitedNanos += System.nanoTime() - began;
        if (count < 0) {
            throw NodeException.wrongAnswer("an end " + left + " bytes too early");
        }
        if (waitedNanos > WAITED_NANOS_MAX) {
            throw NodeException.timeout("The bytes come too slowly");
        }
        return count;
    }
}
