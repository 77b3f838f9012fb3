package io.strandline.broker;

import org.apache.kafka.common.config.ConfigException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;

/** The token for the node. The file is read again when it has changed, so tokens can be rolled. */
final class TokenFile {
    private static final Logger LOG = LoggerFactory.getLogger(TokenFile.class);
    private static final long LOOK_EVERY_NANOS = 1_000_000_000L;
    private static final long BYTES_MAX = 4_096;

    private final Path path;
    private String token;
    private FileTime modified;
    private long lookedAtNanos;

    private TokenFile(Path path) {
        this.path = path;
    }

    /** No path: no token is sent. A file that can't be read, or holds none, is a wrong setting. */
    static TokenFile of(Path path) {
        TokenFile file = new TokenFile(path);
        if (path != null) {
            try {
                file.read();
            } catch (IOException e) {
                throw new ConfigException(PluginConfig.TOKEN_FILE, path, e.toString());
            }
        }
        return file;
    }

    /** The token of now, or null. A file that became unreadable leaves the one that was read. */
    synchronized String token() {
        long now = System.nanoTime();
        if (path != null && now - lookedAtNanos >= LOOK_EVERY_NANOS) {
            lookedAtNanos = now;
            try {
                if (!Files.getLastModifiedTime(path).equals(modified)) {
                    read();
                }
            } catch (IOException e) {
                LOG.debug("The token that was read before stays: {}", e.toString());
            }
        }
        return token;
    }

    /** The node refused the token: look at the file at the next call. */
    synchronized void refused() {
        lookedAtNanos = System.nanoTime() - LOOK_EVERY_NANOS;
        modified = null;
    }

    private synchronized void read() throws IOException {
        FileTime time = Files.getLastModifiedTime(path);
        if (Files.size(path) > BYTES_MAX) {
            throw new IOException("It has more than " + BYTES_MAX + " bytes");
        }
        String text = Files.readString(path, StandardCharsets.US_ASCII).trim();
        if (text.isEmpty() || !text.chars().allMatch(each -> each > ' ' && each < 0x7f)) {
            throw new IOException("It must hold one token of visible ASCII characters");
        }
        token = text;
        modified = time;
        lookedAtNanos = System.nanoTime();
    }
}
