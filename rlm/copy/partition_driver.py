"""Carries out the planners' steps for one partition until there is nothing to do. A failure of one
partition is handled here and does not affect another.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from functools import partial

from kafka_formats.errors import (
    Conflict,
    CorruptData,
    Fenced,
    InternalError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    RetryLater,
    StrandlineError,
)
from rlm.control.backoff import NO_BACK_OFF, BackOff, after_failure, error_kind, failure_kind
from rlm.control.run_events import (
    ClaimLost,
    LogStartRecorded,
    LostRangeRecorded,
    OnEvent,
    PartitionClaimed,
    SegmentFailed,
)
from rlm.control.segment_proposals import back_off_policy
from rlm.control.surroundings import Surroundings
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.asked_by_name import word_of
from rlm.copy.copier import AttemptFailed, Copier, CopyOrder
from rlm.copy.copy_order import order_of
from rlm.copy.copy_plan import (
    CopySegment,
    PlanFacts,
    RecordLogStart,
    RecordLostRange,
    Step,
    eligible_bytes,
    plan,
    rests_on_log_start,
)
from rlm.copy.copy_slots import Backlog, CopySlots
from rlm.copy.driver_parts import Brakes, Copying, Leading, Tier
from rlm.copy.head_hole import files_wanted_from, learns_epochs, log_start_moved, on_machine
from rlm.copy.lag import lag
from rlm.copy.leadership_facts import leadership_facts, learn_tiered_log_start
from rlm.copy.mending import Mending
from rlm.copy.partition_status import CopyUnderWay
from rlm.copy.partition_work import PartitionWork
from rlm.copy.run_report import FailedAttempt
from rlm.copy.work_rows import WorkRows
from rlm.delete.clean_up_tasks import CleanUpTasks, may_be_the_last_copy, why_left_over
from rlm.leadership.leadership import (
    Decision,
    Lead,
    LeadershipFacts,
    Leads,
    OwnClaim,
    ProposeClaim,
    RefusedClaim,
    StandBy,
    decide,
)
from rlm.local_log.damage import Damage, LoseRange, next_fill, next_stretch
from rlm.reconcile.adoption import Adoption
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import LogStart, LostRange
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

BY_THE_BROKER = Wait(WhyNot.DELEGATED, "its broker's own remote log manager copies and expires it")
MENDING = "its damaged segment is surveyed and mended; a node mends one segment at a time"


class _DriveEndsError(Exception):
    """The drive ends; the partition's `wait` says why."""


