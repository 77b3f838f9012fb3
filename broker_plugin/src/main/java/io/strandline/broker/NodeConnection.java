package io.strandline.broker;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/**
 * One connection to the node, used by one thread at a time. It stands on a channel, so that an
 * interrupt of the thread closes it: a broker that cancels a copy ends it at once.
 */
final class NodeConnection implements Closeable {
    private static final int BUFFER_BYTES = 16 * 1024;

    /** So much fits into the kernel's buffer of a connection that has nothing under way. */
    private static final int SENT_AT_ONCE_BYTES = 8 * 1024;

    private final SocketChannel channel;
    private final Socket socket;
    private final InputStream in;
    private final OutputStream out;
    private final ScheduledExecutorService watchdog;
    private final byte[] buffer = new byte[BUFFER_BYTES];
    private int next;
    private int limit;
    private boolean answerBegan;
    private long idleSinceNanos;

    private NodeConnection(SocketChannel channel, Socket socket, ScheduledExecutorService watchdog)
            throws IOException {
        this.channel = channel;
        this.socket = socket;
        this.watchdog = watchdog;
        in = socket.getInputStream();
        out = socket.getOutputStream();
    }

    static NodeConnection open(
            NodeAddress address, Deadline deadline, ScheduledExecutorService watchdog)
            throws IOException {
        SocketChannel channel = SocketChannel.open();
        boolean opened = false;
        try {
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            InetSocketAddress target = new InetSocketAddress(address.host(), address.port());
            channel.socket().connect(target, deadline.remainingMs());
            Socket socket = channel.socket();
            if (address.tls() != null) {
                socket = secured(channel, address, deadline, watchdog);
            }
            NodeConnection connection = new NodeConnection(channel, socket, watchdog);
            opened = true;
            return connection;
        } finally {
            if (!opened) {
                channel.close();
            }
        }
    }

    /** The stream over the channel's own socket: an interrupt closes it as well. */
    private static Socket secured(
            SocketChannel channel,
            NodeAddress address,
            Deadline deadline,
            ScheduledExecutorService watchdog)
            throws IOException {
        Future<?> end = closeAt(deadline, channel, watchdog);
        try {
            SSLSocket socket =
                    (SSLSocket)
                            address.tls()
                                    .createSocket(
                                            channel.socket(), address.host(), address.port(), true);
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            socket.startHandshake();
            return socket;
        } finally {
            end.cancel(false);
        }
    }

    /** Send a whole request. A peer that takes no bytes makes the connection close in time. */
    void send(byte[] request, Deadline deadline) throws IOException {
        answerBegan = false;
        if (request.length <= SENT_AT_ONCE_BYTES) {
            out.write(request);
        } else {
            sendMore(request, deadline);
        }
    }

    /** More of a request that is under way: the peer may take no byte of it, however few. */
    void sendMore(byte[] bytes, Deadline deadline) throws IOException {
        Future<?> end = closeAt(deadline, channel, watchdog);
        try {
            out.write(bytes);
        } catch (IOException e) {
            boolean late = deadline.passed() && !Thread.currentThread().isInterrupted();
            throw late ? NodeException.timeout("The node takes no bytes") : e;
        } finally {
            end.cancel(false);
        }
    }

    /** The next byte; the end of the connection is an error here. */
    int read(Deadline deadline) throws IOException {
        if (next == limit) {
            next = 0;
            limit = 0;
            limit = receive(buffer, 0, buffer.length, deadline);
        }
        return buffer[next++] & 0xff;
    }

    /** At least one byte, at most `length`. */
    int read(byte[] target, int offset, int length, Deadline deadline) throws IOException {
        if (next == limit) {
            return receive(target, offset, length, deadline);
        }
        int count = Math.min(length, limit - next);
        System.arraycopy(buffer, next, target, offset, count);
        next += count;
        return count;
    }

    /** A byte of an answer has come since the request was sent. */
    boolean answerBegan() {
        return answerBegan;
    }

    /** The peer closed this idle connection, or sent what nobody asked for, or it can't be told. */
    boolean maybeStale() {
        if (socket instanceof SSLSocket || next != limit) {
            return true;
        }
        try {
            channel.configureBlocking(false);
            int count = channel.read(ByteBuffer.allocate(1));
            channel.configureBlocking(true);
            return count != 0;
        } catch (IOException e) {
            return true;
        }
    }

    void idleFromNow() {
        idleSinceNanos = System.nanoTime();
    }

    boolean idleLongerThan(long nanos) {
        return System.nanoTime() - idleSinceNanos > nanos;
    }

    /** No byte of an answer is left over. */
    boolean empty() {
        return next == limit;
    }

    @Override
    public void close() {
        try {
            channel.close();
        } catch (IOException e) {
            // It is gone either way.
        }
    }

    private int receive(byte[] target, int offset, int length, Deadline deadline)
            throws IOException {
        socket.setSoTimeout(deadline.remainingMs());
        int count = in.read(target, offset, length);
        if (count < 0) {
            throw new EOFException("The node closed the connection");
        }
        answerBegan = true;
        return count;
    }

    private static Future<?> closeAt(
            Deadline deadline, SocketChannel channel, ScheduledExecutorService watchdog)
            throws NodeException {
        return watchdog.schedule(
                () -> {
                    channel.close();
                    return null;
                },
                deadline.remainingMs(),
                TimeUnit.MILLISECONDS);
    }
}
