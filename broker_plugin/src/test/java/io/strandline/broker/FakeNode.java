package io.strandline.broker;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/** A node in this process that answers each call as a test says: rightly, or wrongly in any way. */
final class FakeNode implements Closeable {
    /** A request as it came in; of `copy-files` the files are still to be read. */
    record Request(String call, String head, byte[] body, InputStream files) {
        String header(String name) {
            for (String line : head.split("\r\n")) {
                if (line.toLowerCase(Locale.ROOT).startsWith(name.toLowerCase(Locale.ROOT) + ":")) {
                    return line.substring(name.length() + 1).trim();
                }
            }
            return null;
        }
    }

    /** Writes an answer, or what is none; an exception closes the connection. */
    interface Behaviour {
        void answer(Request request, OutputStream out) throws Exception;
    }

    private final ServerSocket server;
    private final Map<String, Behaviour> behaviours = new ConcurrentHashMap<>();
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    final List<Request> requests = new CopyOnWriteArrayList<>();
    final AtomicInteger connections = new AtomicInteger();

    FakeNode() throws IOException {
        this(new ServerSocket(0, 50, InetAddress.getLoopbackAddress()));
    }

    FakeNode(ServerSocket server) {
        this.server = server;
        ConnectionPool.daemon(this::accept, "fake-node").start();
        Honest.answers().forEach(behaviours::put);
    }

    int port() {
        return server.getLocalPort();
    }

    String url() {
        return "http://127.0.0.1:" + port();
    }

    void on(String call, Behaviour behaviour) {
        behaviours.put(call, behaviour);
    }

    /** Answer rightly again. */
    void heal() {
        Honest.answers().forEach(behaviours::put);
    }

    long count(String call) {
        return requests.stream().filter(each -> each.call.equals(call)).count();
    }

    List<Request> all(String call) {
        return requests.stream().filter(each -> each.call.equals(call)).toList();
    }

    /** Close every connection, as a node does that is restarted. */
    void dropConnections() throws IOException {
        for (Socket socket : sockets) {
            socket.close();
        }
    }

    @Override
    public void close() throws IOException {
        server.close();
        dropConnections();
    }

    private void accept() {
        while (!server.isClosed()) {
            try {
                Socket socket = server.accept();
                connections.incrementAndGet();
                sockets.add(socket);
                ConnectionPool.daemon(() -> serve(socket), "fake-node-connection").start();
            } catch (IOException e) {
                // Closed, or a handshake that failed.
            }
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            InputStream in = socket.getInputStream();
            OutputStream out = socket.getOutputStream();
            while (true) {
                Request request = read(in);
                requests.add(request);
                behaviours.get(request.call).answer(request, out);
                out.flush();
            }
        } catch (Exception e) {
            // The connection ends here.
        } finally {
            sockets.remove(socket);
        }
    }

    private static Request read(InputStream in) throws IOException {
        ByteArrayOutputStream head = new ByteArrayOutputStream();
        while (!head.toString(StandardCharsets.US_ASCII).endsWith("\r\n\r\n")) {
            int each = in.read();
            if (each < 0) {
                throw new EOFException();
            }
            head.write(each);
        }
        String text = head.toString(StandardCharsets.US_ASCII);
        String call = text.split(" ")[1].replace("/v1/broker/", "");
        Request early = new Request(call, text, new byte[0], in);
        if (call.equals("copy-files")) {
            byte[] size = in.readNBytes(4);
            byte[] rest = in.readNBytes(ByteBuffer.wrap(size).getInt());
            return new Request(call, text, new ByteWriter().raw(size).raw(rest).toBytes(), in);
        }
        byte[] body = in.readNBytes(Integer.parseInt(early.header("Content-Length")));
        return new Request(call, text, body, in);
    }

    static byte[] head(int status, String... headers) {
        String lines = headers.length == 0 ? "" : String.join("\r\n", headers) + "\r\n";
        return ("HTTP/1.1 " + status + " X\r\n" + lines + "\r\n")
                .getBytes(StandardCharsets.US_ASCII);
    }

    /** A right answer with these bytes. */
    static Behaviour ok(byte[] body, String... more) {
        return (request, out) -> {
            String[] headers = new String[more.length + 2];
            System.arraycopy(more, 0, headers, 2, more.length);
            headers[0] = "Content-Type: " + NodeClient.MEDIA_TYPE;
            headers[1] = "Content-Length: " + body.length;
            out.write(head(200, headers));
            out.write(body);
        };
    }

    /** The head of a right answer, and whatever else. */
    static Behaviour okHead(long length, Behaviour then, String... more) {
        return (request, out) -> {
            String[] headers = new String[more.length + 2];
            System.arraycopy(more, 0, headers, 2, more.length);
            headers[0] = "Content-Type: " + NodeClient.MEDIA_TYPE;
            headers[1] = length < 0 ? "Transfer-Encoding: chunked" : "Content-Length: " + length;
            out.write(head(200, headers));
            out.flush();
            then.answer(request, out);
        };
    }

    static Behaviour error(int status, String kind, String reason) {
        return raw(
                head(
                        status,
                        "Strandline-Kind: " + kind,
                        "Strandline-Reason: " + reason,
                        "Strandline-Detail: as the test wants it",
                        "Content-Length: 0"));
    }

    static Behaviour raw(byte[] bytes) {
        return (request, out) -> out.write(bytes);
    }

    static Behaviour raw(String text) {
        return raw(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    /** Then the connection is closed. */
    static Behaviour thenClose(Behaviour first) {
        return (request, out) -> {
            first.answer(request, out);
            out.flush();
            throw new EOFException();
        };
    }

    /** Then nothing more comes. */
    static Behaviour thenHang(Behaviour first) {
        return (request, out) -> {
            first.answer(request, out);
            out.flush();
            Thread.sleep(60_000);
        };
    }

    /** A byte now and then. */
    static Behaviour drip(byte[] bytes, long pauseMs) {
        return (request, out) -> {
            for (byte each : bytes) {
                out.write(each);
                out.flush();
                Thread.sleep(pauseMs);
            }
        };
    }

    static void chunk(OutputStream out, byte[] bytes) throws IOException {
        out.write((Integer.toHexString(bytes.length) + "\r\n").getBytes(StandardCharsets.US_ASCII));
        out.write(bytes);
        out.write("\r\n".getBytes(StandardCharsets.US_ASCII));
        out.flush();
    }
}
