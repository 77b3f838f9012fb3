package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.strandline.broker.Session.Announcement;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.junit.jupiter.api.Test;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;

/** What the node is told of the broker's partitions, when, and who waits for it. */
class SessionTest {
    private static Announcement only(Session session) {
        List<Announcement> parts = session.announcements();
        assertEquals(1, parts.size());
        return parts.get(0);
    }

    @Test
    void nothingIsSaidBeforeTheBrokerSaysSomething() {
        assertEquals(List.of(), new Session().announcements());
    }

    @Test
    void theWholeSetGoesFirstAndThenWhatChanged() {
        Session session = new Session();
        session.leadershipChanged(Set.of(Honest.TIP), Set.of(Honest.OTHER_TIP));
        Announcement whole = only(session);
        assertEquals(Session.WHOLE_SET, whole.base());
        assertEquals(List.of(Honest.TIP), whole.leaders());
        assertEquals(List.of(Honest.OTHER_TIP), whole.followers());
        session.acknowledged(whole.seq());

        session.leadershipChanged(Set.of(Honest.OTHER_TIP), Set.of());
        session.stopped(Set.of(Honest.TIP));
        Announcement change = only(session);
        assertEquals(1, change.base());
        assertEquals(3, change.seq());
        assertEquals(List.of(Honest.OTHER_TIP), change.leaders());
        assertEquals(List.of(Honest.TIP), change.stopped());
        session.acknowledged(3);
        assertEquals(new Announcement(3, 3), only(session), "a sign of life has no partitions");

        session.forgotten(3);
        Announcement anew = only(session);
        assertEquals(Session.WHOLE_SET, anew.base());
        assertEquals(List.of(Honest.OTHER_TIP), anew.leaders());
        assertEquals(List.of(), anew.stopped());
        assertEquals(4, anew.seq(), "above all calls that were made before");
    }

    @Test
    void aChangeDuringAnAnnouncementIsInTheNext() {
        Session session = new Session();
        session.leadershipChanged(Set.of(Honest.TIP), Set.of());
        Announcement sent = only(session);
        session.stopped(Set.of(Honest.TIP));
        session.acknowledged(sent.seq());
        assertEquals(List.of(Honest.TIP), only(session).stopped());
        assertTrue(session.acknowledgedSeq() < session.seq());
    }

    @Test
    void aSetTooLargeForOneRequestGoesInParts() {
        Set<TopicIdPartition> many = new HashSet<>();
        for (int i = 0; i < 8_000; i++) {
            many.add(new TopicIdPartition(Honest.TOPIC_ID, new TopicPartition("t".repeat(249), i)));
        }
        Session session = new Session();
        session.leadershipChanged(many, Set.of());
        List<Announcement> parts = session.announcements();
        List<TopicIdPartition> told = new ArrayList<>();
        long base = Session.WHOLE_SET;
        for (Announcement part : parts) {
            assertEquals(base, part.base());
            base = part.seq();
            told.addAll(part.leaders());
            byte[] body =
                    Bodies.announce(
                            Honest.config("http://127.0.0.1:1"),
                            new Bodies.Versions("0", "0"),
                            session.id(),
                            part);
            assertTrue(body.length < 1 << 20, body.length + " bytes");
        }
        assertEquals(3, parts.size());
        assertEquals(many.size(), told.size());
        assertEquals(many, new HashSet<>(told));
        session.acknowledged(base);
        assertEquals(base, session.seq());
    }

