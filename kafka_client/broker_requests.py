"""Requests of this node to its own broker, in Kafka's protocol, as plain data.

Every request is sent over the given connection: a client library would send ListOffsets to the
partition's leader, and a follower's node would take the success for leadership.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.describe_configs.v3 import DescribeConfigsRequest, DescribeConfigsResponse
from kio.schema.describe_configs.v3.request import DescribeConfigsResource
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets import v5, v8, v9
from kio.schema.metadata.v8 import MetadataRequest, MetadataResponse
from kio.schema.offset_for_leader_epoch import v3 as epochs_v3
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from kafka_client.connection import Connection

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
"""The replica id for which also a follower answers, about its own replica; LATEST is then the end
of its log.
"""

TopicPartition = tuple[str, int]

_NOT_LEADER = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
_RESOURCE_TOPIC = i8(2)
_RESOURCE_BROKER = i8(4)


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset, and the leader epoch in which the broker answered."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerError:
    """A broker's error code for one item. `not_leader`: it does not lead the partition."""

    name: str
    not_leader: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A broker's cluster: its id, and (host, port) of each live broker by node id."""

    cluster_id: str | None
    brokers: Mapping[int, tuple[str, int]]


def can_ask_earliest_local(connection: Connection) -> bool:
    """True if the broker knows EARLIEST_LOCAL; one that does not has no tiered storage."""
    return connection.supports(v8.ListOffsetsRequest)


async def list_offsets(
    connection: Connection,
    partitions: Iterable[TopicPartition],
    *,
    timestamp: int,
    isolation_level: int,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> dict[TopicPartition, FoundOffset | BrokerError]:
    """One ListOffsets for all `partitions`; those missing from the answer are left out. With LATEST
    and READ_COMMITTED the offset is the last stable offset.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    # The last version without tagged fields, unless it does not know the timestamp.
    schema: Any = {EARLIEST_LOCAL: v8, LATEST_TIERED: v9}.get(timestamp, v5)
    request = _list_offsets_request(schema, by_topic, timestamp, isolation_level, replica_id)
    answered = await connection.ask(request, schema.ListOffsetsResponse)
    return {
        (str(topic.name), int(partition.partition_index)): _offset_or_error(
            partition.error_code, int(partition.offset), int(partition.leader_epoch)
        )
        for topic in answered.topics
        for partition in topic.partitions
    }


async def epoch_ends(
    connection: Connection, asked: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, FoundOffset | BrokerError]:
    """One OffsetsForLeaderEpoch. For (present epoch, epoch) of each partition: the largest epoch up
    to the latter, and the offset where the next one begins. A different present epoch is an error.
    """
    by_topic: dict[str, list[epochs_v3.request.OffsetForLeaderPartition]] = {}
    for (topic, partition), (present, epoch) in asked.items():
        by_topic.setdefault(topic, []).append(
            epochs_v3.request.OffsetForLeaderPartition(
                partition=i32(partition),
                current_leader_epoch=i32(present),
                leader_epoch=i32(epoch),
            )
        )
    request = epochs_v3.OffsetForLeaderEpochRequest(
        replica_id=BrokerId(CONSUMER_REPLICA_ID),
        topics=tuple(
            epochs_v3.request.OffsetForLeaderTopic(
                topic=TopicName(topic), partitions=tuple(partitions)
            )
            for topic, partitions in by_topic.items()
        ),
    )
    answered = await connection.ask(request, epochs_v3.OffsetForLeaderEpochResponse)
    return {
        (str(topic.topic), int(each.partition)): _offset_or_error(
            each.error_code, int(each.end_offset), int(each.leader_epoch)
        )
        for topic in answered.topics
        for each in topic.partitions
    }


async def describe_cluster(connection: Connection) -> ClusterDescription:
    """The cluster of the broker at the other end."""
    request = MetadataRequest(
        topics=(),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    answer = await connection.ask(request, MetadataResponse)
    return ClusterDescription(
        cluster_id=answer.cluster_id,
        brokers={int(broker.node_id): (broker.host, int(broker.port)) for broker in answer.brokers},
    )


async def ask_if_node(connection: Connection, node_id: int) -> BrokerError | None:
    """Ask the broker at the other end whether it is node `node_id`; None if it is.

    No API names the answering broker, but only the broker itself describes its own configs: a
    different one answers INVALID_REQUEST. Needs DescribeConfigs on the cluster if ACLs are on.
    """
    resource = DescribeConfigsResource(
        resource_type=_RESOURCE_BROKER, resource_name=str(node_id), configuration_keys=("node.id",)
    )
    request = DescribeConfigsRequest(resources=(resource,))
    answer = await connection.ask(request, DescribeConfigsResponse)
    for result in answer.results:
        if result.error_code is not ErrorCode.none:
            return BrokerError(result.error_code.name)
        return None
    return BrokerError(ErrorCode.unknown_server_error.name)


async def topic_configs(
    connection: Connection, topics: Iterable[str], keys: Sequence[str]
) -> dict[str, dict[str, str] | BrokerError]:
    """The effective values of `keys` for each topic, without keys unknown to the broker."""
    resources = tuple(
        DescribeConfigsResource(
            resource_type=_RESOURCE_TOPIC, resource_name=topic, configuration_keys=tuple(keys)
        )
        for topic in topics
    )
    answer = await connection.ask(
        DescribeConfigsRequest(resources=resources), DescribeConfigsResponse
    )
    return {
        result.resource_name: BrokerError(result.error_code.name)
        if result.error_code is not ErrorCode.none
        else {config.name: config.value for config in result.configs if config.value is not None}
        for result in answer.results
    }


def _offset_or_error(code: ErrorCode, offset: int, leader_epoch: int) -> FoundOffset | BrokerError:
    if code is not ErrorCode.none:
        return BrokerError(code.name, not_leader=code in _NOT_LEADER)
    return FoundOffset(offset, leader_epoch)


def _list_offsets_request(
    schema: Any,
    by_topic: Mapping[str, Sequence[int]],
    timestamp: int,
    isolation_level: int,
    replica_id: int,
) -> Any:
    return schema.ListOffsetsRequest(
        replica_id=BrokerId(replica_id),
        isolation_level=i8(isolation_level),
        topics=tuple(
            schema.request.ListOffsetsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    schema.request.ListOffsetsPartition(
                        partition_index=i32(partition), timestamp=i64(timestamp)
                    )
                    for partition in partitions
                ),
            )
            for topic, partitions in by_topic.items()
        ),
    )
