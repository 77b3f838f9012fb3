"""Asks a partition's leader which aborted transactions are open at an offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_formats.errors import CorruptData, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections.brokers import Brokers, ask
from kafka_listener.protocol.apis import SERVED, Api
from kafka_listener.protocol.fetch import CONSUMER, NO_SESSION, READ_COMMITTED, SESSION_NEVER
from kafka_listener.reading.read_port import AbortedFrom


@dataclass(frozen=True, slots=True)
class LeaderTransactions:
    """Implements `BrokerTransactions`, over connections of the node's own."""

    brokers: Brokers

    async def aborted_at(
        self, partition: TopicIdPartition, offset: int, leader_epoch: int
    ) -> tuple[AbortedFrom, ...] | None:
        """The aborted transactions that the leader of that epoch reports for `offset`. None: the
        leader is unreachable, is not the leader any more, or answers without a batch.
        """
        leader = await self.brokers.leader(bytes(partition.topic_id), partition.partition)
        if leader is None:
            return None
        asked = {
            "partition": partition.partition,
            "current_leader_epoch": leader_epoch,
            "fetch_offset": offset,
            "partition_max_bytes": 1,
        }
        # A broker takes the name or, from version 13 on, the id, which differs if the topic was
        # recreated.
        named = {"topic": partition.topic, "topic_id": bytes(partition.topic_id)}
        body: dict[str, Any] = {
            "replica_id": CONSUMER,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1,  # at least one batch is sent all the same
            "isolation_level": READ_COMMITTED,
            "session_id": NO_SESSION,
            "session_epoch": SESSION_NEVER,
            "topics": [{**named, "partitions": [asked]}],
        }
        try:
            answer = await ask(leader, Api.FETCH, body, version_max=SERVED[Api.FETCH].high)
        except (RetryLater, CorruptData):
            return None
        for topic in answer["responses"]:
            for each in topic["partitions"]:
                if each["error_code"] or not each["records"]:
                    return None
                aborted = each["aborted_transactions"] or ()
                return tuple(
                    AbortedFrom(one["producer_id"], one["first_offset"]) for one in aborted
                )
        return None
