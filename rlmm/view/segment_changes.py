"""Remembers recent segment changes by partition, so that a client with an older list gets only the
changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.records.fixed_layout import decode_segment_row
from rlmm.rows.keys import RowKind, partition_bytes
from rlmm.rows.rows import RowChange
from rlmm.view.view import View

PARTITION_CHANGES_MAX = 500
"""Limit of the segments remembered for one partition: a client that lacks more gets a new list."""
CHANGES_MAX = 50_000
"""Limit of the changes remembered for all partitions together: some 10 MiB."""
PARTITIONS_MAX = 20_000

_SEGMENT = int(RowKind.SEGMENT)


class _Recent:
    """The segments of one partition that changed after metadata offset `since`. `segments`: segment
    id -> offset of its last change, in ascending order of that offset.
    """

    __slots__ = ("changed_at", "segments", "since")

    def __init__(self, applied_offset: int) -> None:
        self.since = self.changed_at = applied_offset
        self.segments: dict[Uuid, int] = {}


class SegmentChanges:
    """The recent changes of all queried partitions; a partition is tracked from its first query on.
    Beyond the limits the least recently queried partition is dropped. Not thread-safe.

    A segment is in its partition's list as long as it has a row, so the changes of these rows are
    all changes of the list. Invariant: `committed` is called for a commit to the view before the
    next query. After any other change of the view (a snapshot was installed) all is forgotten.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._true_at = view.applied_offset
        self._recent: dict[bytes, _Recent] = {}
        self._count = 0

    def changed_at(self, partition: TopicIdPartition) -> int:
        """A metadata offset after which no row of the partition's segments changed."""
        return self._of(partition).changed_at

    def since(self, partition: TopicIdPartition, offset: int) -> tuple[Uuid, ...] | None:
        """The segments whose rows changed after a metadata offset; None: not remembered."""
        recent = self._of(partition)
        if not recent.since <= offset <= recent.changed_at:
            return None
        latest = reversed(recent.segments.items())
        return tuple(id_ for id_, _ in takewhile(lambda each: each[1] > offset, latest))

    def committed(self, changes: Iterable[RowChange], before: int) -> None:
        """Remember that changes, all after metadata offset `before`, were committed."""
        if self._true_at != before:
            self._forget()
        self._true_at = self._view.applied_offset
        if not self._recent:
            return
        for key, old, new in changes:
            if key[0] == _SEGMENT:
                value = old if new is None else new
                assert value is not None, "a change has a value before or after"
                partition = decode_segment_row(value).segment_id.partition
                recent = self._recent.get(partition_bytes(partition))
                if recent is not None:
                    self._changed(recent, Uuid(key[1:]))
        while self._count > CHANGES_MAX:
            self._leave_out(next(iter(self._recent)))

    def _changed(self, recent: _Recent, segment: Uuid) -> None:
        segments = recent.segments
        self._count += segments.pop(segment, None) is None
        segments[segment] = recent.changed_at = self._true_at
        if len(segments) > PARTITION_CHANGES_MAX:
            recent.since = segments.pop(next(iter(segments)))
            self._count -= 1

    def _of(self, partition: TopicIdPartition) -> _Recent:
        if self._true_at != self._view.applied_offset:
            self._forget()
            self._true_at = self._view.applied_offset
        name = partition_bytes(partition)
        recent = self._recent.pop(name, None) or _Recent(self._true_at)
        self._recent[name] = recent  # moved to the end: the most recently queried
        if len(self._recent) > PARTITIONS_MAX:
            self._leave_out(next(iter(self._recent)))
        return recent

    def _leave_out(self, name: bytes) -> None:
        self._count -= len(self._recent.pop(name).segments)

    def _forget(self) -> None:
        self._recent.clear()
        self._count = 0
