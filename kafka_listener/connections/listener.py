"""The listener of a read replica: a bootstrap port for clients that know no broker, and one port
for each broker.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_formats.errors import InvalidRequest, RetryLater, StrandlineError
from kafka_listener.access.rates import TierRates
from kafka_listener.access.rights import EVERYTHING, ReadableTopics
from kafka_listener.connections.answers import Answers
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.client import Client
from kafka_listener.connections.fetching import Fetching
from kafka_listener.connections.log_ends import LogEnds
from kafka_listener.connections.logins import NOBODY_LOGS_IN, Logins
from kafka_listener.connections.offset_answers import OffsetAnswers
from kafka_listener.connections.read_counts import ReadCounts
from kafka_listener.connections.shares import AnswerRoom
from kafka_listener.connections.topic_rights import TopicRights
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.protocol.codec import load_schemas
from kafka_listener.reading.read_port import TierReads
from kafka_listener.virtual_nodes import Replica, not_shown, port_of
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlmm.wire.anonymous_share import AnonymousShare
from rlmm.wire.sasl_server import SaslServer
from rlmm.wire.server_connection import Caller, ListenerLimits, ServerConnection
from rlmm.wire.tls_handshakes import TlsHandshakes

log = logging.getLogger(__name__)

BACKLOG = 1024
TICK_S = 1.0
REFRESH_S = 30.0
"""Pause between two requests for all brokers; new ones are also learnt from the answers to clients.
"""
LOGIN_BYTES_MAX = 64 << 10
"""The largest request before the login is complete: the token of OAUTHBEARER is its largest part.
"""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of a read listener. A connection has one request under way, as at a broker; the next
    one waits in the socket. `fetch_bytes_max` bounds one answer's bytes from the tier and, in
    memory, from a broker, except for a first batch; `answers_bytes_max` bounds all answers
    together.
    """

    connections_max: int = 1_000
    request_bytes_max: int = 1 << 20
    fetch_bytes_max: int = 8 << 20
    answers_bytes_max: int = 128 << 20
    idle_deadline_s: int = 600
    lost_ranges_are_gaps: bool = True

    def of_connections(self) -> ListenerLimits:
        return ListenerLimits(
            connections_max=self.connections_max,
            request_bytes_max=self.request_bytes_max,
            request_bytes_setting="read.request_bytes_max",
            requests_in_flight_max=1,
            idle_deadline_s=self.idle_deadline_s,
            # Longer than a broker may let a group's member wait.
            answer_deadline_s=700,
            anonymous_request_bytes_max=LOGIN_BYTES_MAX,
            anonymous_requests_in_flight_max=1,
        )


@dataclass(frozen=True, slots=True)
class ReadAccess:
    """The rules of access. `mechanisms` None: clients do not log in, for the reason `why_not`, and
    read the `readable` topics with the node's own rights. `tls` None: plain text.
    """

    mechanisms: tuple[str, ...] | None = None
    why_not: str = NOBODY_LOGS_IN
    authorisation_s: float = 30.0
    readable: ReadableTopics = EVERYTHING
    user_bytes_per_s: int = 0
    client_id_bytes_per_s: int = 0
    tls: ssl.SSLContext | None = None


@dataclass(eq=False)
class _Port:
    """One listening port; implements `Requests` for its connections."""

    listener: ReadListener
    broker_id: int | None
    limits: ListenerLimits
    share: AnonymousShare
    server: asyncio.Server | None = None
    handshakes: TlsHandshakes | None = None

    def connection(self) -> ServerConnection:
        return ServerConnection(self)

    def begin(self, caller: Caller, frame: bytes) -> Awaitable[bytes]:
        assert isinstance(caller, Client)
        return self.listener.answers.begin(caller, frame)

    def accepted(self, connection: ServerConnection) -> Caller | None:
        return self.listener.accepted(connection, self.broker_id)

    def ended(self, connection: ServerConnection) -> None:
        self.listener.ended(connection)

    def refused(self, who: str, why: str) -> None:
        self.listener.counts.refused(who, why)


