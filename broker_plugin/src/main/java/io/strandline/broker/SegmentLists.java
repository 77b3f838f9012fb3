package io.strandline.broker;

import io.strandline.broker.Bodies.Page;
import io.strandline.broker.NodeException.Kind;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

import java.lang.ref.SoftReference;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.NoSuchElementException;

/**
 * Lists of segments, page by page. The rows that came are kept as bytes, up to where the broker
 * read; the node says that nothing changed since, or what did. They are bounded, and go when the
 * heap is short.
 */
final class SegmentLists {
    private static final long KEPT_BYTES_MAX = 64L * 1024 * 1024;
    private static final int PAGES_MAX = 100_000;

    private final Asking asking;
    private final PluginStats stats;
    private final Map<Key, Kept> kept = new LinkedHashMap<>(16, 0.75f, true);
    private long keptBytes;

    SegmentLists(Asking asking, PluginStats stats) {
        this.asking = asking;
        this.stats = stats;
    }

    /** Asks the node for a page, or for the changes since a tag. */
    interface Asking {
        Page page(TopicIdPartition tip, int epoch, byte[] tag, byte[] cursor) throws NodeException;
    }

    private record Key(TopicIdPartition tip, int epoch) {}

    private record Kept(byte[] tag, SoftReference<KeptRows> rows, long bytes) {
        Kept(byte[] tag, KeptRows rows) {
            this(tag, new SoftReference<>(rows), rows.bytes());
        }
    }

    /** The segments of an epoch, or of all. The first page is here when this returns. */
    Iterator<RemoteLogSegmentMetadata> list(TopicIdPartition tip, int epoch) throws NodeException {
        Key key = new Key(tip, epoch);
        Kept before = kept(key);
        KeptRows rows = before == null ? null : before.rows.get();
        try {
            return listed(key, before, rows);
        } catch (NodeException e) {
            if (e.kind() == Kind.WRONG_ANSWER) {
                forget(key);
            }
            throw e;
        }
    }

    private Rows listed(Key key, Kept before, KeptRows rows) throws NodeException {
        byte[] tag = rows == null ? null : before.tag;
        Page first = asking.page(key.tip, key.epoch, tag, null);
        if (rows == null && (first.same() || first.changes())) {
            throw NodeException.wrongAnswer("news for who has nothing");
        }
        if (first.same()) {
            if (!Arrays.equals(tag, first.tag())) {
                throw NodeException.wrongAnswer("\"the same\" of another tag");
            }
            stats.listUnchanged();
            return new Rows(key, before, rows);
        }
        KeptRows now;
        if (first.changes()) {
            now = rows.changed(first);
            stats.listChanged();
        } else {
            now = KeptRows.none(key.epoch).with(first);
        }
        Kept next = new Kept(first.tag(), now);
        keep(key, before, next);
        return new Rows(key, next, now);
    }

    synchronized long bytesKept() {
        return keptBytes;
    }

    private synchronized Kept kept(Key key) {
        return kept.get(key);
    }

    /** Replaces what was there; false: it is another thread's by now, or this is too much. */
    private synchronized boolean keep(Key key, Kept before, Kept next) {
        if (kept.get(key) != before || next.bytes > KEPT_BYTES_MAX) {
            return false;
        }
        forget(key);
        kept.put(key, next);
        keptBytes += next.bytes;
        Iterator<Kept> oldest = kept.values().iterator();
        while (keptBytes > KEPT_BYTES_MAX) {
            keptBytes -= oldest.next().bytes;
            oldest.remove();
        }
        return true;
    }

    private synchronized void forget(Key key) {
        Kept old = kept.remove(key);
        if (old != null) {
            keptBytes -= old.bytes;
        }
    }

    /** Drop the lists of partitions that are no longer here. */
    synchronized void forget(TopicIdPartition tip) {
        kept.keySet().stream().filter(key -> key.tip.equals(tip)).toList().forEach(this::forget);
    }

    /** Goes through the rows that are here, then asks for each next page when it gets there. */
    private final class Rows implements Iterator<RemoteLogSegmentMetadata> {
        private final Key key;
        private final Iterator<byte[]> here;
        private final byte[] tag;
        private Kept kept;
        private KeptRows rows;
        private byte[] cursor;
        private ByteReader reader;
        private int left;
        private int asked;

        Rows(Key key, Kept kept, KeptRows rows) {
            this.key = key;
            this.kept = kept;
            this.rows = rows;
            tag = kept.tag;
            here = rows.pages().iterator();
            cursor = rows.cursor();
        }

        @Override
        public boolean hasNext() {
            try {
                while (left == 0 && nextPage()) {
                    // A page may be empty.
                }
                return left > 0;
            } catch (Throwable e) {
                throw Failures.unavailable(e);
            }
        }

        @Override
        public RemoteLogSegmentMetadata next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            try {
                left--;
                return SegmentRow.read(reader, key.tip).toKafka();
            } catch (Throwable e) {
                throw Failures.unavailable(e);
            }
        }

        private boolean nextPage() throws NodeException {
            if (here.hasNext()) {
                start(here.next());
                return true;
            }
            if (cursor == null) {
                return false;
            }
            Page next = asking.page(key.tip, key.epoch, tag, cursor);
            boolean rowsCame = !next.same() && !next.changes();
            if (!rowsCame || Arrays.equals(next.nextCursor(), cursor) || ++asked > PAGES_MAX) {
                throw NodeException.wrongAnswer("a page that leads nowhere");
            }
            grow(next);
            cursor = next.nextCursor();
            start(next.rows());
            return true;
        }

        /** Keeps the page, too, if the node says that it may stand behind these rows. */
        private void grow(Page next) throws NodeException {
            if (rows == null || !Arrays.equals(tag, next.tag())) {
                rows = null;
                return;
            }
            rows = rows.with(next);
            Kept more = new Kept(tag, rows);
            if (keep(key, kept, more)) {
                kept = more;
            } else {
                rows = null;
            }
        }

        private void start(byte[] page) throws NodeException {
            reader = new ByteReader(page);
            left = reader.count(SegmentRow.BYTES_MIN);
        }
    }
}
