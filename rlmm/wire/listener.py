"""The quorum's listener: Kafka's protocol in front of a `QuorumServer`.

`Answers` interprets the requests; this file has the socket, the clients' identity, and the bounds.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from rlmm.quorum.network_ports import QuorumServer
from rlmm.wire.anonymous_share import AnonymousShare
from rlmm.wire.authorisation import Authorisation
from rlmm.wire.frames import load_schemas
from rlmm.wire.listener_answers import Answers
from rlmm.wire.sasl_server import SaslServer, SecretVerifier
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from rlmm.wire.server_connection import Caller, ListenerLimits, ServerConnection
from rlmm.wire.tls_handshakes import TlsHandshakes

log = logging.getLogger(__name__)

BACKLOG = 1024
TICK_S = 1.0
REFUSALS_PER_TICK_MAX = 10


class QuorumListener:
    """One listening socket, between `start` and `close`.

    `trouble` is called once a second while clients that do not log in wait for their share.
    """

    def __init__(
        self,
        server: QuorumServer,
        served: ServedLog,
        ambient: ListenerAmbient,
        *,
        authorisation: Authorisation,
        tls: ssl.SSLContext | None = None,
        limits: ListenerLimits | None = None,
        trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        load_schemas()
        self._trouble = trouble
        self.limits = limits or ListenerLimits()
        self._authorisation = authorisation
        self._new_nonce = ambient.new_nonce
        self._handshakes = (
            None
            if tls is None
            else TlsHandshakes(
                tls,
                self._connection,
                at_once_max=self.limits.connections_max,
                deadline_s=self.limits.tls_handshake_deadline_s,
                refused=self.refused,
            )
        )
        self._node_id = served.node_id
        self._verifier = (
            None
            if authorisation.secret is None
            else SecretVerifier.of(authorisation.secret, ambient.new_nonce().encode())
        )
        self.share = AnonymousShare(
            requests_per_turn=self.limits.anonymous_requests_per_turn_of_all,
            requests_per_s=self.limits.anonymous_requests_per_s_max,
            answer_bytes_max=self.limits.anonymous_answer_bytes_max,
        )
        self._answers = Answers(
            server,
            served,
            ambient,
            authorisation=authorisation,
            limits=self.limits,
            share=self.share,
            refused=self.refused,
        )
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._open = False
        self._ticker: asyncio.TimerHandle | None = None
        self._refusals = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chooses if `port` is 0. Raises OSError if that
        fails.
        """
        loop = asyncio.get_running_loop()
        self._open = True
        handshakes = self._handshakes
        self._server = await loop.create_server(
            self._connection if handshakes is None else handshakes.accept,
            host,
            port,
            backlog=BACKLOG,
        )
        self._tick()
        listening: int = self._server.sockets[0].getsockname()[1]
        log.info("node %d serves the metadata quorum on %s:%d", self._node_id, host, listening)
        return listening

    async def close(self) -> None:
        """Stop listening and end every connection. Idempotent."""
        self._open = False
        if self._ticker is not None:
            self._ticker.cancel()
        if self._handshakes is not None:
            self._handshakes.close()
        for connection in tuple(self._connections):
            connection.end(None)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Use this TLS context for new connections; the present ones keep theirs."""
        if self._handshakes is not None:
            self._handshakes.tls = tls

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # ---- calls of the connections

    def _connection(self) -> ServerConnection:
        return ServerConnection(self)

    def begin(self, caller: Caller, frame: bytes) -> bytes | Awaitable[bytes]:
        return self._answers.begin(caller, frame)

    def accepted(self, connection: ServerConnection) -> Caller | None:
        if not self._open:
            return None  # it was accepted while the listener was closing
        if len(self._connections) >= self.limits.connections_max and not self._made_room():
            self.refused(connection.name, "there is no room for another connection of a peer")
            return None
        self._connections.add(connection)
        sasl = SaslServer(self._verifier, self._new_nonce, plain_allowed=connection.is_private)
        caller = Caller(connection.name, sasl)
        tls = connection.transport.get_extra_info("ssl_object")
        if tls is not None:
            caller.is_peer = self._authorisation.is_peer(
                tls.getpeercert(), tls.getpeercert(binary_form=True)
            )
        return caller

    def ended(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)

    def refused(self, who: str, why: str) -> None:
        """Log a refusal; only the first REFUSALS_PER_TICK_MAX of each second."""
        self._refusals += 1
        if self._refusals <= REFUSALS_PER_TICK_MAX:
            log.warning("quorum listener of node %d: %s %s", self._node_id, who, why)

    def _made_room(self) -> bool:
        """End the client connection that was idle longest, so that a peer can connect."""
        others = [each for each in self._connections if not each.is_peer]
        if not others:
            return False
        idlest = max(others, key=lambda connection: connection.idle_ticks)
        idlest.end(f"was ended to make room: there are {self.limits.connections_max} connections")
        self._connections.discard(idlest)
        return True

    def _tick(self) -> None:
        if self._refusals > REFUSALS_PER_TICK_MAX:
            log.warning(
                "quorum listener of node %d: %d more refusals",
                self._node_id,
                self._refusals - REFUSALS_PER_TICK_MAX,
            )
        self._refusals = 0
        if (short := self.share.short_of()) is not None:
            others = sum(not each.is_peer for each in self._connections)
            self._trouble(
                f"clients that do not log in request more than their common share ({short}), and "
                f"wait; {others} connections are open. Look which clients connect to the quorum's "
                "listener, or set quorum.readers to `peers`"
            )
        self.share.next_second()
        for connection in tuple(self._connections):
            connection.tick()
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)
