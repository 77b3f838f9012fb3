"""One attempt to copy one segment.

    COPY_SEGMENT_STARTED applied  ->  upload in a worker  ->  COPY_SEGMENT_FINISHED applied

Invariant: no object is written before its segment id is in the log (the invariants delete_order and
quiesced_bucket_equals_metadata depend on it). `clean_up`, here or on any later leader's node, finds
a failed or cancelled attempt as a row in COPY_SEGMENT_STARTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import Conflict, OutcomeUnknown, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs, truncate_from_end
from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.pool_port import PoolPort
from rlm.control.run_events import OnEvent, SegmentCopied, SegmentProgress, SegmentStarted
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import Ambient, Surroundings
from rlm.data_plane.copy_job import CopyJob, CopyProgress, CopyResult, SourceRuns, UploadLimits
from rlm.data_plane.segment_source import CHANGED
from rlm.local_log.damage import Damage, Stretch
from rlm.local_log.gap_rule import Offsets
from rlm.local_log.log_dir import LocalSegment
from rlm.local_log.segment_facts import SegmentFacts, segment_epochs, segment_facts
from rlm.stores.tier_store import TierStore
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

STALL_CHECKS_PER_DEADLINE = 4
SLACK_FACTOR = 1.5
"""Factor for retries and uneven shares in a duration that is derived from a rate limit."""


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """The segment to copy and its claim. `lineage`: the view's merged one; `log_start_offset`: the
    tier's. `from_links`: the files are links kept from local retention, with a history of their
    own. `gaps_allowed`, `once_there`: see `gap_rule.GapWatch`. `stretch`: the part of a segment
    with `damage` to copy; `producers_at_base`: a producer snapshot at its first offset, None if
    unknown. `open_at_base`: as in the job.
    """

    partition: TopicIdPartition
    segment: LocalSegment
    lineage: Epochs
    log_start_offset: int
    token: int
    from_links: bool = False
    gaps_allowed: bool = False
    once_there: tuple[Offsets, ...] = ()
    damage: Damage | None = None
    stretch: Stretch | None = None
    producers_at_base: bytes | None = None
    open_at_base: tuple[OpenTransaction, ...] | None = None

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and last (inclusive) offset to copy."""
        if self.stretch is not None:
            return self.stretch.first, self.stretch.last
        assert self.segment.next_base_offset is not None, "the active segment is never copied"
        return self.segment.base_offset, self.segment.next_base_offset - 1

    @property
    def source(self) -> SourceRuns | None:
        """The runs to copy, if the source is not the whole `.log`; else None."""
        if self.stretch is None:
            return None
        assert self.segment.next_base_offset is not None, "the active segment is never copied"
        return SourceRuns(
            self.segment.base_offset, self.segment.next_base_offset, self.stretch.runs,
            self.producers_at_base,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Copied:
    """A successful attempt: its COPY_SEGMENT_FINISHED is applied."""

    row: RemoteLogSegmentMetadata
    result: CopyResult


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A failed attempt: the segment is not copied. `row` None: no record was proposed, so there is
    nothing to clean up; else the row is in COPY_SEGMENT_STARTED, or, if the response was lost, may
    get there later.
    """

    error: Exception
    row: RemoteLogSegmentMetadata | None


FactsReader = Callable[[LocalSegment, Epochs], SegmentFacts]

RecordCleaned = Callable[[TopicIdPartition, str], Awaitable[None]]
"""Records that gaps are legal in the partition from now on, and why."""

CLEANED = "batches of it show that Kafka's log cleaner was at work"

ProducersBelow = Callable[[TopicIdPartition, int], Awaitable[bytes | None]]
"""Reads the producer snapshot at an offset from the tier (`rlm.fetch.producers_below`)."""


async def nothing_known(_partition: TopicIdPartition, _offset: int) -> bytes | None:
    """The `ProducersBelow` without a tier: always None."""
    return None


SlackOf = Callable[[str, int], float]
"""Returns the extra seconds that a number of bytes of a topic may take because of a rate limit."""


BeforeFinish = Callable[[RemoteLogSegmentMetadata, CopyResult], Awaitable[None]]
"""The check of an uploaded copy before it is recorded as finished."""


async def nothing_more(_row: RemoteLogSegmentMetadata, _result: CopyResult) -> None:
    """The `BeforeFinish` without a check: the upload verified everything."""


def no_slack(_topic: str, _size_bytes: int) -> float:
    """The `SlackOf` without rate limits: 0 seconds."""
    return 0.0


@dataclass(slots=True, kw_only=True)
class Copier:
    """Runs attempts, and remembers those of this process, which are no left-overs.

    `read_facts` blocks for a few file reads and runs in an executor. `confirm_prefix` raises
    Refused once the store's prefix belongs to a different cluster. `record_cleaned` raises like any
    proposal.
    """

    proposals: Proposals
    pool: PoolPort
    on_event: OnEvent
    confirm_prefix: Callable[[TierStore], Awaitable[None]]
    record_cleaned: RecordCleaned
    read_facts: FactsReader = segment_facts
    slack_of: SlackOf = no_slack
    producers_below: ProducersBelow = nothing_known
    _uploading: set[Uuid] = field(default_factory=set)

    @property
    def _around(self) -> Surroundings:
        return self.proposals.around

    def is_under_way(self, segment_uuid: Uuid) -> bool:
        """True between the proposal of COPY_SEGMENT_STARTED and the attempt's end."""
        return segment_uuid in self._uploading

    async def copy(
        self,
        order: CopyOrder,
        store: TierStore,
        on_row: Callable[[RemoteLogSegmentMetadata], None],
        before_finish: BeforeFinish = nothing_more,
    ) -> Copied | AttemptFailed:
        """Run one attempt. `on_row` receives the row before its proposal; an error of
        `before_finish` ends the attempt. Raises only CancelledError.
        """
        try:
            await self.confirm_prefix(store)
            row = await self._describe(order)
            if order.stretch is not None:
                order = await self._with_producers(order, row.start_offset)
        except Exception as error:  # noqa: BLE001 - an attempt's failure is its result
            return AttemptFailed(error, None)
        on_row(row)
        with self._under_way(row.segment_id.id):
            return await self._attempt(order, store, row, before_finish)

    @contextmanager
    def _under_way(self, segment_uuid: Uuid) -> Iterator[None]:
        """Mark the segment as being uploaded. The pool guarantees that no byte is sent after its
        call returned, raised or was cancelled.
        """
        outermost = segment_uuid not in self._uploading
        self._uploading.add(segment_uuid)
        try:
            yield
        finally:
            if outermost:
                self._uploading.discard(segment_uuid)

    async def _with_producers(self, order: CopyOrder, offset: int) -> CopyOrder:
        deadline_s = self._around.limits.stall_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                below = await self.producers_below(order.partition, offset)
        except TimeoutError:
            raise RetryLater(
                f"the producers' state at offset {offset} could not be read from the tier within "
                f"{deadline_s:g} s: check whether the store answers"
            ) from None
        return replace(order, producers_at_base=below)

    async def _describe(self, order: CopyOrder) -> RemoteLogSegmentMetadata:
        segment = order.segment
        assert segment.next_base_offset is not None, "the active segment is never copied"
        deadline_s = self._around.limits.stall_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                facts = await asyncio.to_thread(self.read_facts, segment, order.lineage)
        except TimeoutError:
            raise RetryLater(
                f"{segment.log_path} could not be read within {deadline_s:g} s: check whether the "
                "disk hangs"
            ) from None
        if order.from_links and facts.size_bytes != segment.size_bytes:
            # The broker truncated its log through the shared inode. In its own directory the
            # neighbouring segments show that; here this check alone notices the missing batches.
            raise Conflict(
                f"{segment.log_path} had {segment.size_bytes} bytes when it was planned and has "
                f"{facts.size_bytes} now",
                reason=CHANGED,
            )
        if order.stretch is not None:
            facts = _facts_of_stretch(order, facts)
        first, last = order.offsets
        now_ms = self._around.ambient.now_ms()
        deadline_s = self.deadline_s(order.partition.topic, facts.size_bytes)
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(order.partition, self._around.ambient.new_uuid()),
            start_offset=first,
            end_offset=last,
            broker_id=self._around.identity.incarnation.node_id,
            max_timestamp_ms=facts.max_timestamp_ms,
            event_timestamp_ms=now_ms,
            leader_epochs=facts.leader_epochs,
            size_bytes=facts.size_bytes,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=facts.txn_index_empty,
            token=order.token,
            writer=self._around.identity.incarnation,
            upload_deadline_ms=now_ms + round(deadline_s * 1000),
        )

    def deadline_s(self, topic: str, size_bytes: int) -> float:
        """The longest time of one upload, from its start. A limited rate is shared by all parallel
        copies, and retries take a part of it.
        """
        shared_bytes = size_bytes * self._around.limits.copies_parallel_max
        slack_s = SLACK_FACTOR * self.slack_of(topic, shared_bytes)
        return self._around.limits.upload_deadline_s + slack_s

    def _stall_s(self, topic: str) -> float:
        """The longest time without progress. Progress is reported part by part, and under a rate
        limit all parts under way share the rate.
        """
        limits = self._around.limits
        parts_bytes = limits.part_bytes * (limits.parts_parallel + 1) * limits.copies_parallel_max
        return limits.stall_deadline_s + SLACK_FACTOR * self.slack_of(topic, parts_bytes)

    def survey_job(self, order: CopyOrder, store: TierStore) -> CopyJob:
        """The job to survey the whole segment: that of a copy which is not made."""
        segment = order.segment
        assert segment.next_base_offset is not None, "the active segment is never copied"
        first = max(segment.base_offset, segment.first_known_offset)
        row = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(order.partition, self._around.ambient.new_uuid()),
            start_offset=segment.base_offset,
            end_offset=segment.next_base_offset - 1,
            broker_id=self._around.identity.incarnation.node_id,
            max_timestamp_ms=-1,
            event_timestamp_ms=self._around.ambient.now_ms(),
            leader_epochs=segment_epochs(order.lineage, first, segment.next_base_offset),
            size_bytes=segment.size_bytes,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
        )
        return self._job(order, store, row)

    async def _attempt(
        self,
        order: CopyOrder,
        store: TierStore,
        row: RemoteLogSegmentMetadata,
        before_finish: BeforeFinish,
    ) -> Copied | AttemptFailed:
        began = self._around.ambient.monotonic()
        try:
            await self.proposals.start_copy(row)
        except OutcomeUnknown as error:
            return AttemptFailed(error, row)
        except Exception as error:  # noqa: BLE001 - an attempt's failure is its result
            return AttemptFailed(error, None)
        self.on_event(
            SegmentStarted(row.segment_id, row.start_offset, row.end_offset, row.size_bytes)
        )
        try:
            result = await self.upload(self._job(order, store, row))
            check_size(row, result)
            await before_finish(row, result)
            if result.cleaned and not order.gaps_allowed:
                # Before the copy is finished: after that, no process reads this segment again.
                await self.record_cleaned(order.partition, CLEANED)
            await self.proposals.finish_copy(self._finished(row, result))
        except Exception as error:  # noqa: BLE001 - an attempt's failure is its result
            return AttemptFailed(error, row)
        took_ms = round((self._around.ambient.monotonic() - began) * 1000)
        self.on_event(
            SegmentCopied(
                row.segment_id, row.start_offset, row.end_offset, result.log_bytes, took_ms
            )
        )
        return Copied(row, result)

    def _job(self, order: CopyOrder, store: TierStore, row: RemoteLogSegmentMetadata) -> CopyJob:
        directory: Path = order.segment.log_path.parent
        up_to_here = truncate_from_end(order.lineage, row.end_offset + 1)
        return CopyJob(
            segment_id=row.segment_id,
            start_offset=row.start_offset,
            end_offset=row.end_offset,
            directory=directory,
            leader_epochs=tuple(
                leader_epoch_checkpoint.EpochEntry(epoch, start)
                for epoch, start in row.leader_epochs
            ),
            lineage_checkpoint=leader_epoch_checkpoint.encode(up_to_here),
            broker_id=row.broker_id,
            event_timestamp_ms=row.event_timestamp_ms,
            max_timestamp_ms=row.max_timestamp_ms,
            txn_index_empty=row.txn_index_empty,
            store=store.name,
            prefix=store.prefix,
            upload_deadline_ms=row.upload_deadline_ms,
            log_start_offset=max(order.log_start_offset, order.segment.first_known_offset),
            limits=UploadLimits(
                self._around.limits.part_bytes,
                self._around.limits.parts_parallel,
                batch_bytes_max=self._around.limits.batch_bytes_max,
            ),
            gaps_allowed=order.gaps_allowed,
            once_there=order.once_there,
            source=order.source,
            open_at_base=order.open_at_base,
        )

    def _finished(
        self, row: RemoteLogSegmentMetadata, result: CopyResult
    ) -> RemoteLogSegmentMetadataUpdate:
        found_ms = result.max_timestamp_ms
        return RemoteLogSegmentMetadataUpdate(
            segment_id=row.segment_id,
            broker_id=row.broker_id,
            event_timestamp_ms=self._around.ambient.now_ms(),
            custom_metadata=result.custom_metadata.encode(),
            max_timestamp_ms=-1 if found_ms == row.max_timestamp_ms else found_ms,
            state=SegmentState.COPY_SEGMENT_FINISHED,
            token=row.token,
            writer=row.writer,
        )

    async def upload(self, job: CopyJob) -> CopyResult:
        """The pool's copy under a watchdog: a hanging upload is cancelled long before its deadline,
        a slow one at it.
        """
        with self._under_way(job.segment_id.id):
            return await self._watched(job)

    async def _watched(self, job: CopyJob) -> CopyResult:
        topic = job.segment_id.partition.topic
        watch = _Watch(lambda: self._stall_s(topic), self._around.ambient, job.upload_deadline_ms)

        def on_progress(progress: CopyProgress) -> None:
            watch.moved()
            self.on_event(
                SegmentProgress(job.segment_id, progress.bytes_done, progress.bytes_total)
            )

        upload = asyncio.ensure_future(self.pool.copy(job, on_progress))
        guard = asyncio.ensure_future(watch.until_given_up())
        try:
            await asyncio.wait({upload, guard}, return_when=asyncio.FIRST_COMPLETED)
            if upload.done():
                return upload.result()
            raise RetryLater(guard.result())
        finally:
            guard.cancel()
            upload.cancel()
            # Only after the pool's call has ended is it certain that this attempt sends no more.
            await asyncio.gather(upload, guard, return_exceptions=True)


