"""The policies of a node's fake metadata: one topic is known, and its newest topic id."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from kafka_formats.errors import Conflict
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange

KNOWN_TOPIC = "payments"
TOPIC_ID = Uuid(bytes(range(16)))


@dataclass(kw_only=True)
class FakePolicies:
    """`never_applies`: no change is ever answered. `lags`: why the view can't catch up."""

    applied_offset: int = 41
    policies: dict[str, TopicPolicy] = field(default_factory=dict)
    never_applies: bool = False
    lags: Exception | None = None

    async def catch_up(self, *, deadline_s: float = 0) -> None:
        if self.lags is not None:
            raise self.lags

    async def set_topic_policy(self, record: TopicPolicyChange, *, deadline_s: float = 0) -> int:
        if self.never_applies:
            await asyncio.Event().wait()
        standing = self.topic_policy(record.topic)
        if record.replaces_offset != standing.offset:
            raise Conflict(f"the policy was set at offset {standing.offset}", reason="CONFLICT")
        self.applied_offset += 1
        topic_id = self.newest_topic_id(record.topic)
        self.policies[record.topic] = replace(
            record.policy, offset=self.applied_offset, topic_id=topic_id
        )
        return self.applied_offset

    def newest_topic_id(self, topic: str) -> Uuid:
        return TOPIC_ID if topic == KNOWN_TOPIC else ZERO_UUID

    def topic_policy(self, topic: str, topic_id: Uuid | None = None) -> TopicPolicy:
        policy = self.policies.get(topic, TopicPolicy())
        return policy if topic_id is None else policy.counts_for(topic_id)
