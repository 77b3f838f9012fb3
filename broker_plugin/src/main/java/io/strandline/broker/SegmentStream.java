package io.strandline.broker;

import java.io.IOException;
import java.io.InputStream;

/**
 * The bytes of a segment from a position up to an end, asked for in ranges: the first fits one
 * fetch of a consumer, each next one is twice as large and only asked for when it is read.
 */
final class SegmentStream extends InputStream {
    private static final long RANGE_BYTES_FIRST = (1 << 20) + (64 << 10);
    private static final long RANGE_BYTES_MAX = 8 * RANGE_BYTES_FIRST;

    private final NodeClient client;
    private final PluginStats stats;
    private final byte[] segment;
    private final long segmentBytes;
    private final long end;
    private long position;
    private long rangeBytes = RANGE_BYTES_FIRST;
    private ExactStream range;

    /**
     * `segment` is the partition and row as they go over the wire. The first range is asked here.
     */
    SegmentStream(
            NodeClient client,
            PluginStats stats,
            byte[] segment,
            long segmentBytes,
            long start,
            long end)
            throws NodeException {
        this.client = client;
        this.stats = stats;
        this.segment = segment;
        this.segmentBytes = segmentBytes;
        this.end = end;
        position = start;
        range = open();
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] target, int offset, int wanted) throws IOException {
        if (wanted == 0) {
            return 0;
        }
        if (position == end) {
            return -1;
        }
        if (range.ended()) {
            rangeBytes = Math.min(RANGE_BYTES_MAX, rangeBytes * 2);
            range = open();
        }
        int count = range.read(target, offset, wanted);
        position += count;
        return count;
    }

    @Override
    public void close() {
        range.close();
    }

    private ExactStream open() throws NodeException {
        long until = Math.min(end, position + rangeBytes);
        byte[] body = Bodies.fetch(segment, position, until);
        Deadline deadline = Call.FETCH.deadline();
        HttpAnswer answer = client.open(Call.FETCH, null, body, deadline);
        String told = answer.header("strandline-segment-bytes");
        boolean fits = answer.length() == until - position;
        if (!fits || !Long.toString(segmentBytes).equals(told)) {
            answer.close();
            throw client.failed(
                    Call.FETCH,
                    NodeException.wrongAnswer(
                            String.format(
                                    "%d of the bytes [%d, %d), and %s for a segment of %d",
                                    answer.length(), position, until, told, segmentBytes)),
                    deadline);
        }
        return new ExactStream(client, stats, Call.FETCH, answer);
    }
}
