package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.security.KeyStore;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import javax.management.ObjectName;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

/** Connections, settings, tokens, TLS, metrics and the log's line. */
class ClientTest {
    private static final byte[] BODY = Bodies.ready(Honest.TIP);

    private static NodeClient client(FakeNode node) {
        PluginConfig config = Honest.config(node.url());
        return new NodeClient(config, new PluginStats("metadata", 0), new Trouble(config.node()));
    }

    private static void ask(NodeClient client, Call call) throws NodeException {
        client.ask(call, null, BODY, call.deadline(), ClientTest::anything);
    }

    private static Object anything(ByteReader in) throws NodeException {
        in.int64();
        return null;
    }

    @Test
    void connectionsAreKept() throws Exception {
        try (FakeNode node = new FakeNode();
                NodeClient client = client(node)) {
            for (int i = 0; i < 100; i++) {
                ask(client, Call.UPDATE);
            }
            assertEquals(1, node.connections.get());
        }
    }

    @Test
    void aChangeWhoseAnswerWasLostIsNotSentTwice() throws Exception {
        try (FakeNode node = new FakeNode();
                NodeClient client = client(node)) {
            ask(client, Call.UPDATE);
            node.on("update", FakeNode.thenClose(FakeNode.raw("")));
            assertThrows(NodeException.class, () -> ask(client, Call.UPDATE));
            assertEquals(2, node.count("update"));
            node.heal();
            ask(client, Call.UPDATE);
            node.dropConnections();
            Thread.sleep(200);
            ask(client, Call.UPDATE);
        }
    }

    @Test
    void afterATimeoutNobodyIsAskedForASecond() throws Exception {
        try (FakeNode node = new FakeNode();
                NodeClient client = client(node)) {
            node.on("highest", FakeNode.thenHang(FakeNode.raw("")));
            assertThrows(NodeException.class, () -> ask(client, Call.HIGHEST));
            long asked = node.count("highest") + node.count("ready");
            assertThrows(NodeException.class, () -> ask(client, Call.READY));
            assertEquals(asked, node.count("highest") + node.count("ready"));
            ask(client, Call.UPDATE);
        }
    }

    @Test
    void aNodeThatTakesNoBytesHoldsNobodyForLonger() throws Exception {
        try (ServerSocket deaf = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            PluginConfig config = Honest.config("http://127.0.0.1:" + deaf.getLocalPort());
            try (NodeClient client =
                    new NodeClient(
                            config, new PluginStats("metadata", 0), new Trouble(config.node()))) {
                long began = System.nanoTime();
                byte[] large = new byte[64 << 20];
                NodeException seen =
                        assertThrows(
                                NodeException.class,
                                () ->
                                        client.ask(
                                                Call.READY,
                                                null,
                                                large,
                                                Call.READY.deadline(),
                                                ClientTest::anything));
                assertEquals(NodeException.Kind.TIMEOUT, seen.kind());
                assertTrue(System.nanoTime() - began < 10_000_000_000L);
            }
        }
    }

    @Test
    void futuresEndWhenTheBrokerStops() throws Exception {
        try (FakeNode node = new FakeNode()) {
            Plugin plugin = new Plugin(node.url()).announced();
            node.on("update", FakeNode.thenHang(FakeNode.raw("")));
            List<CompletableFuture<Void>> futures = new java.util.ArrayList<>();
            for (int i = 0; i < 50; i++) {
                futures.add(plugin.metadata.updateRemoteLogSegmentMetadata(Honest.update()));
            }
            plugin.close();
            futures.add(plugin.metadata.updateRemoteLogSegmentMetadata(Honest.update()));
            for (CompletableFuture<Void> future : futures) {
                assertThrows(Exception.class, () -> future.get(20, TimeUnit.SECONDS));
                assertTrue(future.isDone());
            }
        }
    }

