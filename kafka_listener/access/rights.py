"""Rights in topics: as the brokers report them for a client, and as the settings allow
them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.schema import Values

READ = 1 << 3
DESCRIBE = 1 << 8
"""Bits of `topicAuthorizedOperations` (KIP-430): the codes of Kafka's AclOperation."""
RIGHTS_UNKNOWN = "the client's rights in topic %s are not known: its broker does not tell them"
NOT_REPORTED = -(1 << 31)
"""`topicAuthorizedOperations` of a broker that was not asked for it or does not support it."""


@dataclass(frozen=True, slots=True)
class Rights:
    """A client's rights in one topic."""

    describe: bool
    read: bool


NO_RIGHTS = Rights(describe=False, read=False)
ALL = Rights(describe=True, read=True)

RightsOrError = Rights | int
"""The rights, or the error that the broker reported for the topic: the client gets that error."""


def rights_request(names: list[str]) -> Values:
    """A Metadata request for the client's rights in these topics."""
    return {
        "topics": [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }


def rights_in(body: Values) -> dict[str, RightsOrError]:
    """The rights in the answer to a `rights_request`."""
    found: dict[str, RightsOrError] = {}
    for topic in body["topics"]:
        error, bits = topic["error_code"], topic.get("topic_authorized_operations", NOT_REPORTED)
        if not topic["name"]:
            continue
        if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            found[topic["name"]] = NO_RIGHTS
        elif error != ErrorCode.NONE:
            found[topic["name"]] = int(error)
        elif bits != NOT_REPORTED:
            found[topic["name"]] = Rights(describe=bool(bits & DESCRIBE), read=bool(bits & READ))
    return found


def fetch_error(rights: RightsOrError | None) -> int:
    """The error of a Fetch; NONE: the topic may be read. `rights` None: no broker could be asked
    yet.
    """
    if rights is None:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    if isinstance(rights, int):
        return rights
    return ErrorCode.NONE if rights.read else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def offset_error(rights: RightsOrError | None) -> ErrorCode:
    """The error of a request for offsets; NONE: the client may have them."""
    if not isinstance(rights, Rights):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if rights.describe else ErrorCode.TOPIC_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class ReadableTopics:
    """The topics that clients read with the node's own rights, by glob patterns."""

    patterns: tuple[str, ...] = ("*",)

    def allows(self, topic: str) -> bool:
        return any(fnmatchcase(topic, pattern) for pattern in self.patterns)


EVERYTHING = ReadableTopics()


def leave_out(body: Values, allows: Callable[[str], bool], asked: Values) -> None:
    """Remove from a Metadata answer the topics that are not allowed; those that the client named
    are answered with an error.
    """
    names = {each.get("name") for each in asked["topics"] or ()}
    ids = {each.get("topic_id") for each in asked["topics"] or ()}
    kept = []
    for topic in body["topics"]:
        if topic["name"] is None or allows(topic["name"]):
            kept.append(topic)
        elif topic["name"] in names:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            kept.append({"error_code": error, "name": topic["name"], "partitions": []})
        elif topic.get("topic_id") in ids - {None}:
            error = ErrorCode.UNKNOWN_TOPIC_ID
            kept.append(topic | {"error_code": error, "name": None, "partitions": []})
    body["topics"] = kept
