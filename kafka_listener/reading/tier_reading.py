"""Answers the listener from the tier: batches for Fetch, offsets, ends of leader epochs.

Each answer uses one state of the view. Before the answer "does not exist" a barrier makes sure that
the view does not lag. Errors of the store or the workers make a client ask again, never skip
offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from kafka_formats.errors import CorruptData, NotFound, RetryLater, StrandlineError
from kafka_formats.leader_epoch_checkpoint import end_offset_for, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.reading.fetch_target import (
    FromTier,
    Prefer,
    TierAt,
    Where,
    is_in_log,
    leader_has_all,
    leader_is_newer,
    waits_for_barrier,
    where,
    where_undecided,
)
from kafka_listener.reading.first_copy import first_offset_to_copy
from kafka_listener.reading.leaders import Leaders
from kafka_listener.reading.read_port import (
    AbortedFrom,
    BrokerLogEnds,
    BrokerTransactions,
    EpochEnd,
    FetchAnswer,
    FetchQuery,
    FoundOffset,
    LeaderEpochs,
    LostOffsets,
    NotAvailable,
    TierEnds,
    TierPart,
)
from kafka_listener.reading.whole_log_start import gap_below_log_start, whole_log_start
from rlm.copy.scanner import Breathe
from rlm.data_plane.ranges_in_order import READER_BYTES_MAX
from rlm.data_plane.read_request import BatchesFound, BatchesRequest, Isolation
from rlm.fetch.list_offsets import NO_TIMESTAMP, UNKNOWN_EPOCH, OffsetSpec
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.fetch.timestamp_search import TimestampSearch
from rlmm.partition_state import LostOffsets as Lost
from rlmm.partition_state import PartitionState
from rlmm.rows.queries import ServedSegment
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata

PIECES_MAX = 16
"""The most segments tried for one fetch: some have no batch at the offset, or were deleted since
the look-up.
"""

BARRIER_DEADLINE_S = 5.0

FURTHER_MAX = 16
"""The number of answers that a worker is expected to give between two look-ups of the tier, at each
of which it learns the next segment. If it gives more, that segment's first bytes are not fetched
ahead.
"""


@dataclass(slots=True)
class TierReading:
    """Implements `TierReads`; one per node."""

    reads: ResolvedReads
    transactions: BrokerTransactions
    epochs: LeaderEpochs
    prefer: Prefer
    breathe: Breathe
    batch_bytes_max: int
    """The largest batch, decompressed, that a search by timestamp decodes."""
    why_disabled: Callable[[str], str | None]
    """The reason why the cluster's settings end a topic's tiering, None if they do not."""

    _barrier: _Barrier = field(init=False)
    _leaders: Leaders = field(init=False)

    def __post_init__(self) -> None:
        self._barrier = _Barrier(self.reads)
        self._leaders = Leaders(self.epochs)

    def ends(self, partition: TopicIdPartition) -> TierEnds | None:
        state = self.reads.metadata.partition_state(partition)
        return None if state is None else self._ends(state)

    def is_in_log(
        self, partition: TopicIdPartition, offset: int, broker: BrokerLogEnds | None
    ) -> bool:
        state = self.reads.metadata.partition_state(partition)
        ends = None if state is None else self._ends(state)
        broker = self._leaders.newest(partition, broker)
        if state is None or ends is None:
            return is_in_log(offset, None, None, broker)
        return is_in_log(offset, ends, self._whole_log_start(state, ends, broker), broker)

    @asynccontextmanager
    async def fetch(self, query: FetchQuery) -> AsyncIterator[FetchAnswer]:
        newest = self._leaders.newest(query.partition, query.broker)
        if newest is not query.broker:
            query = replace(query, broker=newest)
        async with AsyncExitStack() as held:
            try:
                answer = await self._answer(query, held)
            except StrandlineError as error:
                answer = NotAvailable(str(error))
            yield answer

    async def list_offsets(
        self, partition: TopicIdPartition, timestamp: int, broker: BrokerLogEnds | None
    ) -> FoundOffset | None:
        broker = self._leaders.newest(partition, broker)
        ends = self.ends(partition)
        start = None if ends is None else self._start(partition, ends, broker)
        if ends is None or start != ends.log_start_offset or _stops_below(ends.end_offset, broker):
            await self._barrier.wait()
            ends = self.ends(partition)
        if ends is None:
            return None
        if timestamp == OffsetSpec.LATEST_TIERED:  # a broker without tiered storage answers -1
            highest = self.reads.state_of(partition).highest_copied
            return None if highest is None else self._found(partition, highest[0])
        if leader_has_all(ends, broker):
            return None
        start = self._start(partition, ends, broker)
        search = TimestampSearch(self.reads, partition, self.breathe, self.batch_bytes_max, start)
        if timestamp == OffsetSpec.EARLIEST:
            lost = _lost_at(self.reads.state_of(partition).lost_ranges, start)
            start = start if lost is None else lost.next_offset
            return None if _begins_by(start, broker) else self._found(partition, start)
        if timestamp == OffsetSpec.MAX_TIMESTAMP:
            if leader_is_newer(ends, broker):
                raise RetryLater(
                    f"the newest leader of {partition} is not in its lineage yet; clients try again"
                )
            found = await search.with_max_timestamp()
        elif timestamp >= 0:
            found = await search.first_at_or_after(timestamp)
            if found is None and _stops_below(self.reads.state_of(partition).next_offset, broker):
                raise RetryLater(
                    f"some offsets of {partition} are on neither the tier nor the leader's disk; "
                    "clients try again"
                )
        else:
            return None
        if found is None:
            return None
        if broker is not None and leader_is_newer(ends, broker):
            if found.offset >= broker.local_log_start_offset:
                return None
            lineage = self.reads.state_of(partition).lineage
            agreed = await self._leaders.agreed_until(partition, lineage, broker.leader_epoch)
            if agreed is None or agreed <= found.offset:
                raise RetryLater(
                    f"the newest leader of {partition} may have replaced offset {found.offset}; "
                    "clients try again"
                )
        return FoundOffset(found.timestamp_ms, found.offset, found.leader_epoch)

    def epoch_end(
        self, partition: TopicIdPartition, leader_epoch: int, broker: BrokerLogEnds
    ) -> EpochEnd | None:
        state = self.reads.metadata.partition_state(partition)
        if state is None or not state.lineage or leader_epoch >= state.lineage[-1].epoch:
            return None
        epoch, end = end_offset_for(state.lineage, leader_epoch, OFFSET_MAX)
        if broker.leader_epoch > state.lineage[-1].epoch:
            agreed = self._leaders.known_until(partition, state.lineage, broker.leader_epoch)
            end = -1 if agreed is None else min(end, agreed)
        # The leader's epoch cache begins with the epoch of its log start, so it knows that epoch's
        # end.
        return EpochEnd(epoch, end) if 0 <= end <= broker.local_log_start_offset else None

    async def _answer(self, query: FetchQuery, held: AsyncExitStack) -> FetchAnswer:
        offset = query.offset
        failed: tuple[ServedSegment, str] | None = None
        for _ in range(PIECES_MAX):
            found, served = await self._where(query, offset)
            if not isinstance(found, FromTier):
                return found
            assert served is not None, "where() answers FromTier only with a served segment"
            if failed is not None and failed[0] == served:
                return NotAvailable(failed[1])
            try:
                answer = await self._part(query, offset, found.until, served, held)
            except (CorruptData, NotFound) as error:
                failed = served, str(error)  # retention may have just deleted the segment
                continue
            if not isinstance(answer, int):
                return answer
            offset = answer
        return NotAvailable(f"no batch was found from offset {query.offset} on")

    async def _where(self, query: FetchQuery, offset: int) -> tuple[Where, ServedSegment | None]:
        tier, served = await self._tier_at(query, offset, is_current=False)
        found = where(offset, tier, query.broker, self.prefer)
        if waits_for_barrier(tier, found):
            await self._barrier.wait()
            tier, served = await self._tier_at(query, offset, is_current=True)
            found = where(offset, tier, query.broker, self.prefer)
        return found, served

    async def _part(
        self,
        query: FetchQuery,
        offset: int,
        until: int,
        served: ServedSegment,
        held: AsyncExitStack,
    ) -> FetchAnswer | int:
        """The batches, or the next offset to look up."""
        isolation = Isolation.READ_COMMITTED if query.read_committed else Isolation.READ_UNCOMMITTED
        request = BatchesRequest(
            self.reads.piece(served),
            offset,
            until,
            query.bytes_max,
            isolation,
            self.reads.following(served[1]) if _near_end(served[1], query, offset) else None,
        )
        async with AsyncExitStack() as mine:
            waiting = self.reads.waiting_batches(query.partition, request)
            batches = await mine.enter_async_context(waiting)
            found = batches.found
            if found.size_bytes == 0:
                return found.next_offset
            aborted = await self._aborted(query, found)
            if aborted is not None:
                await held.enter_async_context(mine.pop_all())
                ends = self.ends(query.partition)
                start = 0 if ends is None else ends.log_start_offset
                return TierPart(
                    found.size_bytes, found.next_offset, start, aborted, batches, found.is_all
                )
        if offset < found.decided_until < until:
            return await self._part(query, offset, found.decided_until, served, held)
        return where_undecided(offset, query.broker)

    async def _aborted(
        self, query: FetchQuery, found: BatchesFound
    ) -> tuple[AbortedFrom, ...] | None:
        """The complete list of aborted transactions for these batches; None: neither the tier nor,
        now, the leader can tell.
        """
        listed = {AbortedFrom(*each) for each in found.aborted}
        if found.decided_until < found.next_offset:
            broker = query.broker
            if broker is None or not (
                broker.local_log_start_offset <= found.tier_end < broker.last_stable_offset
            ):
                return None
            told = await self.transactions.aborted_at(
                query.partition, found.tier_end, broker.leader_epoch
            )
            if told is None:
                return None
            listed |= {each for each in told if each.first_offset < found.next_offset}
        return tuple(sorted(listed, key=lambda each: (each.first_offset, each.producer_id)))

    async def _tier_at(
        self, query: FetchQuery, offset: int, *, is_current: bool
    ) -> tuple[TierAt, ServedSegment | None]:
        state = self.reads.metadata.partition_state(query.partition)
        ends = None if state is None else self._ends(state)
        if state is None or ends is None:
            return TierAt(None, None, None, is_current), None
        served = next(self.reads.metadata.served_segments(state, offset, OFFSET_MAX), None)
        first = None if served is None else served[0].first_offset
        at = TierAt(
            ends,
            None if served is None else (served[0].first_offset, served[0].last_offset),
            _lost_at(state.lost_ranges, offset)
            or gap_below_log_start(state, query.broker, offset, first),
            is_current,
            log_start_offset=self._whole_log_start(state, ends, query.broker),
        )
        broker = query.broker
        if broker is None or not leader_is_newer(ends, broker):
            return at, served
        if offset >= broker.local_log_start_offset:
            return at, served  # the leader serves it
        question = query.partition, state.lineage, broker.leader_epoch
        agreed = self._leaders.known_until(*question)
        if broker.is_reachable:
            agreed = await self._leaders.agreed_until(*question)
        if query.read_committed and agreed is not None and agreed < ends.end_offset:
            agreed = None  # transaction markers of a replaced tail are void
        return replace(at, agreed_until=agreed), served

    def _start(
        self, partition: TopicIdPartition, ends: TierEnds, broker: BrokerLogEnds | None
    ) -> int:
        """The lowest offset that is served."""
        start = self._whole_log_start(self.reads.state_of(partition), ends, broker)
        return ends.log_start_offset if start is None else start

    def _whole_log_start(
        self, state: PartitionState, ends: TierEnds, broker: BrokerLogEnds | None
    ) -> int | None:
        start = ends.log_start_offset

        def oldest() -> RemoteLogSegmentMetadata | None:
            served = next(self.reads.metadata.served_segments(state, start, OFFSET_MAX), None)
            return None if served is None else served[1]

        return whole_log_start(state, start, broker, oldest)

    def _ends(self, state: PartitionState) -> TierEnds | None:
        if not state.lineage:
            return None
        if state.highest_copied is None:
            disabled = self.why_disabled(state.partition.topic) is not None
            first = first_offset_to_copy(state, is_disabled=disabled)
            if first is None:
                return None
            return TierEnds(first, max(first, state.next_offset), state.lineage[-1].epoch)
        start = state.first_readable_offset
        if start < 0:
            served = next(self.reads.metadata.served_segments(state, 0, OFFSET_MAX), None)
            if served is None:
                return None
            start = served[0].first_offset
        return TierEnds(start, state.next_offset, state.lineage[-1].epoch)

    def _found(self, partition: TopicIdPartition, offset: int) -> FoundOffset:
        epoch = epoch_for_offset(self.reads.state_of(partition).lineage, offset)
        return FoundOffset(NO_TIMESTAMP, offset, UNKNOWN_EPOCH if epoch is None else epoch)


def _stops_below(end: int, broker: BrokerLogEnds | None) -> bool:
    """True if the offsets below `end` (exclusive) do not reach the leader's disk."""
    return broker is not None and end < broker.local_log_start_offset


