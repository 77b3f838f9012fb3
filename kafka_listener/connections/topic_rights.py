"""The rights of clients in topics, requested over the client's own twin and kept for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafka_formats.errors import CorruptData, RetryLater
from kafka_listener.access.rights import (
    ALL,
    EVERYTHING,
    NO_RIGHTS,
    ReadableTopics,
    Rights,
    RightsOrError,
    offset_error,
    rights_in,
    rights_request,
)
from kafka_listener.connections.brokers import OWN_METADATA_VERSION
from kafka_listener.connections.client import Client
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.error_codes import ErrorCode

TOPICS_MAX = 10_000
"""The most topics whose rights are kept for one connection."""
REFUSAL_KEPT_S = 1.0
"""The time for which a refusal is kept: just long enough to answer about all of a topic's
partitions, since the right may be granted at any time.
"""


@dataclass(frozen=True, slots=True)
class TopicRights:
    """The rights of a node's clients. The broker's reports are kept with the client, for `kept_s`.
    Clients that log in have their own rights. The rest reads the `readable` topics with the rights
    of the node itself.
    """

    monotonic: Callable[[], float]
    kept_s: float = 30.0
    readable: ReadableTopics = EVERYTHING

    def allows(self, client: Client, topic: str | None) -> bool:
        """True if the settings allow the client to read this topic. `topic` None: its name is
        unknown.
        """
        if client.login is not None or self.readable == EVERYTHING:
            return True
        return topic is not None and self.readable.allows(topic)

    async def of(self, client: Client, topics: Iterable[str]) -> dict[str, RightsOrError]:
        """The client's rights in those topics that are known. While the broker can't be reached
        they are as last reported; for a client that reads with the node's rights, the settings
        alone decide then.
        """
        now = self.monotonic()
        wanted = set(topics)
        found: dict[str, RightsOrError] = {
            topic: NO_RIGHTS for topic in wanted if not self.allows(client, topic)
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
        """The topics whose offsets the client may not request (or not yet), with the error
        of each.
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

    async def _ask(self, client: Client, topics: list[str], now: float) -> dict[str, RightsOrError]:
        try:
            body = await client.ask(
                Api.METADATA, rights_request(topics), version_max=OWN_METADATA_VERSION
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
