"""The steps of one segment's repair, as `repair_plan` orders them.

    a whole copy gathered beside the log -> COPY_SEGMENT_STARTED of a new id -> uploaded -> every
    byte read back -> COPY_SEGMENT_FINISHED: coverage moves to it -> DELETE_SEGMENT_STARTED of the
    damaged one, accepted only if it serves nothing alone -> its objects, as of any deleted segment

Invariant (repaired_before_retired): the damaged one is deleted only after the segments in its place
were read from the store and found whole.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import Conflict, CorruptData
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import LOG_SUFFIX, segment_file_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import Audit, AuditAction, AuditLine
from rlm.control.pool_port import PoolPort
from rlm.control.run_events import SegmentRepaired
from rlm.copy.copier import AttemptFailed, Copied, CopyOrder
from rlm.copy.copy_slots import Backlog
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.partition_work import PartitionWork
from rlm.data_plane.copy_job import CopyResult
from rlm.data_plane.repair_jobs import (
    CheckJob,
    CheckResult,
    GatherJob,
    GatherResult,
    LocalLog,
    LocalSource,
    expected_objects,
)
from rlm.format.custom_metadata import custom_of
from rlm.local_log.log_dir import LocalSegment
from rlm.repair.repair_plan import (
    RepairAction,
    RepairDecision,
    RepairFacts,
    first_known_offset,
    plan_repair,
    readable_range,
)
from rlm.repair.repair_run import DamagedSegmentRepair, Outcome
from rlm.repair.replica_gathering import ReplicaGathering
from rlm.stores.tier_store import TierStore
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

COPY = "copy"
ANSWERED = "answered"
"""The names, in a segment's scratch directory, of the directory with the files to copy from, and of
the file with the batches of another replica.
"""

LOOKS_MAX = 3
"""Limit of the rounds in which the segments in a damaged one's place are checked."""


@dataclass(frozen=True, slots=True)
class GatherRoom:
    """The place for gathered files: `directory`, on a disk where `free_bytes_min` stay free."""

    directory: Path
    free_bytes_min: int


