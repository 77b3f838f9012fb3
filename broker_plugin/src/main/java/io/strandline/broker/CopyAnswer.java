package io.strandline.broker;

import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Optional;

/** Follows a copy: a heartbeat a second, and how it ended. */
final class CopyAnswer {
    private static final int HEARTBEAT = 0;
    private static final int DONE = 1;
    private static final int FAILED = 2;
    private static final int SEND_FILES = 3;

    /** One a second: no copy takes more than a day. */
    private static final int HEARTBEATS_MAX = 100_000;

    /** A broker's default bound; a task dies of more. */
    private static final int CUSTOM_METADATA_BYTES_MAX = 128;

    private final HttpAnswer answer;
    private Deadline deadline;

    CopyAnswer(HttpAnswer answer) {
        this.answer = answer;
    }

    /**
     * Waits for the end of the copy as long as the node says that it goes on. Null: it asks for the
     * files.
     */
    Optional<CustomMetadata> result() throws IOException {
        deadline = Call.COPY.deadline();
        int part = bytes(1).get();
        for (int beats = 1; part == HEARTBEAT && beats < HEARTBEATS_MAX; beats++) {
            deadline = Call.COPY.deadline();
            part = bytes(1).get();
        }
        switch (part) {
            case DONE:
                return customMetadata(bytes(4).getInt());
            case SEND_FILES:
                return null;
            case FAILED:
                String kind = string();
                String reason = string();
                throw NodeException.told(kind, reason, string());
            default:
                throw NodeException.wrongAnswer("a part of a copy that begins with " + part);
        }
    }

    private Optional<CustomMetadata> customMetadata(int length) throws IOException {
        if (length == -1) {
            return Optional.empty();
        }
        if (length < 0 || length > CUSTOM_METADATA_BYTES_MAX) {
            throw NodeException.wrongAnswer("custom metadata of " + length + " bytes");
        }
        return Optional.of(new CustomMetadata(bytes(length).array()));
    }

    private String string() throws IOException {
        int length = bytes(2).getShort();
        if (length < 0) {
            throw NodeException.wrongAnswer("a length of " + length);
        }
        return new String(bytes(length).array(), StandardCharsets.UTF_8)
                .replaceAll("\\p{Cntrl}", "?");
    }

    private ByteBuffer bytes(int count) throws IOException {
        byte[] bytes = new byte[count];
        for (int size = 0; size < count; ) {
            int more = answer.read(bytes, size, count - size, deadline);
            if (more < 0) {
                throw NodeException.wrongAnswer("no end of the copy");
            }
            size += more;
        }
        return ByteBuffer.wrap(bytes);
    }
}
