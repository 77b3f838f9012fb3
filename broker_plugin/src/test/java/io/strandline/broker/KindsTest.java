package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** The last table of docs/BROKER_PROTOCOL.md: which exception each kind becomes, by column. */
@Tag("each-version")
class KindsTest {
    private static final String UNAVAILABLE = "ReplicaNotAvailableException";
    private static final String AGAIN =
            BrokerApi.hasRetriable() ? "RetriableRemoteStorageException" : UNAVAILABLE;
    private static final String GONE = "RemoteResourceNotFoundException";
    private static final String FAILED = "RemoteStorageException";

    /** Kind and reason: what look-ups, changes, storage calls, and an index throw. */
    private static final Map<String, List<String>> TABLE =
            Map.ofEntries(
                    row("retry_later", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN),
                    row("outcome_unknown", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN),
                    row("internal", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN),
                    row("refused", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN),
                    row("refused TWO_BROKERS", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN),
                    row("unauthenticated", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN),
                    row("fenced", UNAVAILABLE, "FencedLeaderEpochException", FAILED, FAILED),
                    row("conflict", UNAVAILABLE, FAILED, FAILED, FAILED),
                    row("invalid_request", UNAVAILABLE, FAILED, FAILED, FAILED),
                    row("already_exists", UNAVAILABLE, FAILED, FAILED, FAILED),
                    row("corrupt_data", UNAVAILABLE, FAILED, FAILED, FAILED),
                    row("not_found GONE", GONE, GONE, GONE, FAILED),
                    row("not_found NO_SUCH_INDEX", UNAVAILABLE, UNAVAILABLE, FAILED, GONE),
                    row("not_found TOPIC", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN),
                    row("no_such_route", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN),
                    row("timeout", UNAVAILABLE, UNAVAILABLE, AGAIN, AGAIN));

    private static Map.Entry<String, List<String>> row(String kind, String... thrown) {
        return Map.entry(kind, List.of(thrown));
    }

    static Stream<Arguments> each() {
        return TABLE.keySet().stream()
                .flatMap(
                        kind ->
                                Arrays.stream(Spi.values())
                                        .map(method -> Arguments.of(kind, method)));
    }

    @ParameterizedTest(name = "{0}: {1}")
    @MethodSource("each")
    void becomes(String kindAndReason, Spi method) throws Exception {
        String[] words = kindAndReason.split(" ");
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url()).announced()) {
            node.on(
                    method.wire,
                    FakeNode.error(409, words[0], words.length > 1 ? words[1] : "ANY"));
            if (method == Spi.IS_READY) {
                assertFalse(plugin.metadata.isReady(Honest.TIP));
                return;
            }
            int column = method == Spi.INDEX ? 3 : method.column.ordinal();
            assertEquals(TABLE.get(kindAndReason).get(column), thrown(method, plugin));
        }
    }

    static Stream<String> kinds() {
        return TABLE.keySet().stream();
    }

    @ParameterizedTest
    @MethodSource("kinds")
    void aCopyToldToFailOnItsWayIsTheSame(String kindAndReason) throws Exception {
        String[] words = kindAndReason.split(" ");
        byte[] stream =
                new ByteWriter()
                        .int8(0)
                        .int8(2)
                        .string(words[0])
                        .string(words.length > 1 ? words[1] : "")
                        .string("it failed")
                        .toBytes();
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            node.on(
                    "copy",
                    FakeNode.okHead(
                            -1,
                            (request, out) -> {
                                FakeNode.chunk(out, stream);
                                FakeNode.chunk(out, new byte[0]);
                            }));
            assertEquals(TABLE.get(kindAndReason).get(2), thrown(Spi.COPY, plugin));
        }
    }

    private static String thrown(Spi method, Plugin plugin) {
        try {
            return "the result " + method.patientCall(plugin);
        } catch (Throwable e) {
            return e.getClass().getSimpleName();
        }
    }
}
