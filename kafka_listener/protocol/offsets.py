"""Combines the leader's and the tier's answers to ListOffsets and OffsetForLeaderEpoch. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.reading.read_port import EpochEnd, FoundOffset
from rlmm.wire.schema import Values

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
CONSUMER = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition of a ListOffsets request."""

    topic: str
    partition: int
    timestamp: int


def asked_in(body: Values) -> tuple[Asked, ...]:
    """The partitions of a request, in its order."""
    return tuple(
        Asked(topic["name"], each["partition_index"], each["timestamp"])
        for topic in body["topics"]
        for each in topic["partitions"]
    )


def tier_is_asked(timestamp: int) -> bool:
    """True if the tier may know better than the leader: for a timestamp, the log's start or largest
    timestamp, or the tier's end. The log's end, and the offsets that Kafka calls local, are the
    leader's.
    """
    return timestamp >= 0 or timestamp in (EARLIEST, MAX_TIMESTAMP, LATEST_TIERED)


def leader_is_asked(timestamp: int, tier: FoundOffset | None) -> bool:
    """True unless the tier's answer is valid for the whole log, of which the tier has the older
    part.
    """
    return tier is None or timestamp == MAX_TIMESTAMP


def disk_matters(timestamp: int, tier: FoundOffset | None) -> bool:
    """True if the leader is asked for an offset that depends on where its disk begins."""
    return leader_is_asked(timestamp, tier) and timestamp != LATEST_TIERED


def without(body: Values, answered: Iterable[Asked]) -> Values:
    """The request without those partitions, as from a consumer."""
    gone = set(answered)
    topics = []
    for topic in body["topics"]:
        kept = [
            each
            for each in topic["partitions"]
            if Asked(topic["name"], each["partition_index"], each["timestamp"]) not in gone
        ]
        if kept:
            topics.append({**topic, "partitions": kept})
    return {**body, "topics": topics, "replica_id": CONSUMER}


def merged(
    body: Values,
    leader: Mapping[TopicPartition, Values],
    tier: Mapping[Asked, FoundOffset | ErrorCode],
) -> Values:
    """The whole answer. A partition that neither side answered gets LEADER_NOT_AVAILABLE."""
    topics = []
    for topic in body["topics"]:
        partitions = []
        for each in topic["partitions"]:
            asked = Asked(topic["name"], each["partition_index"], each["timestamp"])
            said = leader.get((asked.topic, asked.partition))
            partitions.append(_one(asked, said, tier.get(asked)))
        topics.append({"name": topic["name"], "partitions": partitions})
    return {"topics": topics}


def _one(asked: Asked, leader: Values | None, tier: FoundOffset | ErrorCode | None) -> Values:
    if isinstance(tier, ErrorCode):
        return offset_error(asked.partition, tier)
    if tier is None or not leader_is_asked(asked.timestamp, tier):
        if tier is not None:
            return _offset(asked.partition, tier)
        return leader or offset_error(asked.partition, ErrorCode.LEADER_NOT_AVAILABLE)
    # For the largest timestamp take the larger of both; if they are equal the older offset, as in a
    # single log.
    if leader is None or leader["error_code"]:
        return leader or offset_error(asked.partition, ErrorCode.LEADER_NOT_AVAILABLE)
    return leader if leader["timestamp"] > tier.timestamp_ms else _offset(asked.partition, tier)


def _offset(partition: int, found: FoundOffset) -> Values:
    return {
        "partition_index": partition,
        "error_code": ErrorCode.NONE,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def offset_error(partition: int, error: ErrorCode) -> Values:
    """One partition's answer with an error."""
    return {"partition_index": partition, "error_code": error}


def offsets_in(answer: Values) -> dict[TopicPartition, Values]:
    """A leader's answers to ListOffsets."""
    return {
        (topic["name"], each["partition_index"]): each
        for topic in answer["topics"]
        for each in topic["partitions"]
    }


def list_request(
    partitions: Iterable[TopicPartition], timestamp: int, isolation_level: int = READ_UNCOMMITTED
) -> Values:
    """A ListOffsets request of the node itself to a leader."""
    by_topic: dict[str, list[Values]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(
            {"partition_index": partition, "timestamp": timestamp}
        )
    topics = [{"name": name, "partitions": those} for name, those in by_topic.items()]
    return {"replica_id": CONSUMER, "isolation_level": isolation_level, "topics": topics}


def epoch_request(name: TopicPartition, epoch: int, leader_epoch: int) -> Values:
    """An OffsetForLeaderEpoch request of the node itself, which only the leader of `leader_epoch`
    answers.
    """
    asked = {
        "partition": name[1],
        "current_leader_epoch": leader_epoch,
        "leader_epoch": epoch,
    }
    return {
        "replica_id": CONSUMER,
        "topics": [{"topic": name[0], "partitions": [asked]}],
    }


def epoch_end_in(answer: Values, name: TopicPartition) -> EpochEnd | None:
    """The answer for a partition; None: an error, or the leader does not know the epoch."""
    for topic in answer["topics"]:
        for each in topic["partitions"]:
            if (topic["topic"], each["partition"]) == name and not each["error_code"]:
                end = EpochEnd(each["leader_epoch"], each["end_offset"])
                return end if end.leader_epoch >= 0 else None
    return None


def epochs_in(body: Values) -> dict[TopicPartition, int]:
    """The leader epochs that an OffsetForLeaderEpoch asks about."""
    return {
        (topic["topic"], each["partition"]): each["leader_epoch"]
        for topic in body["topics"]
        for each in topic["partitions"]
    }


def without_topics(body: Values, names: Collection[str]) -> Values:
    """An OffsetForLeaderEpoch request without those topics, as from a consumer."""
    topics = [topic for topic in body["topics"] if topic["topic"] not in names]
    return {**body, "topics": topics, "replica_id": CONSUMER}


def refuse_epochs(answer: Values, body: Values, refused: Mapping[str, ErrorCode]) -> None:
    """Add the errors of those topics to the answer."""
    answer["topics"] += [
        {
            "topic": topic["topic"],
            "partitions": [
                {"partition": each["partition"], "error_code": refused[topic["topic"]]}
                for each in topic["partitions"]
            ],
        }
        for topic in body["topics"]
        if topic["topic"] in refused
    ]


def with_epoch_ends(answer: Values, tier: Mapping[TopicPartition, EpochEnd]) -> None:
    """Replace the leader's ends by the tier's, for epochs older than those in the leader's epoch
    cache.
    """
    for topic in answer["topics"]:
        for each in topic["partitions"]:
            end = tier.get((topic["topic"], each["partition"]))
            if end is not None and each["error_code"] == ErrorCode.NONE:
                each |= {"leader_epoch": end.leader_epoch, "end_offset": end.end_offset}


def no_epoch_ends(body: Values, tier: Mapping[TopicPartition, EpochEnd]) -> Values:
    """The answer while the leader is unreachable: the tier's ends, and a retriable error for the
    rest.
    """
    topics = []
    for topic in body["topics"]:
        partitions = []
        for each in topic["partitions"]:
            end = tier.get((topic["topic"], each["partition"]))
            error = ErrorCode.NONE if end else ErrorCode.LEADER_NOT_AVAILABLE
            told = {"partition": each["partition"], "error_code": error}
            if end is not None:
                told |= {"leader_epoch": end.leader_epoch, "end_offset": end.end_offset}
            partitions.append(told)
        topics.append({"topic": topic["topic"], "partitions": partitions})
    return {"topics": topics}
