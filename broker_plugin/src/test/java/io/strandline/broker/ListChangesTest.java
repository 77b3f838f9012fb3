package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.strandline.broker.Bodies.Page;
import io.strandline.broker.NodeException.Kind;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;

/** A list that is kept by its changes is the whole list of the node, whatever happens there. */
class ListChangesTest {
    private static final int PAGE_ROWS = 3;
    private static final int ITEMS_MAX = 30;
    private static final int ALL = Bodies.ALL_EPOCHS;
    private static final int[] EPOCHS = {ALL, 0, 1, 2, 3};

    private final PluginStats stats = new PluginStats("metadata", 0);
    private final SegmentLists lists = new SegmentLists(this::answer, stats);
    private final List<Item> items = new ArrayList<>();
    private final List<Change> history = new ArrayList<>();
    private Random chance = new Random(0);
    private int life = 1;
    private int version;
    private int remembered;
    private boolean old;
    private int pagesAsked;

    /** A row, and its first offset by epoch. */
    private record Item(SegmentRow row, TreeMap<Integer, Long> starts) {
        Uuid id() {
            return row.id().id();
        }

        int epoch(int asked) {
            return asked == ALL ? starts.firstKey() : asked;
        }

        byte[] place(int asked) {
            int epoch = epoch(asked);
            ByteBuffer place = ByteBuffer.allocate(28).putInt(epoch).putLong(starts.get(epoch));
            place.putLong(id().getMostSignificantBits()).putLong(id().getLeastSignificantBits());
            return place.array();
        }
    }

    private record Change(int version, Uuid id) {}

    private List<Item> whole(int epoch) {
        return items.stream()
                .filter(each -> epoch == ALL || each.starts.containsKey(epoch))
                .sorted(Comparator.comparing(each -> each.place(epoch), Arrays::compareUnsigned))
                .toList();
    }

    /** The node, which speaks as one before the changes where `old`. */
    private Page answer(TopicIdPartition tip, int epoch, byte[] tag, byte[] cursor)
            throws NodeException {
        byte[] now = {(byte) life, (byte) (version >> 8), (byte) version};
        if (cursor == null && Arrays.equals(tag, now)) {
            return read(new ByteWriter().int64(1).bytes(now).bool(true).toBytes());
        }
        Set<Uuid> since = old ? null : since(tag);
        if (cursor == null && since != null) {
            return read(changes(now, since, epoch));
        }
        pagesAsked++;
        List<Item> rest =
                whole(epoch).stream()
                        .filter(
                                each ->
                                        cursor == null
                                                || Arrays.compareUnsigned(each.place(epoch), cursor)
                                                        > 0)
                        .toList();
        List<Item> page = rest.subList(0, Math.min(PAGE_ROWS, rest.size()));
        byte[] next = page.size() == rest.size() ? null : page.get(page.size() - 1).place(epoch);
        return read(Honest.page(since == null ? now : tag, next, rows(page)));
    }

    private byte[] changes(byte[] now, Set<Uuid> changed, int epoch) {
        List<Item> present =
                whole(epoch).stream().filter(each -> changed.contains(each.id())).toList();
        Set<Uuid> gone = new LinkedHashSet<>(changed);
        present.forEach(each -> gone.remove(each.id()));
        return Honest.changes(now, List.copyOf(gone), rows(present));
    }

    private static Page read(byte[] body) throws NodeException {
        ByteReader in = new ByteReader(body);
        Page page = Bodies.page(in, Honest.TIP);
        in.end();
        return page;
    }

    /** The ids that changed since a tag; null: not known. */
    private Set<Uuid> since(byte[] tag) {
        if (tag == null || tag[0] != (byte) life) {
            return null;
        }
        int at = Byte.toUnsignedInt(tag[1]) << 8 | Byte.toUnsignedInt(tag[2]);
        if (at < remembered) {
            return null;
        }
        Set<Uuid> found = new LinkedHashSet<>();
        history.stream().filter(each -> each.version > at).forEach(each -> found.add(each.id));
        return found;
    }

    private static SegmentRow[] rows(List<Item> items) {
        return items.stream().map(Item::row).toArray(SegmentRow[]::new);
    }

    private void event() {
        int choice = chance.nextInt(20);
        if (choice == 0) {
            life++;
            remembered = version;
        } else if (choice == 1) {
            remembered = version - chance.nextInt(3);
        } else if (items.isEmpty() || choice < 11 && items.size() < ITEMS_MAX) {
            items.add(item());
            changed(items.get(items.size() - 1));
        } else if (choice < 14) {
            int at = chance.nextInt(items.size());
            items.set(at, inState(items.get(at), RemoteLogSegmentState.DELETE_SEGMENT_STARTED));
            changed(items.get(at));
        } else {
            changed(items.remove(chance.nextInt(items.size())));
        }
    }

    private void changed(Item item) {
        version++;
        history.add(new Change(version, item.id()));
    }

    /** It begins before its first epoch with an offset, or a later epoch begins within it. */
    private Item item() {
        long start = chance.nextInt(5) * 100L;
        int epoch = chance.nextInt(3);
        TreeMap<Integer, Long> starts = new TreeMap<>(Map.of(epoch, start));
        TreeMap<Integer, Long> epochs = new TreeMap<>(Map.of(epoch, start));
        if (chance.nextBoolean()) {
            epochs.put(epoch, start - 30);
        }
        if (chance.nextBoolean()) {
            starts.put(epoch + 1, start + 50);
            epochs.put(epoch + 1, start + 50);
        }
        if (epoch > 0 && chance.nextBoolean()) {
            epochs.put(epoch - 1, start - 40);
            epochs.put(epoch, start);
        }
        RemoteLogSegmentId id =
                new RemoteLogSegmentId(Honest.TIP, new Uuid(chance.nextLong(), chance.nextLong()));
        return new Item(
                new SegmentRow(
                        id,
                        start,
                        start + 99,
                        3,
                        1,
                        1,
                        7,
                        RemoteLogSegmentState.COPY_SEGMENT_STARTED,
                        false,
                        epochs,
                        Optional.empty()),
                starts);
    }

