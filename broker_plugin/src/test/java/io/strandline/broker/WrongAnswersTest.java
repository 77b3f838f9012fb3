package io.strandline.broker;

import static io.strandline.broker.FakeNode.head;
import static io.strandline.broker.FakeNode.ok;
import static io.strandline.broker.FakeNode.okHead;
import static io.strandline.broker.FakeNode.raw;
import static io.strandline.broker.FakeNode.thenClose;
import static io.strandline.broker.FakeNode.thenHang;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.strandline.broker.FakeNode.Behaviour;

import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.stream.Stream;

/**
 * Each method meets each wrong answer: the broker sees "try again" and nothing else, in time, and
 * the method works as soon as the node does. Never is anything wrong taken for "there is nothing".
 */
class WrongAnswersTest {
    private static final long SPARE_MS = 10_000;
    private static final Set<Spi> SAME_WAY =
            EnumSet.of(
                    Spi.NEXT_TXN,
                    Spi.LIST_EPOCH,
                    Spi.SIZE,
                    Spi.UPDATE,
                    Spi.DELETE_PARTITION,
                    Spi.FETCH_RANGE);

    /** Wrong answers that take a deadline to be seen. */
    private static final Set<String> LATE =
            Set.of(
                    "hangs before the first byte",
                    "hangs within the head",
                    "hangs within the body",
                    "drips its head",
                    "100 and then nothing");

    static Map<String, Behaviour> wrong() {
        Map<String, Behaviour> all = new LinkedHashMap<>();
        String type = "Content-Type: " + NodeClient.MEDIA_TYPE;
        all.put("closes without a byte", thenClose(raw("")));
        all.put("hangs before the first byte", thenHang(raw("")));
        all.put("hangs within the head", thenHang(raw("HTTP/1.1 200 OK\r\nContent-Le")));
        all.put("closes within the head", thenClose(raw("HTTP/1.1 200 OK\r\nContent-Le")));
        all.put("hangs within the body", thenHang(okHead(990, raw("\0"))));
        all.put("cuts the body", thenClose(okHead(990, raw("\0\0\0"))));
        all.put("cuts a chunked body", thenClose(okHead(-1, raw("8\r\n\0\0\0"))));
        all.put("cuts between two chunks", thenClose(okHead(-1, raw("1\r\n\0\r\n"))));
        all.put("says nothing in chunks", okHead(-1, raw("0\r\n\r\n")));
        all.put("chunks of no length", okHead(-1, raw("zz\r\n\0\r\n")));
        all.put("chunks of a huge length", okHead(-1, raw("ffffffffffffffff\r\n\0\r\n")));
        all.put("404 of a proxy", raw(head(404, "Content-Length: 0")));
        all.put("404 with our type", raw(head(404, type, "Content-Length: 0")));
        all.put("a page of HTML", raw(html(200)));
        all.put("502 with a page", raw(html(502)));
        all.put("a redirect", raw(head(302, "Location: http://127.0.0.1/", "Content-Length: 0")));
        all.put("204", raw(head(204, type)));
        all.put("100 and then nothing", thenHang(raw(head(100))));
        all.put("nothing", ok(new byte[0]));
        all.put("zeros", ok(new byte[7]));
        all.put("garbage", ok(random(200)));
        all.put("no HTTP", thenClose(raw(random(5_000))));
        all.put("no length", thenClose(raw(head(200, type))));
        all.put("a length of words", thenClose(raw(head(200, type, "Content-Length: many"))));
        all.put(
                "two lengths",
                thenClose(raw(head(200, type, "Content-Length: 8", "Content-Length: 9"))));
        all.put("far too long", thenHang(okHead(1L << 40, raw("\0"))));
        all.put("a body without end", okHead(-1, WrongAnswersTest::endless));
        all.put("a head without end", WrongAnswersTest::endlessHead);
        all.put("compressed", thenClose(raw(head(200, type, "Transfer-Encoding: gzip"))));
        all.put("drips its head", FakeNode.drip(head(200, type, "X: " + "y".repeat(99)), 900));
        all.put("an unknown kind", FakeNode.error(418, "teapot", "SHORT"));
        all.put("not_found of something", FakeNode.error(404, "not_found", "TOPIC"));
        all.put("retry_later", FakeNode.error(503, "retry_later", "BUSY"));
        all.put("announce anew, for ever", FakeNode.error(503, "retry_later", "ANNOUNCE"));
        return all;
    }

    static Stream<Arguments> matrix() {
        return Arrays.stream(Spi.values())
                .flatMap(
                        method ->
                                wrong().keySet().stream()
                                        .filter(name -> !LATE.contains(name) || isFirst(method))
                                        .filter(name -> !fits(method, name))
                                        .map(name -> Arguments.of(method, name)));
    }

