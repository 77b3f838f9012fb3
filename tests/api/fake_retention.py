"""Retention as the routes see it: one plan, and what was accepted."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_formats.errors import Conflict
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.retention.acceptance import AskedAcceptance
from rlm.retention.delete_records_plan import RecordDeletion
from rlm.retention.retention_plan import LogStartMove, RetentionPlan
from rlmm.partition_state import TopicPolicy

NOTHING = RetentionPlan(None, (), None, None, None, 0, 0, "nothing goes")


@dataclass
class FakeRetention:
    """`claimed` False: another node leads."""

    made: RetentionPlan = NOTHING
    claimed: bool = True
    asked_by: list[TopicPolicy | None] = field(default_factory=list)
    accepted: list[tuple[TopicIdPartition, AskedAcceptance]] = field(default_factory=list)
    deleted_below: list[int] = field(default_factory=list)

    async def plan(
        self,
        tip: TopicIdPartition,
        percent_max: float | None = None,
        policy: TopicPolicy | None = None,
        /,
    ) -> RetentionPlan:
        self.asked_by.append(policy)
        return self.made

    async def accept(self, tip: TopicIdPartition, asked: AskedAcceptance, /) -> RetentionPlan:
        if not self.claimed:
            raise Conflict("ask the node that leads", reason="NOT_CLAIMED")
        self.accepted.append((tip, asked))
        return self.made

    def accepted_text(self, tip: TopicIdPartition, /) -> str | None:
        return next((f"{asked.by} let it" for of, asked in self.accepted if of == tip), None)

    async def delete_records(
        self, tip: TopicIdPartition, before: int, /, *, apply: bool
    ) -> RecordDeletion:
        if not self.claimed:
            raise Conflict("ask the node that leads", reason="NOT_CLAIMED")
        if apply:
            self.deleted_below.append(before)
        return RecordDeletion(0, LogStartMove(before, 0), 2, 40, before + 9)
