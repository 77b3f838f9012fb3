"""A client's connection, and its twin: the connection at a broker that relays for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
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
"""The deadline of a relayed request. A JoinGroup is answered once the other members have joined,
which takes up to their `max.poll.interval.ms`: 5 min by default, hardly ever more than 10.
"""


@dataclass(frozen=True, slots=True)
class ReportedEnds:
    """The ends of a partition's log as its leader reported them, and when."""

    ends: BrokerLogEnds
    at: float


@dataclass(frozen=True, slots=True)
class SentAway:
    """A partition for which the client was sent to a different replica, at this offset and time. If
    the client came back, it is answered here until `stays_until_s`.
    """

    offset: int
    at: float
    stays_until_s: float = float("-inf")


@dataclass(slots=True, eq=False)
class Client(Caller):
    """A connected client. `broker_id` None: it connected to the bootstrap port, so any broker will
    do. The twin is opened when it is needed, and again if it broke; but only once if the client
    logs in over it. `login` None: this listener takes no logins. `rights` are those that the broker
    reported, and when. Bytes are counted by `user`; `claimed_user` becomes `user` once the broker
    has accepted the login.
    """

    connection: ServerConnection = field(kw_only=True)
    brokers: Brokers = field(kw_only=True)
    broker_id: int | None = field(kw_only=True)
    login: Login | None = field(kw_only=True, default=None)
    rights: dict[str, tuple[Rights, float]] = field(default_factory=dict)
    user: str = UNKNOWN
    claimed_user: str | None = None
    ends: dict[TopicIdPartition, ReportedEnds] = field(default_factory=dict)
    sent_away: dict[TopicIdPartition, SentAway] = field(default_factory=dict)
    window_bytes: int = FIRST_BYTES
    """Bytes of records that the client's next Fetch requests from the broker."""
    _twin: Connection | None = None

    async def twin(self) -> Connection:
        """The client's connection to its broker. RetryLater if the broker can't be reached, or has
        closed the connection over which the client logged in.
        """
        if self._twin is None or self._twin.lost:
            if self._twin is not None and self.login is not None:
                raise RetryLater(f"{self._twin.name} has ended the connection of {self.name}")
            self.leave()
            self._twin = await self.brokers.open(self.broker_id, as_node=self.login is None)
        return self._twin

    @property
    def twin_is_lost(self) -> bool:
        """True if there was a twin, and its broker has closed it or does not answer."""
        return self._twin is not None and self._twin.lost

    async def versions(self) -> Mapping[int, Versions]:
        """The API versions that the client's broker supports. RetryLater if it can't be reached."""
        return (await self.twin()).api_versions

    async def relay(self, frame: bytes, *, deadline_s: float = RELAY_DEADLINE_S) -> bytes:
        """The broker's answer to an unchanged frame, each without its size. RetryLater,
        CorruptData.
        """
        twin = await self.twin()
        return await twin.relay(sized(frame), deadline_s=deadline_s)

    async def exchange(
        self,
        head: Head,
        client_id: str | None,
        body: Mapping[str, Any],
        *,
        wait_s: float = 0.0,
        held: AsyncExitStack | None = None,
    ) -> Values:
        """The broker's answer to a request that it may hold for `wait_s`; `held` as in
        `brokers.exchange`. RetryLater, CorruptData. DisconnectError: the broker does not support
        the version.
        """
        deadline_s = brokers.ASK_DEADLINE_S + wait_s
        twin, turns = await self.twin(), self.brokers.turns
        low, high = twin.api_versions.get(head.api_key, (0, -1))
        if not low <= head.version <= high:
            # The client learnt this version from a different broker while this one was away, or
            # from this one before it was downgraded. The broker would close the twin at each such
            # request; on a new connection the client requests the versions again.
            raise DisconnectError(
                f"sent version {head.version} of API key {head.api_key}, but its broker supports "
                f"{low} to {high} now: on a new connection the client asks for the versions again"
            )
        return await brokers.exchange(twin, head, client_id, body, deadline_s, turns, held)

    async def ask(self, api: Api, body: Mapping[str, Any], *, version_max: int) -> Values:
        """The broker's answer to a request of the node itself. RetryLater, CorruptData."""
        twin, turns = await self.twin(), self.brokers.turns
        return await brokers.ask(twin, api, body, version_max=version_max, turns=turns)

    def leave(self) -> None:
        """Close the twin: the client has disconnected, or the broker has closed it."""
        if self._twin is not None:
            self._twin.abort()
