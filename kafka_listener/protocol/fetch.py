"""Splits a client's Fetch into partitions, and puts its answer together. Pure.

Fetch sessions are not kept: the session id 0 in an answer says so, and clients then send full
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.reading.read_port import AbortedFrom
from rlmm.wire.schema import Elsewhere, Values

CONSUMER = -1
NO_SESSION = 0
SESSION_NEVER = -1
"""The session epoch of a request without a session."""
READ_COMMITTED = 1
UNKNOWN = -1

Where = tuple[int, int]
"""The place of a partition in a request: the index of its topic, and its own index in the topic."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One partition of a Fetch. `topic` is a name, or the 16 bytes of an id. `leader_epoch` is that
    of the newest leader known to the client; -1: unknown.
    """

    where: Where
    topic: str | bytes
    partition: int
    offset: int
    bytes_max: int
    leader_epoch: int = UNKNOWN


def wanted_in(body: Values) -> tuple[Wanted, ...]:
    """The partitions of a request, in its order."""
    return tuple(
        Wanted(
            (topic_number, number),
            _topic(topic),
            each["partition"],
            each["fetch_offset"],
            each["partition_max_bytes"],
            each.get("current_leader_epoch", UNKNOWN),
        )
        for topic_number, topic in enumerate(body["topics"])
        for number, each in enumerate(topic["partitions"])
    )


def names_a_session(body: Values) -> bool:
    """True if the client continues a session; this node never opens one."""
    return bool(body.get("session_id", NO_SESSION))


def for_broker(body: Values, wanted: Iterable[Wanted], *, bytes_max: int, at_once: bool) -> Values:
    """The request for these partitions from their offsets on, to a broker that shall open no
    session and name no preferred replica. `at_once`: the broker answers without waiting for
    records.
    """
    offsets = {each.where: each.offset for each in wanted}
    topics = []
    for topic_number, topic in enumerate(body["topics"]):
        kept = [
            {**each, "fetch_offset": offsets[topic_number, number]}
            for number, each in enumerate(topic["partitions"])
            if (topic_number, number) in offsets
        ]
        if kept:
            topics.append({**topic, "partitions": kept})
    asked = {**body, "topics": topics, "max_bytes": min(body["max_bytes"], bytes_max)}
    asked |= {"session_id": NO_SESSION, "session_epoch": SESSION_NEVER, "rack_id": ""}
    asked["forgotten_topics_data"] = []
    # Only brokers may fetch as followers.
    asked.pop("replica_state", None)
    asked["replica_id"] = CONSUMER
    if at_once:
        asked |= {"max_wait": 0, "min_bytes": 0}
    return asked


def answers_in(answer: Values, wanted: Sequence[Wanted]) -> dict[Where, Values]:
    """A broker's answers by their place in the client's request, without node ids. Partitions that
    its answer lacks are missing here, too.
    """
    by_name = {(each.topic, each.partition): each.where for each in wanted}
    found = {}
    for topic in answer["responses"]:
        for each in topic["partitions"]:
            where = by_name.get((_topic(topic), each["partition_index"]))
            if where is not None:
                for named in ("current_leader", "snapshot_id"):
                    each.pop(named, None)
                found[where] = {**each, "preferred_read_replica": UNKNOWN}
    return found


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of a log in a Fetch answer; -1: unknown."""

    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN


def records_answer(
    wanted: Wanted,
    ends: Ends,
    records: bytes | Elsewhere = b"",
    aborted: Sequence[AbortedFrom] | None = None,
) -> Values:
    """One partition's answer without an error."""
    return {
        "partition_index": wanted.partition,
        "error_code": ErrorCode.NONE,
        "high_watermark": ends.high_watermark,
        "last_stable_offset": ends.last_stable_offset,
        "log_start_offset": ends.log_start_offset,
        "aborted_transactions": None
        if aborted is None
        else [
            {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in aborted
        ],
        "records": records,
    }


def nearer_answer(wanted: Wanted, node_id: int) -> Values:
    """One partition's answer: no records, and the node to fetch them from (KIP-392)."""
    return {**records_answer(wanted, Ends()), "preferred_read_replica": node_id}


def error_answer(wanted: Wanted, error: int, ends: Ends | None = None) -> Values:
    """One partition's answer with an error. As in Kafka's brokers, the error for a deleted topic
    depends on whether the client named it by name or by id.
    """
    if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and isinstance(wanted.topic, bytes):
        error = ErrorCode.UNKNOWN_TOPIC_ID
    return {**records_answer(wanted, ends or Ends()), "error_code": error}


def answer_of(body: Values, answers: Mapping[Where, Values], *, throttle_ms: int = 0) -> Values:
    """The whole answer, in the order of the request."""
    responses = []
    for topic_number, topic in enumerate(body["topics"]):
        named = {key: topic[key] for key in ("topic", "topic_id") if key in topic}
        partitions = [
            answers[where]
            for number in range(len(topic["partitions"]))
            if (where := (topic_number, number)) in answers
        ]
        if partitions:
            responses.append({**named, "partitions": partitions})
    return {"throttle_time": throttle_ms, "responses": responses}


def refusal(error: ErrorCode) -> Values:
    """An error as the answer to the whole request."""
    return {"error_code": error, "session_id": NO_SESSION, "responses": []}


def _topic(named: Values) -> str | bytes:
    topic: str | bytes = named["topic"] if "topic" in named else named["topic_id"]
    return topic
