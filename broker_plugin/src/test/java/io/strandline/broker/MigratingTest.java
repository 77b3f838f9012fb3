package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import static java.nio.charset.StandardCharsets.US_ASCII;

import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** The bridge between a stub of Kafka's manager and a node that tells the phase. */
@Tag("each-version")
class MigratingTest {
    private static final long OF_NODE = 199;

    /** A node that tells a phase, and a broker with the bridge whose topic's cluster listens. */
    private static final class Site implements AutoCloseable {
        final FakeNode node = new FakeNode();
        final ServerSocket cluster = new ServerSocket(0);
        final KafkaStub kafka = new KafkaStub();
        final MigratingMetadataManager bridge = new MigratingMetadataManager(kafka);
        private long since;

        Site(Phase phase) throws Exception {
            if (phase == null) {
                node.on("phase", FakeNode.thenClose(FakeNode.raw("")));
            } else {
                tell(phase);
            }
            Map<String, Object> settings = Honest.metadataSettings(node.url());
            settings.put(
                    "remote.log.metadata.common.client.bootstrap.servers",
                    "127.0.0.1:" + cluster.getLocalPort());
            bridge.configure(settings);
            bridge.onPartitionLeadershipChanges(Set.of(Honest.TIP), Set.of(Honest.OTHER_TIP));
            if (phase != null) {
                awaitSeen(phase);
            }
        }

        void tell(Phase phase) {
            since += 10;
            node.on("phase", FakeNode.ok(Honest.phase(phase, since)));
        }

        /** The node hears that the broker has seen the phase, and acts by it. */
        void turn(Phase phase) throws Exception {
            tell(phase);
            awaitSeen(phase);
        }

        void awaitSeen(Phase phase) throws Exception {
            await(() -> phase == null || seen(lastQuestion()) == phase.ordinal());
        }

        FakeNode.Request lastQuestion() throws Exception {
            await(() -> node.count("phase") > 0);
            List<FakeNode.Request> all = node.all("phase");
            return all.get(all.size() - 1);
        }

        @Override
        public void close() throws IOException {
            bridge.close();
            node.close();
            cluster.close();
        }
    }

    private static void await(Callable<Boolean> done) throws Exception {
        for (int i = 0; i < 6_000 && !done.call(); i++) {
            Thread.sleep(10);
        }
        assertTrue(done.call());
    }

    private static int seen(FakeNode.Request question) {
        return question.body()[question.body().length - 5];
    }

    private static int outstanding(FakeNode.Request question) {
        return ByteBuffer.wrap(question.body()).getInt(question.body().length - 4);
    }

    private static Throwable problem(CompletableFuture<Void> future) {
        return assertThrows(ExecutionException.class, () -> future.get(30, TimeUnit.SECONDS))
                .getCause();
    }

    private static long highest(MigratingMetadataManager bridge) throws Exception {
        for (int i = 0; ; i++) {
            try {
                return bridge.highestOffsetForEpoch(Honest.TIP, 4).orElseThrow();
            } catch (ReplicaNotAvailableException e) {
                if (i > 1_000) {
                    throw e;
                }
                Thread.sleep(10);
            }
        }
    }

    /** The node was told of a partition. */
    private static boolean wasTold(FakeNode node) {
        String topic = Honest.TIP.topic();
        return node.all("announce").stream()
                .anyMatch(each -> new String(each.body(), US_ASCII).contains(topic));
    }

    @ParameterizedTest
    @CsvSource({"KAFKA, 77", "SWITCHING, 77", "QUORUM, 199", "DONE, 199", "BACK, 199"})
    void lookUpsGoToWhereTheTruthIs(Phase phase, long found) throws Exception {
        try (Site site = new Site(phase)) {
            assertEquals(found, highest(site.bridge));
            assertEquals(phase != Phase.DONE, site.kafka.configured);
            assertEquals(2, site.kafka.partitions.size(), "its cache stays warm");
            assertEquals(found == OF_NODE, wasTold(site.node));
            await(() -> site.kafka.closed == (phase == Phase.DONE));
        }
    }

    @ParameterizedTest
    @CsvSource({"KAFKA, true", "SWITCHING, false", "QUORUM, true", "DONE, true", "BACK, false"})
    void tasksRunInOpenPhases(Phase phase, boolean open) throws Exception {
        try (Site site = new Site(phase)) {
            if (open) {
                await(() -> site.bridge.isReady(Honest.TIP));
            }
            assertEquals(open, site.bridge.isReady(Honest.TIP));
        }
    }

    /** A broker of 3.9 does not ask if it may run, and moves its log start before it deletes. */
    @ParameterizedTest
    @CsvSource({"KAFKA, true", "SWITCHING, false", "BACK, false"})
    void noExpirationBeginsWhoseDeletionsWouldBeRefused(Phase phase, boolean begins)
            throws Exception {
        try (Site site = new Site(phase)) {
            if (begins) {
                assertFalse(site.bridge.listRemoteLogSegments(Honest.TIP).hasNext());
                return;
            }
            ReplicaNotAvailableException why =
                    assertThrows(
                            ReplicaNotAvailableException.class,
                            () -> site.bridge.listRemoteLogSegments(Honest.TIP));
            assertTrue(why.getMessage().contains(phase.name()), why.getMessage());
        }
    }