@dataclass(frozen=True, slots=True)
class SegmentRepairs:
    """Repairs single segments; shared by all repairs of a node. `held_back` gives the reason why no
    data of a topic may be deleted now. `replicas` are used if no nearer source is whole.
    """

    driver: PartitionDriver
    pool: PoolPort
    replicas: ReplicaGathering
    work_of: Callable[[TopicIdPartition], PartitionWork | None]
    held_back: Callable[[str], str | None]
    audit: Audit
    room: GatherRoom

    async def check(self, row: RemoteLogSegmentMetadata) -> CheckResult | None:
        """The damage of a finished segment; None if a different RemoteStorageManager wrote it.
        Raises the store's errors.
        """
        custom = custom_of(row.custom_metadata)
        if custom is None:
            return None
        tier = self.driver.tier.stores.named(custom.store)
        objects = expected_objects(tier.prefix, row.segment_id, row.start_offset, custom)
        return await self.pool.check(CheckJob(tier.name, objects))

    def decide(self, row: RemoteLogSegmentMetadata) -> RepairDecision:
        """The decision according to the present state."""
        tip = row.segment_id.partition
        state = self.driver.tier.metadata.partition_state(tip)
        if state is None:
            return RepairDecision(RepairAction.LEAVE, "the partition is not in the metadata now")
        first, last = readable_range(row, state)
        return plan_repair(
            RepairFacts(
                row=row,
                state=state,
                served=tuple(self.driver.tier.metadata.served_segments(state, first, last)),
                held_back=self.held_back(tip.topic),
                copying_paused=self.driver.brakes.pause_text(tip.topic),
                not_claimed=self.not_claimed(tip),
            )
        )

    def not_claimed(self, tip: TopicIdPartition) -> str | None:
        """The reason why another node must repair the partition; None if this one may."""
        work = self.work_of(tip)
        if work is not None and work.claim is not None:
            return None
        state = self.driver.tier.metadata.partition_state(tip)
        if state is None or state.claim is None:
            return f"no node has a claim of {tip.topic}-{tip.partition} now"
        node_id = state.claim.incarnation.node_id
        return f"node {node_id} leads {tip.topic}-{tip.partition}: ask there"

    async def mend(
        self, row: RemoteLogSegmentMetadata, wrong: CheckResult, *, apply: bool, by: str
    ) -> DamagedSegmentRepair:
        """Repair a damaged segment, or with `apply` False only report what would be done. Raises
        only CancelledError.
        """
        decision = self.decide(row)
        told = DamagedSegmentRepair(
            row.segment_id, row.start_offset, row.end_offset, row.size_bytes,
            wrong.text, decision.action, Outcome.LEFT, decision.text,
        )  # fmt: skip
        try:
            if decision.action is RepairAction.RETIRE:
                await self._retire(row, told, apply=apply)
            elif decision.action is RepairAction.COPY_ANEW:
                await self._copy_anew(row, wrong, told, decision, apply=apply, by=by)
        except Exception as error:  # noqa: BLE001 - one segment's failure is its result
            text = str(error) or type(error).__name__
            logger.warning("repair of %s failed: %s", row.segment_id, text)
            if told.outcome is Outcome.COPIED:
                told.text += f"; the damaged one is not retired yet: {text}"
            else:
                told.outcome, told.text = Outcome.FAILED, text
        return told

    async def _copy_anew(
        self,
        row: RemoteLogSegmentMetadata,
        wrong: CheckResult,
        told: DamagedSegmentRepair,
        decision: RepairDecision,
        *,
        apply: bool,
        by: str,
    ) -> None:
        doing = apply and decision.not_now is None
        scratch = self.room.directory / str(row.segment_id.id)
        directory = scratch / COPY if doing else None
        try:
            found = await self._gathered(self._gather_job(row, wrong, directory), scratch)
            told.tried = (*found.tried, *found.unanswered)
            if not found.is_whole:
                told.outcome, told.text = _nowhere(found)
                return
            told.source = found.source
            if directory is None:
                told.outcome = Outcome.WOULD
                told.text = decision.not_now or decision.text
            else:
                await self._copy_from(row, directory, found, told, by)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    async def _gathered(self, job: GatherJob, scratch: Path) -> GatherResult:
        """Gather from the store and this machine, else from the other replicas."""
        near = await self.pool.gather(job)
        if near.source:
            return near
        far = await self.replicas.gather(job, scratch / ANSWERED)
        return replace(
            far, tried=(*near.tried, *far.tried), unanswered=(*near.unanswered, *far.unanswered)
        )

    def _gather_job(
        self, row: RemoteLogSegmentMetadata, wrong: CheckResult, directory: Path | None
    ) -> GatherJob:
        custom = custom_of(row.custom_metadata)
        state = self.driver.tier.metadata.partition_state(row.segment_id.partition)
        assert custom is not None, "it was checked"
        assert state is not None, "it was decided on"
        tier = self.driver.tier.stores.named(custom.store)
        return GatherJob(
            segment_id=row.segment_id,
            start_offset=row.start_offset,
            end_offset=row.end_offset,
            max_timestamp_ms=row.max_timestamp_ms,
            txn_index_empty=row.txn_index_empty,
            checkpoint=leader_epoch_checkpoint.encode(
                # As in any log whose head was removed by DeleteRecords, whose epochs are unknown.
                leader_epoch_checkpoint.truncate_from_start(state.lineage, first_known_offset(row))
            ),
            store=tier.name,
            objects=expected_objects(tier.prefix, row.segment_id, row.start_offset, custom),
            damaged=frozenset(suffix for suffix, _ in wrong.wrong),
            local=self._local_sources(row),
            directory=directory,
            free_bytes_min=self.room.free_bytes_min,
        )

    def _local_sources(self, row: RemoteLogSegmentMetadata) -> tuple[LocalSource, ...]:
        """The broker's log, the broker's log joined with the held segments below it, and each held
        segment alone.
        """
        work = self.work_of(row.segment_id.partition)
        if work is None or work.local is None or not work.local.is_seen:
            return ()
        sources = [LocalSource("the broker's segments", _logs(work.local.segments))]
        if work.kept:
            sources.append(LocalSource("held and local segments", _logs(work.segments)))
        sources += [
            LocalSource(f"the held segment {unit.base_offset}", _logs((unit.segment,)))
            for unit in work.units
            if unit.base_offset <= row.end_offset and unit.next_base_offset > row.start_offset
        ]
        return tuple(sources)

    async def _copy_from(
        self,
        row: RemoteLogSegmentMetadata,
        directory: Path,
        found: GatherResult,
        told: DamagedSegmentRepair,
        by: str,
    ) -> None:
        """Copy like any other segment, one at a time per partition, but read the copy back before
        it is recorded as finished.
        """
        work = self.work_of(row.segment_id.partition)
        if work is None:
            told.outcome = Outcome.WOULD
            told.text = self.not_claimed(row.segment_id.partition) or "it is not known here now"
            return
        backlog = Backlog(row.size_bytes, 0.0)
        async with self.driver.slots.slot(backlog), work.one_copy:
            decision = self.decide(row)
            if decision.action is not RepairAction.COPY_ANEW or decision.not_now is not None:
                is_left = decision.action is RepairAction.LEAVE
                told.outcome = Outcome.LEFT if is_left else Outcome.WOULD
                told.text = decision.not_now or decision.text
                return
            outcome = await self._attempt(work, row, directory, found)
        if isinstance(outcome, AttemptFailed):
            told.outcome, told.text = Outcome.FAILED, str(outcome.error)
            return
        told.new_segment = outcome.row.segment_id.id
        told.outcome = Outcome.COPIED
        told.text = f"copied anew as {told.new_segment}"
        why = f"{told.wrong}; copied anew from {told.source} as {told.new_segment}"
        now_ms = self.driver.around.ambient.now_ms()
        self.audit(AuditLine.of_segment(now_ms, AuditAction.SEGMENT_REPAIRED, row, why, by))
        self.driver.on_event(
            SegmentRepaired(
                row.segment_id, told.new_segment, row.start_offset, row.end_offset, told.source
            )
        )
        logger.info(
            "%s, damaged (%s), was copied anew from %s as %s",
            row.segment_id, told.wrong, told.source, told.new_segment,
        )  # fmt: skip
        await self._retire(row, told, apply=True, whole={told.new_segment})

    async def _attempt(
        self,
        work: PartitionWork,
        row: RemoteLogSegmentMetadata,
        directory: Path,
        found: GatherResult,
    ) -> Copied | AttemptFailed:
        state = self.driver.tier.metadata.partition_state(work.partition)
        assert state is not None, "it was decided on"
        assert work.claim is not None, "it was decided on"
        order = CopyOrder(
            work.partition,
            LocalSegment(
                row.start_offset,
                directory / segment_file_name(row.start_offset, LOG_SUFFIX),
                row.size_bytes,
                row.end_offset + 1,
                first_known_offset=first_known_offset(row),
            ),
            state.lineage,
            state.log_start_offset,
            work.claim.token,
            from_links=True,
            # Gaps in these bytes were checked when they were first copied.
            gaps_allowed=True,
            open_at_base=found.open_at_base,
        )
        tier = self.driver.tier.stores.default
        task = asyncio.ensure_future(
            self.driver.copier.copy(
                order, tier, lambda _: None, before_finish=self._read_back(row, tier)
            )
        )
        work.repair = task
        try:
            return await task
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if asking is not None and asking.cancelling():
                raise
            return AttemptFailed(Conflict("the claim was lost", reason="NOT_CLAIMED"), None)
        finally:
            work.repair = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _read_back(
        self, row: RemoteLogSegmentMetadata, tier: TierStore
    ) -> Callable[[RemoteLogSegmentMetadata, CopyResult], Awaitable[None]]:
        """The check of a new copy before it is recorded as finished: its log is unchanged, and all
        objects are complete.
        """

        async def read_back(new: RemoteLogSegmentMetadata, result: CopyResult) -> None:
            old, custom = custom_of(row.custom_metadata), result.custom_metadata
            assert old is not None, "it was checked"
            same = (custom.log_bytes, custom.log_crc32c) == (old.log_bytes, old.log_crc32c)
            if not same or result.txn_index_empty != row.txn_index_empty:
                raise Conflict(
                    f"the new copy of {row.segment_id} differs from the recorded log, so the old "
                    "one is kept: repeat the repair",
                    reason="SOURCE_CHANGED",
                )
            objects = expected_objects(tier.prefix, new.segment_id, new.start_offset, custom)
            found = await self.pool.check(CheckJob(tier.name, objects))
            if found.wrong:
                raise CorruptData(
                    f"read back after its upload: {found.text}",
                    source=str(new.segment_id),
                    position=0,
                )

        return read_back

    async def _retire(
        self,
        row: RemoteLogSegmentMetadata,
        told: DamagedSegmentRepair,
        *,
        apply: bool,
        whole: Iterable[Uuid] = (),
    ) -> None:
        """Mark the damaged segment as deleted, under the present claim, once all segments in its
        place were read and found whole in this pass; those in `whole` were already. Apply refuses
        if the damaged one is the only one to serve an offset.
        """
        verified = set(whole)
        for _ in range(LOOKS_MAX):
            now = self.driver.tier.metadata.find_segment(row.segment_id.id)
            if now is None or now.state is not SegmentState.COPY_SEGMENT_FINISHED:
                if told.outcome is Outcome.COPIED:
                    told.outcome = Outcome.REPAIRED
                return
            decision = self.decide(now)
            if decision.action is not RepairAction.RETIRE:
                _stays(told, decision.text, Outcome.LEFT)
                return
            unread = [each for each in decision.in_its_place if each.segment_id.id not in verified]
            if not unread:
                await self._mark(now, told, decision, apply=apply)
                return
            for other in unread:
                found = await self.check(other)
                if found is None or found.wrong:
                    what = (
                        "was written by a different RemoteStorageManager, and can't be checked"
                        if found is None
                        else f"has to be repaired first: {found.text}"
                    )
                    why = f"{other.segment_id.id}, which serves in its place, {what}"
                    _stays(told, why, Outcome.LEFT)
                    return
                verified.add(other.segment_id.id)
                told.tried += (f"{other.segment_id.id} serves in its place and is whole",)
        _stays(told, "the segments in its place keep changing: repeat the repair", Outcome.LEFT)

    async def _mark(
        self,
        row: RemoteLogSegmentMetadata,
        told: DamagedSegmentRepair,
        decision: RepairDecision,
        *,
        apply: bool,
    ) -> None:
        """Mark the damaged segment as deleted. There is no await between the decision and the
        proposal.
        """
        work = self.work_of(row.segment_id.partition)
        if not apply or decision.not_now is not None or work is None or work.claim is None:
            _stays(told, decision.not_now or decision.text, Outcome.WOULD)
            return
        why = f"damaged ({told.wrong}); {told.new_segment or 'others'} serve in its place"
        if await self.driver.clean_ups.begin(row, work.claim.token, why):
            told.outcome = Outcome.REPAIRED
        else:
            _stays(told, "it is in use, or nothing may be deleted now", Outcome.LEFT)


def _logs(segments: tuple[LocalSegment, ...]) -> tuple[LocalLog, ...]:
    return tuple(
        LocalLog(each.log_path, each.base_offset, each.next_base_offset) for each in segments
    )


def _nowhere(found: GatherResult) -> tuple[Outcome, str]:
    """The outcome and its text if no source is whole. While a source did not answer, the segment is
    not called unrepairable.
    """
    why = "; ".join((*found.tried, *((found.lacks,) if found.lacks else ())))
    if found.unanswered:
        asked = "; ".join(found.unanswered)
        text = f"no whole copy was found, but some sources did not answer: {asked}: repair that"
        return Outcome.FAILED, f"{text} and repeat this" + (f" (besides, {why})" if why else "")
    if not why:
        why = "neither this broker, held segments, other versions, nor other replicas"
    return Outcome.UNREPAIRABLE, f"no source has a whole copy: {why}"


def _stays(told: DamagedSegmentRepair, why: str, outcome: Outcome) -> None:
    """Record that the damaged segment stays, and why, even if it was copied again."""
    if told.outcome is Outcome.COPIED:
        told.text += f"; the damaged one is not retired yet: {why}"
    else:
        told.outcome, told.text = outcome, why
