package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.zip.CRC32C;

/** Copies to a node that asks for the segment's files: exactly these, or an exception. */
@Tag("each-version")
class SentFilesTest {
    private static final String[] NAMES = {
        "00000000000000000100.log",
        "00000000000000000100.index",
        "00000000000000000100.timeindex",
        null,
        "00000000000000000200.snapshot",
        "partition.metadata",
        "leader-epoch-checkpoint"
    };
    private static final byte[] ASKS = {Honest.SEND_FILES};

    @TempDir private Path folder;
    private final AtomicReference<byte[]> received = new AtomicReference<>();

    @BeforeEach
    void writeFiles() throws IOException {
        for (int i = 0; i < NAMES.length; i++) {
            if (NAMES[i] != null) {
                write(NAMES[i], Honest.bytes(i, i == 0 ? 3_000_000 : 10 * i));
            }
        }
        write("00000000000000000200.log", new byte[0]);
    }

    private void write(String name, byte[] bytes) throws IOException {
        Files.write(folder.resolve(name), bytes);
    }

    private Optional<CustomMetadata> copy(Plugin plugin) throws Exception {
        LogSegmentData files =
                new LogSegmentData(
                        folder.resolve(NAMES[0]),
                        folder.resolve(NAMES[1]),
                        folder.resolve(NAMES[2]),
                        Optional.empty(),
                        folder.resolve(NAMES[4]),
                        ByteBuffer.wrap("0\n1\n0 100\n".getBytes()));
        return plugin.storage.copyLogSegmentData(Honest.started(), files);
    }

    /** Asks for the files, does something, and takes them. */
    private FakeNode.Behaviour takes(FakeNode.Behaviour meanwhile) {
        return FakeNode.okHead(
                -1,
                (request, out) -> {
                    FakeNode.chunk(out, new byte[1]);
                    meanwhile.answer(request, out);
                    FakeNode.chunk(out, ASKS);
                    int left =
                            Integer.parseInt(request.header("Content-Length"))
                                    - request.body().length;
                    received.set(request.files().readNBytes(left));
                    if (received.get().length < left) {
                        throw new EOFException();
                    }
                    FakeNode.chunk(out, Honest.copied());
                    FakeNode.chunk(out, new byte[0]);
                });
    }

    private void isRetriable(FakeNode node, FakeNode.Behaviour behaviour) throws Exception {
        node.on("copy-files", behaviour);
        try (Plugin plugin = new Plugin(node.url())) {
            Throwable seen = assertThrows(Exception.class, () -> copy(plugin));
            assertTrue(BrokerApiTest.isRetriable(seen), "the broker sees " + seen);
        }
    }

    private FakeNode asking() throws IOException {
        FakeNode node = new FakeNode();
        node.on("copy", FakeNode.ok(ASKS));
        return node;
    }

    @Test
    void exactlyTheFilesAreSentAndTheirChecksum() throws Exception {
        try (FakeNode node = asking();
                Plugin plugin = new Plugin(node.url())) {
            node.on("copy-files", takes((request, out) -> {}));
            assertArrayEquals(Honest.CUSTOM, copy(plugin).get().value());
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            ByteBuffer head = ByteBuffer.wrap(node.all("copy-files").get(0).body());
            head.position(head.limit() - 8 * NAMES.length);
            for (String name : NAMES) {
                byte[] file = name == null ? null : Files.readAllBytes(folder.resolve(name));
                assertEquals(file == null ? -1 : file.length, head.getLong());
                all.write(file == null ? new byte[0] : file);
            }
            CRC32C crc = new CRC32C();
            crc.update(all.toByteArray());
            all.write(new ByteWriter().int32((int) crc.getValue()).toBytes());
            assertArrayEquals(all.toByteArray(), received.get());
            assertEquals("1", node.all("copy").get(0).header("Strandline-Copy-Files"));
        }
    }

    @Test
    void leaderEpochsAreThoseAfterTheLastByte() throws Exception {
        try (FakeNode node = asking();
                Plugin plugin = new Plugin(node.url())) {
            byte[] later = Honest.bytes(9, 9 + 54);
            node.on("copy-files", takes((request, out) -> write(NAMES[6], later)));
            copy(plugin);
            byte[] all = received.get();
            byte[] last = new byte[later.length];
            System.arraycopy(all, all.length - 4 - last.length, last, 0, last.length);
            assertArrayEquals(later, last);
        }
    }

    @Test
    void aNodeThatSaysNoGetsNoFile() throws Exception {
        CompletableFuture<byte[]> sent = new CompletableFuture<>();
        try (FakeNode node = asking()) {
            isRetriable(
                    node,
                    (request, out) -> {
                        FakeNode.ok(Honest.copyFailed()).answer(request, out);
                        sent.complete(request.files().readAllBytes());
                    });
            assertEquals(0, sent.get(10, TimeUnit.SECONDS).length);
        }
    }

    @Test
    void filesThatChangeWhileTheyAreSentAreNoSegment() throws Exception {
        try (FakeNode node = asking()) {
            isRetriable(node, takes((request, out) -> write(NAMES[0], new byte[5])));
            writeFiles();
            isRetriable(node, takes((request, out) -> write(NAMES[0], new byte[4_000_000])));
            writeFiles();
            isRetriable(node, takes((request, out) -> write(NAMES[6], new byte[900])));
            writeFiles();
            isRetriable(node, takes((request, out) -> Files.delete(folder.resolve(NAMES[1]))));
            writeFiles();
            Path following = folder.resolve("00000000000000000200.log");
            isRetriable(node, takes((request, out) -> Files.delete(following)));
            Files.delete(folder.resolve(NAMES[0]));
            isRetriable(node, takes((request, out) -> {}));
        }
    }

    @Test
    void aNodeThatTakesNoBytesOrAsksAgainIsGivenUp() throws Exception {
        try (FakeNode node = asking()) {
            write(NAMES[0], new byte[20_000_000]);
            isRetriable(
                    node,
                    FakeNode.thenHang(
                            FakeNode.okHead(-1, (request, out) -> FakeNode.chunk(out, ASKS))));
            isRetriable(node, FakeNode.thenClose(FakeNode.ok(ASKS)));
            writeFiles();
            isRetriable(
                    node,
                    FakeNode.okHead(
                            -1,
                            (request, out) -> {
                                FakeNode.chunk(out, ASKS);
                                FakeNode.chunk(out, ASKS);
                                request.files()
                                        .transferTo(ByteArrayOutputStream.nullOutputStream());
                            }));
        }
    }
}