    @Test
    void aManagerThatWasNotConfiguredIsOnlyUnavailable() {
        StrandlineMetadataManager manager = new StrandlineMetadataManager();
        assertFalse(manager.isReady(Honest.TIP));
        assertThrows(
                org.apache.kafka.common.errors.ReplicaNotAvailableException.class,
                () -> manager.listRemoteLogSegments(Honest.TIP));
        assertTrue(
                manager.updateRemoteLogSegmentMetadata(Honest.update()).handle((a, b) -> b)
                        != null);
        manager.onStopPartitions(null);
        manager.onPartitionLeadershipChanges(null, null);
        manager.close();
        new StrandlineStorageManager().close();
    }

    @Test
    void wrongSettingsEndTheStart(@TempDir Path folder) throws Exception {
        Path empty = Files.writeString(folder.resolve("empty"), "\n");
        List<Map<String, Object>> wrong =
                List.of(
                        Map.of(),
                        Map.of(PluginConfig.NODE_URL, ""),
                        Map.of(PluginConfig.NODE_URL, "127.0.0.1:9480"),
                        Map.of(PluginConfig.NODE_URL, "http://127.0.0.1"),
                        Map.of(PluginConfig.NODE_URL, "ftp://127.0.0.1:9480"),
                        Map.of(PluginConfig.NODE_URL, "http://127.0.0.1:9480/v1"),
                        Map.of(PluginConfig.NODE_URL, "http://127.0.0.1:9480?a=b"),
                        Map.of(PluginConfig.NODE_URL, "http://a b:9480"),
                        with(PluginConfig.TOKEN_FILE, folder.resolve("none").toString()),
                        with(PluginConfig.TOKEN_FILE, empty.toString()),
                        with(PluginConfig.TRUSTSTORE_FILE, empty.toString()),
                        with("strandline.node.uri", "http://127.0.0.1:9480"),
                        with("broker.id", "three"));
        for (Map<String, Object> each : wrong) {
            StrandlineMetadataManager metadata = new StrandlineMetadataManager();
            assertThrows(ConfigException.class, () -> metadata.configure(each), each.toString());
            StrandlineStorageManager storage = new StrandlineStorageManager();
            assertThrows(ConfigException.class, () -> storage.configure(each), each.toString());
        }
    }

    private static Map<String, Object> with(String name, String value) {
        Map<String, Object> settings = Honest.metadataSettings("http://127.0.0.1:9480");
        settings.put(name, value);
        return settings;
    }

    @Test
    void aTokenThatChangedIsReadAgain(@TempDir Path folder) throws Exception {
        Path file = Files.writeString(folder.resolve("token"), "first\n");
        try (FakeNode node = new FakeNode();
                StrandlineStorageManager storage = new StrandlineStorageManager()) {
            Map<String, Object> settings = Honest.storageSettings(node.url());
            settings.put(PluginConfig.TOKEN_FILE, file.toString());
            storage.configure(settings);
            storage.deleteLogSegmentData(Honest.finished());
            node.on("delete", FakeNode.error(401, "unauthenticated", "TOKEN"));
            assertThrows(Exception.class, () -> storage.deleteLogSegmentData(Honest.finished()));
            node.heal();
            Files.writeString(file, "second\n");
            Files.setLastModifiedTime(file, FileTime.fromMillis(1_000));
            for (int i = 0; i < 100; i++) {
                storage.deleteLogSegmentData(Honest.finished());
                Thread.sleep(20);
            }
            List<FakeNode.Request> all = node.all("delete");
            assertEquals("Bearer first", all.get(0).header("Authorization"));
            assertEquals("Bearer second", all.get(all.size() - 1).header("Authorization"));
            Files.delete(file);
            Thread.sleep(1_100);
            storage.deleteLogSegmentData(Honest.finished());
        }
    }