@dataclass(eq=False)
class ReadListener:
    """The listener of a node. `start` it, `close` it. It listens on `bind_host` and the own
    replica's port; clients are given the replica's host.
    """

    replicas: LiveReplicas
    bind_host: str
    brokers: Brokers
    tier: TierReads
    sleep: Callable[[float], Awaitable[None]]
    limits: ReadLimits
    access: ReadAccess = ReadAccess()
    counts: ReadCounts = field(init=False)
    answers: Answers = field(init=False)
    logins: Logins = field(init=False)
    _connections: dict[ServerConnection, Client] = field(default_factory=dict)
    _ports: dict[int | None, _Port] = field(default_factory=dict)
    _tried: frozenset[int] = frozenset()
    _trouble: dict[str, str] = field(default_factory=dict)
    _tasks: tuple[asyncio.Task[None], ...] = ()
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _share: AnonymousShare = field(init=False)

    def __post_init__(self) -> None:
        monotonic = self.brokers.monotonic
        self.counts = ReadCounts(monotonic)
        limits = self.limits.of_connections()
        self._share = AnonymousShare(
            requests_per_turn=limits.anonymous_requests_per_turn_of_all,
            requests_per_s=limits.anonymous_requests_per_s_max,
            answer_bytes_max=limits.anonymous_answer_bytes_max,
        )
        access = self.access
        self.logins = Logins(self.brokers, self.counts, access.mechanisms, access.why_not)
        rights = TopicRights(monotonic, access.authorisation_s, access.readable)
        ends = LogEnds(self.brokers, monotonic)
        fetching = Fetching(
            self.tier,
            ends,
            self.counts,
            self.sleep,
            self.brokers.turns,
            AnswerRoom(self.limits.answers_bytes_max),
            self.limits.fetch_bytes_max,
            self.limits.lost_ranges_are_gaps,
            self.replicas,
            rights,
            TierRates(access.user_bytes_per_s, access.client_id_bytes_per_s),
        )
        offsets = OffsetAnswers(self.tier, ends, self.counts, rights, self.brokers.turns)
        self.answers = Answers(
            self.replicas,
            self.brokers,
            fetching,
            offsets,
            self.logins,
            rights,
            self.counts,
            self._open_new_ports,
        )

    @property
    def own(self) -> Replica:
        return self.replicas.own

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Listen on the bootstrap port, and on a broker's port once the broker is known.
        InvalidRequest: the address can't be used. Refused: the brokers belong to a different Kafka
        cluster.
        """
        await asyncio.to_thread(load_schemas)
        try:
            await self.brokers.refresh()
        except RetryLater as error:
            self._note("brokers", str(error))
        await self._open_port(None)
        await self._open_ports()
        loop = asyncio.get_running_loop()
        self._tasks = tuple(map(loop.create_task, self._tasks_of()))
        log.info(
            "node %d serves Kafka consumers on %s:%d and, for %d brokers, on the ports after it",
            self.own.node_id,
            self.bind_host,
            self.own.port,
            len(self._ports) - 1,
        )

    async def close(self) -> None:
        """Stop listening and end every connection. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = ()
        for connection in tuple(self._connections):
            connection.end(None)
        for port in self._ports.values():
            if port.handshakes is not None:
                port.handshakes.close()
            if port.server is not None:
                port.server.close()
                await port.server.wait_closed()
        self._ports.clear()
        await self.brokers.close()

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Use these certificates for new connections, if this listener uses TLS. The earlier
        context trusted authorities that may no longer be trusted.
        """
        self.access = replace(self.access, tls=tls)
        for port in self._ports.values():
            if port.handshakes is not None:
                port.handshakes.tls = tls

    def problems(self) -> Iterable[NodeProblem]:
        """The problems that keep clients from reading."""
        return [NodeProblem(ProblemArea.READ, name, text) for name, text in self._trouble.items()]

    def accepted(self, connection: ServerConnection, broker_id: int | None) -> Client | None:
        """The client of a new connection; None: there is no room."""
        if len(self._connections) >= self.limits.connections_max and not self._made_room():
            why = f"was refused: {self.limits.connections_max} connections are open"
            self.counts.refused(connection.name, f"{why} (read.connections_max)")
            return None
        client = Client(
            connection.name,
            SaslServer(None, self.brokers.new_nonce, plain_allowed=False),
            is_peer=not self.logins.are_wanted,
            connection=connection,
            brokers=self.brokers,
            broker_id=broker_id,
            login=self.logins.new(),
            user=_subject(connection),
        )
        self._connections[connection] = client
        return client

    def ended(self, connection: ServerConnection) -> None:
        """Forget a connection that has ended, and close its twin."""
        client = self._connections.pop(connection, None)
        if client is not None:
            client.leave()

    def _made_room(self) -> bool:
        """Close the oldest connection that has not logged in, to make room; False if there
        is none.
        """
        for connection, client in self._connections.items():
            if not client.is_peer:
                connection.end(
                    "was closed before it had logged in, to make room for a new connection "
                    "(read.connections_max)"
                )
                self.ended(connection)
                return True
        return False

    async def _open_new_ports(self) -> None:
        """Open the ports of brokers that have become known since the last try; `_refresh` tries the
        failed ones again.
        """
        if not self.brokers.known.keys() <= self._tried:
            await self._open_ports(of_new=True)

    async def _open_ports(self, *, of_new: bool = False) -> None:
        """Open the port of every known broker. `of_new`: return at once if each was tried
        meanwhile.
        """
        async with self._opening:
            known = frozenset(self.brokers.known)
            if of_new and known <= self._tried:
                return
            left_out = not_shown(self.brokers.alive, self.replicas.nodes)
            if not left_out:
                self._trouble.pop("broker_ids", None)
            else:
                self._note(
                    "broker_ids",
                    f"clients do not see brokers {left_out}, which have no port or id here: the "
                    "port of read.listen plus the broker id plus 1 is above 65535 (choose a "
                    "lower port), or the broker id is not below 32768",
                )
            for broker_id in sorted(known):
                if self.replicas.nodes.shown(broker_id) and broker_id not in self._ports:
                    try:
                        await self._open_port(broker_id)
                    except InvalidRequest as error:
                        self._note(f"port_{broker_id}", str(error))
            self._tried = known

    async def _open_port(self, broker_id: int | None) -> None:
        number = self.own.port if broker_id is None else port_of(self.own.port, broker_id)
        port = _Port(self, broker_id, self.limits.of_connections(), self._share)
        if self.access.tls is not None:
            port.handshakes = TlsHandshakes(
                self.access.tls,
                port.connection,
                at_once_max=self.limits.connections_max,
                deadline_s=port.limits.tls_handshake_deadline_s,
                refused=self.counts.refused,
            )
        accept = port.connection if port.handshakes is None else port.handshakes.accept
        try:
            port.server = await asyncio.get_running_loop().create_server(
                accept, self.bind_host, number, backlog=BACKLOG
            )
        except OSError as error:
            raise InvalidRequest(
                f"cannot listen on {self.bind_host}:{number} for clients ({error}): free this "
                "port, or change read.listen; every broker needs the port number of read.listen "
                "plus its id plus 1",
                field="read.listen",
            ) from error
        self._ports[broker_id] = port
        self._trouble.pop(f"port_{broker_id}", None)

    async def _again(
        self, name: str, pause_s: Callable[[], float], work: Callable[[], Awaitable[None]]
    ) -> None:
        """Repeat the work for ever. An exception in it is a bug, and does not stop the listener: it
        is listed as a problem until the work succeeds.
        """
        while True:
            await self.sleep(pause_s())
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - the task's top: reported, and tried again
                self._failed(name, error)
            else:
                self._trouble.pop(name, None)

    def _failed(self, name: str, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        text = f"the read listener's task `{name}` failed ({why}): report this"
        if self._trouble.get(name) != text:
            log.error("%s", text, exc_info=error)
        self._trouble[name] = text

    def _tasks_of(self) -> Iterable[Coroutine[Any, Any, None]]:
        def each_second() -> float:
            return TICK_S

        def until_refresh() -> float:
            return REFRESH_S if "brokers" not in self._trouble else TICK_S

        yield self._again("connections", each_second, self._tick)
        yield self._again("logins", each_second, self._watch)
        yield self._again("refresh", until_refresh, self._refresh)

    async def _tick(self) -> None:
        self._share.next_second()
        failure: Exception | None = None
        for connection in tuple(self._connections):
            try:
                connection.tick()
            except Exception as error:  # noqa: BLE001 - raised below, after the other connections' turn
                failure = error
                connection.end(None)
        if failure is not None:
            raise failure

    async def _watch(self) -> None:
        await self.logins.tick(tuple(self._connections.values()))

    async def _refresh(self) -> None:
        try:
            await self.brokers.refresh()
            self._trouble.pop("brokers", None)
        except StrandlineError as error:
            self._note("brokers", str(error))
        await self._open_ports()

    def _note(self, about: str, text: str) -> None:
        if self._trouble.get(about) != text:
            log.warning("read listener: %s", text)
        self._trouble[about] = text


def _subject(connection: ServerConnection) -> str:
    """The subject of the client's certificate; empty without one."""
    tls = connection.transport.get_extra_info("ssl_object")
    subject = ((tls and tls.getpeercert()) or {}).get("subject", ())
    return ",".join(f"{name}={value}" for part in subject for name, value in part)
