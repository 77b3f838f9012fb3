"""Keeps leader epochs in answers to Metadata from going back, whichever broker answers. Pure.

A broker that lags reports an earlier leader. A client that accepts both answers would fetch with an
epoch that the leader has fenced (KIP-320), or leave the leader that it has just found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.schema import Values

PARTITIONS_MAX = 100_000
"""The most partitions that are remembered; those reported longest ago are dropped first."""
NOBODY = -1
UNKNOWN = -1


@dataclass(slots=True)
class NewestLeaders:
    """The newest leaders by broker ids; one object per node. It sees an answer before its nodes are
    rewritten. Topics without an id are left as they are: a recreated one begins at epoch 0.
    """

    _told: dict[tuple[bytes, int], tuple[int, int]] = field(default_factory=dict)

    def settle(self, body: Values) -> None:
        """Replace leaders in an answer that are older than the newest known ones, and remember
        newer ones.
        """
        alive = {each["node_id"] for each in body["brokers"]}
        for topic in body["topics"]:
            topic_id = topic.get("topic_id") or b""
            if any(topic_id):
                for partition in topic["partitions"]:
                    self._settle((topic_id, partition["partition_index"]), partition, alive)
        while len(self._told) > PARTITIONS_MAX:
            del self._told[next(iter(self._told))]

    def _settle(self, key: tuple[bytes, int], partition: Values, alive: set[int]) -> None:
        epoch, leader = self._told.pop(key, (UNKNOWN, NOBODY))
        told = partition.get("leader_epoch", UNKNOWN)
        if told >= epoch:
            epoch, leader = told, partition["leader_id"]
        else:
            if leader not in alive:
                leader = NOBODY
            found = leader != NOBODY
            partition["error_code"] = ErrorCode.NONE if found else ErrorCode.LEADER_NOT_AVAILABLE
            partition |= {"leader_id": leader, "leader_epoch": epoch}
        if epoch != UNKNOWN:
            self._told[key] = epoch, leader
