"""Marks the tiered data of topics deleted in Kafka, if `topics.mark_deleted` is set
(`topic_absence_plan` decides). Its marks have the same grace, undo and deletion as an admin's. A
topic whose mark an admin undid is never marked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafka_formats.errors import StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.control.audit import Audit, AuditAction, AuditLine, no_audit
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Surroundings
from rlm.leadership.leadership import NoAnswer
from rlm.retention.topic_absence_plan import Absence, plan_absence
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import DELETE_GRACE_DEFAULT_MS, PartitionState
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 120.0
BREATH_PARTITIONS = 64
LOOKING = "asking the brokers for deleted topics"


class TopicIdPort(Protocol):
    async def unknown_topic_ids(
        self, ids: Sequence[Uuid]
    ) -> Mapping[int, frozenset[Uuid]] | NoAnswer:
        """The ids that each live broker does not know, by its node id. NoAnswer: a broker did not
        answer.
        """


@dataclass(slots=True)
class TopicAbsence:
    """The task that marks deleted topics, on each node whose settings enable it; marks by several
    nodes do no harm.
    """

    metadata: RemoteLogMetadataManager
    brokers: TopicIdPort
    around: Surroundings
    held_back: Callable[[str], str | None]
    audit: Audit = no_audit
    absent: Mapping[Uuid, Absence] = field(default_factory=dict)
    stopped: str | None = None
    log: ProblemLog = field(default_factory=lambda: ProblemLog(logger))

    async def run(self) -> None:
        """Run passes for as long as the node runs; a failed pass is reported and repeated."""
        while True:
            await self.around.ambient.sleep(LOOK_INTERVAL_S)
            try:
                await self.run_pass()
                self.log.works(LOOKING)
            except Exception as error:  # noqa: BLE001 - reported, and repeated
                self.log.failed(LOOKING, error)

    async def run_pass(self) -> None:
        """Ask the brokers once, and mark the topics that this and earlier passes prove deleted."""
        by_id = await self._unmarked()
        if not by_id:
            self.absent, self.stopped = {}, None
            return
        answers = await self.brokers.unknown_topic_ids(sorted(by_id))
        if isinstance(answers, NoAnswer):
            logger.info("deleted topics are not looked for: %s", answers.reason)
            return
        plan = plan_absence(by_id.keys(), answers, self.absent, self.around.ambient.monotonic())
        self.absent, self.stopped = plan.absent, plan.stopped
        brokers = ", ".join(map(str, sorted(answers)))
        for topic_id in sorted(plan.gone):
            for state in by_id[topic_id]:
                await self._mark(state, f"the topic id is unknown to the brokers {brokers}")

    def problems(self) -> Iterable[NodeProblem]:
        """The problem that too many topics are missing at once."""
        if self.stopped is None or not self.absent:
            return ()
        return (NodeProblem(ProblemArea.TOPICS, None, self.stopped),)

    async def _unmarked(self) -> dict[Uuid, list[PartitionState]]:
        """The tier's partitions by topic id, without those ever marked, even if undone."""
        by_id: dict[Uuid, list[PartitionState]] = {}
        for number, tip in enumerate(list(self.metadata.partitions()), 1):
            if number % BREATH_PARTITIONS == 0:
                await self.around.ambient.sleep(0)
            state = self.metadata.partition_state(tip)
            if state is not None and state.delete_offset < 0:
                by_id.setdefault(tip.topic_id, []).append(state)
        return by_id

    async def _mark(self, state: PartitionState, why: str) -> None:
        tip = state.partition
        if self.held_back(tip.topic) is not None:
            return  # a later pass finds it again
        try:
            await self.metadata.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(
                    tip,
                    self.around.identity.incarnation.node_id,
                    self.around.ambient.now_ms(),
                    PartitionDeleteState.DELETE_PARTITION_MARKED,
                    replaces_offset=state.delete_offset,
                    grace_ms=DELETE_GRACE_DEFAULT_MS,
                ),
                deadline_s=self.around.limits.propose_deadline_s,
            )
        except StrandlineError as error:
            logger.warning("%s could not be marked as deleted, to be repeated: %s", tip, error)
            return
        logger.warning("%s is marked for deletion: %s", tip, why)
        by = f"node {self.around.identity.incarnation.node_id}"
        self.audit(
            AuditLine(
                self.around.ambient.now_ms(), AuditAction.PARTITION_MARKED, tip, None,
                -1, -1, state.size_bytes, why, by,
            )
        )  # fmt: skip
