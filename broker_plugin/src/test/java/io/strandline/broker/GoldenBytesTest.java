package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The bodies are the golden files byte by byte, and the answers read as the values that their
 * README names. `mvn test -Dgolden=rewrite` writes them anew; the node's tests read them as well.
 */
@Tag("each-version")
class GoldenBytesTest {
    private static final Path FOLDER = Path.of(System.getProperty("golden.folder"));

    private static Map<String, byte[]> requests() throws Exception {
        Map<String, byte[]> all = new TreeMap<>();
        Bodies.Versions versions = new Bodies.Versions("0.1.0", "4.4.0");
        PluginConfig config = Honest.config("http://127.0.0.1:9480");
        Session.Announcement whole =
                new Session.Announcement(
                        1,
                        Session.WHOLE_SET,
                        java.util.List.of(Honest.TIP, Honest.OTHER_TIP),
                        java.util.List.of(),
                        java.util.List.of());
        all.put("announce-whole", Bodies.announce(config, versions, Honest.SESSION_ID, whole));
        all.put(
                "announce",
                Bodies.announce(config, versions, Honest.SESSION_ID, Honest.announcement()));
        all.put("ready", Bodies.ready(Honest.TIP));
        all.put("lookup", Bodies.lookUp(Honest.TIP, 4, 150, false));
        all.put("lookup-txn", Bodies.lookUp(Honest.TIP, 4, 150, true));
        all.put("highest", Bodies.highest(Honest.TIP, 4));
        all.put("list", Bodies.list(Honest.TIP, Bodies.ALL_EPOCHS, null, null));
        all.put("list-next", Bodies.list(Honest.TIP, 4, Honest.TAG, Honest.CURSOR));
        all.put("add", Bodies.add(Honest.started()));
        all.put("update", Bodies.update(Honest.update()));
        all.put("delete-partition", Bodies.deletePartition(Honest.deletePartition()));
        all.put("copy", Bodies.copy(Honest.started(), Honest.files()));
        long[] sizes = {1000, 8, 24, -1, 20, 43, 13};
        byte[] copy = Bodies.copy(Honest.started(), Honest.files());
        all.put("copy-files", Bodies.copyFiles(copy, sizes));
        byte[] segment = Bodies.segment(Honest.finished()).toBytes();
        all.put("fetch", Bodies.fetch(segment, 10, 21));
        all.put("index", Bodies.index(Honest.finished(), 3));
        all.put("delete", segment);
        all.put("phase-first", PhaseAsker.body(config, PhaseLease.NONE, 0));
        all.put("phase", PhaseAsker.body(config, Phase.SWITCHING.ordinal(), 2));
        return all;
    }

    private static Map<String, byte[]> answers() {
        Map<String, byte[]> all = new TreeMap<>();
        all.put("announce", Honest.announced());
        all.put("ready", Honest.ready());
        all.put("ready-not", Honest.notReady());
        all.put("lookup", Honest.found());
        all.put("lookup-none", Honest.none());
        all.put("highest", Honest.highest());
        all.put("highest-none", Honest.none());
        all.put("list", Honest.page(Honest.CURSOR, Honest.finishedRow(), Honest.secondRow()));
        all.put("list-last", Honest.page(null, Honest.secondRow()));
        all.put("list-none", Honest.page(null));
        all.put("list-same", Honest.same());
        all.put(
                "list-changes",
                Honest.changes(
                        Honest.TAG, java.util.List.of(Honest.THIRD_ID), Honest.finishedRow()));
        for (String call : Set.of("add", "update", "delete-partition", "delete")) {
            all.put(call, Honest.done());
        }
        all.put("phase-first", Honest.phase(Phase.KAFKA, -1));
        all.put("phase", Honest.phase(Phase.QUORUM, 4_700));
        all.put("copy", Honest.copied());
        all.put("copy-failed", Honest.copyFailed());
        all.put("copy-send-files", new byte[] {Honest.SEND_FILES});
        all.put("copy-files", Honest.copiedFromFiles());
        return all;
    }

    private static Map<String, byte[]> files() throws Exception {
        Map<String, byte[]> all = new TreeMap<>();
        requests().forEach((call, bytes) -> all.put(call + ".request.bin", bytes));
        answers().forEach((call, bytes) -> all.put(call + ".answer.bin", bytes));
        return all;
    }

    static Stream<String> names() throws Exception {
        return files().keySet().stream();
    }

    @ParameterizedTest
    @MethodSource("names")
    void isTheSameBytes(String name) throws Exception {
        byte[] bytes = files().get(name);
        if (!BrokerApi.hasTxnFlag()) {
            // A broker of 3.9 says false in each row: the files hold what newer ones say.
            bytes = withFlag(name, bytes);
        }
        Path file = FOLDER.resolve(name);
        if (System.getProperty("golden").equals("rewrite")) {
            Files.createDirectories(FOLDER);
            Files.write(file, bytes);
        }
        assertArrayEquals(Files.readAllBytes(file), bytes);
    }

    @Test
    void noFileIsLeftOver() throws Exception {
        try (Stream<Path> found = Files.list(FOLDER)) {
            Set<String> names =
                    found.map(path -> path.getFileName().toString())
                            .filter(name -> name.endsWith(".bin"))
                            .collect(Collectors.toCollection(TreeSet::new));
            assertEquals(new TreeSet<>(files().keySet()), names);
        }
    }

