package io.strandline.broker;

/** The calls of docs/BROKER_PROTOCOL.md, with the plug-in's deadlines. */
enum Call {
    ANNOUNCE("announce", 10_000, Group.ANNOUNCE),
    READY("ready", 1_000, Group.QUESTION),
    LOOKUP("lookup", 1_000, Group.QUESTION),
    HIGHEST("highest", 1_000, Group.QUESTION),
    LIST("list", 1_000, Group.QUESTION),
    ADD("add", 15_000, Group.CHANGE),
    UPDATE("update", 15_000, Group.CHANGE),
    DELETE_PARTITION("delete-partition", 15_000, Group.CHANGE),
    /** The deadline holds for each heartbeat. */
    COPY("copy", 10_000, Group.COPY),
    /** As COPY, where the node asks for the files. */
    COPY_FILES("copy-files", 10_000, Group.COPY),
    /** The deadline holds for the first byte, and for each pause behind it. */
    FETCH("fetch", 2_000, Group.READ),
    /** As FETCH. */
    INDEX("index", 2_000, Group.READ),
    DELETE("delete", 6_000, Group.DELETE),
    /** Of the bridge alone. */
    PHASE("phase", 3_000, Group.ANNOUNCE);

    /** Calls that share a breaker: a quorum that is slow to write says nothing about look-ups. */
    enum Group {
        ANNOUNCE(false, true),
        QUESTION(true, true),
        CHANGE(true, false),
        COPY(false, false),
        READ(false, true),
        DELETE(false, true);

        private final boolean inSession;
        private final boolean repeatable;

        Group(boolean inSession, boolean repeatable) {
            this.inSession = inSession;
            this.repeatable = repeatable;
        }
    }

    private final String word;
    private final long deadlineMs;
    private final Group group;

    Call(String word, long deadlineMs, Group group) {
        this.word = word;
        this.deadlineMs = deadlineMs;
        this.group = group;
    }

    /** The call's name in the path. */
    String word() {
        return word;
    }

    Deadline deadline() {
        return Deadline.afterMs(deadlineMs);
    }

    Group group() {
        return group;
    }

    /** The call carries the announcer's session. */
    boolean inSession() {
        return group.inSession;
    }

    /** Asked twice it does no more than asked once. */
    boolean repeatable() {
        return group.repeatable;
    }
}
