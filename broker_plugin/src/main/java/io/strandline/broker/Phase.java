package io.strandline.broker;

/**
 * A phase of the move from Kafka's metadata topic to the node (docs/BROKER_PROTOCOL.md), in the
 * order of its numbers there.
 */
enum Phase {
    KAFKA(Side.TOPIC, true),
    SWITCHING(Side.TOPIC, false),
    QUORUM(Side.NODE, true),
    DONE(Side.NODE, true),
    /** Frozen like SWITCHING, but the truth is the node's until the comparison held. */
    BACK(Side.NODE, false);

    /** Which of the two managers is asked. */
    enum Side {
        TOPIC,
        NODE
    }

    private final Side side;
    private final boolean open;

    Phase(Side side, boolean open) {
        this.side = side;
        this.open = open;
    }

    /** Where the truth is: look-ups go there, and changes while the phase is open. */
    Side side() {
        return side;
    }

    /** False: nobody changes anything. */
    boolean isOpen() {
        return open;
    }

    static Phase of(int number) throws NodeException {
        Phase[] all = values();
        if (number < 0 || number >= all.length) {
            throw NodeException.wrongAnswer("the phase " + number);
        }
        return all[number];
    }
}
