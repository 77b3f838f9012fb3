package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;

/**
 * The plug-in's own threads where each round fails in a way that nobody thought of, as after its
 * jar was replaced below a running broker: they go on, and fill neither the log nor the node.
 */
@Isolated
class LoopsTest {
    private static final long WATCHED_MS = 1_500;
    private static final int ROUNDS_MAX = 5;

    private interface Failing {
        void begin() throws Exception;
    }

    /** Lines of the broker's log that say so, while it fails. */
    private static long lines(String text, Failing failing) throws Exception {
        PrintStream before = System.err;
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        System.setErr(new PrintStream(log, true, StandardCharsets.UTF_8));
        try {
            failing.begin();
            Thread.sleep(WATCHED_MS);
        } finally {
            System.setErr(before);
        }
        String all = log.toString(StandardCharsets.UTF_8);
        return all.lines().filter(line -> line.contains(text)).count();
    }

    private static void isFew(long count) {
        assertTrue(0 < count && count <= ROUNDS_MAX, count + " lines");
    }

    @Test
    void anAnnouncerThatAlwaysFailsFillsNoLog() throws Exception {
        try (FakeNode node = new FakeNode();
                StrandlineMetadataManager manager = new StrandlineMetadataManager()) {
            Map<String, Object> settings = Honest.metadataSettings(node.url());
            // Does not fit into a body.
            settings.put("remote.log.metadata.common.client.bootstrap.servers", "b".repeat(40_000));
            manager.configure(settings);
            isFew(
                    lines(
                            "goes on after",
                            () ->
                                    manager.onPartitionLeadershipChanges(
                                            Set.of(Honest.TIP), Set.of())));
        }
    }

    @Test
    void anAskerThatAlwaysFailsFillsNoLogAndAsksNoFaster() throws Exception {
        try (FakeNode node = new FakeNode()) {
            node.on("phase", FakeNode.ok(new ByteWriter().int64(1).int8(0).int64(-1).toBytes()));
            Runnable fails =
                    () -> {
                        throw new IllegalStateException("as the test wants it");
                    };
            PhaseLease lease = new PhaseLease();
            try (PhaseAsker asker = new PhaseAsker(Honest.config(node.url()), lease, fails)) {
                isFew(lines("goes on to ask", asker::start));
            }
            assertTrue(node.count("phase") <= ROUNDS_MAX, node.count("phase") + " questions");
        }
    }
}
