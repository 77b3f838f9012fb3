"""TLS connections, counted from the moment they are accepted.

A server with a TLS context reports a connection only after its handshake: until then any client,
with or without a certificate, could keep any number of files open.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import cast

from rlmm.wire.begun_at_once import begun_at_once
from rlmm.wire.tls_alerts import TlsAlerts

log = logging.getLogger(__name__)


class TlsHandshakes:
    """The TLS handshakes of one listener. `accept` is its protocol factory; a connection whose
    handshake is done is passed to one of `make`. At most `at_once_max` are under way, each for
    `deadline_s` at most. A further one ends the oldest, since a peer's handshake is quick, and
    `refused` is called. If a handshake fails, `refused` is called and the client gets an alert. A
    changed `tls` is used for new connections.
    """

    def __init__(
        self,
        tls: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        *,
        at_once_max: int,
        deadline_s: float,
        refused: Callable[[str, str], None],
    ) -> None:
        self.tls = tls
        self._alerts = TlsAlerts()
        self._make = make
        self._at_once_max = at_once_max
        self._deadline_s = deadline_s
        self._refused = refused
        self._closed = False
        self._under_way: dict[asyncio.Future[None], str] = {}  # the oldest first; the client's name

    def accept(self) -> asyncio.Protocol:
        """The protocol of a new connection, for `create_server`."""
        return _Greeting(self)

    def begin(self, transport: asyncio.Transport) -> None:
        """Begin the handshake of a new connection."""
        if self._closed:
            transport.abort()
            return
        if len(self._under_way) >= self._at_once_max:
            oldest = next(iter(self._under_way))
            who = self._under_way.pop(oldest)
            oldest.cancel()
            at_once = f"{self._at_once_max} TLS handshakes are under way"
            self._refused(who, f"was ended to make room: {at_once}, and its own does not end")
        # At once: a turn of the loop later its first bytes would have been read unencrypted.
        rest = begun_at_once(self._shake_hands(transport))
        if rest is not None:
            task = asyncio.ensure_future(rest)
            self._under_way[task] = _name(transport)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._under_way.pop(task, None)

    def close(self) -> None:
        """End handshakes under way, and refuse new ones."""
        self._closed = True
        for task in tuple(self._under_way):
            task.cancel()

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        early = _Early()
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                early,
                self._alerts.context(self.tls, transport),
                server_side=True,
                ssl_handshake_timeout=self._deadline_s,
            )
            # On uvloop a client that disconnects before its handshake is not an error.
            if secured is None or secured.is_closing():
                transport.abort()
            else:
                self._hand_over(secured, early)
        except ssl.SSLError as error:
            why = "check both sides' certificates, and that it is a node or a tool that speaks TLS"
            self._refused(_name(transport), f"gets no TLS connection ({error}): {why}")
            transport.abort()
        except (OSError, ValueError, asyncio.CancelledError):
            transport.abort()  # too slow, or the connection ended
        except Exception:
            log.exception("a TLS connection is ended by an internal error")
            transport.abort()

    def _hand_over(self, secured: asyncio.Transport, early: _Early) -> None:
        connection = self._make()
        secured.set_protocol(connection)
        connection.connection_made(secured)
        if early.data and not secured.is_closing():
            connection.data_received(bytes(early.data))
        if early.lost:
            connection.connection_lost(None)


def _name(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if peer else "an unknown client"


class _Greeting(asyncio.Protocol):
    """A connection before its handshake."""

    def __init__(self, handshakes: TlsHandshakes) -> None:
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not subclass asyncio's.
        self._handshakes.begin(cast(asyncio.Transport, transport))


class _Early(asyncio.Protocol):
    """A connection between the end of its handshake and the next turn of the loop."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost = True
