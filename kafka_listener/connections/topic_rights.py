"""The rights of clients in topics. The client's own twin is asked for them; they are kept for a
while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafka_formats.errors import CorruptData, RetryLater
from kafka_listener.access.rights import (
    ALL,
    EVERYTHING,
    NOBODYS,
    GivenTopics,
    Rights,
    Told,
    offset_error,
    question,
    rights_in,
)
from kafka_listener.connections.brokers import OWN_METADATA_VERSION
from kafka_listener.connections.client import Client
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.error_codes import ErrorCode

TOPICS_MAX = 10_000
"""The most topics whose rights are kept for one connection."""
REFUSAL_KEPT_S = 1.0
"""The time for which a refusal is kept: no longer than it takes to answer about all of a topic's
partitions, since the right may be given at any time.
"""


@dataclass(frozen=True, slots=True)
class TopicRights:
    """The rights of a node's clients; what brokers say is kept with the client, for `kept_s`.

    Clients that log in have their own rights. The others have those of the node itself, in the
    topics that are `given`.
    """

    monotonic: Callable[[], float]
    kept_s: float = 30.0
    given: GivenTopics = EVERYTHING

    def gives(self, client: Client, topic: str | None) -> bool:
        """True if the settings give this topic to the client. `topic` None: an unknown name."""
        if client.login is not None or self.given == EVERYTHING:
            return True
        return topic is not None and self.given.gives(topic)

    async def of(self, client: Client, topics: Iterable[str]) -> dict[str, Told]:
        """The client's rights in those topics that are known. While the broker can't be reached
        they are as it told them last; for a client that reads as the node does, the settings decide
        alone then.
        """
        now = self.monotonic()
        wanted = set(topics)
        found: dict[str, Told] = {
            topic: NOBODYS for topic in wanted if not self.gives(client, topic)
        }
        old = [topic for topic in wanted - found.keys() if not self._is_kept(client, topic, now)]
        if old:
            found |= await self._ask(client, old, now)
        for topic in wanted - found.keys():
            if topic in client.rights:
                found[topic] = client.rights[topic][0]
            elif client.login is None:
                found[topic] = ALL
        while len(client.rights) > TOPICS_MAX:
            client.rights.pop(next(iter(client.rights)))
        return found

    async def refused(self, client: Client, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """The topics whose offsets the client may not ask for, or not yet, with the error of
        each.
        """
        wanted = set(topics)
        told = await self.of(client, wanted)
        errors = {topic: offset_error(told.get(topic)) for topic in wanted}
        return {topic: error for topic, error in errors.items() if error}

    def _is_kept(self, client: Client, topic: str, now: float) -> bool:
        kept = client.rights.get(topic)
        if kept is None:
            return False
        return now - kept[1] < (self.kept_s if kept[0].read else min(REFUSAL_KEPT_S, self.kept_s))

    async def _ask(self, client: Client, topics: list[str], now: float) -> dict[str, Told]:
        try:
            body = await client.ask(
                Api.METADATA, question(topics), version_max=OWN_METADATA_VERSION
            )
        except (RetryLater, CorruptData):
            return {}
        told = rights_in(body)
        for topic in topics:
            client.rights.pop(topic, None)
            rights = told.get(topic)
            if isinstance(rights, Rights):
                client.rights[topic] = rights, now
        return told
