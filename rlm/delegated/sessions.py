"""Decides about the announcements of brokers' plug-ins: which session is valid, and its partitions.
Pure.

A plug-in draws a session id when its broker starts, and increments `seq` with each change of its
sets. The node keeps one session: that of its own broker. A later session of the same broker id
replaces it; while the later one is alive, the earlier one is refused, since two running brokers
must not share a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_formats.errors import InvalidRequest, Refused, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.wire import WHOLE_SET, Announcement

PARTITIONS_MAX = 100_000
REPLACED_MAX = 16
"""The most sessions remembered as replaced; older ones count as unknown."""
SESSION_LIVES_S = 15.0
"""The silence that ends a session: the plug-in announces at least every 5 s."""

Tips = frozenset[TopicIdPartition]


class AnnounceAgain(RetryLater):
    """The node does not know the session, or has not received its newest announcement."""

    reason = "ANNOUNCE"


class SessionRefused(Refused):
    """A plug-in that this node must not serve. `reason` is a stable upper-case word."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Expected:
    """The broker that this node serves. `kafka_cluster_id` None: any cluster's."""

    kafka_cluster_id: str | None
    node_id: int


@dataclass(frozen=True, slots=True)
class Session:
    """A broker's plug-in and its partitions, as of announcement `seq`. `leaders`: the partitions
    that it leads, each with the announcement that reported that leadership. `heard_s`: time of its
    last request (monotonic).
    """

    id: Uuid
    seq: int
    plugin_version: str
    kafka_version: str
    bootstrap: str
    leaders: Mapping[TopicIdPartition, int]
    followers: Tips
    heard_s: float

    def has(self, tip: TopicIdPartition) -> bool:
        """True if the broker has a replica of this tiered partition."""
        return tip in self.leaders or tip in self.followers

    def led_before(self, tip: TopicIdPartition, seq: int) -> bool:
        """True if the present leadership of a partition began after announcement `seq`."""
        return seq < self.leaders.get(tip, seq)

    def lives(self, now_s: float) -> bool:
        """True while the broker may be running."""
        return now_s < self.heard_s + SESSION_LIVES_S


@dataclass(frozen=True, slots=True)
class Made:
    """The state of a broker when it made a call: the last announcement of its plug-in, and the
    metadata offset of the last answer that it had received. `applied` None: an older plug-in, which
    does not send it.
    """

    seq: int
    applied: int | None = None

    def before(self, token: int) -> bool:
        """True if the broker may have made the call before this claim: it had received no answer
        with the claim's metadata offset yet. False if that is not known.
        """
        return self.applied is not None and self.applied < token


@dataclass(frozen=True, slots=True)
class Sessions:
    """The valid session, and those that were replaced, newest last."""

    current: Session | None = None
    replaced: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class Heard:
    """An accepted announcement. `changed`: partitions whose leadership changed, or may have changed
    without an announcement. `gone`: the session that this one replaced.
    """

    sessions: Sessions
    changed: Tips = field(default_factory=frozenset)
    gone: Uuid | None = None


def hear(sessions: Sessions, said: Announcement, expected: Expected, now_s: float) -> Heard:
    """Take an announcement. SessionRefused: not this node's broker. AnnounceAgain: the whole set is
    needed. InvalidRequest: no broker has such partitions.
    """
    check_broker(said.kafka_cluster_id, said.broker_id, expected)
    _check_partitions(said)
    current = sessions.current
    known = current is not None and current.id == said.session
    if current is not None and said.session in sessions.replaced and current.lives(now_s):
        raise SessionRefused(
            f"two running brokers have the id {said.broker_id} and use node {expected.node_id}: "
            "stop one of them, or point it to a node of its own",
            reason="TWO_BROKERS",
        )
    if said.base_seq != WHOLE_SET:
        if current is None or not known:
            raise AnnounceAgain("this session is not known: announce all partitions")
        return _with_changes(sessions, current, said, now_s)
    if current is not None and known and said.seq < current.seq:
        raise AnnounceAgain(f"announcement {current.seq} was received before {said.seq}")
    replaced, gone = sessions.replaced, None
    if current is not None and not known:
        gone = current.id
        replaced = (*(each for each in replaced if each not in (gone, said.session)), gone)
    session = _session(said, {}, frozenset(said.followers), now_s)
    changed = session.followers.union(said.leaders)
    return Heard(Sessions(session, replaced[-REPLACED_MAX:]), changed, gone)


