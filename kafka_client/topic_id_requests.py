"""Requests for topic ids, and for topics by their id (KIP-516)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata import v10
from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.types import TopicName

from kafka_client.broker_requests import BrokerError
from kafka_client.connection import Connection
from kafka_formats.kafka_uuid import Uuid


def can_ask_topic_ids(connection: Connection) -> bool:
    """True if the broker can be asked for topics by id (Kafka 3.1 and newer)."""
    return connection.supports(MetadataRequest)


async def unknown_topic_ids(connection: Connection, ids: Sequence[Uuid]) -> frozenset[Uuid]:
    """The `ids` answered with UNKNOWN_TOPIC_ID; for ids without Describe permission it is not."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=UUID(bytes=id_), name=None) for id_ in ids),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    answer = await connection.ask(request, MetadataResponse)
    unknown = {
        Uuid(topic.topic_id.bytes)
        for topic in answer.topics
        if topic.topic_id is not None and topic.error_code is ErrorCode.unknown_topic_id
    }
    return frozenset(unknown.intersection(ids))


async def topic_ids(
    connection: Connection, topics: Sequence[str]
) -> dict[str, Uuid | BrokerError] | None:
    """The id of each topic by its name. None: the broker has no topic ids (before Kafka 2.8)."""
    if not connection.supports(v10.MetadataRequest):
        return None
    request = v10.MetadataRequest(
        topics=tuple(
            v10.request.MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics
        ),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    answer = await connection.ask(request, v10.MetadataResponse)
    return {
        str(topic.name): Uuid(topic.topic_id.bytes)
        if topic.error_code is ErrorCode.none and topic.topic_id is not None
        else BrokerError(topic.error_code.name)
        for topic in answer.topics
    }