def _begins_by(offset: int, broker: BrokerLogEnds | None) -> bool:
    """True if the leader's disk begins at the offset or below it."""
    return broker is not None and broker.local_log_start_offset <= offset


def _lost_at(ranges: Sequence[Lost], offset: int) -> LostOffsets | None:
    """The lost range that contains the offset, joined with those that directly follow it."""
    found = None
    for lost in ranges:
        if found is None and lost.start <= offset <= lost.end:
            found = LostOffsets(lost.start, lost.end, lost.why)
        elif found is not None and lost.start == found.next_offset:
            found = replace(found, end=lost.end)
    return found


def _near_end(row: RemoteLogSegmentMetadata, query: FetchQuery, offset: int) -> bool:
    """True if the bytes that are fetched ahead for a reader at `offset` reach into the next
    segment, by the mean batch size.
    """
    offsets = row.end_offset - row.start_offset + 1
    reach = FURTHER_MAX * query.bytes_max + READER_BYTES_MAX
    return row.size_bytes * (row.end_offset - offset) < reach * offsets


class _Barrier:
    """Runs barriers of the metadata log one at a time: callers that wait meanwhile share the next
    one.
    """

    def __init__(self, reads: ResolvedReads) -> None:
        self._metadata = reads.metadata
        self._turn = asyncio.Lock()
        self._begun = 0
        self._outcomes: tuple[int, StrandlineError | None] = (0, None)

    async def wait(self) -> None:
        """Return once the view has everything that was completed before this call; RetryLater."""
        wanted = self._begun + 1
        async with self._turn:
            if self._outcomes[0] < wanted:
                self._begun += 1
                try:
                    await self._metadata.catch_up(deadline_s=BARRIER_DEADLINE_S)
                    self._outcomes = (self._begun, None)
                except StrandlineError as error:
                    self._outcomes = (self._begun, error)
            error_met = self._outcomes[1]
        if error_met is not None:
            raise error_met
