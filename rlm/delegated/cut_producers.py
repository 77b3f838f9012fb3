"""Makes the producer snapshot for the offset at which the partition's history leaves a segment
[LOSS-9].

A follower that builds its log on such a segment also takes the producer snapshot. The snapshot of
the segment's end includes the diverged tail: transactions that are still open in the partition's
own history or never were in it, and sequence numbers of batches that are not in the log. So a new
one is made from the snapshot at the segment's base and the batches up to the cut, in a task beside
the calls that request it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from kafka_formats import producer_snapshot
from kafka_formats.batch_scan import ANY_BATCH_BYTES, BatchScanner
from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.data_plane.producer_replay import ProducerReplay
from rlm.delegated.late_reads import LateReads
from rlm.fetch.producers_below import producers_below
from rlm.fetch.resolved_reads import ResolvedReads
from rlmm.segment import RemoteLogSegmentMetadata
from rsm_backends.streams import closing_stream

logger = logging.getLogger(__name__)

MADE_AT_ONCE = 2
MADE_MAX = 100
"""Snapshots that are kept; older ones are made again."""
ASKED_S = 0.5
"""The time that a call waits; the follower asks again after its fetch back-off."""
MAKING_S = 900.0
"""The time limit for reading a segment, from the beginning of its turn."""
MAKING_MAX = 100
"""The most cuts whose snapshots are being made or wait for it."""

_Key = tuple[Uuid, int]


@dataclass(slots=True)
class CutProducers:
    """The producer snapshots of cut segments, made by a node."""

    reads: ResolvedReads
    _made: dict[_Key, bytes] = field(default_factory=dict)
    _making: LateReads = field(default_factory=LateReads)
    _slots: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, MADE_AT_ONCE))

    async def at(
        self, row: RemoteLogSegmentMetadata, last: int, cut: Callable[[], Awaitable[int]]
    ) -> bytes:
        """The producer snapshot after the offset `last` of a segment; `cut` returns the position in
        its `.log` there. RetryLater: the snapshot is being made, or could not be made.
        """
        key = (row.segment_id.id, last)
        made = self._made.get(key)
        if made is not None:
            return made
        if key not in self._making and len(self._making) >= MAKING_MAX:
            raise RetryLater(f"{MAKING_MAX} producer snapshots are being made: ask again")
        try:
            async with asyncio.timeout(ASKED_S):
                return await self._making.wait_for(key, partial(self._make, key, row, cut))
        except TimeoutError:
            raise RetryLater(
                f"the producers' state at offset {last + 1}, where the history of "
                f"{row.segment_id} ends, is being made from its batches: ask again"
            ) from None

    async def _make(
        self, key: _Key, row: RemoteLogSegmentMetadata, cut: Callable[[], Awaitable[int]]
    ) -> bytes:
        try:
            async with self._slots, asyncio.timeout(MAKING_S):
                made = await self._replayed(row, cut)
        except TimeoutError:
            slow = f"within {MAKING_S:g} s: is its store slow?"
            logger.warning("the producers' state at a cut of %s is not made %s", key[0], slow)
            raise RetryLater(
                f"the producers' state at a cut of {row.segment_id} was not made {slow}"
            ) from None
        except Exception as error:
            logger.warning("the producers' state at a cut of %s is not made: %s", key[0], error)
            raise
        while len(self._made) >= MADE_MAX:
            del self._made[next(iter(self._made))]
        self._made[key] = made
        return made

    async def _replayed(
        self, row: RemoteLogSegmentMetadata, cut: Callable[[], Awaitable[int]]
    ) -> bytes:
        source = str(row.segment_id)
        data = await self._at_base(row)
        replay = ProducerReplay(producer_snapshot.parse(data, source=source), row.start_offset)
        scanner = BatchScanner(source, batch_bytes_max=ANY_BATCH_BYTES)

        def take(piece: bytes) -> None:
            for run in scanner.feed_runs(piece):
                replay.take(run, source)

        log = self.reads.open_log(row.segment_id.id, 0, await cut())
        async with closing_stream(log) as pieces:
            async for piece in pieces:
                await asyncio.to_thread(take, piece)
        scanner.finish()
        return producer_snapshot.encode(replay.producers)

    async def _at_base(self, row: RemoteLogSegmentMetadata) -> bytes:
        """The snapshot at the segment's base, made from the segments below. RetryLater: none ends
        there.
        """
        tip, base = row.segment_id.partition, row.start_offset
        if base == 0:
            return producer_snapshot.encode(())
        below = self.reads.served_from(tip, base - 1)
        if below is not None and below[0].first_offset < base:
            found = await producers_below(self.reads, tip, base)
            if found is not None:
                return found
        raise RetryLater(
            f"the partition's history leaves {row.segment_id} before its end, and no tiered "
            f"segment that ends at offset {base - 1} has the state of the producers: a follower "
            "can build its log once its leader's local log starts after this segment"
        )