    @Test
    void tlsWithACertificateThatIsTrusted(@TempDir Path folder) throws Exception {
        Path store = folder.resolve("node.p12");
        Path pem = folder.resolve("node.pem");
        String name = "-ext san=ip:127.0.0.1,dns:localhost -keyalg EC -validity 2";
        keytool("-genkeypair -alias node -dname CN=node " + name, store);
        keytool("-exportcert -rfc -alias node -file " + pem, store);
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(store)) {
            keys.load(in, "secret".toCharArray());
        }
        KeyManagerFactory factory =
                KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(keys, "secret".toCharArray());
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(factory.getKeyManagers(), null, null);
        ServerSocket server =
                context.getServerSocketFactory()
                        .createServerSocket(0, 50, InetAddress.getLoopbackAddress());
        try (FakeNode node = new FakeNode(server);
                StrandlineStorageManager trusting = new StrandlineStorageManager();
                StrandlineStorageManager other = new StrandlineStorageManager()) {
            String url = node.url().replace("http:", "https:");
            Map<String, Object> settings = Honest.storageSettings(url);
            other.configure(settings);
            Throwable seen =
                    assertThrows(
                            Exception.class, () -> other.deleteLogSegmentData(Honest.finished()));
            assertTrue(BrokerApiTest.isRetriable(seen), "the broker sees " + seen);
            settings.put(PluginConfig.TRUSTSTORE_FILE, pem.toString());
            trusting.configure(settings);
            trusting.deleteLogSegmentData(Honest.finished());
            trusting.deleteLogSegmentData(Honest.finished());
            trusting.copyLogSegmentData(Honest.started(), Honest.files());
            node.on("delete", FakeNode.thenHang(FakeNode.raw("")));
            assertThrows(Exception.class, () -> trusting.deleteLogSegmentData(Honest.finished()));
        }
    }

    private static void keytool(String arguments, Path store) throws Exception {
        List<String> command = new java.util.ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "keytool").toString());
        command.addAll(List.of(arguments.split(" ")));
        command.addAll(List.of("-keystore", store.toString(), "-storepass", "secret"));
        Process done = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(done.getInputStream().readAllBytes());
        assertEquals(0, done.waitFor(), said);
    }

    @Test
    void metricsAreThereWhileTheManagerIs() throws Exception {
        try (FakeNode node = new FakeNode()) {
            StrandlineStorageManager storage = new StrandlineStorageManager();
            Map<String, Object> settings = Honest.storageSettings(node.url());
            settings.put("broker.id", "4711");
            storage.configure(settings);
            storage.fetchIndex(
                            Honest.finished(),
                            org.apache.kafka.server.log.remote.storage.RemoteStorageManager
                                    .IndexType.OFFSET)
                    .readAllBytes();
            ObjectName name = new ObjectName("io.strandline.broker:type=storage,broker=4711");
            var server = ManagementFactory.getPlatformMBeanServer();
            assertEquals(300L, server.getAttribute(name, "BytesRead"));
            assertEquals(1L, server.getAttribute(name, "ConnectionsOpened"));
            storage.close();
            assertFalse(server.isRegistered(name));
        }
    }

    @Test
    void theLogHasALineAMinuteThatSaysWhatToDo() {
        Trouble trouble = new Trouble(NodeAddress.of("http://127.0.0.1:9480", null));
        NodeException refused =
                new NodeException(NodeException.Kind.NO_CONNECTION, "", "Connection refused", null);
        assertEquals(null, trouble.line(Call.LOOKUP, NodeException.told("not_found", "GONE", "")));
        String first = trouble.line(Call.LOOKUP, refused);
        assertTrue(first.contains("Start the node"), first);
        for (int i = 0; i < 1_000; i++) {
            assertEquals(null, trouble.line(Call.LOOKUP, refused));
        }
        for (NodeException.Kind kind : NodeException.Kind.values()) {
            Trouble fresh = new Trouble(NodeAddress.of("http://127.0.0.1:9480", null));
            for (String reason : List.of("", "CLUSTER", "BROKER_ID", "TWO_BROKERS", "PROTOCOL")) {
                String line = fresh.line(Call.ADD, new NodeException(kind, reason, "it", null));
                boolean damaged = kind == NodeException.Kind.CORRUPT_DATA;
                assertTrue(line == null || damaged != line.endsWith("and nothing is lost.)"), line);
            }
        }
    }

    @Test
    void damagedBytesAreNotSaidToBeSafe() {
        Trouble trouble = new Trouble(NodeAddress.of("http://127.0.0.1:9480", null));
        String line = trouble.line(Call.FETCH, NodeException.told("corrupt_data", "", "it"));
        assertTrue(
                line.endsWith(
                        "corrupt_data: it. Bytes are damaged: see `strandline status` at the node."
                                + " (1 since the last such line.)"),
                line);
    }
}
