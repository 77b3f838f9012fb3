"""Lists of segments for the broker's plug-in: by page, or as the changes since its last one.

By `retention.bytes` a broker counts all segments of a list, those below its log start too (Kafka's
RemoteLogManager, buildRetentionSizeData), and deletes readable ones for them. So older history that
is kept below a leader's log start is listed with a size of 0. It stays in the list, since a new
leader takes its log start from the first segment (findLogStartOffset), and a broker that deletes a
topic has to delete it, too. A size that is too low only makes a broker keep more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from struct import Struct

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Ambient
from rlm.delegated import wire
from rlmm.lineage import epoch_bounds
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.rows.coverage import epoch_ranges
from rlmm.rows.queries import ListPosition, list_position
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata

PAGE_ROWS = 500
"""The most rows of a page, and of the changes in one answer."""
ROWS_PER_BREATH = 32

_TAG = Struct(">16sqqq")
_CURSOR = Struct(">iq16s")


@dataclass(frozen=True, slots=True)
class SegmentLists:
    """A tag has `life` (unique to this process), the metadata offset of the last change, the last
    offset that is listed, and the offset below which segments are listed with a size of 0
    (`uncounted_below`). `own_epochs`: the leader epochs of the broker's replica, as last seen.
    `is_left_out`: called with a segment and the epoch of a list (None: of all), True if the broker
    must not see it there.

    The list of an epoch that the broker's log has ends where that epoch does: Kafka's
    findLogStartOffset takes its first segment, which would move the log start of an unclean leader
    to a diverged one [LOSS-9], over records of its own. Retention counts no diverged segment, and
    the expiration lists an epoch once more when the log has no record of it: then all are listed.
    """

    metadata: MetadataReads
    ambient: Ambient
    life: Uuid
    own_epochs: Callable[[TopicIdPartition], Epochs]
    is_left_out: Callable[[RemoteLogSegmentMetadata, int | None], bool]
    uncounted_below: Callable[[TopicIdPartition], int]

    async def answer(self, asked: wire.ListSegments, *, takes_changes: bool) -> bytes:
        """A page, the changes since the caller's tag if it takes changes, or "the same"."""
        tag = self._tag(asked)
        if asked.cursor is not None:
            if takes_changes and self._told_since(asked):
                # Its changes since that tag, which the caller will hear, are in this page already.
                tag = asked.tag or tag
            return await self._page(asked, tag)
        if asked.tag == tag:
            return wire.encode_same(self.metadata.applied_offset, tag)
        changes = await self._changes(asked) if takes_changes else None
        return changes or await self._page(asked, self._tag(asked))

    async def _page(self, asked: wire.ListSegments, tag: bytes) -> bytes:
        """A page of the list. Its tag names the state of the partition when the page began: pages
        of one tag are one list.
        """
        applied = self.metadata.applied_offset
        after = None if asked.cursor is None else _position(asked.cursor)
        listed = self.metadata.list_remote_log_segments(asked.partition, asked.epoch, after=after)
        last, below = self._last_listed(asked), self.uncounted_below(asked.partition)
        rows: list[RemoteLogSegmentMetadata] = []
        within = takewhile(lambda row: _begins_by(row, asked.epoch, last), listed)
        for number, row in enumerate(within, 1):
            if len(rows) == PAGE_ROWS:
                break
            if not self.is_left_out(row, asked.epoch):
                rows.append(_counted(row, below))
            if number % ROWS_PER_BREATH == 0:
                await self.ambient.sleep(0)
        else:
            return wire.encode_page(applied, tag, rows, None)
        cursor = _CURSOR.pack(*list_position(rows[-1], asked.epoch))
        return wire.encode_page(applied, tag, rows, cursor)

    async def _changes(self, asked: wire.ListSegments) -> bytes | None:
        """The changes since the asked state; None if they are too many, or not remembered. Segments
        that change meanwhile are read again, so that all rows are those of one state.
        """
        tip, found = asked.partition, dict[Uuid, RemoteLogSegmentMetadata | None]()
        at, last = self._offset(asked), self._last_listed(asked)
        below = self.uncounted_below(tip)
        while at is not None and (now := self.metadata.segments_changed_at(tip)) != at:
            changed = self.metadata.segments_changed_since(tip, at)
            if changed is None or len(found.keys() | set(changed)) > PAGE_ROWS:
                return None
            for number, id_ in enumerate(changed, 1):
                found[id_] = self._listed(asked, id_, last)
                if number % ROWS_PER_BREATH == 0:
                    await self.ambient.sleep(0)
            at = now
        if at is None:
            return None
        rows = [_counted(row, below) for row in found.values() if row is not None]
        rows.sort(key=lambda row: list_position(row, asked.epoch))
        gone = [id_ for id_, row in found.items() if row is None]
        applied = self.metadata.applied_offset
        return wire.encode_changes(applied, _TAG.pack(self.life, at, last, below), gone, rows)

    def _listed(
        self, asked: wire.ListSegments, id_: Uuid, last: int
    ) -> RemoteLogSegmentMetadata | None:
        """The segment if it is in the list, whose last offset is `last`."""
        row, tip = self.metadata.find_segment(id_), asked.partition
        if row is None or self.is_left_out(row, asked.epoch):
            return None
        of = row.segment_id.partition
        if (of.topic_id, of.partition) != (tip.topic_id, tip.partition):
            return None
        if asked.epoch is None:
            return row
        holds = asked.epoch in (each.epoch for each in epoch_ranges(row))
        return row if holds and _begins_by(row, asked.epoch, last) else None

    def _last_listed(self, asked: wire.ListSegments) -> int:
        """The last offset of the asked epoch, if the broker's log has it."""
        tip, epoch = asked.partition, asked.epoch
        state, own = self.metadata.partition_state(tip), self.own_epochs(tip)
        if epoch is None or state is None or (own and epoch < own[0].epoch):
            return OFFSET_MAX
        bounds = epoch_bounds(state.lineage, epoch)
        return OFFSET_MAX if bounds is None else bounds[1]

    def _told_since(self, asked: wire.ListSegments) -> bool:
        at = self._offset(asked)
        if at is None:
            return False
        return self.metadata.segments_changed_since(asked.partition, at) is not None

    def _tag(self, asked: wire.ListSegments) -> bytes:
        at = self.metadata.segments_changed_at(asked.partition)
        return _TAG.pack(self.life, at, *self._bounds(asked))

    def _bounds(self, asked: wire.ListSegments) -> tuple[int, int]:
        return self._last_listed(asked), self.uncounted_below(asked.partition)

    def _offset(self, asked: wire.ListSegments) -> int | None:
        """The metadata offset in the tag of a list that ended and counted as it does now; None for
        any other tag.
        """
        if asked.tag is None or len(asked.tag) != _TAG.size:
            return None
        life, offset, *bounds = _TAG.unpack(asked.tag)
        is_the_same = life == self.life and tuple(bounds) == self._bounds(asked)
        return offset if is_the_same else None


def _counted(row: RemoteLogSegmentMetadata, below: int) -> RemoteLogSegmentMetadata:
    """The row as a broker counts it: its size is 0 if it ends below an offset."""
    return replace(row, size_bytes=0) if row.end_offset < below else row


def _begins_by(row: RemoteLogSegmentMetadata, epoch: int | None, last: int) -> bool:
    """True if the segment begins, in the epoch, at or below an offset."""
    return row.end_offset <= last or list_position(row, epoch).start <= last


def _position(cursor: bytes) -> ListPosition:
    if len(cursor) != _CURSOR.size:
        raise InvalidRequest("no page ended there", field="cursor")
    epoch, start, id_ = _CURSOR.unpack(cursor)
    return ListPosition(epoch, start, Uuid(id_))
