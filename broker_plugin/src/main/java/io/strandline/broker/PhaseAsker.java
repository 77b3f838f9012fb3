package io.strandline.broker;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.Closeable;
import java.util.concurrent.TimeUnit;

/** Asks the node each second which phase the move is in, on a thread of its own. */
final class PhaseAsker implements Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(PhaseAsker.class);
    private static final long EVERY_NANOS = 1_000_000_000L;

    private final PluginConfig config;
    private final NodeClient client;
    private final PhaseLease lease;
    private final Runnable asked;
    private final Thread thread;
    private volatile boolean closed;

    /** What the node answers to `phase`. */
    record Told(Phase phase, long since) {}

    /** `asked` is called behind each answer that was taken. */
    PhaseAsker(PluginConfig config, PhaseLease lease, Runnable asked) {
        this.config = config;
        this.lease = lease;
        this.asked = asked;
        client =
                new NodeClient(
                        config,
                        new PluginStats("phase", config.brokerId()),
                        new Trouble(config.node()));
        thread = ConnectionPool.daemon(this::run, "strandline-phase");
    }

    void start() {
        thread.start();
    }

    @Override
    public void close() {
        closed = true;
        thread.interrupt();
        client.close();
    }

    static byte[] body(PluginConfig config, int seen, int outstanding) {
        ByteWriter out = new ByteWriter().string(config.clusterId()).int32(config.brokerId());
        return out.int8(seen).int32(outstanding).toBytes();
    }

    static Told told(ByteReader in) throws NodeException {
        Bodies.applied(in);
        return new Told(Phase.of(in.int8()), in.int64());
    }

    private void run() {
        while (!closed) {
            long began = System.nanoTime();
            try {
                ask(began);
                long left = EVERY_NANOS - (System.nanoTime() - began);
                if (left > 0) {
                    TimeUnit.NANOSECONDS.sleep(left);
                }
            } catch (InterruptedException e) {
                // Closed; whoever else interrupts us is not obeyed.
                LOG.debug("Interrupted");
            } catch (Throwable e) {
                LOG.error(
                        "Strandline's bridge goes on to ask for the phase after: {}", e.toString());
                Announcer.pause(EVERY_NANOS / 1_000_000);
            }
        }
    }

    private void ask(long began) {
        int seen = lease.seen();
        // Behind `seen`: what was begun before that phase was heard is counted.
        int outstanding = lease.outstanding(began);
        Told told;
        try {
            byte[] body = body(config, seen, outstanding);
            told = client.ask(Call.PHASE, null, body, Call.PHASE.deadline(), PhaseAsker::told);
        } catch (NodeException e) {
            LOG.debug("The phase was not heard", e);
            return;
        }
        if (!lease.heard(told.phase(), told.since(), began, System.nanoTime())) {
            LOG.warn(
                    "The node says that the move from Kafka's topic is in phase {} since metadata"
                            + " offset {}, which is before what it said already. Nothing is changed"
                            + " in the tier until it says the newer one again; if its metadata was"
                            + " restored to an earlier state, restart this broker.",
                    told.phase(),
                    told.since());
            return;
        }
        asked.run();
    }
}
