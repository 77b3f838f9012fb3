"""Carries out the deletion of partitions marked in the metadata (`topic_deletion_plan`).

Invariants: no segment is deleted before DELETE_PARTITION_STARTED is applied, which apply accepts
only for the mark in force and after its grace; `CleanUpTasks` alone removes objects, after
DELETE_SEGMENT_STARTED; DELETE_PARTITION_FINISHED is refused while a row is left. An admin marks
over HTTP: this module never concludes a deletion from a topic's absence.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kafka_formats.errors import Conflict, StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import Audit, AuditAction, AuditLine, no_audit
from rlm.control.backoff import NO_BACK_OFF, BackOff, FailureKind, after_failure
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.segment_proposals import back_off_policy
from rlm.control.surroundings import Surroundings
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlm.retention.topic_deletion_plan import Finish, RemoveSegments, Start, plan_deletion
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import PartitionState
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

logger = logging.getLogger(__name__)

PARTITIONS_PARALLEL_MAX = 8
SEGMENTS_GOING_MAX = 256
"""Limit of the rows of one partition that are marked but not removed yet; more are marked as these
are removed.
"""
MARKS_PARALLEL_MAX = 32
BREATH_PARTITIONS = 16
FAILURES_UNTOLD = 1
"""The number of failures of a partition that are not reported: a single one may be a conflict of
two nodes, or of record time with the clock, and pass by itself.
"""
WHY = "the topic's data in the tier is deleted"


@dataclass(slots=True)
class TopicDeletion:
    """The task that deletes marked partitions, one per node. `held_back` gives the reason why no
    data of a topic may be deleted now.
    """

    metadata: RemoteLogMetadataManager
    clean_ups: CleanUpTasks
    around: Surroundings
    held_back: Callable[[str], str | None]
    audit: Audit = no_audit
    failed: dict[TopicIdPartition, BackOff] = field(default_factory=dict)
    seen: dict[TopicIdPartition, tuple[int, float]] = field(default_factory=dict)
    """The metadata offset of each partition's delete state, and the (monotonic) time when this
    process first saw it.
    """

    async def run(self) -> None:
        """Run passes for as long as the node runs; a failed pass is logged and repeated."""
        while True:
            try:
                await self.run_pass()
            except Exception:
                logger.exception("looking for partitions to delete failed, to be repeated")
            await self.around.ambient.sleep(self.around.limits.scan_interval_s)

    def problems(self) -> tuple[NodeProblem, ...]:
        """Partitions whose deletion fails, by name."""
        return tuple(
            NodeProblem(ProblemArea.DELETION, str(tip), f"deleting its tiered data: {each.text}")
            for tip, each in self.failed.items()
            if each.failures > FAILURES_UNTOLD
        )

    async def run_pass(self) -> None:
        """Take one step for each marked partition; a failure of one affects no other."""
        going = await self._going()
        there = set(going)
        self.failed = {tip: failed for tip, failed in self.failed.items() if tip in there}
        self.seen = {tip: seen for tip, seen in self.seen.items() if tip in there}
        for start in range(0, len(going), PARTITIONS_PARALLEL_MAX):
            some = going[start : start + PARTITIONS_PARALLEL_MAX]
            await asyncio.gather(*(self._advance(tip) for tip in some))

    async def _going(self) -> Sequence[TopicIdPartition]:
        going = []
        for number, tip in enumerate(list(self.metadata.partitions()), 1):
            if number % BREATH_PARTITIONS == 0:
                await self.around.ambient.sleep(0)
            state = self.metadata.partition_state(tip)
            if state is not None and state.delete_state is not None:
                going.append(tip)
                known = self.seen.get(tip)
                marked = state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED
                if known is None or (marked and known[0] != state.delete_offset):
                    self.seen[tip] = state.delete_offset, self.around.ambient.monotonic()
        return going

    async def _advance(self, tip: TopicIdPartition) -> None:
        failed = self.failed.get(tip, NO_BACK_OFF)
        if failed.waits_at(self.around.ambient.now_ms()):
            return
        try:
            await self._step(tip)
            self.failed.pop(tip, None)
        except Exception as error:
            if self.metadata.partition_state(tip) is None:
                return  # another node finished the deletion first
            conflict, expected = isinstance(error, Conflict), isinstance(error, StrandlineError)
            logger.log(
                logging.INFO if conflict else logging.WARNING,
                "deleting %s: %s",
                tip,
                error,
                exc_info=None if expected else error,
            )
            # A conflict is no failure: another node was first, or an admin undid the mark.
            self.failed[tip] = after_failure(
                NO_BACK_OFF if conflict else failed, FailureKind.TRANSIENT, str(error),
                policy=back_off_policy(self.around.limits), now_ms=self.around.ambient.now_ms(),
                fraction=self.around.ambient.random_fraction(),
            )  # fmt: skip

    async def _step(self, tip: TopicIdPartition) -> None:
        """Take the next step. Reads and acts without an await in between, so that the state is up
        to date.
        """
        state = self.metadata.partition_state(tip)
        if state is None:
            return
        seen_ms = self._seen_ms(state)
        step = plan_deletion(
            state,
            has_segments=next(iter(self.metadata.list_remote_log_segments(tip)), None) is not None,
            node_id=self.around.identity.incarnation.node_id,
            passed_ms=max(seen_ms, self._measured_ms(state)),
            settle_ms=round(self.around.limits.deletion_settle_s * 1000),
            held_back=self.held_back(tip.topic),
        )
        match step:
            case Start():
                await self._propose(
                    state, PartitionDeleteState.DELETE_PARTITION_STARTED, step, seen_ms
                )
                self._tell(AuditAction.PARTITION_DELETE_STARTED, tip, "the grace is over")
            case RemoveSegments():
                await self._remove_segments(tip)
            case Finish():
                await self._propose(state, PartitionDeleteState.DELETE_PARTITION_FINISHED, None)
                self._tell(AuditAction.PARTITION_DELETE_FINISHED, tip, "no segment is left")

    def _seen_ms(self, state: PartitionState) -> int:
        """Milliseconds that this process has seen the delete state, by the monotonic clock."""
        offset, since_s = self.seen.get(state.partition, (-1, math.inf))
        marked = state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED
        if since_s == math.inf or (marked and offset != state.delete_offset):
            return 0
        return int((self.around.ambient.monotonic() - since_s) * 1000)

    def _measured_ms(self, state: PartitionState) -> int:
        """Milliseconds measured by all nodes together, for processes that do not run long."""
        if state.delete_counts_from_ms < 0:
            return 0
        return self.metadata.measured_time_ms() - state.delete_counts_from_ms

    async def _propose(
        self,
        state: PartitionState,
        to: PartitionDeleteState,
        start: Start | None,
        seen_ms: int = -1,
    ) -> None:
        """Propose the state. An unknown outcome needs no handling: the next pass continues from the
        state that it reads.
        """
        await self.metadata.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(
                state.partition,
                self.around.identity.incarnation.node_id,
                self.around.ambient.now_ms(),
                to,
                replaces_offset=-1 if start is None else start.replaces_offset,
                seen_ms=seen_ms,
            ),
            deadline_s=self.around.limits.propose_deadline_s,
        )

    async def _remove_segments(self, tip: TopicIdPartition) -> None:
        if self.clean_ups.is_full:
            return  # the next pass goes on
        rows = self.metadata.left_overs(tip)
        for row in rows:
            if row.state is SegmentState.DELETE_SEGMENT_STARTED:
                await self.clean_ups.begin(row, -1, WHY)
        await self._mark([row for row in rows if row.state is SegmentState.COPY_SEGMENT_STARTED])
        room = SEGMENTS_GOING_MAX - len(rows)
        while room > 0 and not self.clean_ups.is_full:
            finished = (
                row
                for row in self.metadata.list_remote_log_segments(tip)
                if row.state is SegmentState.COPY_SEGMENT_FINISHED
            )
            some = list(islice(finished, min(room, MARKS_PARALLEL_MAX)))
            if not some:
                return
            await self._mark(some)
            room -= len(some)

    async def _mark(self, rows: Sequence[RemoteLogSegmentMetadata]) -> None:
        for start in range(0, len(rows), MARKS_PARALLEL_MAX):
            some = rows[start : start + MARKS_PARALLEL_MAX]
            # No token is needed: in the partition's state any node may mark its rows.
            marks = (self.clean_ups.begin(row, -1, WHY) for row in some)
            for outcome in await asyncio.gather(*marks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    def _tell(self, action: AuditAction, tip: TopicIdPartition, why: str) -> None:
        now_ms = self.around.ambient.now_ms()
        by = f"node {self.around.identity.incarnation.node_id}"
        self.audit(AuditLine(now_ms, action, tip, None, -1, -1, 0, why, by))