    @ParameterizedTest(name = "{0}: {1}")
    @MethodSource("matrix")
    void isTriedAgainAndWorksAfterwards(Spi method, String name) throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            checkHeals(method, plugin);
            node.on(method.wire, wrong().get(name));
            long began = System.nanoTime();
            checkTemporary(method, plugin);
            long tookMs = (System.nanoTime() - began) / 1_000_000;
            assertTrue(tookMs < deadlineMs(method) + SPARE_MS, "it took " + tookMs + " ms");
            node.heal();
            checkHeals(method, plugin);
        }
    }

    /** An index has no form: any bytes may be one, if they are as many as was said. */
    private static boolean fits(Spi method, String name) {
        return method == Spi.INDEX && Set.of("nothing", "zeros", "garbage").contains(name);
    }

    /** Methods that share their way to the node meet the slow tests once. */
    private static boolean isFirst(Spi method) {
        return !SAME_WAY.contains(method);
    }

    static Stream<Spi> methods() {
        return Arrays.stream(Spi.values());
    }

    @ParameterizedTest
    @MethodSource("methods")
    void aNodeThatIsNotThere(Spi method) throws Exception {
        // Bound, so that no other test's node gets the port meanwhile, and nobody listens.
        try (Socket bound = new Socket()) {
            bound.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            try (Plugin plugin = new Plugin("http://127.0.0.1:" + bound.getLocalPort())) {
                checkTemporary(method, plugin);
            }
        }
    }

    @ParameterizedTest
    @MethodSource("methods")
    void aNodeThatDropsItsConnections(Spi method) throws Exception {
        try (FakeNode node = new FakeNode();
                Plugin plugin = new Plugin(node.url())) {
            checkHeals(method, plugin);
            node.dropConnections();
            checkHeals(method, plugin);
        }
    }

    private static void checkTemporary(Spi method, Plugin plugin) {
        if (method == Spi.IS_READY) {
            assertEquals(false, plugin.metadata.isReady(Honest.TIP));
            return;
        }
        Object result;
        try {
            result = method.call(plugin);
        } catch (Throwable e) {
            assertTrue(allowed(method, e), "the broker sees " + e);
            return;
        }
        throw new AssertionError("the broker believes " + result);
    }

    private static boolean allowed(Spi method, Throwable problem) {
        if (method.column != Spi.Column.STORAGE) {
            return problem.getClass() == ReplicaNotAvailableException.class;
        }
        // A stream that was handed out breaks off; all else has the exception of its kind.
        boolean stream = method.wire.equals("fetch") || method.wire.equals("index");
        return BrokerApiTest.isRetriable(problem) || stream && problem instanceof IOException;
    }

    private static void checkHeals(Spi method, Plugin plugin) throws Exception {
        Throwable last = null;
        for (int i = 0; i < 200; i++) {
            try {
                Object found = method.call(plugin);
                if (!Boolean.FALSE.equals(found)) {
                    assertEquals(method.right(), found, "afterwards");
                    return;
                }
            } catch (Exception e) {
                last = e;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("it does not work again", last);
    }

    private static long deadlineMs(Spi method) {
        for (Call call : Call.values()) {
            if (call.word().equals(method.wire)) {
                return (call.deadline().atNanos() - System.nanoTime()) / 1_000_000;
            }
        }
        throw new AssertionError(method.wire);
    }

    private static byte[] html(int status) {
        String page = "<html>Welcome</html>";
        return concat(
                head(status, "Content-Type: text/html", "Content-Length: " + page.length()),
                page.getBytes(java.nio.charset.StandardCharsets.US_ASCII));
    }

    private static byte[] concat(byte[] first, byte[] second) {
        return new ByteWriter().raw(first).raw(second).toBytes();
    }

    private static byte[] random(int count) {
        byte[] bytes = new byte[count];
        new Random(count).nextBytes(bytes);
        return bytes;
    }

    private static void endless(FakeNode.Request request, java.io.OutputStream out)
            throws IOException {
        for (int i = 0; i < 100_000; i++) {
            FakeNode.chunk(out, new byte[16 * 1024]);
        }
        throw new EOFException();
    }

    private static void endlessHead(FakeNode.Request request, java.io.OutputStream out)
            throws IOException {
        out.write("HTTP/1.1 200 OK\r\n".getBytes(java.nio.charset.StandardCharsets.US_ASCII));
        for (int i = 0; i < 1_000_000; i++) {
            out.write("X: y\r\n".getBytes(java.nio.charset.StandardCharsets.US_ASCII));
        }
        throw new EOFException();
    }
}
