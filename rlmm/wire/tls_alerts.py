"""The last word of a TLS handshake that fails.

OpenSSL writes an alert for the client, such as "certificate required" (RFC 8446, 6.2), when it
refuses one. Event loops close the connection in the same turn and drop it: the client sees a
connection that ends, and tries again for ever without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl


class TlsAlerts:
    """The TLS alerts of one listener."""

    def __init__(self) -> None:
        self._free: list[_OfOneHandshake] = []

    def context(self, tls: ssl.SSLContext, transport: asyncio.Transport) -> ssl.SSLContext:
        """`tls`, a server's, for one handshake of `transport`, whose client is told if it fails."""
        tls.sslobject_class = _Alerting
        one = self._free.pop() if self._free else _OfOneHandshake(ssl.PROTOCOL_TLS_SERVER)
        one.tls, one.transport, one.free = tls, transport, self._free
        return one


class _OfOneHandshake(ssl.SSLContext):
    """Makes what another context makes, for a known connection: a loop names it nowhere.

    To make one takes as long as a handshake, and a loop asks it once, so it is used again then.
    """

    tls: ssl.SSLContext
    transport: asyncio.Transport
    free: list[_OfOneHandshake]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = self.tls.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _Alerting)
        made.alert, made.transport = outgoing, self.transport
        del self.transport
        self.free.append(self)
        return made


class _Alerting(ssl.SSLObject):
    """Writes what OpenSSL has to say before the loop learns of the failure."""

    alert: ssl.MemoryBIO
    transport: asyncio.Transport

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            _write(self.transport, self.alert.read())
            raise


def _write(transport: asyncio.Transport, alert: bytes) -> None:
    """Write to the socket itself: what a transport still has to write, the loop's abort drops."""
    if transport.get_write_buffer_size() > 0:
        return  # behind half a flight it could not be read
    with contextlib.suppress(OSError):  # a client that is gone, or reads nothing, goes without
        os.write(transport.get_extra_info("socket").fileno(), alert)
