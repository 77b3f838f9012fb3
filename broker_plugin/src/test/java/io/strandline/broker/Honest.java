package io.strandline.broker;

import io.strandline.broker.FakeNode.Behaviour;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * The values of the golden files (tests/golden/broker_protocol/README.md says them in words), and
 * the right answers of a node that has them.
 */
final class Honest {
    static final Uuid TOPIC_ID = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L);
    static final Uuid SEGMENT_ID = new Uuid(0x1112131415161718L, 0x191a1b1c1d1e1f20L);
    static final Uuid SECOND_ID = new Uuid(0x2122232425262728L, 0x292a2b2c2d2e2f30L);
    static final Uuid THIRD_ID = new Uuid(0x4142434445464748L, 0x494a4b4c4d4e4f50L);
    static final Uuid SESSION_ID = new Uuid(0x3132333435363738L, 0x393a3b3c3d3e3f40L);
    static final TopicIdPartition TIP =
            new TopicIdPartition(TOPIC_ID, new TopicPartition("orders", 7));
    static final TopicIdPartition OTHER_TIP =
            new TopicIdPartition(TOPIC_ID, new TopicPartition("orders", 8));
    static final TopicIdPartition THIRD_TIP =
            new TopicIdPartition(TOPIC_ID, new TopicPartition("orders", 9));
    static final long APPLIED = 4711;
    static final int SIZE = 1_000;
    static final byte[] CUSTOM = {1, 2, 3};
    static final byte[] TAG = {9, 9};
    static final byte[] CURSOR = {5, 6, 7};

    private Honest() {}

    static SegmentRow row(RemoteLogSegmentState state, Optional<CustomMetadata> custom) {
        return new SegmentRow(
                new RemoteLogSegmentId(TIP, SEGMENT_ID),
                100,
                199,
                3,
                1_700_000_000_000L,
                1_700_000_000_500L,
                SIZE,
                state,
                BrokerApi.hasTxnFlag(),
                new TreeMap<>(Map.of(0, 100L, 4, 150L)),
                custom);
    }

    static SegmentRow finishedRow() {
        return row(
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                Optional.of(new CustomMetadata(CUSTOM)));
    }

    static SegmentRow secondRow() {
        return new SegmentRow(
                new RemoteLogSegmentId(TIP, SECOND_ID),
                200,
                299,
                3,
                1_700_000_001_000L,
                1_700_000_001_500L,
                2_000,
                RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
                false,
                new TreeMap<>(Map.of(4, 200L)),
                Optional.empty());
    }

    static RemoteLogSegmentMetadata finished() throws NodeException {
        return finishedRow().toKafka();
    }

    static RemoteLogSegmentMetadata started() throws NodeException {
        return row(RemoteLogSegmentState.COPY_SEGMENT_STARTED, Optional.empty()).toKafka();
    }

    static RemoteLogSegmentMetadataUpdate update() {
        return new RemoteLogSegmentMetadataUpdate(
                new RemoteLogSegmentId(TIP, SEGMENT_ID),
                1_700_000_000_900L,
                Optional.of(new CustomMetadata(CUSTOM)),
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                3);
    }

    static RemotePartitionDeleteMetadata deletePartition() {
        return new RemotePartitionDeleteMetadata(
                TIP, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, 1_700_000_000_900L, 3);
    }

    static LogSegmentData files() {
        Path folder = Path.of("/var/lib/kafka/orders-7");
        return new LogSegmentData(
                folder.resolve("00000000000000000100.log"),
                folder.resolve("00000000000000000100.index"),
                folder.resolve("00000000000000000100.timeindex"),
                Optional.empty(),
                folder.resolve("00000000000000000200.snapshot"),
                ByteBuffer.wrap("0\n1\n0 100\n".getBytes(java.nio.charset.StandardCharsets.UTF_8)));
    }

    static Session.Announcement announcement() {
        return new Session.Announcement(2, 1, List.of(TIP), List.of(OTHER_TIP), List.of(THIRD_TIP));
    }

    static PluginConfig config(String url) {
        return PluginConfig.ofMetadata(metadataSettings(url));
    }

    static Map<String, Object> storageSettings(String url) {
        Map<String, Object> settings = new HashMap<>();
        settings.put(PluginConfig.NODE_URL, url);
        settings.put("broker.id", 3);
        return settings;
    }

    static Map<String, Object> metadataSettings(String url) {
        Map<String, Object> settings = storageSettings(url);
        settings.put("cluster.id", "kafka-cluster");
        settings.put("log.dir", "/var/lib/kafka");
        settings.put(
                "remote.log.metadata.common.client.bootstrap.servers", "broker-3.example:9092");
        return settings;
    }

    private static ByteWriter applied() {
        return new ByteWriter().int64(APPLIED);
    }

    static byte[] announced() {
        return applied().int32(3).int64(12).toBytes();
    }

    static byte[] ready() {
        return applied().bool(true).string("").toBytes();
    }

    static byte[] notReady() {
        return applied().bool(false).string("its claim is not held yet").toBytes();
    }

    static byte[] found() {
        ByteWriter out = applied().bool(true);
        finishedRow().write(out);
        return out.toBytes();
    }

    static byte[] none() {
        return applied().bool(false).toBytes();
    }

    static byte[] highest() {
        return applied().bool(true).int64(199).toBytes();
    }

    static byte[] page(byte[] cursor, SegmentRow... rows) {
        return page(TAG, cursor, rows);
    }

    static byte[] page(byte[] tag, byte[] cursor, SegmentRow... rows) {
        ByteWriter out = applied().bytes(tag).bool(false).int32(rows.length);
        for (SegmentRow row : rows) {
            row.write(out);
        }
        return out.bytes(cursor).toBytes();
    }

    static byte[] changes(byte[] tag, List<Uuid> gone, SegmentRow... rows) {
        ByteWriter out = applied().bytes(tag).int8(2).int32(gone.size());
        gone.forEach(out::uuid);
        out.int32(rows.length);
        for (SegmentRow row : rows) {
            row.write(out);
        }
        return out.toBytes();
    }

    static byte[] same() {
        return applied().bytes(TAG).bool(true).toBytes();
    }

    static byte[] done() {
        return applied().toBytes();
    }

    static byte[] phase(Phase phase, long since) {
        return applied().int8(phase.ordinal()).int64(since).toBytes();
    }

    static final byte SEND_FILES = 3;

    /** The stream of a copy without its chunks. */
    static byte[] copied() {
        return new ByteWriter().int8(0).int8(0).int8(1).bytes(CUSTOM).toBytes();
    }

    static byte[] copiedFromFiles() {
        return new ByteWriter().int8(0).int8(SEND_FILES).raw(copied()).toBytes();
    }

    static byte[] copyFailed() {
        return new ByteWriter()
                .int8(0)
                .int8(2)
                .string("retry_later")
                .string("SLOW_STORE")
                .string("the store is slow")
                .toBytes();
    }

    /** The byte at a position of the segment. */
    static byte at(long position) {
        return (byte) (position * 31 + position / 251);
    }

    static byte[] bytes(long start, long end) {
        byte[] bytes = new byte[(int) (end - start)];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = at(start + i);
        }
        return bytes;
    }

    /** A fetch of a segment of so many bytes, at the range that is asked for. */
    static Behaviour fetch(long segmentBytes) {
        return (request, out) -> {
            ByteBuffer body = ByteBuffer.wrap(request.body());
            long start = body.getLong(request.body().length - 16);
            long end = body.getLong(request.body().length - 8);
            FakeNode.ok(bytes(start, end), "Strandline-Segment-Bytes: " + segmentBytes)
                    .answer(request, out);
        };
    }

    static Map<String, Behaviour> answers() {
        Map<String, Behaviour> all = new HashMap<>();
        all.put("announce", FakeNode.ok(announced()));
        all.put("ready", FakeNode.ok(ready()));
        all.put("lookup", FakeNode.ok(found()));
        all.put("highest", FakeNode.ok(highest()));
        all.put("list", FakeNode.ok(page(null, finishedRow(), secondRow())));
        all.put("add", FakeNode.ok(done()));
        all.put("update", FakeNode.ok(done()));
        all.put("delete-partition", FakeNode.ok(done()));
        all.put("delete", FakeNode.ok(done()));
        all.put("phase", FakeNode.ok(phase(Phase.KAFKA, -1)));
        all.put("fetch", fetch(SIZE));
        all.put("index", FakeNode.ok(bytes(0, 300)));
        all.put(
                "copy",
                FakeNode.okHead(
                        -1,
                        (request, out) -> {
                            for (byte each : copied()) {
                                FakeNode.chunk(out, new byte[] {each});
                            }
                            FakeNode.chunk(out, new byte[0]);
                        }));
        return all;
    }
}
