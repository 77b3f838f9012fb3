"""A client's connection, and its twin at a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_client.connection import Connection
from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.access.login import Login
from kafka_listener.access.rights import Rights
from kafka_listener.access.users import UNKNOWN
from kafka_listener.connections import brokers
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.shares import FIRST_BYTES
from kafka_listener.protocol.apis import Api, Versions
from kafka_listener.protocol.codec import Head, sized
from kafka_listener.reading.read_port import BrokerLogEnds
from rlmm.wire.schema import Values
from rlmm.wire.server_connection import Caller, DisconnectError, ServerConnection

RELAY_DEADLINE_S = 660.0
"""The deadline of a passed-on request: a JoinGroup is answered once the others have come, which
takes up to their `max.poll.interval.ms`: five minutes by default, and hardly ever more than ten.
"""


@dataclass(frozen=True, slots=True)
class Told:
    """The ends of a partition's log by its leader's word, and when it gave it."""

    ends: BrokerLogEnds
    at: float


@dataclass(frozen=True, slots=True)
class SentAway:
    """A partition that the client was sent to another replica for, at this offset and time. It was
    answered here until `stays_until_s` if it came back.
    """

    offset: int
    at: float
    stays_until_s: float = float("-inf")


@dataclass(slots=True, eq=False)
class Client(Caller):
    """`broker_id` None: it came to the first port, and any broker will do. The twin is opened when
    it is needed, and again if it broke meanwhile; but once only if the client logs in over it.

    `login` None: nobody logs in at this listener. `rights` are the broker's word and its time.
    Bytes are counted by `user`; `claimed_user` becomes that once the broker says so.
    """

    connection: ServerConnection = field(kw_only=True)
    brokers: Brokers = field(kw_only=True)
    broker_id: int | None = field(kw_only=True)
    login: Login | None = field(kw_only=True, default=None)
    rights: dict[str, tuple[Rights, float]] = field(default_factory=dict)
    user: str = UNKNOWN
    claimed_user: str | None = None
    ends: dict[TopicIdPartition, Told] = field(default_factory=dict)
    sent_away: dict[TopicIdPartition, SentAway] = field(default_factory=dict)
    window_bytes: int = FIRST_BYTES
    """Bytes of records that the client's next Fetch asks the broker for."""
    _twin: Connection | None = None

    async def twin(self) -> Connection:
        """The client's connection to its broker. RetryLater if the broker can't be reached, or has
        ended the connection that the client logged in on.
        """
        if self._twin is None or self._twin.lost:
            if self._twin is not None and self.login is not None:
                raise RetryLater(f"{self._twin.name} has ended the connection of {self.name}")
            self.leave()
            self._twin = await self.brokers.open(self.broker_id, as_node=self.login is None)
        return self._twin

    @property
    def twin_is_lost(self) -> bool:
        """True if there was one, and its broker has ended it or does not answer."""
        return self._twin is not None and self._twin.lost

    async def versions(self) -> Mapping[int, Versions]:
        """The versions of the broker; while it can't be reached, of whichever was asked last."""
        return (await self.twin()).api_versions

    async def relay(self, frame: bytes, *, deadline_s: float = RELAY_DEADLINE_S) -> bytes:
        """The broker's answer to a frame as it came, each without its size. RetryLater,
        CorruptData.
        """
        twin = await self.twin()
        return await twin.relay(sized(frame), deadline_s=deadline_s)

    async def exchange(
        self, head: Head, client_id: str | None, body: Mapping[str, Any], *, wait_s: float = 0.0
    ) -> Values:
        """The broker's answer, for which it may take `wait_s`. RetryLater, CorruptData.
        DisconnectError: the broker lacks the version.
        """
        deadline_s = brokers.ASK_DEADLINE_S + wait_s
        twin, turns = await self.twin(), self.brokers.turns
        low, high = twin.api_versions.get(head.api_key, (0, -1))
        if not low <= head.version <= high:
            # Told of another broker while this one was away, or of this one before it was rolled
            # back. It would end the twin each time; a new connection asks for the versions anew.
            raise DisconnectError(
                f"asks in version {head.version} of API key {head.api_key}, and its broker takes "
                f"{low} to {high} now"
            )
        return await brokers.exchange(twin, head, client_id, body, deadline_s, turns)

    async def ask(self, api: Api, body: Mapping[str, Any], *, version_max: int) -> Values:
        """The broker's answer to a question of our own. RetryLater, CorruptData."""
        twin, turns = await self.twin(), self.brokers.turns
        return await brokers.ask(twin, api, body, version_max=version_max, turns=turns)

    def leave(self) -> None:
        """Close the twin: the client has gone, or the broker has ended it."""
        if self._twin is not None:
            self._twin.abort()
