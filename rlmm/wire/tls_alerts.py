"""Sends the TLS alert of a handshake that fails.

OpenSSL writes an alert for the client, such as "certificate required" (RFC 8446, 6.2), when it
refuses one. Event loops close the connection in the same turn and drop the alert: the client sees
only a connection that ends, and retries for ever without a reason to log.
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
        """A context for one handshake of `transport` with a server's `tls`; it sends the alert."""
        tls.sslobject_class = _Alerting
        one = self._free.pop() if self._free else _OfOneHandshake(ssl.PROTOCOL_TLS_SERVER)
        one.tls, one.transport, one.free = tls, transport, self._free
        return one


class _OfOneHandshake(ssl.SSLContext):
    """Makes the SSL objects of a different context for a known connection, which the loop does not
    pass.

    Making a context takes as long as a handshake, and the loop calls it once, so it is reused after
    that.
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
    """Writes OpenSSL's alert before the loop learns of the failure."""

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
    """Write to the socket itself: the loop's abort drops the bytes in the transport's buffer."""
    if transport.get_write_buffer_size() > 0:
        return  # after half a flight of the handshake the client could not read it
    with contextlib.suppress(OSError):  # a client that is gone, or reads nothing, gets no alert
        os.write(transport.get_extra_info("socket").fileno(), alert)
