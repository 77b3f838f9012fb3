"""Carries out retention for the partitions that this node claims (`retention_plan` decides).

With a trash an expiry mark is recorded first, and the log start follows once its time is over. The
log start is applied before any segment is deleted; then each segment is marked under the claim's
token, and `CleanUpTasks` removes its objects. After a crash in between, the next leader's pass
finds the segments below log start. A segment that cannot be marked delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kafka_formats.errors import Conflict, Fenced, NotFound, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import Audit, AuditAction, AuditLine
from rlm.control.backoff import error_kind
from rlm.control.node_problem import NodeProblem
from rlm.control.surroundings import Surroundings
from rlm.copy.partition_work import PartitionWork
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlm.retention.acceptance import Acceptance, AskedAcceptance, acceptance_of
from rlm.retention.cut_off_times import CutOffSeen
from rlm.retention.delete_records_plan import RecordDeletion, plan_record_deletion
from rlm.retention.mark_times import DueMark, MarksSeen
from rlm.retention.quiet_partitions import PlanInputs, QuietPartitions
from rlm.retention.retention_plan import LogStartMove, RetentionFacts, RetentionPlan, plan_retention
from rlm.retention.retention_problems import retention_problems
from rlm.retention.topic_retention import RetentionInForce, RetentionRules, RetentionSource
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import NOTHING_EXPIRES, TopicPolicy
from rlmm.records.control_records import ExpiryMark, LogStart
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

PARTITIONS_PARALLEL_MAX = 8
ROWS_PER_BREATH = 128
ROWS_ON_LOOP_MAX = 500
"""Limit of the rows planned on the event loop; a larger partition is planned in a thread."""
NODE_BRAKE_SEGMENTS_MIN = 100
"""The fewest segments, over all partitions, for which the node's brake applies."""


WHOSE = {
    RetentionSource.POLICY: "the topic's policy",
    RetentionSource.TOPIC: "the topic's Kafka configs",
}


BY_AN_ADMIN = "by an admin"


@dataclass(frozen=True, slots=True)
class _Order:
    """A plan to carry out under a claim."""

    work: PartitionWork
    token: int
    plan: RetentionPlan
    accepted: bool
    due: DueMark | None


def no_trouble() -> str | None:
    """A `look_trouble` that reports none: for callers that have just scanned."""
    return None


def not_paused(_: str) -> str | None:
    """A `paused` that reports none: for callers whose `held_back` includes no pause."""
    return None


