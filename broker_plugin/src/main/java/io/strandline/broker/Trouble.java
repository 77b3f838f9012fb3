package io.strandline.broker;

import io.strandline.broker.NodeException.Kind;

import org.apache.kafka.common.TopicIdPartition;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** At most one line a minute in the broker's log that says what fails, and what to do. */
final class Trouble {
    private static final Logger LOG = LoggerFactory.getLogger(Trouble.class);
    private static final long PAUSE_NANOS = 60_000_000_000L;

    private final NodeAddress address;
    private final Minute failures = new Minute();
    private final Minute waits = new Minute();

    Trouble(NodeAddress address) {
        this.address = address;
    }

    /** Counts, and says when it is time for a line. */
    private static final class Minute {
        private long count;
        private long lastNanos;
        private boolean said;

        /** How many there were since the last line; 0: no line now. */
        synchronized long due() {
            count++;
            long now = System.nanoTime();
            if (said && now - lastNanos < PAUSE_NANOS) {
                return 0;
            }
            long due = count;
            said = true;
            lastNanos = now;
            count = 0;
            return due;
        }
    }

    void failed(Call call, NodeException failure) {
        String line = line(call, failure);
        if (line != null) {
            LOG.warn(line);
        } else {
            LOG.debug("{} at {}: {}", call.word(), address, failure.getMessage());
        }
    }

    /** The line for a failure; null for one that is ordinary, or too soon after another. */
    String line(Call call, NodeException failure) {
        long count = ordinary(failure) ? 0 : failures.due();
        return count == 0
                ? null
                : String.format(
                        "Tiered storage through the Strandline node %s: %s failed: %s. %s (%d since"
                                + " the last such line%s.)",
                        address,
                        call.word(),
                        failure.getMessage(),
                        whatToDo(failure),
                        count,
                        failure.kind() == Kind.CORRUPT_DATA
                                ? ""
                                : "; the broker asks again, and nothing is lost");
    }

    void notReady(TopicIdPartition tip, String why) {
        long count = waits.due();
        if (count > 0) {
            LOG.info(
                    "Tiered storage of {} waits for the Strandline node {}: {} ({} answers like"
                            + " this since the last such line.)",
                    tip,
                    address,
                    why,
                    count);
        }
    }

    /** Answers that belong to a healthy node. */
    private static boolean ordinary(NodeException failure) {
        return failure.kind() == Kind.INTERRUPTED
                || failure.is(Kind.RETRY_LATER, "ANNOUNCE")
                || failure.is(Kind.NOT_FOUND, "GONE")
                || failure.is(Kind.NOT_FOUND, "NO_SUCH_INDEX");
    }

    private static String whatToDo(NodeException failure) {
        String always = failure.kind().whatToDo;
        return always == null ? whatToDoWhenRefused(failure.reason()) : always;
    }

    private static String whatToDoWhenRefused(String reason) {
        switch (reason) {
            case "CLUSTER":
                return "The node belongs to another Kafka cluster: correct "
                        + PluginConfig.NODE_URL
                        + ".";
            case "BROKER_ID":
                return "The node stands beside another broker: each broker names its own node in "
                        + PluginConfig.NODE_URL
                        + ".";
            case "TWO_BROKERS":
                return "Two brokers name this node: each needs its own.";
            case "PROTOCOL":
                return "Upgrade the older of plug-in and node.";
            default:
                return "The token needs the role broker, and the node delegated mode.";
        }
    }
}
