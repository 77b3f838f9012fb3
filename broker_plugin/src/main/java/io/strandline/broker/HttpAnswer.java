package io.strandline.broker;

import java.io.Closeable;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/**
 * The answer to one request, read as it comes. Its body ends where its length or its last chunk
 * says and nowhere else: a connection that closes before is an error.
 */
final class HttpAnswer implements Closeable {
    private static final int HEAD_BYTES_MAX = 16 * 1024;

    /** What was sent already is cheaper read to its end than a new connection is made. */
    private static final int DRAINED_BYTES_MAX = 128 * 1024;

    private static final long DRAIN_MS = 50;
    private static final int CHUNK_DIGITS_MAX = 8;

    private final NodeConnection connection;
    private final ConnectionPool pool;
    private final int status;
    private boolean kept;
    private final Map<String, String> headers;
    private final long length;

    /** Bytes to come: of the body, or of the present chunk. */
    private long left;

    private boolean ended;
    private boolean closed;
    private int headBytes;

    /** Reads the head. */
    HttpAnswer(NodeConnection connection, ConnectionPool pool, Deadline deadline)
            throws IOException {
        this.connection = connection;
        this.pool = pool;
        String first = line(deadline);
        status = statusOf(first);
        headers = new HashMap<>();
        for (String line = line(deadline); !line.isEmpty(); line = line(deadline)) {
            addHeader(line);
        }
        kept = first.startsWith("HTTP/1.1 ") && !"close".equalsIgnoreCase(header("connection"));
        length = bodyLength();
        left = Math.max(0, length);
        ended = length == 0;
    }

    int status() {
        return status;
    }

    /** A header by its name in small letters, or null. */
    String header(String name) {
        return headers.get(name);
    }

    /** Bytes of the body, -1 where it comes in chunks. */
    long length() {
        return length;
    }

    /** More of the request's body, while the answer has begun. */
    void send(byte[] bytes) throws IOException {
        connection.sendMore(bytes, Call.COPY.deadline());
    }

    /** Where the rest of a request may stay unsent: a node would take it from the next one. */
    void endConnection() {
        kept = false;
    }

    /** At least one byte of the body; -1 at its proper end. */
    int read(byte[] target, int offset, int wanted, Deadline deadline) throws IOException {
        if (left == 0 && !ended) {
            left = chunkLength(deadline);
            ended = left == 0;
        }
        if (ended) {
            return -1;
        }
        int most = (int) Math.min(wanted, left);
        int count = connection.read(target, offset, most, deadline);
        left -= count;
        if (left == 0 && length < 0) {
            endOfLine(deadline);
        }
        ended = left == 0 && length >= 0;
        return count;
    }

    /** The whole body, which has at most so many bytes. */
    byte[] readAll(int bytesMax, Deadline deadline) throws IOException {
        if (length > bytesMax) {
            throw NodeException.wrongAnswer("a body of " + length + " bytes");
        }
        byte[] bytes = new byte[length < 0 ? 1024 : (int) length];
        int size = 0;
        while (true) {
            if (size == bytes.length && length < 0) {
                bytes = Arrays.copyOf(bytes, size * 2);
            }
            int count = ended ? -1 : read(bytes, size, bytes.length - size, deadline);
            if (count < 0) {
                return size == bytes.length ? bytes : Arrays.copyOf(bytes, size);
            }
            size += count;
            if (size > bytesMax) {
                throw NodeException.wrongAnswer("a body of more than " + bytesMax + " bytes");
            }
        }
    }

    /**
     * Give the connection back if the body was read, or its rest is small and there; else end it.
     */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (kept && (ended || drained())) {
            pool.release(connection);
        } else {
            connection.close();
        }
    }

    private boolean drained() {
        byte[] nobody = new byte[8 * 1024];
        Deadline deadline = Deadline.afterMs(DRAIN_MS);
        try {
            for (int count = 0, all = 0; all <= DRAINED_BYTES_MAX; all += count) {
                if (left > DRAINED_BYTES_MAX) {
                    return false;
                }
                count = read(nobody, 0, nobody.length, deadline);
                if (count < 0) {
                    return true;
                }
            }
        } catch (IOException e) {
            // Then the connection ends.
        }
        return false;
    }

    private static int statusOf(String line) throws NodeException {
        boolean http = line.startsWith("HTTP/1.1 ") || line.startsWith("HTTP/1.0 ");
        if (!http || line.length() < 12 || !line.substring(9, 12).matches("[1-5][0-9][0-9]")) {
            throw NodeException.wrongAnswer("no status of HTTP");
        }
        return Integer.parseInt(line.substring(9, 12));
    }

    private void addHeader(String line) throws NodeException {
        int colon = line.indexOf(':');
        if (colon < 1) {
            throw NodeException.wrongAnswer("a header without a name");
        }
        String name = line.substring(0, colon).toLowerCase(Locale.ROOT);
        String value = line.substring(colon + 1).trim();
        String before = headers.put(name, value);
        if (before != null && !before.equals(value) && name.equals("content-length")) {
            throw NodeException.wrongAnswer("two lengths");
        }
    }

    private long bodyLength() throws NodeException {
        String text = header("content-length");
        String coding = header("transfer-encoding");
        if (coding != null) {
            if (text != null || !coding.equalsIgnoreCase("chunked")) {
                throw NodeException.wrongAnswer("a body of the coding " + coding);
            }
            return -1;
        }
        if (text == null || !text.matches("[0-9]{1,15}")) {
            throw NodeException.wrongAnswer("a body of unknown length");
        }
        return Long.parseLong(text);
    }

    /** The length of the next chunk; at the last one the trailers are read, too. */
    private long chunkLength(Deadline deadline) throws IOException {
        headBytes = 0;
        String digits = line(deadline).split(";", 2)[0].trim();
        if (digits.length() > CHUNK_DIGITS_MAX || !digits.matches("[0-9a-fA-F]+")) {
            throw NodeException.wrongAnswer("a chunk of unknown length");
        }
        long chunk = Long.parseLong(digits, 16);
        while (chunk == 0 && !line(deadline).isEmpty()) {
            // A trailer, which says nothing to us.
        }
        return chunk;
    }

    private void endOfLine(Deadline deadline) throws IOException {
        headBytes = 0;
        if (!line(deadline).isEmpty()) {
            throw NodeException.wrongAnswer("a chunk longer than it says");
        }
    }

    private String line(Deadline deadline) throws IOException {
        byte[] bytes = new byte[128];
        int size = 0;
        for (int each = connection.read(deadline); each != '\n'; each = connection.read(deadline)) {
            if (++headBytes > HEAD_BYTES_MAX) {
                throw NodeException.wrongAnswer("a head of more than " + HEAD_BYTES_MAX + " bytes");
            }
            if (size == bytes.length) {
                bytes = Arrays.copyOf(bytes, size * 2);
            }
            // Nothing that a log would take for a new line, or worse.
            bytes[size++] = (byte) (each >= ' ' && each < 0x7f || each == '\r' ? each : '?');
        }
        int end = size > 0 && bytes[size - 1] == '\r' ? size - 1 : size;
        return new String(bytes, 0, end, StandardCharsets.US_ASCII).replace('\r', '?');
    }
}
