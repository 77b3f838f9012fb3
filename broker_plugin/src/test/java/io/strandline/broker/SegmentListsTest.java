package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.strandline.broker.Bodies.Page;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.TreeMap;

/** Lists are whole, in order, and sent again only where something changed. */
class SegmentListsTest {
    private static final int PAGE_ROWS = 10;

    private final List<SegmentRow> rows = new ArrayList<>();
    private final List<String> asked = new ArrayList<>();
    private final PluginStats stats = new PluginStats("metadata", 0);
    private final SegmentLists lists = new SegmentLists(this::page, stats);
    private byte version = 1;
    private int failAt = -1;

    private void add(int count) {
        for (int i = 0; i < count; i++) {
            long start = rows.size() * 100L;
            rows.add(
                    new SegmentRow(
                            new RemoteLogSegmentId(Honest.TIP, Uuid.randomUuid()),
                            start,
                            start + 99,
                            3,
                            1,
                            1,
                            7,
                            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                            false,
                            new TreeMap<>(java.util.Map.of(4, start)),
                            Optional.empty()));
        }
        version++;
    }

    private Page page(TopicIdPartition tip, int epoch, byte[] t, byte[] c) throws NodeException {
        asked.add((t == null ? "" : "tag") + (c == null ? "" : "cursor " + c[0]));
        byte[] tag = {version};
        if (t != null && t[0] == version && c == null) {
            return new Page(tag, null, null, null);
        }
        int from = c == null ? 0 : c[0] * PAGE_ROWS;
        if (from / PAGE_ROWS == failAt) {
            throw NodeException.timeout("as the test wants it");
        }
        int to = Math.min(rows.size(), from + PAGE_ROWS);
        byte[] next = to == rows.size() ? null : new byte[] {(byte) (to / PAGE_ROWS)};
        byte[] body = Honest.page(tag, next, rows.subList(from, to).toArray(new SegmentRow[0]));
        return Bodies.page(new ByteReader(body), tip);
    }

    private List<RemoteLogSegmentMetadata> all() throws NodeException {
        List<RemoteLogSegmentMetadata> found = new ArrayList<>();
        lists.list(Honest.TIP, -1).forEachRemaining(found::add);
        return found;
    }

    private List<RemoteLogSegmentMetadata> expected() throws NodeException {
        List<RemoteLogSegmentMetadata> found = new ArrayList<>();
        for (SegmentRow row : rows) {
            found.add(row.toKafka());
        }
        return found;
    }

    @Test
    void aListIsAskedForOnceWhileNothingChanges() throws Exception {
        add(35);
        assertEquals(expected(), all());
        assertEquals(4, asked.size());
        assertTrue(lists.bytesKept() > 35 * SegmentRow.BYTES_MIN);
        assertEquals(expected(), all());
        assertEquals(5, asked.size());
        assertEquals(1, stats.getListsUnchanged());
        add(1);
        assertEquals(expected(), all());
        assertEquals(9, asked.size());
        lists.forget(Honest.TIP);
        assertEquals(0, lists.bytesKept());
    }

    @Test
    void anEmptyListIsSaidAndKept() throws Exception {
        assertEquals(List.of(), all());
        assertEquals(List.of(), all());
        assertEquals(List.of("", "tag"), asked);
    }

    @Test
    void theNextPageIsOnlyAskedForWhenTheBrokerGetsThere() throws Exception {
        add(35);
        Iterator<RemoteLogSegmentMetadata> found = lists.list(Honest.TIP, -1);
        for (int i = 0; i < PAGE_ROWS; i++) {
            found.next();
        }
        assertEquals(1, asked.size());
        assertTrue(found.hasNext());
        assertEquals(2, asked.size());
    }

    @Test
    void aChangeOnTheWayMissesNoRowAndIsAskedForAgain() throws Exception {
        add(35);
        Iterator<RemoteLogSegmentMetadata> found = lists.list(Honest.TIP, -1);
        List<RemoteLogSegmentMetadata> seen = new ArrayList<>(List.of(found.next()));
        add(10);
        found.forEachRemaining(seen::add);
        assertEquals(expected(), seen);
        int before = asked.size();
        assertEquals(expected(), all());
        assertEquals(before + 5, asked.size());
        assertEquals(0, stats.getListsUnchanged());
    }

    @Test
    void aListThatBreaksOffIsNeverTakenForTheWhole() throws Exception {
        add(35);
        failAt = 2;
        Iterator<RemoteLogSegmentMetadata> found = lists.list(Honest.TIP, -1);
        for (int i = 0; i < 2 * PAGE_ROWS; i++) {
            found.next();
        }
        assertThrows(ReplicaNotAvailableException.class, found::hasNext);
        assertThrows(ReplicaNotAvailableException.class, found::next);
        failAt = -1;
        assertEquals(rows.size() - 2 * PAGE_ROWS, count(found));
    }

    @Test
    void aListThatWasReadInPartIsGoneOnWithWhereItEnded() throws Exception {
        add(35);
        Iterator<RemoteLogSegmentMetadata> found = lists.list(Honest.TIP, -1);
        for (int i = 0; i < 2 * PAGE_ROWS; i++) {
            found.next();
        }
        assertEquals(List.of("", "tagcursor 1"), asked);
        assertEquals(expected(), all());
        assertEquals(List.of("", "tagcursor 1", "tag", "tagcursor 2", "tagcursor 3"), asked);
    }

    private static int count(Iterator<?> left) {
        int count = 0;
        for (; left.hasNext(); left.next()) {
            count++;
        }
        return count;
    }

    @Test
    void pagesThatLeadNowhereEnd() throws Exception {
        byte[] body = Honest.page(Honest.CURSOR, Honest.finishedRow());
        SegmentLists circle =
                new SegmentLists(
                        (tip, epoch, tag, cursor) -> Bodies.page(new ByteReader(body), tip), stats);
        Iterator<RemoteLogSegmentMetadata> found = circle.list(Honest.TIP, -1);
        found.next();
        assertThrows(ReplicaNotAvailableException.class, found::hasNext);
    }

    @Test
    void sameToWhoHasNothingIsAWrongAnswer() {
        SegmentLists liar =
                new SegmentLists(
                        (tip, epoch, tag, cursor) ->
                                Bodies.page(new ByteReader(Honest.same()), Honest.TIP),
                        stats);
        NodeException seen = assertThrows(NodeException.class, () -> liar.list(Honest.TIP, -1));
        assertEquals(NodeException.Kind.WRONG_ANSWER, seen.kind());
    }

    @Test
    void whatIsKeptIsBounded() throws Exception {
        SegmentRow[] page = new SegmentRow[500];
        Arrays.fill(page, Honest.finishedRow());
        byte[] body = Honest.page(null, page);
        SegmentLists large =
                new SegmentLists(
                        (tip, epoch, tag, cursor) -> Bodies.page(new ByteReader(body), tip), stats);
        for (int number = 0; number < 2_000; number++) {
            TopicPartition partition = new TopicPartition("orders", number);
            Iterator<?> found = large.list(new TopicIdPartition(Honest.TOPIC_ID, partition), -1);
            assertTrue(found.hasNext());
            assertTrue(large.bytesKept() <= 64L << 20, large.bytesKept() + " bytes");
        }
        assertTrue(large.bytesKept() > 60L << 20);
    }
}
