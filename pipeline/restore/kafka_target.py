"""The Kafka cluster that a topic is restored into. Only this file of the pipeline uses librdkafka.

Exactly once: records are produced in transactions, and the same transaction commits the progress in
the source as an offset of a consumer group. A writer that opens a partition fences earlier writers,
aborts their open transaction, then reads that offset and continues from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from kafka_formats.errors import (
    Conflict,
    Fenced,
    InternalError,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from pipeline.process import ambient

CONNECT_DEADLINE_S = 15
REQUEST_DEADLINE_S = 60
QUEUE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of records that wait to be sent, in the producer of one partition."""

TRANSACTION_DEADLINE_S = 600
"""The target aborts transactions that are open for longer. It allows for a source that is slow for
minutes, and is below the brokers' limit (`transaction.max.timeout.ms`, 15 minutes).
"""

FETCHED_BYTES_MAX = 64 * 1024 * 1024
RECORDS_AT_ONCE = 1_000
POLL_S = 0.1
END_WAIT_MS = 20
"""Time that a broker waits for more records before it reports the end; 500 by default."""

SILENCE_DEADLINE_S = 120
"""A queue that does not move, or a read that returns nothing, for this long is given up."""

_REFUSED = (
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
_COORDINATOR_CHANGES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors while a consumer group's coordinator changes: a cluster creates it with the first request,
and elects it anew.
"""

_FOR_NOW = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    *_COORDINATOR_CHANGES,
)


class KafkaRecord(NamedTuple):
    """A record, of the source or of the target. Timestamps in ms since the epoch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Progress(NamedTuple):
    """The next offset of the source, and the text that identifies the restore, as committed."""

    next_offset: int
    what: str


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """The cluster's address: librdkafka's client properties, with `bootstrap.servers`. They may
    hold passwords and are never shown.
    """

    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        """Raise InvalidRequest for properties that would break exactly-once or the fencing of
        writers.
        """
        for name in ("transactional.id", "group.id", "acks", "enable.idempotence"):
            if name in self.properties:
                raise InvalidRequest(
                    f"{name} is set by the restore: leave it out", field="--kafka-config"
                )


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic of the target, with its configs as texts."""

    name: str
    partitions: int
    configs: Mapping[str, str]


def find_topic(address: KafkaAddress, name: str) -> TargetTopic | None:
    """The topic of this name, or None."""
    with _translated(f"topic {name}"):
        admin = AdminClient(_quiet(address))
        there = admin.list_topics(timeout=CONNECT_DEADLINE_S).topics.get(name)
        if there is None or there.error is not None:
            return None
        resource = ConfigResource(ResourceType.TOPIC, name)
        configs = admin.describe_configs([resource], request_timeout=REQUEST_DEADLINE_S)
        found = configs[resource].result(REQUEST_DEADLINE_S)
        return TargetTopic(
            name, len(there.partitions), {key: str(each.value) for key, each in found.items()}
        )


def create_topic(
    address: KafkaAddress, name: str, partitions: int, configs: Mapping[str, str]
) -> None:
    """Create a topic with the brokers' default replication factor."""
    with _translated(f"topic {name}"):
        admin = AdminClient(_quiet(address))
        new = NewTopic(name, partitions, replication_factor=-1, config=dict(configs))
        admin.create_topics([new])[name].result(REQUEST_DEADLINE_S)


def committed_offsets(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    """The group's committed offsets; asks again while its coordinator changes, which librdkafka
    leaves to its user.
    """
    ends_at = ambient.monotonic() + REQUEST_DEADLINE_S
    while True:
        try:
            found = consumer.committed(asked, timeout=REQUEST_DEADLINE_S)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            code = error.args[0].code() if isinstance(error.args[0], KafkaError) else None
            if code not in _COORDINATOR_CHANGES or ambient.monotonic() > ends_at:
                raise
            ambient.wait(POLL_S)
        else:
            return found


def committed_progress(
    address: KafkaAddress, topic: str, partitions: Iterable[int], owner: str
) -> dict[int, Progress]:
    """The progress of the partitions whose restore has begun. Only a preview: the result of
    `take_over`, after earlier writers are fenced, is the valid one.
    """
    settings: dict[str, str | int | float | bool] = {
        **_quiet(address),
        "group.id": owner,
        "enable.auto.commit": False,
        # A transaction left open by a killed run is ignored: it is not aborted before `take_over`.
        "isolation.level": "read_uncommitted",
    }
    consumer = Consumer(settings)
    try:
        with _translated(f"topic {topic}"):
            found = committed_offsets(
                consumer, [TopicPartition(topic, each) for each in partitions]
            )
    finally:
        consumer.close()
    return {
        each.partition: Progress(each.offset, each.metadata or "")
        for each in found
        if each.offset >= 0
    }


class PartitionWriter:
    """Writes one partition, alone: `take_over` fences every earlier writer of the same `owner`."""

    def __init__(
        self,
        address: KafkaAddress,
        topic: str,
        partition: int,
        owner: str,
        settings: Mapping[str, str],
    ) -> None:
        self._where = TopicPartition(topic, partition)
        self._name = f"{topic}-{partition}"
        self._consumer = Consumer(
            {
                **_quiet(address),
                "group.id": owner,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",  # pending offsets are waited for
            }
        )
        self._producer = Producer(
            {
                "compression.type": "zstd",
                "linger.ms": "50",
                **_quiet(address),
                **settings,
                "transactional.id": f"{owner}-{topic}-{partition}",
                "acks": "all",
                "transaction.timeout.ms": str(TRANSACTION_DEADLINE_S * 1_000),
                "message.max.bytes": "1000000000",  # the topic's own limit applies
                "queue.buffering.max.kbytes": str(QUEUE_BYTES_MAX // 1024),
                "queue.buffering.max.messages": "1000000",
                "on_delivery": self._delivered,
            }
        )
        self._error: KafkaError | None = None
        self._acknowledged = 0
        self._open = False

    def take_over(self) -> Progress | None:
        """Fence earlier writers, abort their open transaction, and return their progress.

        None if nothing was restored here yet and the partition is empty; Conflict if it is not.
        """
        with _translated(self._name):
            self._producer.init_transactions(REQUEST_DEADLINE_S)
            (found,) = committed_offsets(self._consumer, [self._where])
            if found.offset >= 0:
                return Progress(found.offset, found.metadata or "")
        first_offset, end_offset = self._bounds()
        if first_offset != end_offset:
            raise Conflict(
                f"{self._name} of the target holds records that no restore wrote: restore into an "
                "empty topic (--topic-as NAME)",
                reason="HOLDS_RECORDS",
            )
        return None

    def end_offset(self) -> int:
        """The end offset of the target (exclusive): later records get offsets at or above it."""
        return self._bounds()[1]

    def send(self, record: KafkaRecord) -> None:
        """Queue a record; the first one begins a transaction."""
        if record.timestamp_ms == 0:
            raise InvalidRequest(
                f"the record at offset {record.offset} has the timestamp 0, for which librdkafka "
                "sends the present time: restore the partition with --into-log-dirs"
            )
        with _translated(self._name):
            self._begin()
            ends_after = self._acknowledged
            silent_s = 0.0
            while not self._queue(record):
                self._producer.poll(POLL_S)
                self._raise_failure()
                moved = self._acknowledged != ends_after
                ends_after = self._acknowledged
                silent_s = 0.0 if moved else silent_s + POLL_S
                if silent_s > SILENCE_DEADLINE_S:
                    raise RetryLater(
                        f"{self._name}: no record was acknowledged for {SILENCE_DEADLINE_S} s: "
                        "check the target's brokers, then run it again"
                    )
            self._producer.poll(0)
            self._raise_failure()

    def commit(self, progress: Progress) -> None:
        """Commit the sent records together with the progress in the source."""
        with _translated(self._name):
            self._begin()
            self._send_progress(progress)
            self._producer.commit_transaction(SILENCE_DEADLINE_S)
            self._raise_failure()
            self._open = False

    def close(self) -> None:
        """Abort the open transaction. Idempotent."""
        if self._open:
            self._open = False
            try:
                self._producer.abort_transaction(REQUEST_DEADLINE_S)
            except KafkaException:
                self._producer.purge()  # the next writer's take_over aborts it
        self._consumer.close()

    def _bounds(self) -> tuple[int, int]:
        with _translated(self._name):
            return _watermarks(self._consumer, self._where)

    def _send_progress(self, progress: Progress) -> None:
        position = TopicPartition(
            self._where.topic, self._where.partition, progress.next_offset, progress.what
        )
        group = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([position], group, REQUEST_DEADLINE_S)

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True

    def _queue(self, record: KafkaRecord) -> bool:
        try:
            self._producer.produce(
                self._where.topic,
                value=record.value,
                key=record.key,
                partition=self._where.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        except BufferError:
            return False
        return True

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged += 1
        elif self._error is None:
            self._error = error

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise KafkaException(self._error)


def read_partition(
    address: KafkaAddress, topic: str, partition: int, first_offset: int = 0
) -> Iterator[KafkaRecord]:
    """The committed records from `first_offset`, or the first existing one, to the present end."""
    consumer = Consumer(
        {
            **_quiet(address),
            "group.id": "strandline-restore-compare",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "check.crcs": True,
            "queued.max.messages.kbytes": str(FETCHED_BYTES_MAX // 1024),
            "fetch.wait.max.ms": END_WAIT_MS,
        }
    )
    try:
        with _translated(f"{topic}-{partition}"):
            where = TopicPartition(topic, partition)
            begin = max(first_offset, _watermarks(consumer, where)[0])
            consumer.assign([TopicPartition(topic, partition, begin)])
            yield from _until_end(consumer, f"{topic}-{partition}")
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, where: TopicPartition) -> tuple[int, int]:
    bounds = consumer.get_watermark_offsets(where, timeout=REQUEST_DEADLINE_S)
    if bounds is None:
        raise RetryLater(
            f"{where.topic}-{where.partition}: no answer in {REQUEST_DEADLINE_S} s: check the "
            "cluster's brokers, then run it again"
        )
    return bounds


def _until_end(consumer: Consumer, name: str) -> Iterator[KafkaRecord]:
    silent_s = 0.0
    while silent_s < SILENCE_DEADLINE_S:
        # Waits until it has this many records or the timeout is over, even at the end.
        messages = consumer.consume(RECORDS_AT_ONCE, timeout=POLL_S)
        silent_s = 0.0 if messages else silent_s + POLL_S
        for message in messages:
            error = message.error()
            if error is None:
                yield _record(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            elif not error.retriable():
                raise KafkaException(error)
    raise RetryLater(
        f"{name}: no record arrived for {SILENCE_DEADLINE_S} s: check the cluster's brokers, then "
        "run it again"
    )


def _record(message: Message) -> KafkaRecord:
    offset = message.offset()
    if offset is None:
        raise InternalError("librdkafka gave a record without an offset")
    headers = message.headers() or []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    return KafkaRecord(
        offset,
        message.timestamp()[1],
        _bytes(message.key()),
        _bytes(message.value()),
        tuple((name, _bytes(value)) for name, value in pairs),
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _quiet(address: KafkaAddress) -> dict[str, str | int | float | bool]:
    """Client properties without log output, since librdkafka would write to standard error."""
    return {"log_level": 0, **address.properties}


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turns librdkafka's errors into ours."""
    try:
        yield
    except KafkaException as error:
        first = error.args[0]
        if not isinstance(first, KafkaError):
            raise InternalError(f"{what}: {error}") from error
        raise _ours(first, what) from error


def _ours(error: KafkaError, what: str) -> StrandlineError:
    code, text = error.code(), f"{what}: {error.str()}"
    if code in _FENCED:
        return Fenced(
            f"{what}: a later restore into this partition has begun; only the last one continues"
        )
    if code in _REFUSED:
        return Refused(f"{text}: see docs/PIPELINE.md for the rights that a restore needs")
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return NotFound(text)
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return InvalidRequest(f"{text}: raise max.message.bytes of the target topic")
    if code == KafkaError.INVALID_TIMESTAMP:
        return InvalidRequest(
            f"{text}: raise message.timestamp.after.max.ms (for records of the future; an hour by "
            "default) and message.timestamp.before.max.ms of the target topic, before Kafka 3.6 "
            "message.timestamp.difference.max.ms"
        )
    if code in (
        KafkaError.INVALID_CONFIG,
        KafkaError.POLICY_VIOLATION,
        KafkaError._INVALID_ARG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_REPLICATION_FACTOR,
    ):
        return InvalidRequest(text)
    if code in _FOR_NOW or error.retriable() or error.txn_requires_abort():
        return RetryLater(text)
    return InternalError(f"{text} ({error.name()})")