def _with_changes(sessions: Sessions, current: Session, said: Announcement, now_s: float) -> Heard:
    if said.seq == current.seq:  # a sign of life, or its answer was lost
        return Heard(replace(sessions, current=replace(current, heard_s=now_s)))
    if said.base_seq != current.seq or said.seq < current.seq:
        raise AnnounceAgain(
            f"announcement {said.seq} changes {said.base_seq}, but the last one is {current.seq}: "
            "announce all partitions"
        )
    named = frozenset((*said.leaders, *said.followers, *said.stopped))
    kept = {tip: seq for tip, seq in current.leaders.items() if tip not in named}
    followers = current.followers - named | frozenset(said.followers)
    _check_count(len(kept) + len(said.leaders) + len(followers))
    session = _session(said, kept, followers, now_s)
    return Heard(replace(sessions, current=session), named - frozenset(said.stopped))


def call(sessions: Sessions, session: Uuid, seq: int, now_s: float) -> Sessions:
    """Record a call of a session. AnnounceAgain: the session is unknown, or its newest announcement
    was not received.
    """
    current = sessions.current
    if current is None or current.id != session:
        raise AnnounceAgain("this node does not know this session: announce all partitions")
    if seq > current.seq:
        raise AnnounceAgain(f"announcement {seq} was not received; the last one is {current.seq}")
    return replace(sessions, current=replace(current, heard_s=now_s))


def _session(
    said: Announcement, kept: dict[TopicIdPartition, int], followers: Tips, now_s: float
) -> Session:
    leaders = kept | dict.fromkeys(said.leaders, said.seq)
    return Session(
        said.session, said.seq, said.plugin_version, said.kafka_version, said.bootstrap,
        leaders, followers, now_s,
    )  # fmt: skip


def check_broker(kafka_cluster_id: str, broker_id: int, expected: Expected) -> None:
    """Raise SessionRefused if the broker is not this node's."""
    if expected.kafka_cluster_id not in (None, kafka_cluster_id):
        raise SessionRefused(
            f"the broker is of Kafka cluster {kafka_cluster_id!r}, and this node serves "
            f"{expected.kafka_cluster_id!r}: point the plug-in to the node beside the broker",
            reason="CLUSTER",
        )
    if broker_id != expected.node_id:
        raise SessionRefused(
            f"the broker has id {broker_id}, and this node {expected.node_id}: each broker "
            "uses the node that has its own id",
            reason="BROKER_ID",
        )


def _check_partitions(said: Announcement) -> None:
    named = (*said.leaders, *said.followers, *said.stopped)
    if not WHOLE_SET <= said.base_seq <= said.seq or (said.base_seq == said.seq and named):
        raise InvalidRequest(f"{said.seq} does not follow {said.base_seq}", field="seq")
    _check_count(len(said.leaders) + len(said.followers))
    if len(set(named)) != len(named):
        raise InvalidRequest("a partition is named twice", field="leaders")
    _check_names(named)


def _check_names(tips: Iterable[TopicIdPartition]) -> None:
    for topic in {tip.topic for tip in tips}:
        check_topic_name(topic)
    if any(tip.partition < 0 or not any(tip.topic_id) for tip in tips):
        raise InvalidRequest("a partition has a topic id, and a number from 0", field="leaders")


def _check_count(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise InvalidRequest(
            f"{count} partitions on one broker, {PARTITIONS_MAX} at most", field="leaders"
        )
