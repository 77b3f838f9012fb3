"""A partition's replicas, and batches from any of them, in Kafka's protocol.

Followers answer consumers too, up to the high watermark (KIP-392). Topics are requested by id
(KIP-516): a topic may be deleted and created again with its name in between.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import FetchRequest, FetchResponse
from kio.schema.fetch.v13.request import FetchPartition, FetchTopic
from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.static.primitive import i8, i32, i32Timedelta, i64

from kafka_client.broker_requests import (
    DEBUGGING_REPLICA_ID,
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    BrokerError,
    list_offsets,
)
from kafka_client.connection import Connection
from kafka_client.replica_answers import Batches, Extent, OutOfRange, Replicas
from kafka_formats.topic_id_partition import TopicIdPartition

_NO_SESSION = -1


async def assigned_replicas(
    connection: Connection, partition: TopicIdPartition
) -> Replicas | BrokerError:
    """All replicas, as the broker at the other end knows them."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=UUID(bytes=partition.topic_id), name=None),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    answer = await connection.ask(request, MetadataResponse)
    addresses = {int(each.node_id): (each.host, int(each.port)) for each in answer.brokers}
    for topic in answer.topics:
        if topic.error_code is not ErrorCode.none:
            return BrokerError(topic.error_code.name)
        for each in topic.partitions:
            if int(each.partition_index) == partition.partition:
                return Replicas(tuple(int(node) for node in each.replica_nodes), addresses)
    return BrokerError(ErrorCode.unknown_topic_or_partition.name)


async def fetch_batches(
    connection: Connection, partition: TopicIdPartition, offset: int, *, bytes_max: int
) -> Batches | OutOfRange | BrokerError:
    """The broker's batches from `offset` on, up to `bytes_max`, but at least one if there is any.
    OutOfRange: the offset is outside the replica's log.
    """
    wanted = FetchPartition(
        partition=i32(partition.partition),
        fetch_offset=i64(offset),
        partition_max_bytes=i32(bytes_max),
    )
    topic_id = UUID(bytes=partition.topic_id)
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(0)),
        min_bytes=i32(0),
        max_bytes=i32(bytes_max),
        isolation_level=i8(0),
        session_epoch=i32(_NO_SESSION),
        topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    answer = await connection.ask(request, FetchResponse)
    if answer.error_code is not ErrorCode.none:
        return BrokerError(answer.error_code.name)
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code is ErrorCode.offset_out_of_range:
                return OutOfRange()
            if each.error_code is not ErrorCode.none:
                return BrokerError(each.error_code.name)
            return Batches(each.records or b"", int(each.high_watermark))
    return BrokerError(ErrorCode.unknown_topic_or_partition.name)


async def replica_extent(
    connection: Connection, partition: TopicIdPartition
) -> Extent | BrokerError:
    """Ask the broker at the other end where its log begins and ends, even if it does not lead.

    The request names the topic, since ListOffsets has no ids; records are fetched afterwards by id.
    """
    name = (partition.topic, partition.partition)
    offsets = []
    for timestamp in (EARLIEST, LATEST):
        answers = await list_offsets(
            connection, [name], timestamp=timestamp, isolation_level=READ_UNCOMMITTED,
            replica_id=DEBUGGING_REPLICA_ID,
        )  # fmt: skip
        answer = answers.get(name, BrokerError(ErrorCode.unknown_topic_or_partition.name))
        if isinstance(answer, BrokerError):
            return answer
        offsets.append(answer.offset)
    return Extent(*offsets)
