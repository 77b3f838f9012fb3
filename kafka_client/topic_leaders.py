"""The leaders of a topic's partitions, as a broker knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v10 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v10.request import MetadataRequestTopic
from kio.schema.types import TopicName

from kafka_client.broker_requests import BrokerError
from kafka_client.connection import Connection
from kafka_formats.kafka_uuid import Uuid

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """The leader of each partition by node id (`NO_LEADER`: none now), (host, port) of each live
    broker, and the epoch of each leader.
    """

    topic_id: Uuid
    leaders: Mapping[int, int]
    addresses: Mapping[int, tuple[str, int]]
    epochs: Mapping[int, int] = field(default_factory=dict)


async def topic_leaders(connection: Connection, topic: str) -> TopicLeaders | BrokerError:
    """The leaders of the topic with this name; a broker's error if it knows no such topic."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    answer = await connection.ask(request, MetadataResponse)
    for found in answer.topics:
        if found.error_code is not ErrorCode.none or found.topic_id is None:
            return BrokerError(found.error_code.name)
        return TopicLeaders(
            Uuid(found.topic_id.bytes),
            {int(each.partition_index): int(each.leader_id) for each in found.partitions},
            {int(each.node_id): (each.host, int(each.port)) for each in answer.brokers},
            {int(each.partition_index): int(each.leader_epoch) for each in found.partitions},
        )
    return BrokerError(ErrorCode.unknown_topic_or_partition.name)
