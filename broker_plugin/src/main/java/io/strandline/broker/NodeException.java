package io.strandline.broker;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedByInterruptException;
import java.util.Locale;

/**
 * The node did not do what it was asked to: it said why, or no answer that can be believed came.
 * The kinds down to {@link #FENCED} are temporary.
 */
final class NodeException extends IOException {
    private static final int DETAIL_CHARACTERS_MAX = 500;

    /** The kinds of docs/API.md that a broker's call can hear, and four of our own. */
    enum Kind {
        /** No answer in time. */
        TIMEOUT("The node is there but late: see its log and `strandline status`."),
        /** Nothing listens there, or the connection broke. */
        NO_CONNECTION("Start the node, or correct " + PluginConfig.NODE_URL + "."),
        /** The thread was interrupted: the broker wants the call to end. */
        INTERRUPTED,
        /** An answer that is not one of the node's. */
        WRONG_ANSWER(
                "Something else than a node of this version answers: correct "
                        + PluginConfig.NODE_URL
                        + ", take out the proxy, or upgrade the older of plug-in and node."),
        RETRY_LATER,
        OUTCOME_UNKNOWN,
        INTERNAL("Report it, with the node's log."),
        REFUSED(null),
        UNAUTHENTICATED(
                "Put a token of the role broker into the file of " + PluginConfig.TOKEN_FILE + "."),
        FENCED,
        CONFLICT,
        INVALID_REQUEST,
        ALREADY_EXISTS,
        NOT_FOUND,
        CORRUPT_DATA("Bytes are damaged: see `strandline status` at the node.");

        /** A sentence for the log; null: it depends on the reason. */
        final String whatToDo;

        Kind() {
            this("If it stays, see `strandline partitions` at the node.");
        }

        Kind(String whatToDo) {
            this.whatToDo = whatToDo;
        }
    }

    private final Kind kind;
    private final String reason;
    private boolean counted;

    NodeException(Kind kind, String reason, String detail, Throwable cause) {
        super(detail, cause);
        this.kind = kind;
        this.reason = reason;
    }

    /** An error as the node tells it; a kind that this version does not know is a wrong answer. */
    static NodeException told(String kind, String reason, String detail) {
        String word = reason == null ? "" : reason;
        String text = word.isEmpty() ? kind + ": " + detail : kind + " (" + word + "): " + detail;
        return new NodeException(kindOf(kind), word, shortened(text), null);
    }

    static NodeException wrongAnswer(String detail) {
        return new NodeException(
                Kind.WRONG_ANSWER, "", "The answer has " + shortened(detail), null);
    }

    static NodeException timeout(String detail) {
        return new NodeException(Kind.TIMEOUT, "", detail, null);
    }

    /** Why a request failed, from the exception of the connection or of the decoding. */
    static NodeException of(Exception problem, Deadline deadline) {
        if (problem instanceof NodeException known) {
            return known;
        }
        String text = shortened(problem.toString());
        if (problem instanceof ClosedByInterruptException
                || Thread.currentThread().isInterrupted()) {
            return new NodeException(Kind.INTERRUPTED, "", "Interrupted: " + text, problem);
        }
        if (problem instanceof SocketTimeoutException || deadline.passed()) {
            return new NodeException(Kind.TIMEOUT, "", "No answer in time", problem);
        }
        return new NodeException(Kind.NO_CONNECTION, "", "The connection failed: " + text, problem);
    }

    Kind kind() {
        return kind;
    }

    /** It stands in the metrics and the log already. */
    boolean counted() {
        return counted;
    }

    void setCounted() {
        counted = true;
    }

    /** A word in capitals, or empty. */
    String reason() {
        return reason;
    }

    boolean is(Kind wanted, String wantedReason) {
        return kind == wanted && reason.equals(wantedReason);
    }

    /** It may work again, and nothing that was asked for is known to be undone for good. */
    boolean temporary() {
        return kind.compareTo(Kind.FENCED) < 0;
    }

    private static Kind kindOf(String text) {
        for (Kind kind : Kind.values()) {
            boolean ours = kind.compareTo(Kind.RETRY_LATER) < 0;
            if (!ours && kind.name().toLowerCase(Locale.ROOT).equals(text)) {
                return kind;
            }
        }
        return Kind.WRONG_ANSWER;
    }

    private static String shortened(String text) {
        return text.length() <= DETAIL_CHARACTERS_MAX
                ? text
                : text.substring(0, DETAIL_CHARACTERS_MAX) + "...";
    }
}
