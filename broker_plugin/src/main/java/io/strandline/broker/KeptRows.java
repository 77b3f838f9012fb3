package io.strandline.broker;

import io.strandline.broker.Bodies.Page;

import org.apache.kafka.common.Uuid;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;

/**
 * The rows of a list of one epoch or of all, from its first one on, as the bytes that the node
 * sent. It does not change.
 */
final class KeptRows {
    private static final int PAGE_ROWS = 500;
    private static final byte[] NO_ROWS = new ByteWriter().int32(0).toBytes();

    private final int epoch;
    private final List<byte[]> pages;

    /** The place of the last row when its page came; null where the list is empty. */
    private final RowPlace end;

    private final byte[] cursor;
    private final long bytes;

    private KeptRows(int epoch, List<byte[]> pages, RowPlace end, byte[] cursor) {
        this.epoch = epoch;
        this.pages = List.copyOf(pages);
        this.end = end;
        this.cursor = cursor;
        bytes = pages.stream().mapToLong(page -> page.length).sum();
    }

    /** No row yet. */
    static KeptRows none(int epoch) {
        return new KeptRows(epoch, List.of(), null, null);
    }

    /** Each is a count, and so many rows. */
    List<byte[]> pages() {
        return pages;
    }

    /** The end of these rows, for asking on; null where they are the whole list. */
    byte[] cursor() {
        return cursor;
    }

    long bytes() {
        return bytes;
    }

    /** With the page that comes next. */
    KeptRows with(Page next) throws NodeException {
        RowPlace last = end;
        ByteReader in = new ByteReader(next.rows());
        int count = in.count(SegmentRow.BYTES_MIN);
        for (int left = count; left > 0; left--) {
            last = ascending(last, RowPlace.read(in, epoch));
        }
        if (count == 0 && next.nextCursor() != null) {
            throw NodeException.wrongAnswer("a page without rows that is not the last");
        }
        List<byte[]> more = new ArrayList<>(pages);
        more.add(next.rows());
        return new KeptRows(epoch, more, last, next.nextCursor());
    }

    /** With the changes since, as far as these rows go. Untouched pages stay as they are. */
    KeptRows changed(Page changes) throws NodeException {
        Set<Uuid> old = new HashSet<>(changes.gone());
        Deque<Row> fresh = fresh(changes, old);
        List<byte[]> found = new ArrayList<>();
        Iterator<byte[]> before = (pages.isEmpty() ? List.of(NO_ROWS) : pages).iterator();
        while (before.hasNext()) {
            byte[] page = before.next();
            Cut cut = new Cut();
            boolean touched = false;
            ByteReader in = new ByteReader(page);
            for (int left = in.count(SegmentRow.BYTES_MIN); left > 0; left--) {
                Row row = Row.read(in, epoch);
                while (!fresh.isEmpty() && fresh.peek().place.compareTo(row.place) < 0) {
                    cut.add(fresh.poll());
                    touched = true;
                }
                if (old.contains(row.place.id())) {
                    touched = true;
                } else {
                    cut.add(row);
                }
            }
            while (!before.hasNext() && !fresh.isEmpty()) {
                cut.add(fresh.poll());
                touched = true;
            }
            found.addAll(touched ? cut.pages() : List.of(page));
        }
        return new KeptRows(epoch, found, end, cursor);
    }

    /** The new and changed rows that belong here; their ids are added to `old`. */
    private Deque<Row> fresh(Page changes, Set<Uuid> old) throws NodeException {
        Deque<Row> fresh = new ArrayDeque<>();
        RowPlace before = null;
        ByteReader in = new ByteReader(changes.rows());
        for (int left = in.count(SegmentRow.BYTES_MIN); left > 0; left--) {
            Row row = Row.read(in, epoch);
            before = ascending(before, row.place);
            if (!old.add(row.place.id())) {
                throw NodeException.wrongAnswer("a segment that changed twice");
            }
            if (cursor == null || row.place.compareTo(end) <= 0) {
                fresh.add(row);
            }
        }
        return fresh;
    }

    private static RowPlace ascending(RowPlace before, RowPlace next) throws NodeException {
        if (before != null && before.compareTo(next) > 0) {
            throw NodeException.wrongAnswer("rows that are not in order");
        }
        return next;
    }

    private record Row(RowPlace place, byte[] bytes) {
        static Row read(ByteReader in, int epoch) throws NodeException {
            int from = in.position();
            RowPlace place = RowPlace.read(in, epoch);
            return new Row(place, in.since(from));
        }
    }

    /** Cuts rows into pages again. */
    private static final class Cut {
        private final List<byte[]> pages = new ArrayList<>();
        private final List<byte[]> rows = new ArrayList<>();

        void add(Row row) {
            rows.add(row.bytes);
            if (rows.size() == PAGE_ROWS) {
                end();
            }
        }

        List<byte[]> pages() {
            if (!rows.isEmpty()) {
                end();
            }
            return pages;
        }

        private void end() {
            ByteWriter page = new ByteWriter().int32(rows.size());
            rows.forEach(page::raw);
            pages.add(page.toBytes());
            rows.clear();
        }
    }
}
