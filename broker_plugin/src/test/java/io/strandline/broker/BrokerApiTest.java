package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Every method on whatever version of Kafka's interface is on the class path; 3.9 to 4.4 are. */
@Tag("each-version")
class BrokerApiTest {
    static final String VERSION = System.getProperty("kafka.version", "3.9.2");

    static boolean isRetriable(Throwable problem) {
        return BrokerApi.hasRetriable()
                ? problem.getClass().getSimpleName().equals("RetriableRemoteStorageException")
                : problem.getClass() == ReplicaNotAvailableException.class;
    }

    @Test
    void whatTheVersionHasIsFound() {
        assertEquals(VERSION, Announcer.kafkaVersion());
        assertEquals(!VERSION.startsWith("3."), BrokerApi.hasTxnFlag());
        boolean since42 = !VERSION.startsWith("3.") && !VERSION.matches("4\\.[01]\\..*");
        assertEquals(since42, BrokerApi.hasRetriable());
    }

    @Test
    void theFlagOfAnEmptyTransactionIndexIsKeptWhereThereIsOne() throws Exception {
        assertEquals(BrokerApi.hasTxnFlag(), BrokerApi.txnIndexEmpty(Honest.finished()));
        assertEquals(false, BrokerApi.txnIndexEmpty(Honest.secondRow().toKafka()));
    }

    @ParameterizedTest
    @EnumSource(Spi.class)
    void eachMethodWorks(Spi method) throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url()).announced()) {
            assertEquals(method.right(), method.patientCall(plugin));
        }
    }

    @ParameterizedTest
    @EnumSource(Spi.class)
    void eachMethodFailsAsTheVersionWantsIt(Spi method) throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url()).announced()) {
            node.on(method.wire, FakeNode.error(503, "retry_later", "BUSY"));
            Throwable seen = null;
            try {
                assertEquals(
                        false,
                        method == Spi.IS_READY ? method.call(plugin) : method.patientCall(plugin));
            } catch (Throwable e) {
                seen = e;
            }
            if (method.column == Spi.Column.STORAGE) {
                assertTrue(isRetriable(seen), "the broker sees " + seen);
            } else if (method != Spi.IS_READY) {
                assertEquals(ReplicaNotAvailableException.class, seen.getClass());
            }
        }
    }

    @Test
    void theJarHasNoClassesOfOthersAndIsSmall() throws Exception {
        java.io.File jar =
                new java.io.File(
                        StrandlineMetadataManager.class
                                .getProtectionDomain()
                                .getCodeSource()
                                .getLocation()
                                .toURI());
        // The oldest version's tests run before the jar is there.
        assertEquals(!VERSION.startsWith("3."), jar.isFile());
        if (jar.isFile()) {
            assertTrue(jar.length() < 100 * 1024, jar.length() + " bytes");
            try (java.util.jar.JarFile file = new java.util.jar.JarFile(jar)) {
                assertTrue(
                        file.stream()
                                .filter(each -> !each.isDirectory())
                                .allMatch(
                                        each ->
                                                each.getName().startsWith("META-INF/")
                                                        || each.getName()
                                                                .startsWith(
                                                                        "io/strandline/broker/")));
            }
        }
    }
}
