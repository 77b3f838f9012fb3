"""The remote log metadata manager: Kafka's RemoteLogMetadataManager (KIP-405) over our log.

Writes are proposed to the log and decided when they are applied; a caller gets the outcome once the
row is readable here (reads: `rlmm/manager/metadata_reads.py`). It has methods that Kafka's does not
have: claims, log start, lost ranges, modes, policies (`rlmm/records/control_records.py`).

Writes raise Fenced (a newer writer leads), Conflict (its reason is the verdict of apply),
InvalidRequest (nothing changed), RetryLater (nothing appended), OutcomeUnknown (read the row).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from kafka_formats.errors import InternalError, InvalidRequest, OutcomeUnknown, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.outcome import raise_unless_done
from rlmm.manager.apply_loop import ApplyHearers, ApplyLoop, ApplyPace
from rlmm.manager.metadata_limits import WRITE_DEADLINE_S, MetadataLimits
from rlmm.manager.metadata_stats import MetadataStats
from rlmm.manager.node_liveness import LivenessJudge, NodeLiveness
from rlmm.manager.proposal_waiters import Decision, ProposalWaiters
from rlmm.manager.readiness import BARRIER_DEADLINE_S, Readiness
from rlmm.manager.segment_history import HistoryEntry, read_history
from rlmm.manager.time_passing import TimePassing, pause
from rlmm.manager.trash_writes import TrashWrites
from rlmm.metadata_log import LogDescription, MetadataLog, Proposal, SnapshotId
from rlmm.partition_state import PartitionState
from rlmm.records import control_records as control
from rlmm.records.records import MetadataRecord, encode
from rlmm.rows.feature_level import check_feature_level
from rlmm.rows.reads import read_feature_level
from rlmm.segment import (
    Incarnation,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from rlmm.view.snapshots import install_if_needed, view_now, write_snapshot
from rlmm.view.view import View

__all__ = ["ClaimAnswer", "MetadataLimits", "RemoteLogMetadataManager"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """An accepted claim: its token, and the partition exactly at the token's offset."""

    token: int
    state: PartitionState
    left_overs: tuple[RemoteLogSegmentMetadata, ...]