def check_size(row: RemoteLogSegmentMetadata, result: CopyResult) -> None:
    """Raise Conflict(SOURCE_CHANGED) if the `.log` was replaced between its row and its copy, as
    Kafka's cleaner does: retention counts the bytes of the row.
    """
    if result.log_bytes != row.size_bytes:
        raise Conflict(
            f"{row.segment_id} was added with {row.size_bytes} bytes, but its copy has "
            f"{result.log_bytes}",
            reason=CHANGED,
        )


def _facts_of_stretch(order: CopyOrder, facts: SegmentFacts) -> SegmentFacts:
    """The facts of a stretch: the indexes beside the `.log` do not cover fetched or left-out
    batches.
    """
    stretch, damage = order.stretch, order.damage
    assert stretch is not None, "only called for a stretch"
    assert damage is not None, "a stretch belongs to a damaged segment"
    first = max(stretch.first, order.segment.first_known_offset)
    epochs = segment_epochs(order.lineage, first, stretch.last + 1)
    return SegmentFacts(
        size_bytes=stretch.size_bytes,
        max_timestamp_ms=max(facts.max_timestamp_ms, damage.survey.max_timestamp_ms),
        txn_index_empty=not damage.aborts_within(stretch),
        leader_epochs=epochs,
    )


class _Watch:
    """Decides when to give an upload up, and why."""

    def __init__(self, stall_s: Callable[[], float], ambient: Ambient, deadline_ms: int) -> None:
        """`stall_s` is called each time: limits change while an upload runs."""
        self._stall_s = stall_s
        self._ambient = ambient
        self._deadline_ms = deadline_ms
        self._moved_at = ambient.monotonic()

    def moved(self) -> None:
        self._moved_at = self._ambient.monotonic()

    async def until_given_up(self) -> str:
        while True:
            stall_s = self._stall_s()
            if self._ambient.monotonic() - self._moved_at >= stall_s:
                return f"the upload made no progress for {stall_s:g} s and was cancelled"
            left_s = (self._deadline_ms - self._ambient.now_ms()) / 1000
            if left_s <= 0:
                return "the upload did not end before its deadline and was cancelled"
            await self._ambient.sleep(min(stall_s / STALL_CHECKS_PER_DEADLINE, left_s))
