"""Finds a topic's retention: its policy, or with `retention.source` its configs in Kafka
(`retention.ms`, `retention.bytes`).

A policy that sets any retention wins over all configs, for the topic id that it was set for. A
config is never guessed: while the broker does not answer, the last answer is valid up to AGE_MAX_S;
without one, nothing expires. The broker is asked by name, and the configs of a new topic of that
name must not expire its predecessor's data: an answer is used only after SETTLE_S, and only for the
topic whose id the broker has for the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Protocol

from kafka_formats.kafka_uuid import Uuid
from rlm.leadership.leadership import CLEANUP_POLICIES, NoAnswer, TopicConfig
from rlmm.partition_state import UNLIMITED, TopicPolicy

SETTLE_S = 45.0
AGE_MAX_S = 3_600.0
ASK_AGAIN_S = 5.0
"""The greatest age of an answer that is used in a step of a pass."""
TOPICS_PER_REQUEST_MAX = 500
ASKED_TOPICS_MAX = 1_000
"""Limit of the answers kept for topics of which this node has no claim."""


class RetentionSource(StrEnum):
    """The source of a retention. Values are stable: the HTTP interface has them."""

    POLICY = "policy"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class RetentionInForce:
    """The retention in force, as `policy`; `held_back`: why nothing may expire by it now."""

    policy: TopicPolicy
    source: RetentionSource = RetentionSource.POLICY
    held_back: str | None = None


class ConfigPort(Protocol):
    """The node's own broker."""

    async def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig | NoAnswer]:
        """Effective configs."""

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, Uuid | NoAnswer]:
        """The broker's topic id of each topic; empty if the broker has no topic ids."""


@dataclass(slots=True)
class RetentionRules:
    """The rules for `retention.source = policy`: the policies alone; no configs are read."""

    policy_of: Callable[[str, Uuid], TopicPolicy]

    async def refresh(self, topics: Iterable[str]) -> None:
        """Read the configs of these topics, and forget those of all others."""

    async def learn(self, topic: str) -> None:
        """Read the configs of one more topic, if they are unknown."""

    async def confirm(self, topic: str) -> None:
        """Read the topic's configs again, since they may have changed during the pass."""

    def in_force(self, topic: str, topic_id: Uuid) -> RetentionInForce:
        """The retention according to the last answers."""
        return RetentionInForce(self.policy_of(topic, topic_id))


@dataclass(frozen=True, slots=True)
class KnownConfig:
    """An answer, with the monotonic times at which it was first and last given. `topic_id`: the
    topic that it is about; None if the broker has no topic ids.
    """

    config: TopicConfig
    first_s: float
    last_s: float
    topic_id: Uuid | None = None


@dataclass(slots=True)
class ByTopicConfig(RetentionRules):
    """The rules for `retention.source = topic`: the configs in Kafka, unless a policy sets one."""

    broker: ConfigPort
    monotonic: Callable[[], float]
    known: dict[str, KnownConfig] = field(default_factory=dict)
    trouble: dict[str, str] = field(default_factory=dict)
    asked_s: dict[str, float] = field(default_factory=dict)

    async def refresh(self, topics: Iterable[str]) -> None:
        """Read many topics with one request; without an answer the previous one remains valid."""
        wanted = sorted(set(topics))
        self.known = {name: self.known[name] for name in wanted if name in self.known}
        self.trouble, self.asked_s = {}, {}
        left = iter(wanted)
        while asked := tuple(islice(left, TOPICS_PER_REQUEST_MAX)):
            await self._ask(asked)

    async def learn(self, topic: str) -> None:
        """Ask for the topic's config, for a dry run on a node without a claim of the topic."""
        if topic not in self.known and len(self.known) < ASKED_TOPICS_MAX:
            await self._ask((topic,))

    async def confirm(self, topic: str) -> None:
        """Ask again, since a config may change during a pass."""
        if self.monotonic() - self.asked_s.get(topic, -ASK_AGAIN_S) >= ASK_AGAIN_S:
            await self._ask((topic,))

    def in_force(self, topic: str, topic_id: Uuid) -> RetentionInForce:
        return retention_in_force(
            topic,
            topic_id,
            self.policy_of(topic, topic_id),
            self.known.get(topic),
            self.trouble.get(topic),
            self.monotonic(),
        )

    async def _ask(self, topics: Sequence[str]) -> None:
        answers = await self.broker.topic_configs(topics)
        # Asked last: a topic that was made again in between has to settle, as its id is new.
        ids = await self.broker.topic_ids(topics)
        now = self.monotonic()
        self.asked_s |= dict.fromkeys(topics, now)
        for topic in topics:
            answer, topic_id = answers.get(topic), ids.get(topic)
            if answer is None:
                self.trouble[topic] = "the broker left it out"
            elif isinstance(answer, NoAnswer):
                self.trouble[topic] = answer.reason
            elif isinstance(topic_id, NoAnswer):
                self.trouble[topic] = topic_id.reason
            else:
                found, before = KnownConfig(answer, now, now, topic_id), self.known.get(topic)
                if before is not None and (before.config, before.topic_id) == (answer, topic_id):
                    found = replace(found, first_s=before.first_s)
                self.known[topic] = found


def retention_in_force(
    topic: str,
    topic_id: Uuid,
    policy: TopicPolicy,
    known: KnownConfig | None,
    trouble: str | None,
    now_s: float,
) -> RetentionInForce:
    """The retention in force. Nothing expires while anything about it is uncertain."""
    if (policy.retention_ms, policy.retention_bytes) != (UNLIMITED, UNLIMITED):
        return RetentionInForce(policy)
    source = RetentionSource.TOPIC
    if known is None:
        why = trouble or "the broker was not asked yet"
        return RetentionInForce(policy, source, f"the configs of {topic} are not known: {why}")
    if known.topic_id not in (None, topic_id):
        return RetentionInForce(
            policy, source,
            f"the broker has {topic} as another topic, with the id {known.topic_id}: its configs "
            f"say nothing of this one, {topic_id}",
        )  # fmt: skip
    config = known.config
    if config.cleanup_policy not in CLEANUP_POLICIES:
        return RetentionInForce(
            policy, source, f"{topic} has cleanup.policy={config.cleanup_policy} by now"
        )
    taken = policy
    if not config.keeps_everything:
        taken = replace(
            policy,
            retention_ms=max(UNLIMITED, config.retention_ms),
            retention_bytes=max(UNLIMITED, config.retention_bytes),
        )
    held_back = None
    if now_s - known.last_s > AGE_MAX_S:
        held_back = (
            f"the configs of {topic} are {now_s - known.last_s:.0f} s old and may have changed: "
            f"{trouble or 'the broker was not asked since'}"
        )
    elif known.last_s - known.first_s < SETTLE_S:
        held_back = f"the configs of {topic} apply once they are unchanged for {SETTLE_S:g} s"
    return RetentionInForce(taken, source, held_back)
