"""Finishes deletions that brokers marked and no other task finishes: the node owns a deletion from
DELETE_SEGMENT_STARTED on.

A broker deletes a topic's segments once, one by one, and does not repeat a failed deletion. By then
the partitions have no leader, so no claimant finds the rows as left-overs. Any node may finish a
deletion, and two at once do no harm; the node of the last claim goes first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_formats.kafka_uuid import Uuid
from rlm.control.node_problem import ProblemLog
from rlm.control.surroundings import Surroundings
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import Mode, PartitionState
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

PASS_INTERVAL_S = 30.0
BREATH_PARTITIONS = 64
SEEN_MAX = 10_000
SWEEPING = "finishing the deletion of segments that brokers marked"
WHY = "its broker's remote log manager deleted it"


@dataclass(slots=True)
class Sweeper:
    """The task that finishes deletions, one per node. `seen`: for each marked row the time
    (monotonic, s) since when this process has seen it.
    """

    metadata: RemoteLogMetadataManager
    clean_ups: CleanUpTasks
    around: Surroundings
    why_by_broker: Callable[[RemoteLogSegmentMetadata], str | None]
    seen: dict[Uuid, float] = field(default_factory=dict)
    log: ProblemLog = field(default_factory=lambda: ProblemLog(logger))

    async def run(self) -> None:
        """Run passes for as long as the node runs; a failed pass is reported and repeated."""
        while True:
            await self.around.ambient.sleep(PASS_INTERVAL_S)
            try:
                await self.run_pass()
                self.log.works(SWEEPING)
            except Exception as error:  # noqa: BLE001 - reported, and repeated
                self.log.failed(SWEEPING, error)

    async def run_pass(self) -> None:
        """Begin the clean-up of the rows that are this node's turn."""
        before, self.seen = self.seen, {}
        if not self.metadata.totals().delete_started or self.metadata.migration().is_held:
            return
        for number, tip in enumerate(list(self.metadata.partitions()), 1):
            if number % BREATH_PARTITIONS == 0:
                await self.around.ambient.sleep(0)
            state = self.metadata.partition_state(tip)
            if state is None or state.mode is not Mode.DELEGATED or state.delete_state is not None:
                continue
            for row in self.metadata.left_overs(tip):
                if self.clean_ups.is_full:
                    self._go_on_waiting(before)
                    return
                if self._is_due(state, row, before):
                    await self.clean_ups.begin(row, row.token, WHY)

    def _go_on_waiting(self, before: dict[Uuid, float]) -> None:
        """Keep the times of rows that this pass did not reach."""
        for id_, since_s in before.items():
            if len(self.seen) >= SEEN_MAX:
                return
            self.seen.setdefault(id_, since_s)

    def _is_due(
        self, state: PartitionState, row: RemoteLogSegmentMetadata, before: dict[Uuid, float]
    ) -> bool:
        if row.state is not SegmentState.DELETE_SEGMENT_STARTED:
            return False
        if self.why_by_broker(row) is not None:
            return False
        now_s, id_ = self.around.ambient.monotonic(), row.segment_id.id
        since_s = before.get(id_, now_s)
        if len(self.seen) < SEEN_MAX:
            self.seen[id_] = since_s
        claim = state.last_claim
        mine = claim is not None and (
            claim.incarnation.node_id == self.around.identity.incarnation.node_id
        )
        # Others leave the claimant the time for all of its steps.
        limits = self.around.limits
        others_s = limits.delete_delay_s + limits.upload_margin_s + limits.deletion_settle_s
        return now_s - since_s >= (0 if mine else others_s)
