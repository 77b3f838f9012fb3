"""Requests of a transactional producer, and the errors for a broker's error codes.

Kafka 3.1 up to 4.4 supports these versions, with any `transaction.version`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from kio.schema.add_partitions_to_txn.v2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from kio.schema.add_partitions_to_txn.v2.request import AddPartitionsToTxnTopic
from kio.schema.end_txn.v2 import EndTxnRequest, EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v2 import FindCoordinatorRequest, FindCoordinatorResponse
from kio.schema.init_producer_id.v1 import InitProducerIdRequest, InitProducerIdResponse
from kio.schema.produce.v8 import ProduceRequest, ProduceResponse
from kio.schema.produce.v8.request import PartitionProduceData, TopicProduceData
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta

from kafka_client.broker_requests import TopicPartition
from kafka_client.connection import Connection
from kafka_formats.errors import Fenced, InvalidRequest, Refused, RetryLater, StrandlineError

_TRANSACTION = i8(1)
_ALL_REPLICAS = i16(-1)
_FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
_BUSY = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
    }
)
_NOT_ALLOWED = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)
_WRONG = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.corrupt_message,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.invalid_transaction_timeout,
        ErrorCode.unsupported_for_message_format,
    }
)


class StillBusyError(RetryLater):
    """The coordinator still ends an earlier transaction, or is starting: repeat the request."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The producer of a transactional id, from one InitProducerId to the next."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that coordinates a transactional id."""

    node_id: int
    host: str
    port: int


async def find_coordinator(connection: Connection, transactional_id: str) -> Coordinator:
    """The coordinator, as any broker knows it. Errors: `raise_for`."""
    request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION)
    answer = await connection.ask(request, FindCoordinatorResponse)
    raise_for(answer.error_code, connection.name, "FindCoordinator")
    return Coordinator(int(answer.node_id), answer.host, int(answer.port))


async def init_producer_id(
    connection: Connection, transactional_id: str, *, transaction_timeout_s: float
) -> ProducerIdentity:
    """Become the only producer of the id. Once this is answered, no record of an earlier producer
    can be appended: its transaction was ended by markers of a higher epoch in each of its
    partitions, and it can add no further partition. Errors: `raise_for`.
    """
    request = InitProducerIdRequest(
        transactional_id=TransactionalId(transactional_id),
        transaction_timeout=i32Timedelta.parse(timedelta(seconds=transaction_timeout_s)),
    )
    answer = await connection.ask(request, InitProducerIdResponse)
    raise_for(answer.error_code, connection.name, "InitProducerId")
    return ProducerIdentity(transactional_id, int(answer.producer_id), int(answer.producer_epoch))


async def add_partitions(
    connection: Connection, producer: ProducerIdentity, topic: str, partitions: Sequence[int]
) -> None:
    """Make the partitions part of the producer's transaction. Errors: `raise_for`."""
    wanted = AddPartitionsToTxnTopic(
        name=TopicName(topic), partitions=tuple(i32(each) for each in partitions)
    )
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(producer.transactional_id),
        v3_and_below_producer_id=ProducerId(producer.producer_id),
        v3_and_below_producer_epoch=i16(producer.epoch),
        v3_and_below_topics=(wanted,),
    )
    answer = await connection.ask(request, AddPartitionsToTxnResponse)
    added = set()
    for found in answer.results_by_topic_v3_and_below:
        for each in found.results_by_partition:
            where = f"{found.name}-{each.partition_index}"
            raise_for(each.partition_error_code, connection.name, f"AddPartitionsToTxn of {where}")
            added.add(int(each.partition_index))
    if not added.issuperset(partitions):
        raise RetryLater(f"{connection.name} left out partitions of {topic} in its answer")


async def produce(
    connection: Connection,
    transactional_id: str | None,
    batches: Mapping[TopicPartition, bytes],
    *,
    timeout_s: float,
) -> dict[TopicPartition, int]:
    """Append one batch to each partition, on all in-sync replicas; returns the offset of the first
    record of each. Without `transactional_id` they belong to no transaction. Errors: `raise_for`;
    some of the batches may have been appended then.
    """
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for (topic, partition), batch in batches.items():
        data = PartitionProduceData(index=i32(partition), records=Records(batch))
        by_topic.setdefault(topic, []).append(data)
    request = ProduceRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        acks=_ALL_REPLICAS,
        timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
        topic_data=tuple(
            TopicProduceData(name=TopicName(topic), partition_data=tuple(data))
            for topic, data in by_topic.items()
        ),
    )
    answer = await connection.ask(request, ProduceResponse)
    appended = {}
    for found in answer.responses:
        for each in found.partition_responses:
            where = f"{found.name}-{each.index}"
            raise_for(each.error_code, connection.name, f"Produce to {where}", each.error_message)
            appended[str(found.name), int(each.index)] = int(each.base_offset)
    if appended.keys() != batches.keys():
        raise RetryLater(f"{connection.name} left out partitions in its answer to Produce")
    return appended


async def end_transaction(
    connection: Connection, producer: ProducerIdentity, *, committed: bool
) -> None:
    """Commit or abort the producer's transaction. Errors: `raise_for`."""
    request = EndTxnRequest(
        transactional_id=TransactionalId(producer.transactional_id),
        producer_id=ProducerId(producer.producer_id),
        producer_epoch=i16(producer.epoch),
        committed=committed,
    )
    answer = await connection.ask(request, EndTxnResponse)
    raise_for(answer.error_code, connection.name, "EndTxn")


def raise_for(code: ErrorCode, broker: str, what: str, detail: str | None = None) -> None:
    """Raise our error for an error code of a producer's request.

    Fenced: a different producer of the id began, or the coordinator ended a transaction that took
    too long. StillBusyError: repeat the request soon. Refused: a permission is missing.
    InvalidRequest: a repetition does not help. RetryLater: all other codes; start again with
    InitProducerId.
    """
    if code is ErrorCode.none:
        return
    text = f"{broker} answered {code.name} to {what}" + (f" ({detail})" if detail else "")
    raise _kind(code)(text)


def _kind(code: ErrorCode) -> type[StrandlineError]:
    if code in _FENCED:
        return Fenced
    if code in _BUSY:
        return StillBusyError
    if code in _NOT_ALLOWED:
        return Refused
    return InvalidRequest if code in _WRONG else RetryLater
