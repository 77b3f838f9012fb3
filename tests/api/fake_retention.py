"""Retention as the routes see it: one plan, and what was accepted."""

from __future__ import annotations

from kafka_formats.errors import Conflict
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.retention.acceptance import AskedAcceptance
from rlm.retention.delete_records_plan import RecordDeletion
from rlm.retention.expirer import Expirer, not_paused
from rlm.retention.mark_times import DueMark
from rlm.retention.retention_plan import LogStartMove, RetentionPlan
from rlm.retention.topic_retention import RetentionRules
from rlmm.partition_state import TopicPolicy

NOTHING = RetentionPlan(None, (), None, None, None, 0, 0, "nothing goes")


class FakeRetention(Expirer):
    """`claimed` False: another node leads."""

    def __init__(self, made: RetentionPlan = NOTHING, *, claimed: bool = True) -> None:
        self.made = made
        self.rules = RetentionRules(lambda *_: TopicPolicy())
        self.paused = not_paused
        self.claimed = claimed
        self.asked_by: list[TopicPolicy | None] = []
        self.accepts: list[tuple[TopicIdPartition, AskedAcceptance]] = []
        self.deleted_below: list[int] = []

    @property
    def trash_s(self) -> float:
        return 86_400.0

    async def plan(
        self,
        tip: TopicIdPartition,
        percent_max: float | None = None,
        policy: TopicPolicy | None = None,
        accepted: frozenset[Uuid] = frozenset(),
        *,
        restored: bool = False,
    ) -> RetentionPlan:
        self.asked_by.append(policy)
        return self.made

    async def accept(self, tip: TopicIdPartition, asked: AskedAcceptance, /) -> RetentionPlan:
        if not self.claimed:
            raise Conflict("ask the node that leads", reason="NOT_CLAIMED")
        self.accepts.append((tip, asked))
        return self.made

    def accepted_text(self, tip: TopicIdPartition, /) -> str | None:
        return next((f"{asked.by} let it" for of, asked in self.accepts if of == tip), None)

    async def delete_records(
        self,
        tip: TopicIdPartition,
        before: int,
        *,
        apply: bool,
        why: str = "",
        emptied: DueMark | None = None,
    ) -> RecordDeletion:
        if not self.claimed:
            raise Conflict("ask the node that leads", reason="NOT_CLAIMED")
        if apply:
            self.deleted_below.append(before)
        return RecordDeletion(0, LogStartMove(before, 0), 2, 40, before + 9)