@dataclass(slots=True)
class PartitionDriver:
    """The driver of all partitions of a node; `drive` runs once per partition at a time."""

    works: WorkRows
    tier: Tier
    copying: Copying
    leading: Leading
    brakes: Brakes
    around: Surroundings
    on_event: OnEvent
    claim_number: int = 0

    @property
    def copier(self) -> Copier:
        return self.copying.copier

    @property
    def slots(self) -> CopySlots:
        return self.copying.slots

    @property
    def adoption(self) -> Adoption:
        return self.tier.adoption

    @property
    def clean_ups(self) -> CleanUpTasks:
        return self.tier.clean_ups

    async def drive(self, work: PartitionWork, *, back_offs_max: int) -> None:
        """Carry out steps until the plan is to wait; `back_offs_max` short back-offs are waited
        out. Raises CancelledError only; every failure is in the partition's status.
        """
        if work.trouble.waits_at(self.around.ambient.now_ms()):
            work.wait = Wait(WhyNot.BACK_OFF, work.trouble.text, work.trouble.until_ms)
            return
        back_offs = 0
        last_record: Step | None = None
        try:
            while True:
                step = await self._next_step(work)
                if isinstance(step, Wait):
                    work.waits(step)
                    work.trouble = NO_BACK_OFF
                    if step.why is not WhyNot.BACK_OFF or back_offs >= back_offs_max:
                        return
                    back_offs += 1
                    left_s = work.back_off.left_s(self.around.ambient.now_ms())
                    await self.around.ambient.sleep(left_s)
                elif isinstance(step, CopySegment):
                    await self._copy_in_turn(work, step)
                elif step == last_record:
                    raise InternalError(f"{step} was accepted but changed nothing")
                elif await self._record(work, step):
                    last_record = step
        except _DriveEndsError:
            return
        except (RetryLater, OutcomeUnknown) as error:
            work.wait = Wait(WhyNot.METADATA_UNAVAILABLE, str(error))
            work.failed(error.kind, str(error), self.around.ambient.now_ms())
        except Fenced as error:
            self.lose_claim(work, str(error))
            work.wait = Wait(WhyNot.CLAIMED_ELSEWHERE, str(error))
        except Exception as error:
            expected = isinstance(error, StrandlineError)
            logger.warning("%s: %s", work.partition, error, exc_info=None if expected else error)
            self._after_trouble(work, error)

    def _after_trouble(self, work: PartitionWork, error: Exception) -> None:
        """Back off after an unforeseen failure: repeated at every scan it could fill the log."""
        work.failed(error_kind(error), str(error), self.around.ambient.now_ms())
        work.trouble = self._backed_off(work.trouble, error, str(error))
        work.wait = Wait(WhyNot.BACK_OFF, str(error), work.trouble.until_ms)

    def _backed_off(self, before: BackOff, error: Exception, text: str) -> BackOff:
        return after_failure(
            before, failure_kind(error), text,
            policy=back_off_policy(self.around.limits), now_ms=self.around.ambient.now_ms(),
            fraction=self.around.ambient.random_fraction(),
        )  # fmt: skip

    def lose_claim(self, work: PartitionWork, why: str) -> None:
        """Forget the claim; the next leader finds the left-overs."""
        self.copying.mender.forget(work.partition)
        if work.claim is not None:
            work.claim = None
            if work.repair is not None:
                work.repair.cancel()
            self.on_event(ClaimLost(work.partition, why))

    async def _next_step(self, work: PartitionWork) -> Step:
        """Decide on leadership, claim if needed, clean up left-overs, then plan."""
        looked = False
        await learn_tiered_log_start(work, self._facts(work), self.leading.broker)
        while True:
            if (kept_away := work.unusable or work.hold_wait) is not None:
                return kept_away
            decision = self.decision(work)
            if isinstance(decision, StandBy):
                if decision.cancel:
                    self.lose_claim(work, decision.text)
                return Wait(decision.why, decision.text)
            if not self.adoption.is_due(work.partition):
                work.found, looked = None, False
            elif not looked and (isinstance(decision, ProposeClaim) or self.adopts(work)):
                # Before the claim, which contains the lineage found in the stores.
                look = await self.adoption.look(work.partition)
                if isinstance(look, Wait):
                    return look
                work.found, looked = look, True
                continue
            if isinstance(decision, ProposeClaim):
                await self._claim(work, decision.leader_epoch)
                continue
            if self.adopts(work):
                if not await self._leads_still(work):
                    continue
                assert work.claim is not None, "the store's segments are recorded under a claim"
                assert work.found is not None, "looked for above"
                machine = on_machine(work, self.leading.broker)
                work.found = await self.adoption.run(
                    work.partition, work.claim.token, work.found, machine
                )
                if work.found.lost:
                    work.failed(NotFound.kind, work.found.lost, self.around.ambient.now_ms())
                continue
            if (held_back := await self.clean_left_overs(work)) is not None:
                return held_back
            if self.decision(work) != decision or self.adopts(work) or work.hold_wait is not None:
                continue  # a scan meanwhile found a new leadership, or that retention has run
            if work.mode is Mode.DELEGATED:
                return BY_THE_BROKER
            state = self.tier.metadata.partition_state(work.partition)
            assert state is not None, "a claim in force has a row"
            facts = self._plan_facts(work, state, decision.last_stable_offset)
            step = plan(facts)
            if not rests_on_log_start(step, facts):
                return step
            moved = await log_start_moved(work, self.leading.broker)
            if isinstance(moved, Wait) and not isinstance(step, Wait):
                return moved
            if moved is False and self.leading.broker is not None and isinstance(step, Wait):
                moved = await learns_epochs(work, state, self.leading.epoch_finder)
            if moved is not True:
                return step

    def adopts(self, work: PartitionWork) -> bool:
        """True if the stores' segments must be recorded before the next segment is copied."""
        if work.local is None or not self.adoption.is_due(work.partition):
            return False
        found, machine = work.found, on_machine(work, self.leading.broker)
        return found is None or not self.adoption.waits(work.partition, found, machine)

    def decision(self, work: PartitionWork) -> Decision:
        """The planner's decision on this node's leadership now."""
        return decide(self._facts(work))

    def _facts(self, work: PartitionWork) -> LeadershipFacts:
        work.recorded(self.tier.metadata.partition_state(work.partition))
        now_ms, me = self.around.ambient.now_ms(), self.around.identity.incarnation
        return leadership_facts(work, self.tier.metadata, self.leading.broker, me, now_ms)

    def _plan_facts(self, work: PartitionWork, state: PartitionState, lso: int) -> PlanFacts:
        topic = work.partition.topic
        return PlanFacts(
            segments=work.segments,
            linked_count=len(work.kept),
            checkpoint=work.checkpoint,
            local_log_start_offset=work.local.local_log_start_offset if work.local else 0,
            last_stable_offset=lso,
            state=state,
            now_ms=self.around.ambient.now_ms(),
            back_off=work.back_off,
            fills_tried=work.fills_not_now(self.around.ambient.now_ms()),
            paused=self.brakes.pause_text(topic) or self.brakes.left_out(topic),
            clock_trouble=self.brakes.clock_trouble(),
            log_start_said=work.log_start_said,
            files_wanted_from=files_wanted_from(work, self.leading.broker),
        )

    async def _claim(self, work: PartitionWork, leader_epoch: int) -> None:
        await self.leading.register()
        self.claim_number += 1
        number, metadata = self.claim_number, self.tier.metadata
        mine, deadline_s = self.around.identity.incarnation, self.around.limits.propose_deadline_s
        try:
            async with self.leading.claim_slots:
                if work.may_lack_a_claim_before(leader_epoch, metadata):
                    await metadata.catch_up(deadline_s=deadline_s)
                adopts = work.found is None and self.adoption.is_due(work.partition)
                kept_away = adopts or work.unusable or work.hold_wait
                if kept_away or self.decision(work) != ProposeClaim(leader_epoch):
                    return  # a scan meanwhile, or a claim or a restart that was unseen here
                claim = work.claim_record(mine, number, leader_epoch, metadata)
                answer = await metadata.claim_partition(claim, deadline_s=deadline_s)
        except (Fenced, Conflict, InvalidRequest) as error:
            # Claim again only at a new epoch, or after the long pause: an admin may have acted.
            now_ms = self.around.ambient.now_ms()
            work.refused = RefusedClaim.now(
                leader_epoch, self.tier.metadata.partition_state(work.partition), str(error),
                since_ms=now_ms, until_ms=now_ms + round(self.around.limits.corrupt_retry_s * 1000),
            )  # fmt: skip
            work.failed(error.kind, str(error), now_ms)
            self.lose_claim(work, str(error))
            work.wait = Wait(WhyNot.CLAIM_REFUSED, str(error))
            raise _DriveEndsError from None
        work.claim = OwnClaim(answer.token, leader_epoch)
        work.refused = None
        work.log_start_heard = 0
        work.fills_done = frozenset()
        self.on_event(PartitionClaimed(work.partition, leader_epoch, answer.token))

    async def clean_left_overs(self, work: PartitionWork) -> Wait | None:
        """Begin to remove left-over rows. Under our claim no other node can finish them.

        Called at every step, since a row whose proposal was given up may appear at any time. While
        a row may not be marked deleted, a wait is returned, and no new attempt begins.
        """
        assert work.claim is not None, "left-overs are cleaned up under a claim"
        restart = self.tier.metadata.restart()
        unreconciled = restart is not None and not restart.is_reconciled
        if unreconciled or self.adoption.is_due(work.partition):
            return None
        trouble, token = self.brakes.clock_trouble(), work.claim.token
        is_at_work = self.leading.announced.is_at_work
        for row in self.tier.metadata.left_overs(work.partition):
            id_ = row.segment_id.id
            busy = self.copier.is_under_way(id_) or self.clean_ups.is_running(id_)
            busy = busy or may_be_the_last_copy(row, self.tier.metadata)
            if busy or (work.mode is Mode.DELEGATED and is_at_work(row, token)):
                continue
            if trouble is None:
                await self.clean_ups.begin(row, token, why_left_over(row))
            elif row.state is SegmentState.COPY_SEGMENT_STARTED:
                return Wait(WhyNot.CLOCK, f"a copy that did not finish is not removed: {trouble}")
        return None

    async def _leads_still(self, work: PartitionWork) -> bool:
        """True if the broker reports now that it leads, and the claim of the planned step is in
        force.

        A record about a log's start cannot be taken back, and a leader that was replaced since the
        last scan would describe a different log.
        """
        if self.leading.broker is not None and work.local is not None:
            work.word = await word_of(self.leading.broker, work.local)
        return isinstance(self.decision(work), Lead)

    async def _record(self, work: PartitionWork, step: RecordLogStart | RecordLostRange) -> bool:
        """Record the step; False if this node's broker does not lead the partition any more."""
        if not await self._leads_still(work):
            return False
        assert work.claim is not None, "planned under a claim"
        deadline_s, token = self.around.limits.propose_deadline_s, work.claim.token
        if isinstance(step, RecordLogStart):
            start = LogStart(work.partition, token, step.leader_epoch, step.offset)
            await self.tier.metadata.record_log_start(start, deadline_s=deadline_s)
            self.on_event(LogStartRecorded(work.partition, step.offset))
            return True
        lost = LostRange(work.partition, token, step.start, step.end, step.why)
        await self.tier.metadata.record_lost_range(lost, deadline_s=deadline_s)
        logger.warning(
            "%s: offsets %d to %d are lost to the tier: %s",
            work.partition, step.start, step.end, step.why,
        )  # fmt: skip
        self.on_event(LostRangeRecorded(work.partition, step.start, step.end, step.why))
        return True

    async def _copy_in_turn(self, work: PartitionWork, step: CopySegment) -> None:
        work.wait = Wait(WhyNot.WAITING_FOR_SLOT, "other partitions are being copied first")
        state = self.tier.metadata.partition_state(work.partition)
        assert state is not None, "planned from it"
        lso = work.word.last_stable_offset if isinstance(work.word, Leads) else 0
        oldest_s = lag(work.segments, state.next_offset, self.around.ambient.now_ms()).age_ms / 1000
        backlog = Backlog(eligible_bytes(self._plan_facts(work, state, lso)), oldest_s)
        async with self.slots.slot(backlog, work.log_dir), work.one_copy:
            # Plan again after the time in the queue, and copy only if the step is still the same.
            if await self._next_step(work) != step:
                return
            mend = await self._copy(work, step)
        if mend is not None:
            # Mend without a slot: it waits for other partitions' mending, and for brokers.
            work.wait = Wait(WhyNot.WAITING_FOR_SLOT, MENDING)
            await mend()

    async def _copy(self, work: PartitionWork, step: CopySegment) -> Mending | None:
        state = self.tier.metadata.partition_state(work.partition)
        order = await order_of(work, state, step, self.copying.mender)
        if order is None:
            return None
        damage = self.copying.mender.known(work.partition, order.segment)
        if step.gone and damage is None:
            return partial(self._after_damage, work, step, order)
        if damage is not None:
            mended = await self._mended(work, step, order, damage)
            if not isinstance(mended, CopyOrder):
                return mended
            order = mended

        def on_row(row: RemoteLogSegmentMetadata) -> None:
            work.copying = CopyUnderWay(
                row.segment_id, row.start_offset, row.end_offset, 0, row.size_bytes
            )

        try:
            outcome = await self.copier.copy(order, self.tier.stores.default, on_row)
        finally:
            work.copying = None
        if isinstance(outcome, AttemptFailed):
            self._after_failure(work, step, outcome)
            if isinstance(outcome.error, CorruptData):
                return partial(self._after_damage, work, step, order)
            return None
        work.back_off, work.last_error = NO_BACK_OFF, None
        if step.fills_lost_range and order.damage is None:
            work.filled(step.offsets)
        if order.damage is not None and order.offsets[1] == step.end_offset:
            # Lost batches are not searched in the same files again.
            work.filled(step.offsets)
            await asyncio.to_thread(self.copying.mender.forget, work.partition)
        return None

    async def _after_damage(self, work: PartitionWork, step: CopySegment, order: CopyOrder) -> None:
        """Survey the damage at once, and fetch from the other replicas."""
        try:
            damage = await self._mend(work, step, order, self._step_at(work, step, order.damage))
        except Conflict:
            work.back_off = NO_BACK_OFF  # the file was replaced; `trouble` paces the retry
            raise
        if damage.is_sound:  # its batches are good, the fault is in a file beside the `.log`
            await asyncio.to_thread(self.copying.mender.forget, work.partition)
            if step.fills_lost_range:
                work.filled(step.offsets)  # do not try it again under this claim
        elif step.fills_lost_range and order.damage is None:
            work.fills_failed.pop(step.offsets, None)  # its good parts are copied at once
        elif order.damage is None and (not damage.missing or damage.gone):
            work.back_off = NO_BACK_OFF

    def _step_at(self, work: PartitionWork, step: CopySegment, damage: Damage | None) -> int:
        """The first offset of the step: missing batches are fetched from there on."""
        if step.fills_lost_range:
            return 0 if damage is None else damage.asked_from
        state = self.tier.metadata.partition_state(work.partition)
        return 0 if state is None else state.next_offset

    async def _mend(
        self, work: PartitionWork, step: CopySegment, order: CopyOrder, at: int
    ) -> Damage:
        job = self.copier.survey_job(order, self.tier.stores.default)
        linked = tuple(unit.segment for unit in work.units)
        damage = await self.copying.mender.mend(work.partition, order.segment, job, linked, at=at)
        if damage.missing and not step.fills_lost_range:
            work.failed(CorruptData.kind, damage.text, self.around.ambient.now_ms())
            corrupt = CorruptData(damage.text, source=str(order.segment.log_path), position=0)
            work.back_off = self._backed_off(work.back_off, corrupt, damage.text)
        return damage

    async def _mend_again(
        self, work: PartitionWork, step: CopySegment, order: CopyOrder, state: PartitionState
    ) -> None:
        damage = await self._mend(work, step, order, state.next_offset)
        if next_stretch(damage, state.next_offset, state.lost_ranges) is not None:
            work.back_off = NO_BACK_OFF  # time has passed: plan again before anything is done

    async def _mended(
        self, work: PartitionWork, step: CopySegment, order: CopyOrder, damage: Damage
    ) -> CopyOrder | Mending | None:
        """The order for the next part of a damaged segment; a Mending to run first; None: nothing
        is to be copied, or a loss was recorded.
        """
        state = self.tier.metadata.partition_state(work.partition)
        assert state is not None, "planned from it"
        if step.fills_lost_range:
            known = order.segment.first_known_offset
            fill = next_fill(damage, state.next_offset, state.lost_ranges, known)
            if fill is not None:
                return replace(order, damage=damage, stretch=fill)
            if damage.goes_on:
                return partial(self._mend, work, step, order, damage.asked_below)
            work.filled(step.offsets)  # it lacks the offsets that are still lost
            if step.end_offset < state.next_offset:  # else the rest of it is copied next
                await asyncio.to_thread(self.copying.mender.forget, work.partition)
            return None
        part = next_stretch(damage, state.next_offset, state.lost_ranges)
        if part is None:
            return partial(self._mend_again, work, step, order, state)
        if isinstance(part, LoseRange):
            why = f"this node's replica lost them, and {damage.why}"
            await self._record(work, RecordLostRange(part.first, part.last, why))
            return None
        return replace(order, damage=damage, stretch=part)

    def _after_failure(self, work: PartitionWork, step: CopySegment, failed: AttemptFailed) -> None:
        """Record the failure and back off; the attempt's row, if any, is now a left-over."""
        error = failed.error
        text = f"segment {step.base_offset} to {step.end_offset}: {error}"
        work.failed(error_kind(error), text, self.around.ambient.now_ms())
        if step.fills_lost_range:
            # Copies for a lost range back off by themselves and delay no later segment.
            before = work.fills_failed.get(step.offsets, NO_BACK_OFF)
            work.fills_failed[step.offsets] = self._backed_off(before, error, text)
        else:
            work.back_off = self._backed_off(work.back_off, error, text)
        if self.works.run_log is not None:
            self.works.run_log.failed.append(
                FailedAttempt(work.partition, step.base_offset, error_kind(error), str(error))
            )
        self.on_event(
            SegmentFailed(
                work.partition, None if failed.row is None else failed.row.segment_id,
                step.base_offset, error_kind(error), text,
            )
        )  # fmt: skip
        if isinstance(error, Fenced):
            raise error
