package io.strandline.broker;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;

/**
 * Idle connections to one node, the last used first. As many are in use as the broker has threads
 * that ask.
 */
final class ConnectionPool implements Closeable {
    private static final int IDLE_MAX = 16;

    /** Shorter than the node keeps them, so that a request rarely meets a closing one. */
    private static final long IDLE_NANOS_MAX = 30_000_000_000L;

    private final NodeAddress address;
    private final ScheduledExecutorService watchdog;
    private final ArrayDeque<NodeConnection> idle = new ArrayDeque<>();
    private boolean closed;

    ConnectionPool(NodeAddress address) {
        this.address = address;
        ScheduledThreadPoolExecutor executor =
                new ScheduledThreadPoolExecutor(
                        1, task -> daemon(task, "strandline-connection-deadlines"));
        executor.setRemoveOnCancelPolicy(true);
        watchdog = executor;
    }

    static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    /** An idle connection, or null. */
    synchronized NodeConnection idle() {
        NodeConnection connection = idle.pollFirst();
        if (connection != null && connection.idleLongerThan(IDLE_NANOS_MAX)) {
            connection.close();
            clear();
            return null;
        }
        return connection;
    }

    NodeConnection open(Deadline deadline) throws IOException {
        return NodeConnection.open(address, deadline, watchdog);
    }

    /** Take a connection back whose answer was read to its end. */
    synchronized void release(NodeConnection connection) {
        if (closed || !connection.empty()) {
            connection.close();
            return;
        }
        connection.idleFromNow();
        idle.addFirst(connection);
        if (idle.size() > IDLE_MAX) {
            idle.removeLast().close();
        }
    }

    /** Close what is idle: the node was restarted, or nothing was asked for long. */
    synchronized void clear() {
        idle.forEach(NodeConnection::close);
        idle.clear();
    }

    synchronized int idleCount() {
        return idle.size();
    }

    @Override
    public synchronized void close() {
        closed = true;
        clear();
        watchdog.shutdownNow();
    }
}