    private static Item inState(Item item, RemoteLogSegmentState state) {
        SegmentRow row = item.row;
        return new Item(
                new SegmentRow(
                        row.id(),
                        row.startOffset(),
                        row.endOffset(),
                        row.brokerId(),
                        row.maxTimestampMs(),
                        row.eventTimestampMs(),
                        row.sizeBytes(),
                        state,
                        row.txnIndexEmpty(),
                        row.leaderEpochs(),
                        row.customMetadata()),
                item.starts);
    }

    private void check(int epoch) throws NodeException {
        List<RemoteLogSegmentMetadata> expected = new ArrayList<>();
        for (SegmentRow row : rows(whole(epoch))) {
            expected.add(row.toKafka());
        }
        List<RemoteLogSegmentMetadata> found = new ArrayList<>();
        lists.list(Honest.TIP, epoch).forEachRemaining(found::add);
        assertEquals(expected, found);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4, 5, 6})
    void theListIsTheWholeListAfterEachEvent(int seed) throws Exception {
        chance = new Random(seed);
        for (int i = 0; i < 500; i++) {
            event();
            old = i % 250 > 230;
            int epoch = EPOCHS[chance.nextInt(EPOCHS.length)];
            if (chance.nextBoolean()) {
                check(epoch);
            } else {
                readInPart(epoch);
            }
        }
        for (int epoch : EPOCHS) {
            check(epoch);
        }
        assertTrue(stats.getListsChanged() > 100, stats.getListsChanged() + " by changes");
    }

    /** Some rows, and events between them. */
    private void readInPart(int epoch) throws NodeException {
        Iterator<RemoteLogSegmentMetadata> found = lists.list(Honest.TIP, epoch);
        for (int left = chance.nextInt(20); left > 0 && found.hasNext(); left--) {
            found.next();
            if (chance.nextInt(4) == 0) {
                event();
            }
        }
    }

    @Test
    void aCopyThatEndsSendsOneRow() throws Exception {
        for (int i = 0; i < 50; i++) {
            items.add(item());
            changed(items.get(i));
        }
        check(ALL);
        int before = pagesAsked;
        items.set(7, inState(items.get(7), RemoteLogSegmentState.COPY_SEGMENT_FINISHED));
        changed(items.get(7));
        check(ALL);
        assertEquals(before, pagesAsked);
        assertEquals(1, stats.getListsChanged());
    }

    @Test
    void aListThatBecameEmptyIsFilledAgain() throws Exception {
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 7; i++) {
                items.add(item());
                changed(items.get(i));
            }
            check(ALL);
            while (!items.isEmpty()) {
                changed(items.remove(0));
            }
            check(ALL);
        }
        assertEquals(3, pagesAsked);
    }

    @Test
    void changesThatCannotBeAreAWrongAnswerAndTheWholeListIsAskedForNext() throws Exception {
        SegmentRow first = Honest.finishedRow();
        SegmentRow second = Honest.secondRow();
        byte[] tag = {7};
        Map<String, byte[]> wrong = new TreeMap<>();
        wrong.put("not in order", Honest.changes(tag, List.of(), second, first));
        wrong.put("twice", Honest.changes(tag, List.of(), first, first));
        wrong.put("gone and there", Honest.changes(tag, List.of(first.id().id()), first));
        byte[] unknownForm = Honest.same().clone();
        unknownForm[unknownForm.length - 1] = 3;
        wrong.put("unknown form", unknownForm);
        for (Map.Entry<String, byte[]> each : wrong.entrySet()) {
            List<String> asked = new ArrayList<>();
            SegmentLists believing =
                    new SegmentLists(
                            (tip, epoch, had, cursor) -> {
                                asked.add(had == null ? "whole" : "changes");
                                return read(
                                        had == null
                                                ? Honest.page(null, first, second)
                                                : each.getValue());
                            },
                            stats);
            believing.list(Honest.TIP, ALL);
            NodeException seen =
                    assertThrows(
                            NodeException.class,
                            () -> believing.list(Honest.TIP, ALL),
                            each.getKey());
            assertEquals(Kind.WRONG_ANSWER, seen.kind());
            believing.list(Honest.TIP, ALL);
            assertEquals(List.of("whole", "changes", "whole"), asked, each.getKey());
        }
    }

    @Test
    void aRowOfAnotherEpochOrChangesForWhoHasNothingAreWrongAnswers() {
        List<byte[]> wrong =
                List.of(
                        Honest.changes(Honest.TAG, List.of(), Honest.finishedRow()),
                        Honest.page(null, Honest.secondRow()),
                        Honest.page(Honest.CURSOR));
        for (byte[] body : wrong) {
            SegmentLists liar = new SegmentLists((tip, epoch, tag, cursor) -> read(body), stats);
            NodeException seen = assertThrows(NodeException.class, () -> liar.list(Honest.TIP, 0));
            assertEquals(Kind.WRONG_ANSWER, seen.kind());
            assertEquals(0, liar.bytesKept());
        }
    }
}