    @Test
    void aNodeThatForgotHearsTheWholeSetAndTheCallGoesThrough() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url()).announced()) {
            long before = node.count("announce");
            AtomicBoolean knows = new AtomicBoolean();
            node.on(
                    "announce",
                    (request, out) -> {
                        knows.set(true);
                        FakeNode.ok(Honest.announced()).answer(request, out);
                    });
            node.on(
                    "highest",
                    (request, out) -> {
                        (knows.get()
                                        ? FakeNode.ok(Honest.highest())
                                        : FakeNode.error(503, "retry_later", "ANNOUNCE"))
                                .answer(request, out);
                    });
            assertEquals(199L, tried(plugin));
            assertTrue(node.count("announce") > before);
            FakeNode.Request last = node.all("announce").get((int) node.count("announce") - 1);
            assertEquals(Session.WHOLE_SET, baseOf(last));
        }
    }

    @Test
    void aChangeIsOfTheMomentOfItsCallHoweverLateItIsSent() throws Exception {
        CountDownLatch free = new CountDownLatch(1);
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url()).announced()) {
            node.on(
                    "update",
                    (request, out) -> {
                        free.await();
                        FakeNode.ok(Honest.done()).answer(request, out);
                    });
            node.on(
                    "add",
                    (request, out) ->
                            (node.count("add") == 1
                                            ? FakeNode.error(503, "retry_later", "ANNOUNCE")
                                            : FakeNode.ok(Honest.done()))
                                    .answer(request, out));
            for (int i = 0; i < ChangeQueue.THREADS_MAX; i++) {
                plugin.metadata.updateRemoteLogSegmentMetadata(Honest.update());
            }
            CompletableFuture<Void> added =
                    plugin.metadata.addRemoteLogSegmentMetadata(Honest.started());
            plugin.metadata.onPartitionLeadershipChanges(Set.of(Honest.TIP), Set.of());
            long later = Honest.APPLIED + 1;
            node.on(
                    "ready",
                    FakeNode.ok(new ByteWriter().int64(later).bool(true).string("").toBytes()));
            plugin.announced();
            assertFalse(added.isDone());
            free.countDown();
            added.get();
            List<FakeNode.Request> sent = node.all("add");
            assertEquals(2, sent.size());
            for (FakeNode.Request each : sent) {
                assertTrue(each.header("Strandline-Session").endsWith(";1"));
                assertEquals("" + Honest.APPLIED, each.header("Strandline-Applied"));
            }
            plugin.announced();
            List<FakeNode.Request> ready = node.all("ready");
            FakeNode.Request last = ready.get(ready.size() - 1);
            assertTrue(last.header("Strandline-Session").endsWith(";3"));
        }
    }

    @Test
    void callsCarryTheSessionAndTheToken() throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url()).announced()) {
            FakeNode.Request ready = node.all("ready").get(0);
            assertTrue(ready.header("Strandline-Session").matches("[A-Za-z0-9_-]{22};1"));
            assertEquals("1", ready.header("Strandline-Broker-Protocol"));
            assertEquals(NodeClient.MEDIA_TYPE, ready.header("Content-Type"));
            assertEquals(null, ready.header("Authorization"));
            plugin.storage.deleteLogSegmentData(Honest.finished());
            assertEquals(null, node.all("delete").get(0).header("Strandline-Session"));
        }
    }

    @Test
    void aHungNodeHoldsUpNoCallback() throws Exception {
        try (FakeNode node = new FakeNode()) {
            node.on("announce", FakeNode.thenHang(FakeNode.raw("")));
            try (Plugin plugin = new Plugin(node.url())) {
                long began = System.nanoTime();
                for (int i = 0; i < 10_000; i++) {
                    plugin.metadata.onPartitionLeadershipChanges(
                            Set.of(Honest.TIP), Set.of(Honest.OTHER_TIP));
                    plugin.metadata.onStopPartitions(Set.of(Honest.OTHER_TIP));
                }
                assertTrue(System.nanoTime() - began < 5_000_000_000L);
                assertFalse(plugin.metadata.isReady(Honest.TIP));
            }
        }
    }

    @Test
    void whereAnnouncingFailsNobodyWaitsForIt() throws Exception {
        try (FakeNode node = new FakeNode()) {
            node.on("announce", FakeNode.error(403, "refused", "CLUSTER"));
            try (Plugin plugin = new Plugin(node.url())) {
                ReplicaNotAvailableException seen =
                        assertThrows(ReplicaNotAvailableException.class, () -> highest(plugin));
                for (int i = 0; !seen.getMessage().contains("CLUSTER") && i < 100; i++) {
                    seen = assertThrows(ReplicaNotAvailableException.class, () -> highest(plugin));
                }
                assertTrue(seen.getMessage().contains("CLUSTER"), seen.getMessage());
                long began = System.nanoTime();
                for (int i = 0; i < 20; i++) {
                    assertThrows(ReplicaNotAvailableException.class, () -> highest(plugin));
                }
                assertTrue(System.nanoTime() - began < 5_000_000_000L);
                node.heal();
                assertEquals(199L, tried(plugin));
            }
        }
    }

    @Test
    void aSignOfLifeGoesOutEveryFiveSeconds() throws Exception {
        CountDownLatch signs = new CountDownLatch(2);
        try (FakeNode node = new FakeNode()) {
            node.on(
                    "announce",
                    (request, out) -> {
                        if (baseOf(request) == 1) {
                            signs.countDown();
                        }
                        FakeNode.ok(Honest.announced()).answer(request, out);
                    });
            try (Plugin plugin = new Plugin(node.url())) {
                assertTrue(signs.await(40, java.util.concurrent.TimeUnit.SECONDS));
            }
        }
    }

    private static long highest(Plugin plugin) throws Exception {
        return plugin.metadata.highestOffsetForEpoch(Honest.TIP, 4).orElseThrow();
    }

    private static long tried(Plugin plugin) throws Exception {
        ReplicaNotAvailableException last = null;
        for (int i = 0; i < 100; i++) {
            try {
                return highest(plugin);
            } catch (ReplicaNotAvailableException e) {
                last = e;
                Thread.sleep(100);
            }
        }
        throw last;
    }

    private static long baseOf(FakeNode.Request announcement) {
        ByteBuffer body = ByteBuffer.wrap(announcement.body());
        for (int strings = 0; strings < 4; strings++) {
            body.position(body.getShort() + body.position());
            body.position(body.position() + (strings == 0 ? 4 : 0));
        }
        return body.getLong(body.position() + 16 + 8);
    }
}
