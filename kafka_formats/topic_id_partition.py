"""A partition by the name and the id of its topic (KIP-516)."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition of one incarnation of a topic."""

    topic: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}({self.topic_id})"
