"""Asking a broker whether it knows topics by their ids (KIP-516), in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic

from kafka_client.connection import Connection
from kafka_formats.kafka_uuid import Uuid


def can_ask_topic_ids(connection: Connection) -> bool:
    """True if the broker can be asked for topics by id (Kafka 3.1 and newer)."""
    return connection.supports(MetadataRequest)


async def unknown_topic_ids(connection: Connection, ids: Sequence[Uuid]) -> frozenset[Uuid]:
    """The `ids` answered with UNKNOWN_TOPIC_ID; topics without Describe permission are not."""
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
