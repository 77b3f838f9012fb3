"""Reads bytes of segments for the broker, up to where the partition's history leaves them [LOSS-9].

The plug-in takes a segment's size from the row of a look-up, and the broker continues after its end
offset, a follower's log too. So that row ends at the cut, and a row from before the cut is refused
when its bytes are requested. Until a cut is recorded by the leader's claim, which may be refused,
the segment that it cuts is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from kafka_formats.batch_scan import ANY_BATCH_BYTES, BatchScanner
from kafka_formats.errors import InternalError, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.offset_index import OffsetIndex
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.chunk_cache import ByteBoundedCache
from rlm.delegated.asked_looks import ask_nobody
from rlm.delegated.cut_producers import CutProducers
from rlm.delegated.diverged_tail import (
    aborted_until,
    end_of_batches,
    epochs_until,
    last_valid_offset,
)
from rlm.delegated.follower_builds import build_at_will
from rlm.delegated.late_reads import LateReads
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.format.manifest import IndexType
from rlmm.segment import RemoteLogSegmentMetadata
from rsm_backends.streams import closing_stream

Found = TypeVar("Found")

CUTS_MAX = 10_000
"""The most segments whose cut is remembered; for others it is searched again."""
LATE_MAX = 64
"""The most reads that continue after their calls. Further ones end with their call: a store that
hangs must not keep the indexes of other stores from the broker.
"""
LATE_S = 30.0
LATE_BYTES_MAX = 32 * 2**20
"""The most bytes of indexes that were read after their call had ended; the next call takes them."""
_IndexKey = tuple[Uuid, bytes | None, IndexType]
_UNTIL = {IndexType.LEADER_EPOCH: epochs_until, IndexType.TRANSACTION: aborted_until}


@dataclass(slots=True)
class SegmentReads:
    """The reads of a node's broker. `own_epochs`: the leader epochs of the broker's replica, as
    last seen. `why_not_read`: `Plugin.why_not_read`. `until_looked` requests a look at a partition,
    and waits a moment for it. `check_build`: `FollowerBuilds.check`.
    """

    reads: ResolvedReads
    own_epochs: Callable[[TopicIdPartition], Epochs]
    why_not_read: Callable[[TopicIdPartition], str | None]
    until_looked: Callable[[TopicIdPartition], Awaitable[None]] = ask_nobody
    check_build: Callable[[TopicIdPartition, int | None], Awaitable[None]] = build_at_will
    _cuts: dict[tuple[Uuid, int], int] = field(default_factory=dict)
    _late: LateReads = field(default_factory=LateReads)
    _came_late: ByteBoundedCache[_IndexKey, bytes] = field(
        default_factory=partial(ByteBoundedCache, LATE_BYTES_MAX)
    )
    _producers: CutProducers = field(init=False)

    def __post_init__(self) -> None:
        self._producers = CutProducers(self.reads)

    async def as_readable(self, row: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        """The row for a look-up; a segment with a diverged tail appears to end before that tail."""
        last = self._last_valid(row)
        if last is None:
            return row
        return replace(row, end_offset=last, size_bytes=await self._cut(row, last))

    async def check_size(
        self, row: RemoteLogSegmentMetadata, asked: RemoteLogSegmentMetadata
    ) -> int:
        """The number of readable bytes. RetryLater: the broker's row is from before a cut."""
        size_bytes = (await self.as_readable(row)).size_bytes
        if size_bytes < asked.size_bytes <= row.size_bytes:
            raise RetryLater(
                f"the tail of {row.segment_id} is not in the partition's history any more: look it "
                "up again"
            )
        return size_bytes

    async def check_follower(
        self, row: RemoteLogSegmentMetadata, asked: RemoteLogSegmentMetadata
    ) -> None:
        """Raise RetryLater if no follower may build its log on this row."""
        await self.check_build(row.segment_id.partition, None)
        await self.check_size(row, asked)

    async def index(self, row: RemoteLogSegmentMetadata, index: IndexType) -> AsyncIterator[bytes]:
        """A whole index. Leader epochs, aborted transactions and the producer snapshot end where
        the readable bytes do; the offset and time indexes are whole, as no later entry is looked
        up.
        """
        until, is_state = _UNTIL.get(index), index is IndexType.PRODUCER_SNAPSHOT
        last = self._last_valid(row) if is_state or until is not None else None
        if last is not None and is_state:
            yield await self._producers.at(row, last, partial(self._cut, row, last))
            return
        key = (row.segment_id.id, row.custom_metadata, index)
        data = self._came_late.take(key)
        if data is None:
            data = await self._late_or_now(key, partial(self._read_index, key))
            self._came_late.take(key)
        yield data if until is None or last is None else until(data, last)

    async def _read_index(self, key: _IndexKey) -> bytes:
        data = b"".join([chunk async for chunk in self.reads.open_index(key[0], key[2])])
        self._came_late.put(key, data, len(data))
        return data

    async def _late_or_now(self, key: Hashable, read: Callable[[], Awaitable[Found]]) -> Found:
        """Return the result of `read`, which continues if this call is cancelled, unless LATE_MAX
        reads do so already. RetryLater: it took longer than LATE_S.
        """
        if key not in self._late and len(self._late) >= LATE_MAX:
            return await read()

        async def in_time() -> Found:
            try:
                async with asyncio.timeout(LATE_S):
                    return await read()
            except TimeoutError:
                raise RetryLater(f"the store gave too little within {LATE_S:g} s") from None

        return await self._late.wait_for(key, in_time)

    def _last_valid(self, row: RemoteLogSegmentMetadata) -> int | None:
        """The last offset that the broker may read; None: the whole segment. RetryLater: the epochs
        of a leader whose claim is refused or not recorded yet end the segment earlier. Their file
        may be damaged, so they are no proof of a shorter size, with which the broker would skip
        records. RetryLater also while the epochs of a new leader are not known.
        """
        tip = row.segment_id.partition
        why = self.why_not_read(tip)
        if why is not None:
            raise RetryLater(f"where {row.segment_id} ends for this leader is not known: {why}")
        state, own = self.reads.metadata.partition_state(tip), self.own_epochs(tip)
        if state is None:
            return None
        last = last_valid_offset(row, state.lineage)
        if own and state.lineage and own[-1].epoch > state.lineage[-1].epoch:
            here = last_valid_offset(row, own)
            if here is not None and (last is None or here < last):
                raise RetryLater(
                    f"the broker's leader epochs end {row.segment_id} at offset {here}, and no "
                    f"claim at leader epoch {own[-1].epoch} is recorded: `strandline claims show` "
                    "shows why"
                )
        return last

    async def _cut(self, row: RemoteLogSegmentMetadata, last: int) -> int:
        """The position after the last batch up to `last` (inclusive), by the offset index and a
        scan.
        """
        key = (row.segment_id.id, last)
        found = self._cuts.get(key)
        if found is None:
            found = await self._late_or_now(key, partial(self._find_cut, row, last))
        return found

    async def _find_cut(self, row: RemoteLogSegmentMetadata, last: int) -> int:
        id_, found = row.segment_id.id, None
        chunks = self.reads.open_index(id_, IndexType.OFFSET)
        data = b"".join([chunk async for chunk in chunks])
        index = OffsetIndex.parse(data, base_offset=row.start_offset, source=f"the index of {id_}")
        position = index.lookup(max(last, row.start_offset))
        scanner = BatchScanner(str(id_), batch_bytes_max=ANY_BATCH_BYTES, position=position)
        async with closing_stream(self.reads.open_log(id_, position)) as log:
            async for piece in log:
                # The scanner requires that its iterator is exhausted.
                found = end_of_batches(list(scanner.feed(piece)), last)
                if found is not None:
                    break
        if found is None:
            raise InternalError(
                f"the row of {row.segment_id} ends after {last}, but its batches end there"
            )
        while len(self._cuts) >= CUTS_MAX:
            del self._cuts[next(iter(self._cuts))]
        self._cuts[id_, last] = found
        return found
