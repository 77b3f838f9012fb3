"""Reads the broker's answers about single partitions and topics. Pure."""

from __future__ import annotations

from kafka_client.broker_requests import BrokerError, FoundOffset, TopicPartition
from kafka_formats.kafka_uuid import Uuid
from rlm.leadership.leadership import NoAnswer, NotLeading, TopicConfig
from rlm.leadership.unseen_disk import EpochAt

Answered = FoundOffset | BrokerError | None

FENCED = "fenced_leader_epoch"
NOT_FENCED = ("unknown_leader_epoch", "not_leader_or_follower")
"""A replica's answers at an earlier epoch than the named one, and at the same one without leading
(Kafka's Partition, checkCurrentLeaderEpoch).
"""


def offset_of(partition: TopicPartition, answer: Answered) -> FoundOffset | NotLeading | NoAnswer:
    """The offset that the broker found in a log, and its leader epoch."""
    found = _found(partition, answer)
    if isinstance(found, FoundOffset) and (found.leader_epoch < 0 or found.offset < 0):
        return NoAnswer(f"the broker knows no leader epoch of {_name(partition)}")
    return found


def copied_of(partition: TopicPartition, answer: Answered) -> int | NotLeading | NoAnswer:
    """The highest offset that the broker counts as copied, inclusive; -1: none, without epoch."""
    found = _found(partition, answer)
    return max(found.offset, -1) if isinstance(found, FoundOffset) else found


def epoch_at(partition: TopicPartition, answer: Answered) -> EpochAt | NotLeading | NoAnswer:
    """The answer to ListOffsets or OffsetsForLeaderEpoch, as a leader epoch and an offset."""
    found = offset_of(partition, answer)
    return EpochAt(found.leader_epoch, found.offset) if isinstance(found, FoundOffset) else found


def is_later(partition: TopicPartition, answer: Answered) -> bool | NoAnswer:
    """True if the replica's leader epoch is later than the one that was named as the present."""
    if isinstance(answer, BrokerError) and answer.name in NOT_FENCED:
        return False
    if isinstance(answer, BrokerError) and answer.name == FENCED:
        return True
    found = _found(partition, answer)
    return found if isinstance(found, NoAnswer) else False


def topic_config_of(
    topic: str, answer: dict[str, str] | BrokerError | None
) -> TopicConfig | NoAnswer:
    """The configs of a topic."""
    if answer is None or isinstance(answer, BrokerError):
        word = "nothing" if answer is None else answer.name
        return NoAnswer(f"the broker answered {word} for the configs of {topic}")
    try:
        return TopicConfig(
            cleanup_policy=answer["cleanup.policy"],
            retention_ms=int(answer["retention.ms"]),
            retention_bytes=int(answer["retention.bytes"]),
            remote_storage_enable=answer.get("remote.storage.enable") == "true",
        )
    except (KeyError, ValueError) as error:
        return NoAnswer(f"the broker's configs of {topic} are not usable ({error!r})")


def topic_id_of(topic: str, answer: Uuid | BrokerError | None) -> Uuid | NoAnswer:
    """The id of a topic."""
    if isinstance(answer, Uuid):
        return answer
    word = "nothing" if answer is None else answer.name
    return NoAnswer(f"the broker answered {word} for the id of {topic}")


def _found(partition: TopicPartition, answer: Answered) -> FoundOffset | NotLeading | NoAnswer:
    if answer is None:
        return NoAnswer(f"the broker's answer leaves out {_name(partition)}")
    if isinstance(answer, BrokerError):
        if answer.not_leader:
            return NotLeading()
        return NoAnswer(f"the broker answered {answer.name} for {_name(partition)}")
    return answer


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"
