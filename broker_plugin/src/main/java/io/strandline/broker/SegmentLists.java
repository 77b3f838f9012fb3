package io.strandline.broker;

import io.strandline.broker.Bodies.Page;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;

/**
 * Lists of segments, page by page. Lists that came whole are kept as bytes, only to be used where
 * the node says that nothing changed; they are bounded, and go when the heap is short.
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

    /** Asks the node for a page. */
    interface Asking {
        Page page(TopicIdPartition tip, int epoch, byte[] tag, byte[] cursor) throws NodeException;
    }

    private record Key(TopicIdPartition tip, int epoch) {}

    private record Kept(byte[] tag, SoftReference<List<byte[]>> pages, long bytes) {}

    /** The segments of an epoch, or of all. The first page is here when this returns. */
    Iterator<RemoteLogSegmentMetadata> list(TopicIdPartition tip, int epoch) throws NodeException {
        Key key = new Key(tip, epoch);
        Kept before = kept(key);
        List<byte[]> pages = before == null ? null : before.pages.get();
        byte[] tag = pages == null ? null : before.tag;
        Page first = asking.page(tip, epoch, tag, null);
        if (!first.same()) {
            return new Rows(key, first);
        }
        if (pages == null || !Arrays.equals(tag, first.tag())) {
            throw NodeException.wrongAnswer("\"the same\" to who has nothing");
        }
        stats.listUnchanged();
        return new Rows(key, pages);
    }

    synchronized long bytesKept() {
        return keptBytes;
    }

    private synchronized Kept kept(Key key) {
        return kept.get(key);
    }

    private synchronized void keep(Key key, byte[] tag, List<byte[]> pages, long bytes) {
        forget(key);
        if (bytes > KEPT_BYTES_MAX) {
            return;
        }
        kept.put(key, new Kept(tag, new SoftReference<>(pages), bytes));
        keptBytes += bytes;
        Iterator<Kept> oldest = kept.values().iterator();
        while (keptBytes > KEPT_BYTES_MAX) {
            keptBytes -= oldest.next().bytes;
            oldest.remove();
        }
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

    /** Goes through a list: over kept pages, or asking for each next one when it gets there. */
    private final class Rows implements Iterator<RemoteLogSegmentMetadata> {
        private final Key key;
        private final List<byte[]> pages;
        private final byte[] tag;
        private int page;
        private ByteReader reader;
        private int left;
        private byte[] cursor;
        private long bytes;
        private boolean oneTag = true;

        /** Over pages that the node called current. */
        Rows(Key key, List<byte[]> pages) throws NodeException {
            this.key = key;
            this.pages = pages;
            tag = null;
            oneTag = false;
            start(pages.get(0));
        }

        /** From a first page on. */
        Rows(Key key, Page first) throws NodeException {
            this.key = key;
            pages = new ArrayList<>();
            tag = first.tag();
            took(first);
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
            if (tag == null) {
                page++;
                if (page < pages.size()) {
                    start(pages.get(page));
                }
                return page < pages.size();
            }
            if (cursor == null) {
                return false;
            }
            Page next = asking.page(key.tip, key.epoch, null, cursor);
            if (next.same() || Arrays.equals(next.nextCursor(), cursor) || ++page > PAGES_MAX) {
                throw NodeException.wrongAnswer("a page that leads nowhere");
            }
            took(next);
            return true;
        }

        private void took(Page next) throws NodeException {
            cursor = next.nextCursor();
            bytes += next.rows().length;
            oneTag &= Arrays.equals(tag, next.tag()) && bytes <= KEPT_BYTES_MAX;
            if (oneTag) {
                pages.add(next.rows());
            } else {
                pages.clear();
            }
            start(next.rows());
            if (cursor == null && oneTag) {
                keep(key, tag, List.copyOf(pages), bytes);
            } else if (cursor == null) {
                forget(key);
            }
        }

        private void start(byte[] rows) throws NodeException {
            reader = new ByteReader(rows);
            left = reader.count(SegmentRow.BYTES_MIN);
        }
    }
}