class RemoteLogMetadataManager(TrashWrites):
    """Make it with `start`, then `close` it; log and view stay open."""

    def __init__(
        self,
        metadata_log: MetadataLog,
        view: View,
        *,
        incarnation: Incarnation,
        now_ms: Callable[[], int],
        limits: MetadataLimits,
        on_failure: Callable[[str], None],
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(view, states_kept_max=limits.states_kept_max)
        self.incarnation = incarnation
        self._log = metadata_log
        self._now_ms = now_ms
        self._limits = limits
        self._on_failure = on_failure
        self.stats = MetadataStats(monotonic)
        pace = ApplyPace(limits.apply_rest_ms)
        self._waiters = ProposalWaiters(
            outcomes_kept_max=limits.outcomes_kept_max, on_proposal=pace.awaited
        )
        hearers = ApplyHearers(self._states.committed, self._changes.committed, self.stats.applied)
        self._applying = ApplyLoop(metadata_log, view, self._waiters, pace, limits, hearers)
        self._readiness = Readiness(metadata_log, self._applying.wait_for)
        self._snapshot_lock = asyncio.Lock()
        self._snapshot_taken_ms: int | None = None
        self._failure: str | None = None
        self._failure_error: BaseException | None = None
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        log: MetadataLog,
        view: View,
        *,
        incarnation: Incarnation,
        now_ms: Callable[[], int],
        limits: MetadataLimits | None = None,
        on_failure: Callable[[str], None] | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> Self:
        """Bring the view to the log's high watermark and follow it from there.

        `on_failure` is called once if applying stops: the node has to stop then. `monotonic`
        measures time for the log; None: this node measures none. CorruptData: the log starts above
        the view and no snapshot closes the gap.
        """
        limits = limits or MetadataLimits()
        await install_if_needed(log, view, limits.feature_levels)
        check_feature_level(view, limits.feature_levels)
        self = cls(
            log,
            view,
            incarnation=incarnation,
            now_ms=now_ms,
            limits=limits,
            on_failure=on_failure or (lambda _: None),
            monotonic=monotonic or asyncio.get_running_loop().time,
        )
        self._tasks = [
            asyncio.create_task(self._apply_task(), name="metadata-apply"),
            asyncio.create_task(self._snapshot_task(), name="metadata-snapshots"),
            asyncio.create_task(self._lost_snapshot_task(), name="metadata-lost-snapshots"),
            asyncio.create_task(self._flush_task(), name="metadata-view-flush"),
        ]
        if monotonic is not None:
            passing = TimePassing(view, monotonic, self._leads, self._record)
            self._tasks.append(asyncio.create_task(passing.run(), name="metadata-time"))
            liveness = NodeLiveness(
                LivenessJudge(limits.node_silence_max_s), log.describe, self.registered_nodes,
                monotonic, self._write,
            )  # fmt: skip
            self._tasks.append(asyncio.create_task(liveness.run(), name="metadata-liveness"))
        try:
            if not await self._applying.wait_for(log.describe().high_watermark - 1):
                raise self._failure_error or RetryLater("the metadata log was closed")
        except BaseException:
            await self.close()
            raise
        self._tasks.append(asyncio.create_task(self._readiness.run(), name="metadata-readiness"))
        return self

    @property
    def failure(self) -> str | None:
        """The reason why applying stopped; None while it runs."""
        return self._failure

    async def wait_for_offset(self, offset: int, *, deadline_s: float) -> None:
        """Return once `offset` is applied here. RetryLater: not within the deadline."""
        self._check_open()
        try:
            async with asyncio.timeout(deadline_s):
                if await self._applying.wait_for(offset):
                    return
        except TimeoutError as error:
            raise RetryLater(
                f"metadata offset {offset} is not applied here yet ({self.applied_offset} is)"
            ) from error
        self._check_open()
        raise RetryLater("the metadata log was closed")

    async def catch_up(self, *, deadline_s: float = BARRIER_DEADLINE_S) -> None:
        """Return once all writes completed before this call are applied here: a read of the view
        may then be answered with "nothing to do". RetryLater: no leader confirms it in time.
        """
        end = await self._log.barrier(deadline_s=deadline_s)
        await self.wait_for_offset(end - 1, deadline_s=deadline_s)

    def describe(self) -> LogDescription:
        """The metadata log as this node sees it."""
        return self._log.describe()

    def snapshot_age_ms(self) -> int | None:
        """The age of this process's last snapshot; None before the first."""
        taken = self._snapshot_taken_ms
        return None if taken is None else self._now_ms() - taken

    async def add_remote_log_segment_metadata(
        self, metadata: RemoteLogSegmentMetadata, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Begin a copy: COPY_SEGMENT_STARTED. Repeating it has no further effect."""
        if metadata.state is not SegmentState.COPY_SEGMENT_STARTED:
            raise InvalidRequest(
                f"a segment is added as COPY_SEGMENT_STARTED, not {metadata.state.name}",
                field="state",
            )
        return await self._write(metadata, deadline_s)

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Any later state of a known segment. Repeating it has no further effect."""
        if update.state is SegmentState.COPY_SEGMENT_STARTED:
            raise InvalidRequest("COPY_SEGMENT_STARTED is an add, not an update", field="state")
        return await self._write(update, deadline_s)

    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """A step in the deletion of a whole partition."""
        return await self._write(metadata, deadline_s)

    async def claim_partition(
        self, claim: control.PartitionClaim, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> ClaimAnswer:
        """Become the partition's only writer. State read before the answer is outdated."""
        proposal = encode(claim)
        with self._applying.reading_claim(proposal.value):
            offset, decision = await self._decide((proposal,), deadline_s)
        raise_unless_done(decision.outcome, offset)
        reading = decision.reading
        if reading is None or reading.state.claim is None:
            raise InternalError(f"the claim at metadata offset {offset} is not in force")
        return ClaimAnswer(reading.state.claim.token, reading.state, reading.left_overs)

    async def record_log_start(
        self, record: control.LogStart, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Move the tier's log start forward."""
        return await self._write(record, deadline_s)

    async def record_lost_range(
        self, record: control.LostRange, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Record that offsets were gone before they could be copied."""
        return await self._write(record, deadline_s)

    async def record_gaps_allowed(
        self, record: control.GapsAllowed, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Make offsets without a batch legal in a partition from here on."""
        return await self._write(record, deadline_s)

    async def skip_offsets(
        self, record: control.OffsetsSkipped, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Give up offsets that can't be copied, on an admin's request."""
        return await self._write(record, deadline_s)

    async def set_partition_mode(
        self, record: control.PartitionModeChange, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Set the mode of copying and expiring; voids the claim in force."""
        return await self._write(record, deadline_s)

    async def reset_claim(
        self, record: control.ClaimReset, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Void the claim in force, on an admin's request."""
        return await self._write(record, deadline_s)

    async def record_restart(
        self, record: control.RestartRecord, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Record a finding about the store after a restart from a snapshot."""
        return await self._write(record, deadline_s)

    async def record_node(
        self, record: control.NodeRecord, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Record a process's statement about a node id, or the removal of a node by an admin."""
        return await self._write(record, deadline_s)

    async def record_move(
        self, record: control.MoveRecord, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Record a step of the move from Kafka's own metadata topic. The metadata offset of a phase
        is its `Migration.since`.
        """
        return await self._write(record, deadline_s)

    async def set_cluster_setting(
        self, record: control.ClusterSetting, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Set or remove a setting of the cluster, a node or topics, on an admin's request."""
        return await self._write(record, deadline_s)

    async def mark_expired(
        self, record: control.ExpiryMark, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Hide expired offsets from readers; the log start follows later."""
        return await self._write(record, deadline_s)

    async def finalise_feature_level(
        self, level: int, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Raise the level on every node, for good, after `feature_level.check_may_finalise`."""
        _, replaces_offset = read_feature_level(self._view)
        return await self._write(control.FeatureLevel(level, replaces_offset), deadline_s)

    def on_partition_leadership_changes(self, tips: Iterable[TopicIdPartition]) -> None:
        """Take note that partitions have a new leader or epoch (Kafka's method): each is ready
        again after a barrier that begins from now on.
        """
        self._readiness.changed(tips)

    def is_ready(self, tip: TopicIdPartition) -> bool:
        """True if an empty answer means that the tier has no segment. An empty answer while this is
        False would make a broker move its log start and lose the tier (Kafka's RLMM.isReady).
        """
        is_open = self._failure is None and not self._closed
        return is_open and self._readiness.is_ready(tip) and not self.is_kafkas(tip)

    def is_caught_up(self) -> bool:
        """True once a barrier shows that all writes before this start are applied here."""
        return self._readiness.is_caught_up

    async def segment_history(
        self, segment_id: RemoteLogSegmentId, *, limit: int
    ) -> tuple[HistoryEntry, ...]:
        """The retained log's records about a segment, oldest first."""
        self._check_open()
        records = self._limits.history_read_records
        return await read_history(self._log, segment_id, limit=limit, read_records=records)

    async def take_snapshot(self) -> SnapshotId:
        """Write a snapshot of the present state, and let the log be cut; not if there is one of it,
        or a later one: after a crash the view may have to catch up with its own.
        """
        self._check_open()
        async with self._snapshot_lock:
            newest = self._log.latest_snapshot()
            if newest is not None and newest.end_offset > self.applied_offset:
                self._applying.snapshot_begun()
                return newest
            # The log may be cut no further than the view is flushed, so the view goes first.
            await self._applying.flush()
            # Only now: the snapshot has the records applied during the flush, too.
            self._applying.snapshot_begun()
            # A snapshot that ends inside a batch would leave its installer with half of that.
            taken = await self._applying.between_groups(partial(view_now, self._view))
            slice_rows = self._limits.snapshot_slice_rows
            snapshot = await write_snapshot(
                self._log, taken, slice_rows=slice_rows, check_open=self._check_snapshot
            )
            self._snapshot_taken_ms = self._now_ms()
            return snapshot

    async def close(self) -> None:
        """Stop, with the view flushed. Waiters get OutcomeUnknown, later calls RetryLater."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._waiters.end("the node was shut down before the outcome was known")
        # A snapshot that a caller asked for ends at its next slice; it reads the view until then.
        async with self._snapshot_lock:
            if self._failure is None:
                await self._applying.flush()

    async def _apply_task(self) -> None:
        message = "the metadata log was closed"
        try:
            await self._applying.run()
            return
        except asyncio.CancelledError:
            message = "the node was shut down before the outcome was known"
            raise
        except Exception as error:  # noqa: BLE001 - a task's top: it is logged and reported
            message = f"applying the metadata log failed: {error}"
            self._fail("applying the metadata log", error)
        finally:
            self._waiters.end(message)

    def _leads(self) -> bool:
        found = self._log.describe()
        return found.leader_id == found.node_id

    async def _record(self, record: MetadataRecord) -> int:
        return await self._write(record, WRITE_DEADLINE_S)

    async def _snapshot_task(self) -> None:
        while True:
            await self._applying.snapshot_due.wait()
            try:
                await self.take_snapshot()
            except Exception as error:
                log.error("no snapshot of the metadata could be taken", exc_info=error)
                await pause(self._limits.snapshot_retry_s)
                self._applying.snapshot_due.set()  # a damaged one may have to be replaced

    async def _lost_snapshot_task(self) -> None:
        while True:
            await self._log.snapshot_lost()
            self._applying.snapshot_due.set()

    async def _flush_task(self) -> None:
        """Flush the view when it is due. Flushes soon after one another mark a busy log, until
        there is a longer pause.
        """
        busy, quiet_s = False, None
        while True:
            due = await self._flush_is_due(quiet_s)
            was_busy, busy = busy, due and quiet_s is not None
            quiet_s = self._limits.view_quiet_s if due else None
            if not due and not was_busy:
                continue
            try:
                await self._applying.flush(busy=busy)
            except Exception as error:  # noqa: BLE001 - a task's top: it is kept and reported
                self._fail("flushing the view", error)
                return

    async def _flush_is_due(self, within_s: float | None) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._applying.flush_due.wait()
        except TimeoutError:
            return False
        return True

    def _fail(self, what: str, error: BaseException) -> None:
        """Record the failure after which the node must stop, and report it once."""
        log.error("%s failed", what, exc_info=error)
        if self._failure is None:
            self._failure, self._failure_error = f"{what} failed: {error}", error
            self._on_failure(self._failure)

    async def _write(self, record: MetadataRecord, deadline_s: float) -> int:
        return await self._write_together((record,), deadline_s)

    async def _write_together(self, records: Sequence[MetadataRecord], deadline_s: float) -> int:
        proposals = tuple(encode(record) for record in records)
        offset, decision = await self._decide(proposals, deadline_s)
        raise_unless_done(decision.outcome, offset)
        return offset

    async def _decide(
        self, proposals: tuple[Proposal, ...], deadline_s: float
    ) -> tuple[int, Decision]:
        """The decision on the first of them, once all are applied."""
        self._check_open()
        with self._waiters.proposal(), self.stats.proposing():
            try:
                async with asyncio.timeout(deadline_s) as limit:
                    due = limit.when()
                    # The log keeps this deadline itself, and knows whether records were appended.
                    limit.reschedule(None)
                    offset = await self._log.propose(proposals, deadline_s=deadline_s)
                    limit.reschedule(due)
                    decision = await self._waiters.wait(offset)
                    if len(proposals) > 1:
                        await self._waiters.wait(offset + len(proposals) - 1)
                    self._readiness.own_record_applied()
                    return offset, decision
            except TimeoutError as error:
                raise OutcomeUnknown(
                    f"no outcome within {deadline_s} s: read the row by its id before deciding "
                    "anything"
                ) from error

    def _check_snapshot(self) -> None:
        """Raise if a snapshot is being installed: that waits for scans of the view, so a snapshot
        that this node takes has to end.
        """
        self._check_open()
        if self._applying.is_installing:
            raise RetryLater("a snapshot of the leader is being installed, which is newer")

    def _check_open(self) -> None:
        if self._failure is not None:
            raise RetryLater(f"{self._failure}. Restart the node")
        if self._closed:
            raise RetryLater("the metadata manager is closed: the node is shutting down")
