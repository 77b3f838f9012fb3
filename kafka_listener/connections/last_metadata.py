"""Remembers the last Metadata of each topic, for times when no broker can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.protocol.refusals import NO_ID
from rlmm.wire.schema import Values

PARTITIONS_MAX = 20_000
"""The most partitions that are remembered, of all topics together; the topics reported longest ago
are dropped first.
"""


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic as it was last reported; `partitions` are (index, leader, leader epoch)."""

    topic_id: bytes
    is_internal: bool
    partitions: tuple[tuple[int, int, int], ...]


class LastMetadata:
    """The topics of a node's brokers, learnt from every relayed answer to Metadata."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._partitions = 0
        self._about: Values = {"cluster_id": None, "controller_id": -1}

    def take(self, body: Values) -> None:
        """Remember a broker's unchanged answer. One that refuses the whole request has no brokers
        and no cluster id; it is skipped.
        """
        if not body["brokers"]:
            return
        self._about = {name: body.get(name) for name in self._about}
        for topic in body["topics"]:
            name = topic["name"]
            if topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._forget(name)
            if topic["error_code"] or name is None:
                continue
            self._forget(name)
            partitions = tuple(
                (each["partition_index"], each["leader_id"], each.get("leader_epoch", -1))
                for each in topic["partitions"]
            )
            topic_id = topic.get("topic_id", NO_ID)
            self._topics[name] = _Topic(topic_id, topic["is_internal"], partitions)
            self._partitions += len(partitions)
        while self._partitions > PARTITIONS_MAX:
            self._forget(next(iter(self._topics)))

    def _forget(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        self._partitions -= 0 if topic is None else len(topic.partitions)

    def known(self, asked: Values) -> tuple[str, ...]:
        """The names of the remembered topics that a request asks for."""
        if asked["topics"] is None:
            return tuple(self._topics)
        names = {topic["name"] for topic in asked["topics"]} - {None}
        ids = {topic.get("topic_id") for topic in asked["topics"]} - {None, NO_ID}
        return tuple(
            name
            for name, topic in self._topics.items()
            if name in names or (topic.topic_id in ids and ids)
        )

    def answer(
        self, asked: Values, brokers: Iterable[int], may_hear: Callable[[str], bool]
    ) -> Values:
        """An answer as a broker gives it. Topics that are not remembered, or that this client may
        not see, get LEADER_NOT_AVAILABLE, so the client asks again.
        """
        told = {name: True for name in self.known(asked) if may_hear(name)}
        topics = [self._told(name) for name in told]
        ids = {self._topics[name].topic_id for name in told}
        for topic in asked["topics"] or ():
            name, topic_id = topic["name"], topic.get("topic_id")
            if name not in told and (name is not None or topic_id not in ids):
                again = {"error_code": ErrorCode.LEADER_NOT_AVAILABLE, "partitions": []}
                topics.append({"name": name, "topic_id": topic_id or NO_ID} | again)
        return {**self._about, "brokers": [{"node_id": each} for each in brokers], "topics": topics}

    def _told(self, name: str) -> dict[str, Any]:
        topic = self._topics[name]
        return {
            "error_code": ErrorCode.NONE,
            "name": name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "partitions": [
                {
                    "error_code": ErrorCode.NONE,
                    "partition_index": index,
                    "leader_id": leader,
                    "leader_epoch": epoch,
                }
                for index, leader, epoch in topic.partitions
            ],
        }