    @Test
    void aChangeInKafkaIsTheTopicsAlone() throws Exception {
        try (Site site = new Site(Phase.KAFKA)) {
            assertTrue(site.kafka.brokerReady, "the broker's wrapper hides that it wants this");
            CompletableFuture<Void> added =
                    site.bridge.addRemoteLogSegmentMetadata(Honest.started());
            assertFalse(added.isDone());
            await(() -> outstanding(site.lastQuestion()) == 1);
            site.kafka.changes.get(0).complete(null);
            added.get(30, TimeUnit.SECONDS);
            await(() -> outstanding(site.lastQuestion()) == 0);
            assertEquals(0, site.node.count("add"));
        }
    }

    @Test
    void inSwitchingNothingIsSentAndWhatIsUnderWayIsSaidUntilItEnds() throws Exception {
        try (Site site = new Site(Phase.KAFKA)) {
            CompletableFuture<Void> updated =
                    site.bridge.updateRemoteLogSegmentMetadata(Honest.update());
            site.turn(Phase.SWITCHING);
            assertEquals(1, outstanding(site.lastQuestion()));
            for (CompletableFuture<Void> refused :
                    List.of(
                            site.bridge.addRemoteLogSegmentMetadata(Honest.started()),
                            site.bridge.updateRemoteLogSegmentMetadata(Honest.update()),
                            site.bridge.putRemotePartitionDeleteMetadata(
                                    Honest.deletePartition()))) {
                Throwable why = problem(refused);
                assertEquals(ReplicaNotAvailableException.class, why.getClass());
                assertTrue(why.getMessage().contains("SWITCHING"), why.getMessage());
            }
            assertEquals(1, site.kafka.changes.size());
            assertEquals(KafkaStub.HIGHEST, highest(site.bridge), "reads go on");
            assertFalse(site.bridge.listRemoteLogSegments(Honest.TIP, 4).hasNext());
            site.kafka.changes.get(0).complete(null);
            updated.get(30, TimeUnit.SECONDS);
            await(() -> outstanding(site.lastQuestion()) == 0);
        }
    }

    @Test
    void theWholeMoveAndTheWayBack() throws Exception {
        try (Site site = new Site(Phase.KAFKA)) {
            site.turn(Phase.SWITCHING);
            assertFalse(wasTold(site.node));
            site.turn(Phase.QUORUM);
            await(() -> site.bridge.isReady(Honest.TIP));
            site.bridge.addRemoteLogSegmentMetadata(Honest.started()).get(30, TimeUnit.SECONDS);
            assertEquals(1, site.node.count("add"));
            assertEquals(0, site.kafka.changes.size());
            site.bridge.onStopPartitions(Set.of(Honest.OTHER_TIP));
            assertEquals(Set.of(Honest.TIP), site.kafka.partitions);

            site.turn(Phase.BACK);
            assertEquals(OF_NODE, highest(site.bridge));
            problem(site.bridge.addRemoteLogSegmentMetadata(Honest.started()));
            site.turn(Phase.KAFKA);
            assertEquals(KafkaStub.HIGHEST, highest(site.bridge));
            long announced = site.node.count("announce");
            await(() -> site.node.count("announce") > announced);
            site.bridge.addRemoteLogSegmentMetadata(Honest.started());
            assertEquals(1, site.kafka.changes.size());
            assertEquals(1, site.node.count("add"));

            site.kafka.changes.get(0).complete(null);
            site.turn(Phase.SWITCHING);
            site.turn(Phase.QUORUM);
            site.turn(Phase.DONE);
            await(() -> site.kafka.closed);
            site.bridge.onPartitionLeadershipChanges(Set.of(Honest.THIRD_TIP), Set.of());
            assertFalse(site.kafka.partitions.contains(Honest.THIRD_TIP));
            assertEquals(OF_NODE, highest(site.bridge));
        }
    }

    @Test
    void withoutAWordOfTheNodeNothingIsDone() throws Exception {
        try (Site site = new Site(null)) {
            assertFalse(site.bridge.isReady(Honest.TIP));
            Throwable why = problem(site.bridge.addRemoteLogSegmentMetadata(Honest.started()));
            assertEquals(ReplicaNotAvailableException.class, why.getClass());
            assertThrows(
                    ReplicaNotAvailableException.class,
                    () -> site.bridge.highestOffsetForEpoch(Honest.TIP, 4));
            assertFalse(site.kafka.configured);
            site.turn(Phase.KAFKA);
            await(() -> site.bridge.isReady(Honest.TIP));
        }
    }

