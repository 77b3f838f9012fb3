package io.strandline.broker;

import org.apache.kafka.common.Uuid;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * Reads the fields of a body. Whatever does not fit is a wrong answer: a body that is too short, a
 * length below zero, a boolean that is neither 0 nor 1, bytes behind the last field.
 */
final class ByteReader {
    private final ByteBuffer buffer;

    ByteReader(byte[] bytes) {
        buffer = ByteBuffer.wrap(bytes);
    }

    int int8() throws NodeException {
        return need(1).get();
    }

    boolean bool() throws NodeException {
        int value = int8();
        if (value != 0 && value != 1) {
            throw NodeException.wrongAnswer("a boolean of " + value);
        }
        return value == 1;
    }

    int int32() throws NodeException {
        return need(4).getInt();
    }

    long int64() throws NodeException {
        return need(8).getLong();
    }

    Uuid uuid() throws NodeException {
        need(16);
        return new Uuid(buffer.getLong(), buffer.getLong());
    }

    String string() throws NodeException {
        int length = need(2).getShort();
        return new String(take(length), StandardCharsets.UTF_8);
    }

    /** Bytes, or null where the length is -1. */
    byte[] bytes() throws NodeException {
        int length = int32();
        return length == -1 ? null : take(length);
    }

    /** A count of things that take at least so many bytes each: no count makes us reserve more. */
    int count(int bytesEachMin) throws NodeException {
        int count = int32();
        if (count < 0 || count > buffer.remaining() / bytesEachMin) {
            throw NodeException.wrongAnswer(
                    "a count of " + count + " with " + buffer.remaining() + " bytes left");
        }
        return count;
    }

    void skip(int bytes) throws NodeException {
        need(bytes).position(buffer.position() + bytes);
    }

    int position() {
        return buffer.position();
    }

    /** The bytes from a position before this one up to here. */
    byte[] since(int position) {
        byte[] bytes = new byte[buffer.position() - position];
        buffer.get(position, bytes);
        return bytes;
    }

    void end() throws NodeException {
        if (buffer.hasRemaining()) {
            throw NodeException.wrongAnswer(buffer.remaining() + " bytes behind the last field");
        }
    }

    private byte[] take(int length) throws NodeException {
        if (length < 0) {
            throw NodeException.wrongAnswer("a length of " + length);
        }
        need(length);
        byte[] bytes = new byte[length];
        buffer.get(bytes);
        return bytes;
    }

    private ByteBuffer need(int bytes) throws NodeException {
        if (buffer.remaining() < bytes) {
            throw NodeException.wrongAnswer(
                    "a body that ends " + (bytes - buffer.remaining()) + " bytes too early");
        }
        return buffer;
    }
}
