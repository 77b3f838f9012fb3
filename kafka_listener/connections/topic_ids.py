"""Remembers the names and ids of topics that brokers reported recently."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_listener.protocol.node_rewriting import TopicNameAndId

TOPICS_MAX = 10_000
"""The most topics whose name and id are remembered; those reported longest ago are dropped first.
"""
KNOWN_S = 30.0
"""The time after which an id is requested again: a topic may be recreated under its name."""
CHECKED_S = 1.0
"""The time for which an id that one client's broker reported is not checked for other clients."""
TOLD_MAX = 50_000
"""The most topics of brokers for which it is remembered which id the broker itself reported."""
NEVER = float("-inf")


class TopicIds:
    """The names and ids of a node's topics, learnt from every relayed answer to Metadata."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._by_name: dict[str, tuple[bytes, float]] = {}
        self._names: dict[bytes, str] = {}
        self._asked_at: dict[str, float] = {}
        self._told: dict[tuple[str, str], bytes] = {}

    def learn(self, topics: Iterable[TopicNameAndId], *, broker: str | None = None) -> None:
        """Remember topics that a broker has just reported; `broker` is its address, if known."""
        now = self._monotonic()
        for topic in topics:
            if broker is not None:
                self._told.pop((broker, topic.name), None)
                self._told[broker, topic.name] = topic.topic_id
            before = self._by_name.pop(topic.name, None)
            if before is not None and before[0] != topic.topic_id:
                self._names.pop(before[0], None)
            self._by_name[topic.name] = topic.topic_id, now
            self._names[topic.topic_id] = topic.name
        while len(self._by_name) > TOPICS_MAX:
            oldest = next(iter(self._by_name))
            self._names.pop(self._by_name.pop(oldest)[0], None)
        while len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]

    def is_told(self, broker: str, name: str, topic_id: bytes) -> bool:
        """True if that broker itself has reported this id for the name. Until then it may lag, and
        answer about an earlier topic of this name.
        """
        return self._told.get((broker, name)) == topic_id

    def claim_checks(self, names: Iterable[str]) -> list[str]:
        """The names whose ids the caller has to request: they were not reported within `CHECKED_S`.
        While one caller requests an id, the rest accepts one of up to twice that age.
        """
        now = self._monotonic()
        due = [name for name in names if not self._is_checked(name, now)]
        for name in due:
            self._asked_at.pop(name, None)
            self._asked_at[name] = now
        while len(self._asked_at) > TOPICS_MAX:
            del self._asked_at[next(iter(self._asked_at))]
        return due

    def give_up_checks(self, names: Iterable[str]) -> None:
        """Let the next caller request these names: no answer came."""
        for name in names:
            self._asked_at.pop(name, None)

    def _is_checked(self, name: str, now: float) -> bool:
        age_s = now - self._by_name.get(name, (b"", NEVER))[1]
        is_asked_for = now - self._asked_at.get(name, NEVER) <= CHECKED_S
        return age_s <= (2 * CHECKED_S if is_asked_for else CHECKED_S)

    def id_of(self, name: str) -> bytes | None:
        """The topic's id; None if a broker has to be asked for it."""
        told_at = self._by_name.get(name, (b"", 0.0))[1]
        return self.last_id_of(name) if self._monotonic() - told_at < KNOWN_S else None

    def last_id_of(self, name: str) -> bytes | None:
        """The id that was last reported, however long ago, for times when no broker can be
        reached.
        """
        return self._by_name.get(name, (None, 0.0))[0]

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name; None if a broker has to be asked for it. An id's name never changes."""
        return self._names.get(topic_id)
