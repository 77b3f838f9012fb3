package io.strandline.broker;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/** One segment's metadata as it goes over the wire; offsets are inclusive. */
record SegmentRow(
        RemoteLogSegmentId id,
        long startOffset,
        long endOffset,
        int brokerId,
        long maxTimestampMs,
        long eventTimestampMs,
        int sizeBytes,
        RemoteLogSegmentState state,
        boolean txnIndexEmpty,
        Map<Integer, Long> leaderEpochs,
        Optional<CustomMetadata> customMetadata) {

    /** The least bytes of a row: no epoch, no custom metadata. */
    static final int BYTES_MIN = 66;

    static final int EPOCH_BYTES = 12;

    static SegmentRow of(RemoteLogSegmentMetadata segment) {
        return new SegmentRow(
                segment.remoteLogSegmentId(),
                segment.startOffset(),
                segment.endOffset(),
                segment.brokerId(),
                segment.maxTimestampMs(),
                segment.eventTimestampMs(),
                segment.segmentSizeInBytes(),
                segment.state(),
                BrokerApi.txnIndexEmpty(segment),
                segment.segmentLeaderEpochs(),
                segment.customMetadata());
    }

    static SegmentRow read(ByteReader in, TopicIdPartition tip) throws NodeException {
        RemoteLogSegmentId id = new RemoteLogSegmentId(tip, in.uuid());
        long start = in.int64();
        long end = in.int64();
        int brokerId = in.int32();
        long maxTimestampMs = in.int64();
        long eventTimestampMs = in.int64();
        int size = in.int32();
        RemoteLogSegmentState state = stateOf(in.int8());
        boolean txnIndexEmpty = in.bool();
        Map<Integer, Long> epochs = new TreeMap<>();
        for (int left = in.count(EPOCH_BYTES); left > 0; left--) {
            epochs.put(in.int32(), in.int64());
        }
        Optional<CustomMetadata> custom = Optional.ofNullable(in.bytes()).map(CustomMetadata::new);
        return new SegmentRow(
                id,
                start,
                end,
                brokerId,
                maxTimestampMs,
                eventTimestampMs,
                size,
                state,
                txnIndexEmpty,
                epochs,
                custom);
    }

    /** Kafka's form; a row that Kafka's own checks refuse is a wrong answer. */
    RemoteLogSegmentMetadata toKafka() throws NodeException {
        try {
            return BrokerApi.segment(this);
        } catch (IllegalArgumentException e) {
            throw NodeException.wrongAnswer("a row that Kafka refuses: " + e.getMessage());
        }
    }

    void write(ByteWriter out) {
        out.uuid(id.id()).int64(startOffset).int64(endOffset).int32(brokerId);
        out.int64(maxTimestampMs).int64(eventTimestampMs).int32(sizeBytes);
        out.int8(state.id()).bool(txnIndexEmpty).int32(leaderEpochs.size());
        leaderEpochs.forEach((epoch, start) -> out.int32(epoch).int64(start));
        out.bytes(customMetadata.map(CustomMetadata::value).orElse(null));
    }

    private static RemoteLogSegmentState stateOf(int id) throws NodeException {
        RemoteLogSegmentState state = RemoteLogSegmentState.forId((byte) id);
        if (state == null) {
            throw NodeException.wrongAnswer("a segment state of " + id);
        }
        return state;
    }
}
