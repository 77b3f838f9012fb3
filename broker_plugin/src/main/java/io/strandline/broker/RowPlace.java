package io.strandline.broker;

import org.apache.kafka.common.Uuid;

/**
 * A row's place in a list: the epoch that it is listed under, its first offset there, its id. Lists
 * of the node ascend by it.
 */
record RowPlace(int epoch, long start, Uuid id) implements Comparable<RowPlace> {
    private static final int BETWEEN_END_AND_EPOCHS = 4 + 8 + 8 + 4 + 1 + 1;

    /** Reads over a row of the list of an epoch, or of ALL_EPOCHS: there its lowest one counts. */
    static RowPlace read(ByteReader in, int asked) throws NodeException {
        Uuid id = in.uuid();
        long start = in.int64();
        long end = in.int64();
        in.skip(BETWEEN_END_AND_EPOCHS);
        RowPlace found = null;
        int left = in.count(SegmentRow.EPOCH_BYTES);
        int epoch = left > 0 ? in.int32() : 0;
        long from = left > 0 ? in.int64() : 0;
        for (; left > 0; left--) {
            int next = left > 1 ? in.int32() : 0;
            long nextFrom = left > 1 ? in.int64() : Long.MAX_VALUE;
            long first = Math.max(from, start);
            boolean wanted = asked == Bodies.ALL_EPOCHS || asked == epoch;
            if (found == null && wanted && first <= end && first < nextFrom) {
                found = new RowPlace(epoch, first, id);
            }
            epoch = next;
            from = nextFrom;
        }
        in.skip(Math.max(in.int32(), 0));
        if (found == null) {
            throw NodeException.wrongAnswer("a row that holds nothing of epoch " + asked);
        }
        return found;
    }

    @Override
    public int compareTo(RowPlace other) {
        int order = Integer.compare(epoch, other.epoch);
        order = order != 0 ? order : Long.compare(start, other.start);
        order = order != 0 ? order : compare(id, other.id, true);
        return order != 0 ? order : compare(id, other.id, false);
    }

    /** Ids compare as their bytes do. */
    private static int compare(Uuid one, Uuid other, boolean high) {
        return high
                ? Long.compareUnsigned(one.getMostSignificantBits(), other.getMostSignificantBits())
                : Long.compareUnsigned(
                        one.getLeastSignificantBits(), other.getLeastSignificantBits());
    }
}
