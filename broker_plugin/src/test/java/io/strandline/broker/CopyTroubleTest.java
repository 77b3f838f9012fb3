package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/** What a copy that breaks off leaves behind, and what the broker's log says of it. */
class CopyTroubleTest {
    private static final byte[] ASKS = {Honest.SEND_FILES};

    @TempDir private Path folder;

    private static StrandlineStorageManager manager(FakeNode node) {
        StrandlineStorageManager manager = new StrandlineStorageManager();
        manager.configure(Honest.storageSettings(node.url()));
        return manager;
    }

    private Path file(String name) throws IOException {
        return Files.write(folder.resolve(name), new byte[100]);
    }

    /** What the broker sees of a copy that fails. */
    private String failure(StrandlineStorageManager manager) throws Exception {
        LogSegmentData files =
                new LogSegmentData(
                        file("00000000000000000100.log"),
                        file("00000000000000000100.index"),
                        file("00000000000000000100.timeindex"),
                        Optional.empty(),
                        file("00000000000000000200.snapshot"),
                        ByteBuffer.wrap("0\n1\n0 100\n".getBytes()));
        return assertThrows(
                        Exception.class, () -> manager.copyLogSegmentData(Honest.started(), files))
                .getMessage();
    }

    /** A node takes what comes next on such a connection for the rest of the files. */
    @Test
    void aConnectionWhoseFilesWereNotSentIsNotUsedAgain() throws Exception {
        try (FakeNode node = new FakeNode();
                StrandlineStorageManager manager = manager(node)) {
            node.on("copy", FakeNode.ok(ASKS));
            node.on("copy-files", FakeNode.ok(Honest.copyFailed()));
            assertTrue(failure(manager).contains("the store is slow"));
            manager.deleteLogSegmentData(Honest.started());
            assertEquals(2, node.connections.get());
            node.on("copy-files", FakeNode.error(503, "retry_later", "SPOOL"));
            assertTrue(failure(manager).contains("SPOOL"));
            manager.deleteLogSegmentData(Honest.started());
            assertEquals(3, node.connections.get());
        }
    }

    @Test
    void aSegmentThatChangedIsNoLostConnection() throws Exception {
        try (FakeNode node = new FakeNode();
                StrandlineStorageManager manager = manager(node)) {
            node.on("copy", FakeNode.ok(ASKS));
            node.on(
                    "copy-files",
                    FakeNode.okHead(
                            -1,
                            (request, out) -> {
                                FakeNode.chunk(out, ASKS);
                                out.flush();
                                request.files().transferTo(OutputStream.nullOutputStream());
                            }));
            String seen = failure(manager);
            assertTrue(seen.contains("changed while it was sent"), seen);
            assertFalse(seen.contains("connection"), seen);
        }
    }

    /** The node is to be started, and not looked at for being late. */
    @Test
    void aNodeThatDiesInALongCopyIsNotLate() throws Exception {
        try (FakeNode node = new FakeNode();
                StrandlineStorageManager manager = manager(node)) {
            node.on(
                    "copy",
                    FakeNode.thenClose(
                            FakeNode.okHead(
                                    -1,
                                    (request, out) -> {
                                        for (int second = 0; second <= 10; second++) {
                                            FakeNode.chunk(out, new byte[1]);
                                            Thread.sleep(1_000);
                                        }
                                    })));
            String seen = failure(manager);
            assertTrue(seen.contains("The node closed the connection"), seen);
        }
    }
}
