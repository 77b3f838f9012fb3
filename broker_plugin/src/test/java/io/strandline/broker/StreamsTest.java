package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** Segments, indexes and copies: exactly the promised bytes, or an exception. */
class StreamsTest {
    private static final int MIB = 1 << 20;
    private static final int FIRST = MIB + 64 * 1024;
    private static final int LARGE = 20 * MIB;

    private static RemoteLogSegmentMetadata large() throws NodeException {
        return sized(LARGE);
    }

    private static RemoteLogSegmentMetadata sized(int bytes) throws NodeException {
        SegmentRow row = Honest.finishedRow();
        return new SegmentRow(
                        row.id(),
                        row.startOffset(),
                        row.endOffset(),
                        row.brokerId(),
                        row.maxTimestampMs(),
                        row.eventTimestampMs(),
                        bytes,
                        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                        false,
                        row.leaderEpochs(),
                        Optional.empty())
                .toKafka();
    }

    private static List<Long> ranges(FakeNode node) {
        List<Long> sizes = new ArrayList<>();
        for (FakeNode.Request each : node.all("fetch")) {
            ByteBuffer body = ByteBuffer.wrap(each.body());
            int at = each.body().length - 16;
            sizes.add(body.getLong(at + 8) - body.getLong(at));
        }
        return sizes;
    }

