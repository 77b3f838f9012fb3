package io.strandline.broker;

import org.apache.kafka.common.Uuid;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Writes the fields of a body: integers big-endian and of fixed size. */
final class ByteWriter {
    private ByteBuffer buffer = ByteBuffer.allocate(256);

    ByteWriter int8(int value) {
        room(1).put((byte) value);
        return this;
    }

    ByteWriter bool(boolean value) {
        return int8(value ? 1 : 0);
    }

    ByteWriter int32(int value) {
        room(4).putInt(value);
        return this;
    }

    ByteWriter int64(long value) {
        room(8).putLong(value);
        return this;
    }

    ByteWriter uuid(Uuid value) {
        return int64(value.getMostSignificantBits()).int64(value.getLeastSignificantBits());
    }

    /** An int16 length and UTF-8; a longer text is the caller's mistake. */
    ByteWriter string(String value) {
        byte[] utf8 = value.getBytes(StandardCharsets.UTF_8);
        if (utf8.length > Short.MAX_VALUE) {
            throw new IllegalArgumentException("A text of " + utf8.length + " bytes is too long");
        }
        room(2 + utf8.length).putShort((short) utf8.length).put(utf8);
        return this;
    }

    /** An int32 length, -1 for null, and the bytes. */
    ByteWriter bytes(byte[] value) {
        if (value == null) {
            return int32(-1);
        }
        room(4 + value.length).putInt(value.length).put(value);
        return this;
    }

    /** The bytes alone, without a length. */
    ByteWriter raw(byte[] value) {
        room(value.length).put(value);
        return this;
    }

    byte[] toBytes() {
        return Arrays.copyOf(buffer.array(), buffer.position());
    }

    private ByteBuffer room(int bytes) {
        if (buffer.remaining() < bytes) {
            int capacity = Math.max(buffer.capacity() * 2, buffer.position() + bytes);
            buffer = ByteBuffer.allocate(capacity).put(buffer.flip());
        }
        return buffer;
    }
}
