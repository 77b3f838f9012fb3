"""A fast path for usual segment adds, which are applied in runs. Pure.

Nearly every record of a busy log adds a segment under the claim in force, in the same layout, to
the partition of the record before. The checks of the first one apply to the whole run. `apply` has
the rules: it would accept every record taken here, and write the same rows, as the tests check; a
record that differs in a byte or a row is left to it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.apply import apply_over
from rlmm.apply.claims import check_partition
from rlmm.apply.outcome import ACCEPTED, Draft, Outcome, find_live
from rlmm.apply.purge import put_record_time, record_time_after
from rlmm.metadata_log import CommittedRecord
from rlmm.partition_state import Mode
from rlmm.records.fixed_layout import DEADLINE, NO_TXN_INDEX, authority_bytes, partition_in_record
from rlmm.records.segment_records import SEGMENT_FRONT
from rlmm.records.short_lengths import read_short_length
from rlmm.rows import keys
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import read_measured_time, read_record_time
from rlmm.rows.rows import OverlayRows
from rlmm.rows.shadow import is_kept_up
from rlmm.segment import OFFSET_MAX, SegmentState

_FRONT_BYTES = len(SEGMENT_FRONT)
_PARTITION_BYTES = 21  # topic id, number, no tags

# Segment id, no tags, offsets, (broker and times: any), one epoch, size; no custom metadata, state,
# and the tags that the claim gives to all: how many, perhaps "no transaction index", token and
# writer, and what announces the upload deadline; the deadline.
_ADD = struct.Struct(">16sBqq20xBiqBi48sq")
_ADD_WITHOUT_INDEX = struct.Struct(">16sBqq20xBiqBi51sq")
_TAGS, _TAGS_WITHOUT_INDEX = (
    bytes((0, SegmentState.COPY_SEGMENT_STARTED, tags)) for tags in (3, 4)
)
_ONE_EPOCH = 2  # a compact length is one more
_SEGMENT = bytes((keys.RowKind.SEGMENT,))
_TOMBSTONE = bytes((keys.RowKind.SEGMENT_TOMBSTONE,))


def judged(
    overlay: OverlayRows, records: Iterable[CommittedRecord]
) -> Iterator[tuple[CommittedRecord, Outcome, TopicIdPartition | None]]:
    """Apply the records in order, like `apply_over`; yields (record, outcome, partition). Counters
    are written when a run ends: read the overlay only after a record that is not a segment add.
    """
    usual = UsualAdds(overlay)
    for record in records:
        partition = usual.take(record)
        if partition is None:
            usual.settle()
            outcome, partition = apply_over(overlay, record)
            yield record, outcome, partition
        else:
            yield record, ACCEPTED, partition
    usual.settle()


class UsualAdds:
    """A run in one overlay, to which no other code writes between `take` and `settle`."""

    __slots__ = ("_first_purge", "_last", "_overlay", "_partitions", "_time_ms")

    def __init__(self, overlay: OverlayRows) -> None:
        self._overlay = overlay
        self._partitions: dict[bytes, _Claimed] = {}
        self._last: _Claimed | None = None
        self._time_ms: int | None = None
        self._first_purge: bytes | None = None

    def take(self, record: CommittedRecord) -> TopicIdPartition | None:
        """Accept the record; returns its partition. None: it is left to `apply`, after `settle`."""
        value, time_ms = record.value, self._time_ms
        if record.control_type is not None:
            return None
        claimed = self._last
        if claimed is None or not value.startswith(claimed.head):
            claimed = self._claimed(value)
        id_ = None if claimed is None else claimed.usual_id(value)
        if claimed is None or id_ is None:
            return None
        if time_ms is None or record.timestamp_ms > time_ms:
            time_ms = self._time_with(record.timestamp_ms)
        overlay, key = self._overlay, _SEGMENT + id_
        if (
            time_ms is None
            or overlay.get(key) is not None
            or overlay.get(_TOMBSTONE + id_) is not None
        ):
            return None
        overlay.put_new(key, value)
        overlay.put_new(claimed.unfinished + id_, b"")  # beside a segment's row only
        claimed.added += 1
        self._time_ms = time_ms
        return claimed.partition

    def settle(self) -> None:
        """Write the common changes of the run: counters and record time."""
        if self._time_ms is not None:
            draft = Draft(self._overlay, -1, self._time_ms)
            for claimed in self._partitions.values():
                if claimed.added:
                    draft.count(claimed.partition, claimed.row, copy_started=claimed.added)
            put_record_time(draft)
        self._partitions.clear()
        self._last = self._time_ms = None

    def _time_with(self, timestamp_ms: int) -> int | None:
        """Record time after a record of this time; None if a purge is due."""
        before = self._time_ms
        if before is None:
            before = read_record_time(self._overlay)
            self._first_purge = self._overlay.lowest_key(keys.PURGE_PREFIX)
            measured_ms = read_measured_time(self._overlay).ms
            if self._first_purge is not None and self._first_purge < keys.purge_from(
                measured_ms + 1
            ):
                return None
        return record_time_after(before, timestamp_ms)

    def _claimed(self, value: bytes) -> _Claimed | None:
        """The partition of this record, with its claim; None: its adds are left to `apply`."""
        head = _head(value)
        known = self._partitions.get(head)
        if known is None:
            partition = partition_in_record(head[_FRONT_BYTES:])
            if partition is None or check_partition(partition) is not None:
                return None
            row = find_live(Draft(self._overlay, -1, 0), partition)
            if isinstance(row, Outcome) or row.standing_claim is None:
                return None
            if row.standing_claim.token < 0:
                return None
            if row.mode is Mode.DELEGATED and is_kept_up(self._overlay):
                return None  # the outbox is `apply`'s
            known = self._partitions[head] = _Claimed(head, partition, row)
        self._last = known
        return known


def _head(value: bytes) -> bytes:
    """An added segment's bytes up to its partition; b"" or bytes without meaning for
    other records.
    """
    try:
        length, at = read_short_length(value, _FRONT_BYTES)
    except IndexError:
        return b""
    if length <= 0 or not value.startswith(SEGMENT_FRONT):
        return b""
    return value[: at + length - 1 + _PARTITION_BYTES]


class _Claimed:
    """A partition whose claim is in force, its `row` before the run, and the count of added
    segments. All its adds begin with the bytes `head`; the fields before the deadline at their ends
    follow from the claim.
    """

    __slots__ = ("_tags", "_tags_without_index", "added", "head", "partition", "row", "unfinished")

    def __init__(self, head: bytes, partition: TopicIdPartition, row: PartitionRow) -> None:
        claim = row.standing_claim
        assert claim is not None
        authority = authority_bytes(claim.token, claim.incarnation) + DEADLINE
        self._tags = _TAGS + authority
        self._tags_without_index = _TAGS_WITHOUT_INDEX + NO_TXN_INDEX + authority
        self.head = head
        self.partition = partition
        self.row = row
        self.unfinished = keys.unfinished_prefix(partition)
        self.added = 0

    def usual_id(self, value: bytes) -> bytes | None:
        """The id of the segment added by `value`, which begins with `head`; None unless it has the
        layout, token and writer, and passes `rlmm.apply.segments.check_segment`. The segment's row
        has the same bytes.
        """
        at = len(self.head)
        size = len(value) - at
        if size == _ADD.size:
            layout, tags = _ADD, self._tags
        elif size == _ADD_WITHOUT_INDEX.size:
            layout, tags = _ADD_WITHOUT_INDEX, self._tags_without_index
        else:
            return None
        (id_, id_tags, start, end, epochs, epoch, epoch_start, epoch_tags, segment_bytes, given,
         deadline_ms) = layout.unpack_from(value, at)  # fmt: skip
        if (
            given == tags
            and epochs == _ONE_EPOCH
            and id_tags == epoch_tags == 0
            and 0 <= start <= end <= OFFSET_MAX
            and segment_bytes >= 0
            and epoch >= 0
            and 0 <= epoch_start <= end
            and deadline_ms >= 0
        ):
            found: bytes = id_
            return found
        return None