    @Test
    void aSegmentIsReadInGrowingRangesOnOneConnection() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url()).announced()) {
            node.on("fetch", Honest.fetch(LARGE));
            int before = node.connections.get();
            try (InputStream in = plugin.storage.fetchLogSegment(large(), 5)) {
                assertArrayEquals(Honest.bytes(5, LARGE), in.readAllBytes());
                assertEquals(-1, in.read());
            }
            List<Long> sizes = ranges(node);
            assertEquals(List.of((long) FIRST, 2L * FIRST, 4L * FIRST), sizes.subList(0, 3));
            assertTrue(sizes.stream().allMatch(each -> each <= 8L * FIRST));
            assertEquals(1, node.connections.get() - before);
        }
    }

    /** The broker goes on to the next one. */
    @Test
    void aSegmentThatCompactionLeftWithoutAByteEndsAtOnce() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url()).announced()) {
            node.on("fetch", Honest.fetch(0));
            int before = node.connections.get();
            for (int i = 0; i < 2; i++) {
                try (InputStream in = plugin.storage.fetchLogSegment(sized(0), 0)) {
                    assertEquals(-1, in.read());
                }
            }
            assertEquals(1, node.connections.get() - before);
            assertThrows(
                    RemoteStorageException.class,
                    () -> plugin.storage.fetchLogSegment(sized(0), 1));
            node.on("fetch", Honest.fetch(1));
            assertThrows(Exception.class, () -> plugin.storage.fetchLogSegment(sized(0), 0));
        }
    }

    @Test
    void theNextRangeIsOnlyAskedForWhenItIsRead() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            node.on("fetch", Honest.fetch(LARGE));
            try (InputStream in = plugin.storage.fetchLogSegment(large(), 0)) {
                assertArrayEquals(Honest.bytes(0, FIRST), in.readNBytes(FIRST));
                assertEquals(1, node.count("fetch"));
                assertEquals(Honest.at(FIRST), (byte) in.read());
                assertEquals(2, node.count("fetch"));
            }
        }
    }

    @Test
    void aConnectionWhoseRestIsSmallIsUsedAgain() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            node.on("fetch", Honest.fetch(LARGE));
            InputStream in = plugin.storage.fetchLogSegment(large(), 0);
            in.readNBytes(MIB);
            in.close();
            assertThrows(IOException.class, () -> in.read(new byte[10]));
            // Half of a range is not read to its end for nobody.
            InputStream other = plugin.storage.fetchLogSegment(large(), 0);
            other.read();
            other.close();
        }
    }

    @Test
    void aRangeThatIsCutIsNeverTheEndOfTheSegment() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            node.on(
                    "fetch",
                    (request, out) -> {
                        if (node.count("fetch") == 1) {
                            Honest.fetch(LARGE).answer(request, out);
                            return;
                        }
                        FakeNode.thenClose(
                                        FakeNode.okHead(
                                                2L * FIRST,
                                                FakeNode.raw(new byte[1_000]),
                                                "Strandline-Segment-Bytes: " + LARGE))
                                .answer(request, out);
                    });
            InputStream in = plugin.storage.fetchLogSegment(large(), 0);
            IOException seen = assertThrows(IOException.class, in::readAllBytes);
            assertTrue(seen instanceof NodeException);
            for (int i = 0; i < 3; i++) {
                assertThrows(IOException.class, () -> in.read(new byte[10]));
            }
        }
    }

    @Test
    void anotherSizeThanTheMetadatasIsRefused() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            for (String told : new String[] {"1001", "999", "many", ""}) {
                node.on(
                        "fetch",
                        FakeNode.ok(
                                Honest.bytes(0, Honest.SIZE), "Strandline-Segment-Bytes: " + told));
                Throwable seen =
                        assertThrows(
                                Exception.class,
                                () -> plugin.storage.fetchLogSegment(Honest.finished(), 0));
                assertTrue(BrokerApiTest.isRetriable(seen), told + " makes " + seen);
            }
            // More or fewer bytes than were asked for.
            node.on(
                    "fetch",
                    FakeNode.ok(
                            Honest.bytes(0, Honest.SIZE),
                            "Strandline-Segment-Bytes: " + Honest.SIZE));
            assertThrows(
                    Exception.class,
                    () -> plugin.storage.fetchLogSegment(Honest.finished(), 10, 20));
        }
    }

    @Test
    void positionsOutsideOfTheSegmentAreTheCallersMistake() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            for (int start : new int[] {-1, Honest.SIZE, Honest.SIZE + 1}) {
                assertEquals(
                        RemoteStorageException.class,
                        assertThrows(
                                        Exception.class,
                                        () ->
                                                plugin.storage.fetchLogSegment(
                                                        Honest.finished(), start))
                                .getClass());
            }
            assertEquals(0, node.count("fetch"));
            try (InputStream in =
                    plugin.storage.fetchLogSegment(Honest.finished(), 0, Integer.MAX_VALUE)) {
                assertArrayEquals(Honest.bytes(0, Honest.SIZE), in.readAllBytes());
            }
        }
    }

    @Test
    void anIndexThatIsCutIsNoIndex() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            node.on("index", FakeNode.thenClose(FakeNode.okHead(300, FakeNode.raw(new byte[299]))));
            for (IndexType type : IndexType.values()) {
                InputStream in = plugin.storage.fetchIndex(Honest.finished(), type);
                assertThrows(IOException.class, in::readAllBytes);
            }
            assertEquals(
                    List.of(0, 1, 2, 3, 4),
                    node.all("index").stream()
                            .map(each -> (int) each.body()[each.body().length - 1])
                            .sorted()
                            .toList());
        }
    }

    @Test
    void aCopyGoesOnAsLongAsTheNodeSaysSo() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            node.on(
                    "copy",
                    FakeNode.okHead(
                            -1,
                            (request, out) -> {
                                for (int i = 0; i < 14; i++) {
                                    FakeNode.chunk(out, new byte[1]);
                                    Thread.sleep(1_000);
                                }
                                FakeNode.chunk(out, Honest.copied());
                                FakeNode.chunk(out, new byte[0]);
                            }));
            assertEquals(Spi.COPY.right(), Spi.COPY.call(plugin));
        }
    }

    @Test
    void aCopyWithoutOrWithTooMuchCustomMetadata() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            byte[] none = new ByteWriter().int8(1).bytes(null).toBytes();
            node.on("copy", FakeNode.ok(none));
            assertEquals(
                    Optional.empty(),
                    plugin.storage.copyLogSegmentData(Honest.started(), Honest.files()));
            byte[] much = new ByteWriter().int8(1).bytes(new byte[129]).toBytes();
            node.on("copy", FakeNode.ok(much));
            Throwable seen = assertThrows(Exception.class, () -> Spi.COPY.call(plugin));
            assertTrue(BrokerApiTest.isRetriable(seen), "a broker's task dies of it");
        }
    }

    @Test
    void aBrokerThatCancelsACopyEndsItAtOnce() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            CountDownLatch began = new CountDownLatch(1);
            CountDownLatch ended = new CountDownLatch(1);
            node.on(
                    "copy",
                    FakeNode.okHead(
                            -1,
                            (request, out) -> {
                                began.countDown();
                                try {
                                    while (true) {
                                        FakeNode.chunk(out, new byte[1]);
                                        Thread.sleep(50);
                                    }
                                } finally {
                                    ended.countDown();
                                }
                            }));
            AtomicReference<Throwable> seen = new AtomicReference<>();
            Thread copying =
                    new Thread(
                            () -> {
                                try {
                                    Spi.COPY.call(plugin);
                                } catch (Throwable e) {
                                    seen.set(e);
                                }
                            });
            copying.start();
            assertTrue(began.await(20, TimeUnit.SECONDS));
            copying.interrupt();
            copying.join(5_000);
            assertFalse(copying.isAlive());
            assertTrue(BrokerApiTest.isRetriable(seen.get()), "the broker sees " + seen.get());
            assertTrue(ended.await(20, TimeUnit.SECONDS), "the node hears that nobody waits");
        }
    }

    @Test
    void bytesThatTrickleAreGivenUp() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            node.on("index", FakeNode.okHead(10_000, FakeNode.drip(new byte[10_000], 1_000)));
            long began = System.nanoTime();
            InputStream in = plugin.storage.fetchIndex(Honest.finished(), IndexType.TRANSACTION);
            assertThrows(IOException.class, in::readAllBytes);
            assertTrue(System.nanoTime() - began < 40_000_000_000L);
        }
    }
}