    /** The row of the first segment stands behind the partition (38 bytes) or the answer's head. */
    private static byte[] withFlag(String name, byte[] bytes) {
        Set<String> withRow =
                Set.of(
                        "add.request.bin",
                        "copy.request.bin",
                        "copy-files.request.bin",
                        "delete.request.bin",
                        "fetch.request.bin",
                        "index.request.bin",
                        "lookup.answer.bin",
                        "list-changes.answer.bin",
                        "list.answer.bin");
        byte[] changed = bytes.clone();
        int at = indexOf(bytes, new ByteWriter().uuid(Honest.SEGMENT_ID).toBytes());
        if (withRow.contains(name)) {
            changed[at + FLAG_AT] = 1;
        }
        return changed;
    }

    private static final int FLAG_AT = 16 + 8 + 8 + 4 + 8 + 8 + 4 + 1;

    private static int indexOf(byte[] all, byte[] part) {
        for (int i = 0; i + part.length <= all.length; i++) {
            if (Arrays.equals(all, i, i + part.length, part, 0, part.length)) {
                return i;
            }
        }
        return -1;
    }

    private static ByteReader golden(String name) throws Exception {
        return new ByteReader(Files.readAllBytes(FOLDER.resolve(name + ".answer.bin")));
    }

    @Test
    void theAnswersHoldTheValuesOfTheReadme() throws Exception {
        assertEquals(12, Bodies.announced(golden("announce")));
        assertEquals(new Bodies.Readiness(true, ""), Bodies.readiness(golden("ready")));
        assertEquals(
                new Bodies.Readiness(false, "its claim is not held yet"),
                Bodies.readiness(golden("ready-not")));
        assertEquals(Optional.of(Honest.finished()), Bodies.found(golden("lookup"), Honest.TIP));
        assertEquals(Optional.empty(), Bodies.found(golden("lookup-none"), Honest.TIP));
        assertEquals(Optional.of(199L), Bodies.highestFound(golden("highest")));
        assertEquals(Optional.empty(), Bodies.highestFound(golden("highest-none")));
        Bodies.Page page = Bodies.page(golden("list"), Honest.TIP);
        assertArrayEquals(Honest.TAG, page.tag());
        assertArrayEquals(Honest.CURSOR, page.nextCursor());
        assertEquals(true, Bodies.page(golden("list-same"), Honest.TIP).same());
        Bodies.Page changes = Bodies.page(golden("list-changes"), Honest.TIP);
        assertEquals(java.util.List.of(Honest.THIRD_ID), changes.gone());
        assertEquals(1, new ByteReader(changes.rows()).int32());
        assertEquals(null, Bodies.page(golden("list-last"), Honest.TIP).nextCursor());
        assertEquals(Honest.APPLIED, Bodies.applied(golden("delete")));
        assertEquals(new PhaseAsker.Told(Phase.KAFKA, -1), PhaseAsker.told(golden("phase-first")));
        assertEquals(new PhaseAsker.Told(Phase.QUORUM, 4_700), PhaseAsker.told(golden("phase")));
        byte[] unknown = Honest.phase(Phase.BACK, 1);
        unknown[8] = 5;
        assertThrows(NodeException.class, () -> PhaseAsker.told(new ByteReader(unknown)));
    }

    @ParameterizedTest
    @MethodSource("names")
    void noPartOfAnAnswerIsTakenForTheWhole(String name) throws Exception {
        String call = name.replace(".answer.bin", "");
        boolean read = name.endsWith(".answer.bin") && !call.startsWith("copy");
        byte[] whole = files().get(name);
        for (int size = 0; read && size < whole.length; size++) {
            byte[] part = Arrays.copyOf(whole, size);
            assertThrows(NodeException.class, () -> read(call, new ByteReader(part)));
        }
        byte[] more = Arrays.copyOf(whole, whole.length + 1);
        if (read) {
            assertThrows(NodeException.class, () -> read(call, new ByteReader(more)));
        }
    }

    private static Object read(String call, ByteReader in) throws NodeException {
        Object found;
        switch (call.split("-")[0]) {
            case "announce":
                found = Bodies.announced(in);
                break;
            case "ready":
                found = Bodies.readiness(in);
                break;
            case "lookup":
                found = Bodies.found(in, Honest.TIP);
                break;
            case "highest":
                found = Bodies.highestFound(in);
                break;
            case "list":
                found = Bodies.page(in, Honest.TIP);
                break;
            case "phase":
                found = PhaseAsker.told(in);
                break;
            default:
                found = Bodies.applied(in);
                break;
        }
        in.end();
        return found;
    }

    @Test
    void rowsThatKafkaRefusesAreWrongAnswers() throws Exception {
        SegmentRow good = Honest.finishedRow();
        byte[] bytes = Honest.found();
        int at = indexOf(bytes, new ByteWriter().uuid(Honest.SEGMENT_ID).toBytes());
        byte[] noState = bytes.clone();
        noState[at + FLAG_AT - 1] = 77;
        byte[] backwards = bytes.clone();
        backwards[at + 16 + 8 + 7] = 1;
        byte[] badFlag = bytes.clone();
        badFlag[at + FLAG_AT] = 2;
        for (byte[] bad : new byte[][] {noState, backwards, badFlag}) {
            assertThrows(NodeException.class, () -> Bodies.found(new ByteReader(bad), Honest.TIP));
        }
        assertEquals(RemoteLogSegmentState.COPY_SEGMENT_FINISHED, good.state());
    }
}
