"""The brokers of a read replica: their addresses, and connections to them.

Brokers are discovered from the addresses of `kafka.bootstrap` and from every relayed answer to
Metadata.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka_client.connection import Connection, Endpoint
from kafka_client.frame_check import FrameError
from kafka_client.sasl import SaslCredentials
from kafka_formats.errors import CorruptData, InvalidRequest, Refused, RetryLater
from kafka_listener.connections.shares import PARTITION_BYTES, SLICE, Turns
from kafka_listener.connections.topic_ids import TopicIds
from kafka_listener.protocol import codec
from kafka_listener.protocol.apis import SERVED, Api
from kafka_listener.protocol.codec import Head
from kafka_listener.protocol.node_rewriting import brokers_in, topics_in
from kafka_listener.virtual_nodes import Address
from rlmm.wire.schema import Values

log = logging.getLogger(__name__)

CONNECT_DEADLINE_S = 3.0
ASK_DEADLINE_S = 10.0
PAUSE_AFTER_FAILURE_S = 1.0
"""The time for which a broker that could not be reached is not tried again: reads of the tier go on
without waiting for it.
"""
OWN_METADATA_VERSION = 12
"""The highest version of Metadata for the node's own requests; from 12 on topics can be requested
by id.
"""
PAUSE_AFTER_SILENCE_S = 5.0
"""The time for which a broker is not tried again that did not even refuse the connection: clients
waited for it.
"""
FAILURE_KEPT_S = 60.0
"""The time after which a failure no longer counts for the order in which brokers are tried."""
OPEN_ANY_S = 5.0
"""The time after which no further broker is tried for a request that any broker may answer: clients
give up after 30 s. The next request goes on with the brokers that were tried longest ago.
"""
ANSWER_BYTES_MAX = 64 << 20
BROKERS_MAX = 1_000
NEVER = float("-inf")
TLS_KEPT_S = 30.0
"""The time after which certificates and authorities are read again, for new connections."""


async def ask(
    connection: Connection,
    api: Api,
    body: Mapping[str, Any],
    *,
    version_max: int,
    client_id: str | None = "strandline",
    turns: Turns | None = None,
) -> Values:
    """The answer to a request of the node itself. RetryLater, CorruptData."""
    low, high = connection.api_versions.get(api, (0, -1))
    version = min(high, version_max, SERVED[api].high)
    if version < max(low, SERVED[api].low):
        raise RetryLater(
            f"{connection.name} supports no version of {api.name} that this node supports: see "
            "docs/COMPATIBILITY.md for the supported brokers"
        )
    head = Head(api, version, 0)
    return await exchange(connection, head, client_id, body, turns=turns)


async def exchange(
    connection: Connection,
    head: Head,
    client_id: str | None,
    body: Mapping[str, Any],
    deadline_s: float = ASK_DEADLINE_S,
    turns: Turns | None = None,
    held: AsyncExitStack | None = None,
) -> Values:
    """The answer to a request of exactly that version. Without `turns` it does not wait for other
    clients' work. A long answer counts as one in memory until `held` is closed. RetryLater,
    CorruptData.
    """
    turns, partitions = turns or Turns(), codec.partitions_in(body)
    encode = partial(codec.encode_request, head, client_id, body)
    frame = await turns.apart(partitions, encode)
    answer = await connection.relay(frame, deadline_s=deadline_s)
    if head.api_key != Api.FETCH:  # mostly records, which cost no decoding
        # A short request may have a long answer: the Metadata of all topics.
        partitions = max(partitions, len(answer) // PARTITION_BYTES)
    if held is not None and partitions > SLICE:
        await held.enter_async_context(turns.long_answers)
    try:
        return await turns.apart(partitions, partial(codec.decode_response, head, answer))
    except FrameError as error:
        connection.abort()
        name = f"{connection.name} (API {head.api_key})"
        raise CorruptData(f"a malformed answer: {error}", source=name) from error


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """The TLS of connections to brokers, and the node's own credentials, for its own requests.
    `new_tls` reads files; it may raise Refused.
    """

    new_tls: Callable[[], ssl.SSLContext | None] = lambda: None
    sasl: SaslCredentials | None = None


@dataclass(eq=False)
class Brokers:
    """The brokers of a node. `kafka_cluster_id`: the cluster that they have to belong to; empty:
    any. `known` are all brokers seen so far, `alive` those in the last Metadata.
    """

    bootstrap: tuple[Address, ...]
    kafka_cluster_id: str
    monotonic: Callable[[], float]
    new_nonce: Callable[[], str]
    security: BrokerSecurity = field(default_factory=BrokerSecurity)
    topics: TopicIds = field(init=False)
    known: dict[int, Address] = field(default_factory=dict)
    alive: frozenset[int] = frozenset()
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    trouble: str | None = None
    turns: Turns = field(default_factory=Turns)
    _retry_at: dict[Address, float] = field(default_factory=dict)
    _own: dict[Address, Connection] = field(default_factory=dict)
    _tls: tuple[float, ssl.SSLContext | None] | None = None

    def __post_init__(self) -> None:
        self.topics = TopicIds(self.monotonic)

    def learn(self, body: Values, *, broker: str | None = None) -> None:
        """Take brokers and topics from an answer to Metadata, of the broker at that address."""
        self.topics.learn(topics_in(body), broker=broker)
        told = brokers_in(body)
        self.alive = (
            frozenset(told) or self.alive
        )  # an answer that refuses every topic names no broker
        self.known |= told
        if len(self.known) > BROKERS_MAX:
            self.known = told

    def learn_some(self, told: Mapping[int, Address]) -> None:
        """Take brokers from an answer that does not name all of them."""
        for broker_id, address in told.items():
            if broker_id in self.known or len(self.known) < BROKERS_MAX:
                self.known[broker_id] = address

    async def open(self, broker_id: int | None, *, as_node: bool = True) -> Connection:
        """A connection to that broker (None: to any), with the node's own login if `as_node`.
        RetryLater: no such broker can be reached.
        """
        if broker_id is not None:
            address = self.known.get(broker_id)
            if address is None:
                raise RetryLater(f"broker {broker_id} is not in the cluster's Metadata")
            return await self._open(address, as_node=as_node)
        failure = RetryLater("no broker could be reached: check kafka.bootstrap")
        # A broker that is gone for good may take the whole deadline to fail: live ones come first.
        alive = (self.known[each] for each in sorted(self.alive & self.known.keys()))
        addresses = dict.fromkeys((*alive, *self.known.values(), *self.bootstrap))
        until = self.monotonic() + OPEN_ANY_S
        for address in sorted(addresses, key=self._failed_lately):
            try:
                return await self._open(address, as_node=as_node)
            except RetryLater as error:
                failure = error
            if self.monotonic() >= until:
                break
        raise failure

    def _failed_lately(self, address: Address) -> float:
        """The order in which brokers are tried: those that failed come last, the latest at the end.
        A failure of long ago says nothing.
        """
        retry_at = self._retry_at.get(address, NEVER)
        return retry_at if self.monotonic() - retry_at < FAILURE_KEPT_S else NEVER

    async def answers(self, broker_id: int | None) -> bool:
        """True if that broker (None: any) accepts connections."""
        try:
            connection = await self.open(broker_id, as_node=False)
        except RetryLater:
            return False
        connection.abort()
        return True

    async def _open(self, address: Address, *, as_node: bool = True) -> Connection:
        began_at = self.monotonic()
        if began_at < self._retry_at.get(address, NEVER):
            raise RetryLater(
                f"the broker at {address[0]}:{address[1]} could not be reached a moment ago, and "
                "is tried again in some seconds"
            )
        try:
            endpoint = Endpoint(
                *address,
                tls=await self._present_tls(),
                sasl=self.security.sasl if as_node else None,
                connect_deadline_s=CONNECT_DEADLINE_S,
                request_deadline_s=ASK_DEADLINE_S,
                response_bytes_max=ANSWER_BYTES_MAX,
            )
            connection = await Connection.open(endpoint, new_nonce=self.new_nonce)
        except (RetryLater, CorruptData) as error:
            now = self.monotonic()
            is_silent = now - began_at >= CONNECT_DEADLINE_S / 2
            pause_s = PAUSE_AFTER_SILENCE_S if is_silent else PAUSE_AFTER_FAILURE_S
            self._retry_at[address] = now + pause_s
            raise RetryLater(str(error)) from error
        except (Refused, InvalidRequest) as error:  # clients' logins do not depend on it
            raise RetryLater(str(error)) from error
        self._retry_at.pop(address, None)
        self.versions = connection.api_versions
        return connection

    async def _present_tls(self) -> ssl.SSLContext | None:
        now = self.monotonic()
        if self._tls is None or now - self._tls[0] > TLS_KEPT_S:
            self._tls = now, await asyncio.to_thread(self.security.new_tls)
        return self._tls[1]

    async def refresh(self) -> None:
        """Ask one broker for all brokers. RetryLater: none answers. Refused: the brokers belong to
        a different Kafka cluster.
        """
        connection = await self.open(None)
        try:
            body = await self._metadata(connection, [])
        finally:
            connection.abort()
        found = body["cluster_id"] or ""
        if self.kafka_cluster_id and found != self.kafka_cluster_id:
            raise Refused(
                f"{connection.name} belongs to Kafka cluster {found!r}, but this node to "
                f"{self.kafka_cluster_id!r}: check kafka.bootstrap"
            )
        self.learn(body)

    async def learn_topics(
        self, connection: Connection, names: Iterable[str], ids: Iterable[bytes]
    ) -> None:
        """Request the ids of these names and the names of these ids. RetryLater, CorruptData."""
        topics: list[Values] = [{"name": name} for name in names]
        topics += [{"name": None, "topic_id": topic_id} for topic_id in ids]
        if topics:
            self.learn(await self._metadata(connection, topics), broker=connection.name)

    async def check_ids(self, connection: Connection, topics: Iterable[tuple[str, bytes]]) -> None:
        """Request the ids of these names, except those that any broker has just reported and this
        one has reported before: the Metadata of a topic may be long. RetryLater, CorruptData.
        """
        wanted = set(topics)
        due = self.topics.claim_checks(sorted({name for name, _ in wanted}))
        untold = {each[0] for each in wanted if not self.topics.is_told(connection.name, *each)}
        try:
            await self.learn_topics(connection, sorted({*due, *untold}), ())
        except BaseException:
            self.topics.give_up_checks(due)
            raise

    async def leader(self, topic_id: bytes, partition: int) -> Connection | None:
        """The node's own connection to a partition's leader, kept open; None: the leader cannot be
        reached now.
        """
        try:
            any_one = await self._kept(None)
            body = await self._metadata(any_one, [{"name": None, "topic_id": topic_id}])
            self.learn(body)
            for topic in body["topics"]:
                for each in topic["partitions"]:
                    if each["partition_index"] == partition and each["leader_id"] in self.known:
                        return await self._kept(self.known[each["leader_id"]])
        except (RetryLater, CorruptData) as error:
            log.debug("no leader of partition %d: %s", partition, error)
        return None

    async def _kept(self, address: Address | None) -> Connection:
        for each in (address,) if address else tuple(self._own):
            kept = self._own.get(each)
            if kept is not None and not kept.closed:
                return kept
            self._own.pop(each, None)
        if address is None:
            connection = await self.open(None)
            host, _, port = connection.name.rpartition(":")
            address = host, int(port)
        else:
            connection = await self._open(address)
        self._own[address] = connection
        return connection

    async def _metadata(self, connection: Connection, topics: list[Values]) -> Values:
        body = {"topics": topics, "allow_auto_topic_creation": False}
        version_max = OWN_METADATA_VERSION
        return await ask(connection, Api.METADATA, body, version_max=version_max, turns=self.turns)

    async def close(self) -> None:
        """Close the node's own connections. Idempotent."""
        await asyncio.gather(*(each.close() for each in self._own.values()))
        self._own.clear()