@dataclass(slots=True)
class Expirer:
    """Carries retention out. `works` are a node's partitions; those without a claim are skipped.

    `held_back` gives the reason why no record of a topic may be deleted now; `paused` gives the
    same text if an admin's pause is the only reason. `lose_claim` is called for a claim that a
    newer one voided. `look_trouble` gives the reason why the log directories are not known.
    """

    metadata: RemoteLogMetadataManager
    clean_ups: CleanUpTasks
    works: Callable[[], Iterable[PartitionWork]]
    around: Surroundings
    held_back: Callable[[str], str | None]
    lose_claim: Callable[[PartitionWork, str], None]
    audit: Audit
    rules: RetentionRules
    marks: MarksSeen
    cut_off: CutOffSeen
    look_trouble: Callable[[], str | None] = no_trouble
    paused: Callable[[str], str | None] = not_paused
    quiet: QuietPartitions = field(default_factory=QuietPartitions)
    stopped: dict[TopicIdPartition | None, str] = field(default_factory=dict)
    accepted: dict[TopicIdPartition, Acceptance] = field(default_factory=dict)
    failing: dict[TopicIdPartition, str] = field(default_factory=dict)
    held: dict[TopicIdPartition, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Run passes for as long as the node runs; a failed pass is logged and repeated."""
        while True:
            await self.around.ambient.sleep(self.around.limits.retention_interval_s)
            try:
                await self.run_pass()
            except Exception:
                logger.exception("a pass of retention failed, to be repeated")

    async def run_pass(self) -> None:
        """Plan for every claimed partition, then act; a failure of one affects no other."""
        accepted, self.accepted = self.accepted, {}  # valid for this pass only
        works = [work for work in self.works() if work.claim is not None]
        here = {work.partition for work in works}
        self.quiet.keep(here)
        self.stopped = {
            tip: text for tip, text in self.stopped.items() if tip is None or tip in here
        }
        self.failing = {tip: text for tip, text in self.failing.items() if tip in here}
        self.held = {tip: text for tip, text in self.held.items() if tip in here}
        self.marks.keep(here)
        self.cut_off.keep(here)
        await self.rules.refresh(each.topic for each in here)
        orders: list[_Order] = []
        node_bytes = 0
        for work in works:
            await self.around.ambient.sleep(0)
            try:
                order, size_bytes = await self._ordered(work, accepted.get(work.partition))
            except Exception as error:  # noqa: BLE001 - shown in the partition's status
                self._trouble(work, error)
                continue
            node_bytes += size_bytes
            if order is None:
                self.failing.pop(work.partition, None)
            if order is not None:
                orders.append(order)
        orders = self._braked(orders, node_bytes)
        for start in range(0, len(orders), PARTITIONS_PARALLEL_MAX):
            some = orders[start : start + PARTITIONS_PARALLEL_MAX]
            await asyncio.gather(*(self._carry_out(order) for order in some))

    async def plan(
        self,
        tip: TopicIdPartition,
        percent_max: float | None = None,
        policy: TopicPolicy | None = None,
        accepted: frozenset[Uuid] = frozenset(),
        *,
        restored: bool = False,
    ) -> RetentionPlan:
        """The plan of a pass now (a dry run), even if a different node would run it. NotFound if
        unknown. `policy`: used instead of the one in force. `accepted` as in `RetentionFacts`.
        `restored`: as if the trash were empty, no topic deletion begun, and no copy under way.
        """
        state = self.metadata.partition_state(tip)
        if state is None:
            raise NotFound(f"{tip} is not in the metadata: it has no tiered segments")
        rows = await self._rows(tip)
        if restored:
            state = replace(state, expiry=NOTHING_EXPIRES, delete_state=None)
            rows = [row for row in rows if row.state is SegmentState.COPY_SEGMENT_FINISHED]
        await self.rules.learn(tip.topic)
        by = (
            self.rules.in_force(tip.topic, tip.topic_id)
            if policy is None
            else RetentionInForce(policy)
        )
        due = self.marks.due(tip, state.expiry)
        token = -1 if state.claim is None else state.claim.token
        facts = RetentionFacts(
            state=state,
            segments=rows,
            policy=by.policy,
            now_ms=self.around.ambient.now_ms(),
            percent_max=(
                self.around.limits.retention_max_percent if percent_max is None else percent_max
            ),
            held_back=by.held_back or self.held_back(tip.topic),  # a pause must not hide a doubt
            accepted=accepted,
            whose=WHOSE[by.source],
            trash_ms=self._trash_ms,
            due=None if due is None else due.mark,
            stayed=self.cut_off.stayed(tip, token, self._trash_ms),
        )
        if len(rows) <= ROWS_ON_LOOP_MAX:
            return plan_retention(facts)
        return await asyncio.to_thread(plan_retention, facts)

    async def would_repeat(self, tip: TopicIdPartition) -> bool:
        """True if retention would mark restored records again, or this node can't decide that, say
        with a doubtful clock. A pause alone does not prevent the decision.
        """
        plan = await self.plan(tip, restored=True)
        return plan.up_to is not None or plan.held_back not in (None, self.paused(tip.topic))

    async def accept(self, tip: TopicIdPartition, asked: AskedAcceptance) -> RetentionPlan:
        """Let the partition's next pass delete the segments of the present plan, which is returned.
        Conflict: a different node has the claim, or the plan differs from the one to accept.
        """
        token = self._token_of(tip)
        plan = await self.plan(tip, asked.percent)
        state = self.metadata.partition_state(tip)
        log_start = -1 if state is None else state.log_start_offset
        accepted = acceptance_of(tip, plan, token, log_start, asked)
        self._note(
            AuditAction.RETENTION_ACCEPTED, tip, log_start, accepted.text,
            up_to=accepted.up_to_offset - 1, size_bytes=accepted.size_bytes, by=asked.by,
        )  # fmt: skip
        self.accepted[tip] = accepted
        return plan

    def accepted_text(self, tip: TopicIdPartition) -> str | None:
        """The acceptance that the next pass uses up, if any."""
        accepted = self.accepted.get(tip)
        return None if accepted is None else accepted.text

    async def delete_records(
        self, tip: TopicIdPartition, before: int, *, apply: bool, why: str = BY_AN_ADMIN,
        emptied: DueMark | None = None,
    ) -> RecordDeletion:  # fmt: skip
        """Move log start to `before`, if `apply`; the next pass deletes the segments that end
        below. Conflict: a different node has the claim, nothing may be deleted now, or the marks to
        be `emptied` were restored. InvalidRequest: `before` is above the tier.
        """
        rows = await self._rows(tip)
        token = self._token_of(tip)
        state = self.metadata.partition_state(tip)
        if state is None:
            raise NotFound(f"{tip} is not in the metadata: it has no tiered segments")
        planned = plan_record_deletion(state, rows, before)
        waits = self.held_back(tip.topic)
        planned = replace(planned, held_back=waits)
        if apply and waits is not None:
            raise Conflict(f"nothing is deleted now: {waits}", reason="HELD_BACK")
        if apply and planned.move is not None:
            # The policy's offset lets apply refuse the move once deleting is paused.
            policy_offset = self.metadata.topic_policy(tip.topic).offset
            to, epoch = planned.move.offset, planned.move.leader_epoch
            record = LogStart(tip, token, epoch, to, policy_offset=policy_offset)
            if emptied is not None:
                at, seen_ms = emptied.mark.marked_at, emptied.seen_ms
                record = replace(record, mark_offset=at, seen_ms=seen_ms)
            await self._move_log_start(record, f"records below {before} are deleted: {why}")
        return planned

    async def _rows(self, tip: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        """The partition's rows, read in steps so that other tasks run in between."""
        rows: list[RemoteLogSegmentMetadata] = []
        for row in self.metadata.list_remote_log_segments(tip):
            rows.append(row)
            if len(rows) % ROWS_PER_BREATH == 0:
                await self.around.ambient.sleep(0)
        return rows

    def _token_of(self, tip: TopicIdPartition) -> int:
        for work in self.works():
            if work.partition == tip and work.claim is not None:
                return work.claim.token
        state = self.metadata.partition_state(tip)
        holder = None if state is None or state.claim is None else state.claim.incarnation.node_id
        me = self.around.identity.incarnation.node_id
        raise Conflict(
            f"this node has no claim of {tip}, {'nobody' if holder is None else f'node {holder}'} "
            "has: ask there",
            reason="NOT_CLAIMED",
            ask_node=None if holder == me else holder,
        )

    def problems(self) -> tuple[NodeProblem, ...]:
        """The active brakes, holds, and lasting failures: an admin has to act on them."""
        return retention_problems(self.stopped, self.accepted, self.failing, self.held)

    async def _ordered(
        self, work: PartitionWork, accepted: Acceptance | None = None
    ) -> tuple[_Order | None, int]:
        """The order for a partition, if any, and its bytes in the tier, without its trash."""
        tip, claim = work.partition, work.claim
        state = self.metadata.partition_state(tip)
        if (
            claim is None
            or state is None
            or state.claim is None
            or state.claim.token != claim.token
        ):
            return None, 0
        by = self._rule(work)
        self.marks.look(tip, state.expiry)
        due = self.marks.due(tip, state.expiry)
        size_bytes = max(0, state.size_bytes - state.expiry.size_bytes)
        seen = PlanInputs.of(state, claim.token, by.policy)
        quiet = self.quiet.has(tip, seen, self.around.ambient.now_ms())
        if quiet and due is None and accepted is None:
            return None, size_bytes
        if (self.held_back(tip.topic) or by.held_back) is not None:
            return None, size_bytes
        counts = accepted is not None and accepted.counts_for(claim.token, by.policy)
        if accepted is not None and not counts:
            logger.warning("%s: another claim or policy stands, so not: %s", tip, accepted.text)
        segments = accepted.segments if accepted is not None and counts else frozenset()
        plan = await self.plan(tip, accepted=segments)
        self._tell_brake(tip, plan.brake)
        if new := self.cut_off.look(tip, claim.token, plan.outside_lineage):
            logger.warning(
                "%s: the log of its leader lacks %d tiered segments; retention: %s",
                tip, new, plan.text,
            )  # fmt: skip
        self.held.pop(tip, None)
        if plan.hold is not None:
            self.held[tip] = plan.hold
        held = plan.hold is not None and plan.held_back is None and not plan.delete_now
        if held:  # until a different policy or a release, which change `seen`
            self.quiet.note(tip, seen, None)
            return None, size_bytes
        if plan.only_waits:
            self.quiet.note(tip, seen, self._due_ms(tip, claim.token, plan))
            return None, size_bytes
        self.quiet.forget(tip)
        return _Order(work, claim.token, plan, counts, due), size_bytes

    def _due_ms(self, tip: TopicIdPartition, token: int, plan: RetentionPlan) -> int | None:
        """The Unix time of the next pass that may have something to do; None: not by itself."""
        left_ms = self.cut_off.left_ms(tip, token, self._trash_ms)
        if left_ms is None:
            return plan.next_due_ms
        stayed_ms = self.around.ambient.now_ms() + left_ms
        return stayed_ms if plan.next_due_ms is None else min(stayed_ms, plan.next_due_ms)

    def _rule(self, work: PartitionWork) -> RetentionInForce:
        """The rule for a partition. It is held back while the directory is unreadable: brokers give
        a topic's configs by name, and the name may belong to a new topic by now.
        """
        by = self.rules.in_force(work.partition.topic, work.partition.topic_id)
        if by.source is RetentionSource.POLICY:
            return by
        unseen = self.look_trouble() if work.unusable is None else work.unusable.text
        return replace(by, held_back=by.held_back or unseen)

    def _braked(self, orders: list[_Order], node_bytes: int) -> list[_Order]:
        """All orders; if together they would delete too much, those not accepted delete only
        segments below a log start that is recorded already.
        """
        taking = [order for order in orders if not order.accepted and not order.plan.stopped]
        segments = sum(len(order.plan.taken_now) for order in taking)
        taken = sum(order.plan.expiring_now_bytes for order in taking)
        percent = self.around.limits.retention_max_percent
        # An active brake also applies to the few segments that some acceptances have left.
        few = segments < NODE_BRAKE_SEGMENTS_MIN and None not in self.stopped
        if few or taken * 100 <= percent * node_bytes:
            self._tell_brake(None, None)
            return orders
        text = (
            f"this pass would take {segments} segments of {len(taking)} partitions, "
            f"{taken * 100 / max(1, node_bytes):.1f} % of what this node has in the tier, and "
            f"retention.max_percent is {percent:g}: look at the policies, then accept it partition "
            "by partition or set them right"
        )
        self._tell_brake(None, text)
        return [
            order if order.accepted else replace(order, plan=replace(order.plan, brake=text))
            for order in orders
        ]

    def _tell_brake(self, tip: TopicIdPartition | None, text: str | None) -> None:
        if text is None:
            self.stopped.pop(tip, None)
            return
        if tip not in self.stopped:
            logger.error("retention stopped%s: %s", "" if tip is None else f" for {tip}", text)
            self._note(AuditAction.RETENTION_STOPPED, tip, -1, text)
        self.stopped[tip] = text

    async def _carry_out(self, order: _Order) -> None:
        try:
            if not await self._may_go_on(order):
                return
            await self._delete(order)
            if order.plan.mark_now is not None and await self._may_go_on(order):
                await self._mark(order, order.plan.mark_now)
            self.failing.pop(order.work.partition, None)
        except Conflict as error:
            if await self._may_go_on(order):
                self._trouble(order.work, error)
                return
            logger.info("retention of %s is decided anew: %s", order.work.partition, error)
        except Exception as error:  # noqa: BLE001 - shown in the partition's status
            self._trouble(order.work, error)

    async def _delete(self, order: _Order) -> None:
        """Move the log start first, then delete the segments, while the order is still valid."""
        move, policy_offset = order.plan.move_now, order.plan.policy.offset
        if move is not None:
            due = order.due if self._trash_ms else None
            to = LogStart(
                order.work.partition, order.token, move.leader_epoch, move.offset,
                policy_offset=policy_offset,
                mark_offset=-1 if due is None else due.mark.marked_at,
                seen_ms=-1 if due is None else due.seen_ms,
            )  # fmt: skip
            await self._move_log_start(to, order.plan.text)
        for each in order.plan.delete_now:
            if self.clean_ups.is_full:
                break  # the next pass goes on: log start is where it was planned
            if not await self._may_go_on(order):
                return
            if not await self.clean_ups.begin(
                each.row, order.token, each.text, policy_offset=policy_offset
            ):
                logger.info(
                    "segment %s is kept: it is in use or gone, or the policy changed",
                    each.row.segment_id,
                )

    async def _mark(self, order: _Order, to: LogStartMove) -> None:
        tip, marked = order.work.partition, order.plan.marked
        state = self.metadata.partition_state(tip)
        if state is None:
            return
        size_bytes = sum(each.row.size_bytes for each in marked)
        await self.metadata.mark_expired(
            ExpiryMark(
                tip, order.token, to.leader_epoch, to.offset, order.plan.policy.offset,
                self._trash_ms, len(marked), size_bytes,
                self.marks.joins(tip, state.expiry, self._trash_ms), order.plan.text,
            ),
            deadline_s=self.around.limits.propose_deadline_s,
        )  # fmt: skip
        why = order.plan.text
        self._note(AuditAction.EXPIRY_MARKED, tip, to.offset, why, size_bytes=size_bytes)

    @property
    def trash_s(self) -> float:
        """The time from a mark until the log start follows it; 0: no trash."""
        return self.around.limits.retention_trash_s

    @property
    def _trash_ms(self) -> int:
        return round(self.trash_s * 1000)

    async def _may_go_on(self, order: _Order) -> bool:
        """True while claim, switches and policy are those of the order; apply has the last word."""
        topic = order.work.partition.topic
        await self.rules.confirm(topic)
        by = self._rule(order.work)
        claim = order.work.claim
        ours = claim is not None and claim.token == order.token
        waits = self.held_back(topic) or by.held_back
        return ours and waits is None and by.policy == order.plan.policy

    async def _move_log_start(self, to: LogStart, why: str) -> None:
        """Record the log start; raises unless it is applied."""
        deadline_s = self.around.limits.propose_deadline_s
        await self.metadata.record_log_start(to, deadline_s=deadline_s)
        self._note(AuditAction.LOG_START_MOVED, to.partition, to.offset, why)

    def _trouble(self, work: PartitionWork, error: Exception) -> None:
        if isinstance(error, Fenced):
            self.lose_claim(work, str(error))
            return
        work.failed(error_kind(error), f"retention: {error}", self.around.ambient.now_ms())
        expected = isinstance(error, StrandlineError)
        if work.partition not in self.failing:  # a lasting failure is among the node's problems
            logger.warning(
                "retention of %s failed, to be repeated: %s",
                work.partition,
                error,
                exc_info=None if expected else error,
            )
        self.failing[work.partition] = str(error) or type(error).__name__

    def _note(
        self,
        action: AuditAction,
        tip: TopicIdPartition | None,
        offset: int,
        why: str,
        *,
        up_to: int = -1,
        size_bytes: int = 0,
        by: str | None = None,
    ) -> None:
        self.audit(
            AuditLine(
                at_ms=self.around.ambient.now_ms(),
                action=action,
                partition=tip,
                segment_id=None,
                start_offset=offset,
                end_offset=up_to,
                size_bytes=size_bytes,
                why=why,
                by=by or f"node {self.around.identity.incarnation.node_id}",
            )
        )
