package io.strandline.broker;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.Closeable;
import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.Map;
import java.util.Optional;

/**
 * Kafka's own metadata manager inside of the bridge, and the methods of it that not every supported
 * version has. It is configured once the cluster of its topic can be reached: some versions end the
 * broker when they could not make their clients for two minutes.
 */
final class TopicManager implements Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(TopicManager.class);
    private static final int CONNECTS_WITHIN_MS = 500;
    private static final MethodHandles.Lookup LOOKUP = MethodHandles.publicLookup();

    private final RemoteLogMetadataManager kafka;
    private final Map<String, ?> settings;
    private final String bootstrap;
    private final MethodHandle isReady;
    private final MethodHandle nextWithTxnIndex;
    private final MethodHandle onBrokerReady;
    private volatile boolean started;
    private volatile boolean closed;

    /** `bootstrap` is where the topic's cluster listens; empty: it is not known, nor waited for. */
    TopicManager(RemoteLogMetadataManager kafka, Map<String, ?> settings, String bootstrap) {
        this.kafka = kafka;
        this.settings = settings;
        this.bootstrap = bootstrap;
        isReady = method("isReady", boolean.class, TopicIdPartition.class);
        nextWithTxnIndex =
                method(
                        "nextSegmentWithTxnIndex",
                        Optional.class,
                        TopicIdPartition.class,
                        int.class,
                        long.class);
        onBrokerReady = method("onBrokerReady", void.class);
    }

    /** Since 4.0; before, it is ready once it was started. */
    boolean isReady(TopicIdPartition tip) {
        try {
            return started && (isReady == null || (boolean) isReady.invoke(kafka, tip));
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    @SuppressWarnings("unchecked")
    Optional<RemoteLogSegmentMetadata> nextWithTxnIndex(
            TopicIdPartition tip, int epoch, long offset) throws RemoteStorageException {
        if (nextWithTxnIndex == null) {
            throw new UnsupportedOperationException("Kafka 3.9 does not ask for this");
        }
        try {
            return (Optional<RemoteLogSegmentMetadata>)
                    nextWithTxnIndex.invoke(kafka, tip, epoch, offset);
        } catch (RemoteStorageException | RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    boolean hasBrokerReady() {
        return onBrokerReady != null;
    }

    /** Start it if it is not, and its cluster listens. */
    synchronized void start() {
        if (started || closed || !listens()) {
            return;
        }
        started = true;
        try {
            kafka.configure(settings);
            if (onBrokerReady != null) {
                // The broker can't: it sees its own wrapper around the bridge (4.2 and newer).
                onBrokerReady.invoke(kafka);
            }
        } catch (Throwable e) {
            LOG.error("Kafka's own metadata manager did not start: nothing is tiered", e);
        }
    }

    boolean isClosed() {
        return closed;
    }

    /** On a thread of its own where the caller must not wait for Kafka's clients. */
    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
        }
        try {
            kafka.close();
        } catch (IOException | RuntimeException e) {
            LOG.warn("Kafka's own metadata manager did not close cleanly", e);
        }
    }

    private boolean listens() {
        if (bootstrap.isEmpty()) {
            return true;
        }
        for (String each : bootstrap.split(",")) {
            String host = Utils.getHost(each.trim());
            Integer port = Utils.getPort(each.trim());
            if (host == null || port == null) {
                return true; // Kafka's client says what is wrong with it
            }
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress(host, port), CONNECTS_WITHIN_MS);
                return true;
            } catch (IOException e) {
                LOG.debug("{} does not listen yet: {}", each, e.toString());
            }
        }
        return false;
    }

    private MethodHandle method(String name, Class<?> result, Class<?>... arguments) {
        try {
            return LOOKUP.findVirtual(
                    kafka.getClass(), name, MethodType.methodType(result, arguments));
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }
}
