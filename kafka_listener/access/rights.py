"""Rights in topics: as the brokers tell them of a client, and as the settings give them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.schema import Values

READ = 1 << 3
DESCRIBE = 1 << 8
"""Bits of `topicAuthorizedOperations` (KIP-430): the codes of Kafka's AclOperation."""
NOT_TOLD = -(1 << 31)
"""The value in the place of these bits from a broker that was not asked for them, or does not know
them.
"""


@dataclass(frozen=True, slots=True)
class Rights:
    """A client's rights in one topic."""

    describe: bool
    read: bool


NOBODYS = Rights(describe=False, read=False)
ALL = Rights(describe=True, read=True)

Told = Rights | int
"""The rights, or the broker's error about the topic, which is the client's."""


def question(names: list[str]) -> Values:
    """A Metadata that asks for the rights in these topics."""
    return {
        "topics": [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }


def rights_in(body: Values) -> dict[str, Told]:
    """The rights in an answer to it."""
    found: dict[str, Told] = {}
    for topic in body["topics"]:
        error, bits = topic["error_code"], topic.get("topic_authorized_operations", NOT_TOLD)
        if not topic["name"]:
            continue
        if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            found[topic["name"]] = NOBODYS
        elif error != ErrorCode.NONE:
            found[topic["name"]] = int(error)
        elif bits != NOT_TOLD:
            found[topic["name"]] = Rights(describe=bool(bits & DESCRIBE), read=bool(bits & READ))
    return found


def fetch_error(told: Told | None) -> int:
    """The error of a Fetch; NONE: the topic may be read. None: nobody could be asked yet."""
    if told is None:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    if isinstance(told, int):
        return told
    return ErrorCode.NONE if told.read else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def offset_error(told: Told | None) -> ErrorCode:
    """The error of a question for offsets; NONE: the client may ask."""
    if not isinstance(told, Rights):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if told.describe else ErrorCode.TOPIC_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class GivenTopics:
    """The topics that clients read with the node's own rights, by glob patterns."""

    patterns: tuple[str, ...] = ("*",)

    def gives(self, topic: str) -> bool:
        return any(fnmatchcase(topic, pattern) for pattern in self.patterns)


EVERYTHING = GivenTopics()


def leave_out(body: Values, gives: Callable[[str], bool], asked: Values) -> None:
    """Metadata without the topics that are not given: those that the client named are refused."""
    names = {each.get("name") for each in asked["topics"] or ()}
    ids = {each.get("topic_id") for each in asked["topics"] or ()}
    kept = []
    for topic in body["topics"]:
        if topic["name"] is None or gives(topic["name"]):
            kept.append(topic)
        elif topic["name"] in names:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            kept.append({"error_code": error, "name": topic["name"], "partitions": []})
        elif topic.get("topic_id") in ids - {None}:
            error = ErrorCode.UNKNOWN_TOPIC_ID
            kept.append(topic | {"error_code": error, "name": None, "partitions": []})
    body["topics"] = kept
