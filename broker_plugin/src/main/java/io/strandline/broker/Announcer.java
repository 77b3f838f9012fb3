package io.strandline.broker;

import io.strandline.broker.Bodies.Versions;
import io.strandline.broker.NodeException.Kind;
import io.strandline.broker.Session.Announcement;

import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.Closeable;
import java.io.InputStream;
import java.util.List;
import java.util.Properties;

/** Tells the node on a thread of its own which partitions the broker has. */
final class Announcer implements Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(Announcer.class);

    /** Also where nothing changed, so that a node which was restarted hears of it soon. */
    private static final long AT_LEAST_EVERY_MS = 5_000;

    private static final long PAUSE_MS_MIN = 100;
    private static final long PAUSE_MS_MAX = 2_000;

    private static final Versions VERSIONS = new Versions(PluginVersion.TEXT, kafkaVersion());

    private final Session session;
    private final NodeClient client;
    private final PluginConfig config;
    private final Thread thread;
    private volatile boolean closed;

    Announcer(Session session, NodeClient client, PluginConfig config) {
        this.session = session;
        this.client = client;
        this.config = config;
        thread = ConnectionPool.daemon(this::run, "strandline-announcer");
    }

    void start() {
        thread.start();
    }

    @Override
    public void close() {
        closed = true;
        session.close();
        thread.interrupt();
    }

    private void run() {
        long pauseMs = PAUSE_MS_MIN;
        while (!closed) {
            try {
                session.awaitNews(AT_LEAST_EVERY_MS);
                if (announce()) {
                    pauseMs = PAUSE_MS_MIN;
                } else {
                    Thread.sleep(pauseMs);
                    pauseMs = Math.min(PAUSE_MS_MAX, pauseMs * 2);
                }
            } catch (InterruptedException e) {
                // Closed; whoever else interrupts us is not obeyed.
                LOG.debug("Interrupted");
            } catch (Throwable e) {
                LOG.error("The announcer of Strandline's plug-in goes on after: {}", e.toString());
                pause(PAUSE_MS_MAX);
            }
        }
    }

    /** Waits where a loop can't tell why a round failed: the next one may fail at once. */
    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            LOG.debug("Interrupted");
        }
    }

    /**
     * True unless the next try has to wait. Where a change was not understood, all goes at once.
     */
    private boolean announce() {
        List<Announcement> parts = closed ? List.of() : session.announcements();
        if (parts.isEmpty()) {
            return true;
        }
        boolean whole = parts.get(0).base() == Session.WHOLE_SET;
        long last = parts.get(parts.size() - 1).seq();
        try {
            for (Announcement part : parts) {
                client.ask(
                        Call.ANNOUNCE,
                        null,
                        Bodies.announce(config, VERSIONS, session.id(), part),
                        Call.ANNOUNCE.deadline(),
                        Bodies::announced);
            }
            session.acknowledged(last);
            return true;
        } catch (NodeException e) {
            if (e.is(Kind.RETRY_LATER, "ANNOUNCE") && !whole) {
                session.forgotten(last);
                return true;
            }
            session.unheard(e);
            return false;
        }
    }

    static String kafkaVersion() {
        Properties found = new Properties();
        try (InputStream in = Uuid.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            found.load(in);
        } catch (Throwable e) {
            LOG.debug("The broker's version can't be read: {}", e.toString());
        }
        return found.getProperty("version", "unknown");
    }
}