    @Test
    void aNodeThatDiedEndsChangesAndNotLookUps() throws Exception {
        try (Site site = new Site(Phase.KAFKA)) {
            CompletableFuture<Void> begun =
                    site.bridge.addRemoteLogSegmentMetadata(Honest.started());
            site.node.on("phase", FakeNode.thenClose(FakeNode.raw("")));
            await(() -> !site.bridge.isReady(Honest.TIP));
            assertEquals(KafkaStub.HIGHEST, highest(site.bridge));
            problem(site.bridge.addRemoteLogSegmentMetadata(Honest.started()));
            assertThrows(
                    ReplicaNotAvailableException.class,
                    () -> site.bridge.listRemoteLogSegments(Honest.TIP));
            assertEquals(1, site.kafka.changes.size());
            site.kafka.changes.get(0).complete(null);
            assertEquals(ReplicaNotAvailableException.class, problem(begun).getClass());
            site.tell(Phase.KAFKA);
            await(() -> site.bridge.isReady(Honest.TIP));
        }
    }

    @Test
    void onlyExceptionsThatABrokerSurvivesComeOut() throws Exception {
        try (Site site = new Site(Phase.KAFKA)) {
            for (Exception problem :
                    List.of(
                            new IllegalStateException("not initialized"),
                            new TimeoutException("no metadata"),
                            new NullPointerException())) {
                site.kafka.problem = problem;
                for (Callable<?> call : reads(site.bridge)) {
                    assertThrows(ReplicaNotAvailableException.class, call::call);
                }
                Throwable seen = problem(site.bridge.addRemoteLogSegmentMetadata(Honest.started()));
                assertEquals(ReplicaNotAvailableException.class, seen.getClass());
            }
            site.kafka.problem = new RemoteStorageException("as Kafka's own");
            for (Callable<?> call : reads(site.bridge)) {
                assertThrows(RemoteStorageException.class, call::call);
            }
            Throwable seen = problem(site.bridge.addRemoteLogSegmentMetadata(Honest.started()));
            assertEquals(RemoteStorageException.class, seen.getClass());
            site.kafka.problem = null;
            CompletableFuture<Void> update =
                    site.bridge.updateRemoteLogSegmentMetadata(Honest.update());
            site.kafka
                    .changes
                    .get(0)
                    .completeExceptionally(new CompletionException(new TimeoutException("late")));
            assertEquals(ReplicaNotAvailableException.class, problem(update).getClass());
        }
    }

    private static List<Callable<?>> reads(MigratingMetadataManager bridge) {
        return List.of(
                () -> bridge.remoteLogSegmentMetadata(Honest.TIP, 4, 150),
                () -> bridge.nextSegmentWithTxnIndex(Honest.TIP, 4, 150),
                () -> bridge.highestOffsetForEpoch(Honest.TIP, 4),
                () -> bridge.listRemoteLogSegments(Honest.TIP),
                () -> bridge.listRemoteLogSegments(Honest.TIP, 4),
                () -> bridge.remoteLogSize(Honest.TIP, 4));
    }

    @Test
    void kafkasOwnStartsOnceItsClusterListens() throws Exception {
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        KafkaStub kafka = new KafkaStub();
        try (TopicManager topic = new TopicManager(kafka, Map.of(), "127.0.0.1:" + port)) {
            topic.start();
            assertFalse(kafka.configured);
            try (ServerSocket cluster = new ServerSocket(port)) {
                topic.start();
                assertTrue(kafka.brokerReady, cluster.toString());
            }
        }
        topic(kafka).start();
        assertTrue(kafka.closed);
    }

    private static TopicManager topic(KafkaStub kafka) {
        return new TopicManager(kafka, Map.of(), "");
    }

    @Test
    void aWrongSettingEndsTheBrokersStart() {
        MigratingMetadataManager bridge = new MigratingMetadataManager(new KafkaStub());
        Map<String, Object> settings = Honest.metadataSettings("http://127.0.0.1:1");
        settings.put("strandline.node.urls", "x");
        assertThrows(ConfigException.class, () -> bridge.configure(settings));
        settings.remove("strandline.node.urls");
        settings.put("remote.log.metadata.topic.num.partitions", "many");
        assertThrows(ConfigException.class, () -> bridge.configure(settings));
        bridge.close();
        bridge.onPartitionLeadershipChanges(Set.of(Honest.TIP), Set.of());
        bridge.onStopPartitions(Set.of(Honest.TIP));
        assertFalse(bridge.isReady(Honest.TIP));
    }

    @Test
    void kafkasOwnManagerHasWhatTheBridgeCalls() throws Exception {
        String version = BrokerApiTest.VERSION;
        boolean old = version.startsWith("3.");
        boolean since42 = !old && !version.matches("4\\.[01]\\..*");
        try (TopicManager topic =
                new TopicManager(new TopicBasedRemoteLogMetadataManager(), Map.of(), "")) {
            assertEquals(since42, topic.hasBrokerReady());
            assertFalse(topic.isReady(Honest.TIP), "it was not started");
            Class<? extends Exception> seen =
                    old ? UnsupportedOperationException.class : IllegalStateException.class;
            assertThrows(seen, () -> topic.nextWithTxnIndex(Honest.TIP, 4, 150));
        }
    }
}
