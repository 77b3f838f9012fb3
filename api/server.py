"""The HTTP server in the node's event loop: uvicorn without its signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from api.connection import connection_class
from api.http.api_limits import ApiLimits
from kafka_formats.errors import InvalidRequest
from rlmm.wire.tls_handshakes import TlsHandshakes

_CLOSE_MARGIN_S = 5.0
_BACKLOG = 256
_SAY_EVERY_S = 60.0
"""The pause between two log lines about refused handshakes."""

_log = logging.getLogger("strandline.api")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files for TLS. With `client_ca` clients need a certificate of that authority; their
    role still comes from their token.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ApiServer:
    """A running server, made by `serve`."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, tls: TlsFiles | None, limits: ApiLimits
    ) -> None:
        self._tls = tls
        self._limits = limits
        self._listener = listener
        self._config = uvicorn.Config(
            app,
            http=connection_class(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # a client must not name its own address
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=math.ceil(limits.idle_deadline_s),
            timeout_graceful_shutdown=math.ceil(limits.shutdown_deadline_s),
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_keyfile=None if tls is None else tls.key,
            ssl_ca_certs=None if tls is None else tls.client_ca,
            ssl_cert_reqs=(
                ssl.CERT_NONE if tls is None or tls.client_ca is None else ssl.CERT_REQUIRED
            ),
        )
        self._server = _QuietServer(self._config, limits)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port of the listener."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._server.server_state.connections)

    async def start(self) -> None:
        """Load the certificates and accept connections."""
        if self._tls is not None:
            _check_certificate(self._tls)
        _load(self._config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        started = asyncio.create_task(self._server.accepting.wait())
        await asyncio.wait({self._task, started}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._task.done():
            self._task.result()

    def reload_tls(self) -> bool:
        """Read the certificate files again, for new connections; False without files. With an
        invalid file the old certificates stay in use.
        """
        if self._tls is None or self._config.ssl is None:
            return False
        _check_certificate(self._tls)
        self._config.ssl.load_cert_chain(self._tls.certificate, self._tls.key)
        return True

    async def wait(self) -> None:
        """Return when the server ends; raise the error that ended it."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Stop accepting connections, let answers finish until the shutdown deadline, then abort
        them.
        """
        if self._task is None:
            self._listener.close()
            return
        self._server.should_exit = True
        deadline_s = self._limits.shutdown_deadline_s + _CLOSE_MARGIN_S
        await asyncio.wait({self._task}, timeout=deadline_s)
        self._task.cancel()
        left = {self._task, *self._server.server_state.tasks}
        await asyncio.wait(left, timeout=_CLOSE_MARGIN_S)
        for connection in tuple(self._server.server_state.connections):
            connection.transport.abort()  # `close` would wait for a client that reads no bytes
        self._task = None
        self._listener.close()


class _QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the node, bounds TLS handshakes, and reports when it
    accepts connections.
    """

    def __init__(self, config: uvicorn.Config, limits: ApiLimits) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()
        self._limits = limits
        self._handshakes: TlsHandshakes | None = None
        self._ended = 0
        self._quiet: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config, loop = self.config, asyncio.get_running_loop()
        assert sockets is not None
        await self.lifespan.startup()

        def connection() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn's
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        if config.ssl is not None:
            # `create_server(ssl=)` would create a connection's protocol only after its handshake.
            self._handshakes = TlsHandshakes(
                config.ssl,
                connection,
                at_once_max=self._limits.connections_max,
                deadline_s=self._limits.header_deadline_s,
                refused=self._handshake_ended,
            )
        accept = connection if self._handshakes is None else self._handshakes.accept
        self.servers = [
            await loop.create_server(accept, sock=each, backlog=config.backlog) for each in sockets
        ]
        self.started = True
        self.accepting.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._handshakes is not None:
            self._handshakes.close()
        if self._quiet is not None:
            self._quiet.cancel()
        await super().shutdown(sockets)

    def _handshake_ended(self, who: str, why: str) -> None:
        self._ended += 1
        if self._quiet is None:
            loop = asyncio.get_running_loop()
            self._quiet = loop.call_later(_SAY_EVERY_S, self._say_again)
            _log.warning(
                "HTTPS: %s %s; %d so far. Check which hosts connect to http.port, or let a "
                "firewall admit only the right ones",
                who,
                why,
                self._ended,
            )

    def _say_again(self) -> None:
        self._quiet = None


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    tls: TlsFiles | None = None,
    limits: ApiLimits | None = None,
) -> ApiServer:
    """Listen on `host` and `port` (0: a free one) until `ApiServer.close`.

    InvalidRequest: the address can't be used, or the certificate files are wrong.
    """
    server = ApiServer(app, _listen(host, port), tls, limits or ApiLimits())
    try:
        await server.start()
    except BaseException:
        await server.close()
        raise
    return server


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        raise _cannot_listen(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    return listener


def _cannot_listen(host: str, port: int, error: OSError | UnicodeError) -> InvalidRequest:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return InvalidRequest(
        f"cannot listen on {host} port {port}: {why}; a different node may run there: choose a "
        "different port, or 0 for a free one",
        field="http.port",
    )


def _load(config: uvicorn.Config) -> None:
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise _wrong_certificate(error) from error
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2


def _check_certificate(tls: TlsFiles) -> None:
    """Check the files in a separate context, so that invalid ones leave the one in use unchanged.
    The empty password makes an encrypted key an error; without it OpenSSL asks on the terminal.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, "")
    except (OSError, ssl.SSLError) as error:
        raise _wrong_certificate(error) from error


def _wrong_certificate(error: Exception) -> InvalidRequest:
    return InvalidRequest(
        f"the certificate or its key can't be used: {error}; both must be PEM files and belong "
        "together, and the key must not be encrypted",
        field="http.tls_certificate_file",
    )
