"""Readers around the marks of a trash, and look-ups by time, compared with what leaders wrote.

look_ups_never_answer_below_the_mark   by time, earliest, and the newest record
look_ups_miss_nothing                  above the mark the first record is found that is young enough
what_readers_may_read_is_there         at the mark and above, and what a restore took back
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import InvalidRequest, NotFound, StrandlineError
from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.read_request import RecordsRequest
from rlm.fetch.list_offsets import OffsetAnswer, OffsetSpec
from rlmm.partition_state import PartitionState
from rlmm.rows import queries
from sim.tier.readers import batches_of
from sim.tier.replica import Batch

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.trash_audit import TrashAudit
    from sim.tier.world import World

BY_TIME = "by time"
KINDS = (OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP, BY_TIME, BY_TIME)
OLD_MS_MAX = 600_000


class LookUps:
    """Readers who ask about a partition; `done` counts the answers that were compared."""

    def __init__(self, world: World, audit: TrashAudit, random: Random) -> None:
        self._world = world
        self._audit = audit
        self._random = random
        self.done = 0

    def ask(self, process: Process, tip: TopicIdPartition) -> None:
        """Ask one thing about a partition, where readers start, or near."""
        start = self._audit.of(tip).starts[-1].readable
        if self._random.randrange(2):
            offset = max(0, start + self._random.choice((-1, 0, 0, 1)))
            self.read(process, tip, offset)
            return
        kind = self._random.choice(KINDS)
        timestamp = self._a_time(tip, start) if kind is BY_TIME else int(kind)
        self._world.loop.spawn(process.life, self._look_up(process, tip, timestamp))

    def _a_time(self, tip: TopicIdPartition, start: int) -> int:
        """The time of a record around the start, below which a look-up must not answer."""
        near = [b for b in self._world.auditor.truth(tip) if abs(b.base - start) < 20]
        if not near:
            return self._world.now_ms() - self._random.randrange(OLD_MS_MAX)
        return self._random.choice(near).timestamp_ms + self._random.choice((0, 0, 1))

    def read(self, process: Process, tip: TopicIdPartition, offset: int) -> None:
        """Read from an offset on, some of it or all."""
        size = self._random.choice((1, 300, 1 << 20))
        request = RecordsRequest(offset, max_bytes=size)
        self._world.loop.spawn(process.life, self._read(process, tip, request))

    async def _read(self, process: Process, tip: TopicIdPartition, request: RecordsRequest) -> None:
        assert process.parts is not None
        assert process.view is not None
        first = process.view.applied_offset
        data, refused = bytearray(), ""
        try:
            async for piece in process.parts.reads.records(tip, request):
                data += piece
        except (InvalidRequest, NotFound) as error:
            refused = f"is told {error}"
        except StrandlineError:
            return  # the store's errors and a late answer say nothing
        span = (first, process.view.applied_offset)
        got = batches_of(bytes(data))
        self._world.auditor.read(tip, got, request.offset, span)
        wanted = self._first(tip, span[0], request.offset, 0)
        if wanted is None or not wanted.base <= request.offset <= wanted.last:
            return
        self.done += 1
        self._world.auditor.check(
            bool(got) and got[0].data == wanted.data,
            "what_readers_may_read_is_there",
            f"a reader of {tip} at {request.offset} {refused or f'got {got[:1]}'}, and {wanted} is "
            "there",
        )

    async def _look_up(self, process: Process, tip: TopicIdPartition, timestamp: int) -> None:
        assert process.parts is not None
        assert process.view is not None
        first = process.view.applied_offset
        try:
            answer = await process.parts.answers.offsets(tip, timestamp)
        except StrandlineError:
            return
        span = (first, process.view.applied_offset)
        lowest = min(each.readable for each in self._audit.starts_within(tip, span))
        self._world.auditor.check(
            answer.offset < 0 or answer.offset >= lowest,
            "look_ups_never_answer_below_the_mark",
            f"{timestamp} of {tip} is said to be at {answer.offset}, readers start at {lowest}",
        )
        self.done += 1
        if timestamp >= 0:
            self._misses_nothing(tip, span[0], timestamp, answer)

    def _misses_nothing(
        self, tip: TopicIdPartition, since: int, timestamp: int, answer: OffsetAnswer
    ) -> None:
        wanted = self._first(tip, since, self._audit.of(tip).starts[-1].readable, timestamp)
        if wanted is not None:
            self._world.auditor.check(
                0 <= answer.offset <= wanted.last and answer.timestamp_ms >= timestamp,
                "look_ups_miss_nothing",
                f"{timestamp} of {tip} is said to be at {answer.offset}, and {wanted} is there",
            )

    def _first(
        self, tip: TopicIdPartition, since: int, offset: int, timestamp: int
    ) -> Batch | None:
        """The first batch with `offset` or a later one that is as young, in the tier without a
        doubt; None if something happened to the partition since metadata offset `since`.
        """
        state = queries.partition_state(self._world.auditor.reference.rows, tip)
        if state is None or self._audit.of(tip).seen_at > since:
            return None
        at = max(offset, state.first_readable_offset, 0)
        for batch in self._world.auditor.truth(tip):
            if batch.last < at or batch.timestamp_ms < timestamp:
                continue
            there = offset >= state.first_readable_offset and self._is_there(state, batch)
            return batch if there else None
        return None

    def _is_there(self, state: PartitionState, batch: Batch) -> bool:
        """True if the tier has a batch, below what the lineage may yet lose."""
        lost = any(
            each.start <= batch.last and batch.base <= each.end for each in state.lost_ranges
        )
        highest = (-1, -1) if state.highest_copied is None else state.highest_copied
        # Below its disk, an unclean leader had other epochs perhaps than the lineage tells.
        known = epoch_for_offset(state.lineage, batch.base) == batch.epoch
        return not lost and known and batch.last <= highest[0]
