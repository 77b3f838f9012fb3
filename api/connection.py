"""One HTTP connection: uvicorn's protocol with deadlines and bounds.

uvicorn has no deadline for a request's headers, no bound on their size with httptools, none on
pipelined requests, and none on the bytes between or after the chunks of a body. It reports a
disconnect to the request parsed last, which need not be the one being answered; before it closes it
waits without a deadline for the client to read the rest of an answer; and it refuses requests in
plain text.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl
from uvicorn.server import ServerState

from api.http.api_limits import ApiLimits
from api.http.direct_answer import LEND_EXTENSION
from api.http.errors import PROBLEM_MEDIA_TYPE, Problem, http_problem, problem_of
from api.http.gate import ABORT_EXTENSION
from kafka_formats.errors import RetryLater

_CHUNK_FRAMING_FACTOR = 8
"""Bytes of framing allowed for each byte of body: a chunk of one byte takes six."""

_NO_REQUEST = "none"
"""Request id for bytes that never became a request."""


class Connection(HttpToolsProtocol):
    """A connection bounded by `limits`, which `connection_class` sets."""

    limits: ApiLimits

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._awaits_headers = True
        self._ended_request = False
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._answered: RequestResponseCycle | None = None  # the one under way, or the last
        self._body_bytes = 0
        self._framing_bytes = 0
        self._refused = False
        self._overrun = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        above = len(self.connections) - self.limits.connections_max
        if above > self.limits.connections_refused_max:
            self._refused = True
            self.transport.abort()  # refused connections linger: TLS waits for the client's close
        elif above > 0:
            self._refuse(
                problem_of(RetryLater("too many connections: close idle ones, or try again later"))
            )
        else:
            self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        if self._close_timer is not None:
            self._close_timer.cancel()
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self._overrun:
            return
        if self._awaits_headers:
            self._start_header_timer()
        self._ended_request = False
        body_before = self._body_bytes
        in_body = not self._awaits_headers
        super().data_received(data)
        if self._refused or self._ended_request:
            return
        if self._awaits_headers:
            self._header_bytes += len(data)
            self._check_header_bytes()
        elif in_body:
            self._framing_bytes += len(data) - (self._body_bytes - body_before)
            allowed = self.limits.header_bytes_max + _CHUNK_FRAMING_FACTOR * self._body_bytes
            if self._framing_bytes > allowed:
                self._abort()  # its answer may have begun: too late for an error

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._awaits_headers = True
        self._header_bytes = self._body_bytes = self._framing_bytes = 0
        self._start_header_timer()
        extensions: dict[str, Any] = {ABORT_EXTENSION: self._abort}
        if not is_ssl(self.transport):
            extensions[LEND_EXTENSION] = self._lend
        cast("dict[str, Any]", self.scope)["extensions"] = extensions

    def on_headers_complete(self) -> None:
        self._awaits_headers = False
        self._stop_header_timer()
        self._header_bytes = len(self.url)
        self._header_bytes += sum(len(name) + len(value) for name, value in self.headers)
        self._check_header_bytes()
        if self._refused or self._overrun:
            return
        if len(self.pipeline) >= self.limits.pipelined_requests_max:
            self._overrun = True  # accepted requests are answered first, see on_response_complete
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if not self._refused and not self._overrun:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._awaits_headers = True
        self._ended_request = True
        self._header_bytes = 0
        if not self._refused and not self._overrun:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif self._overrun and self._answered is not None and self._answered.response_complete:
            allowed = self.limits.pipelined_requests_max
            self._refuse(
                http_problem(
                    400,
                    f"at most {allowed} requests may be pipelined: wait for answers before sending "
                    "more",
                )
            )

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():
            self._close()

    def send_400_response(self, msg: str) -> None:
        if not self._refused and not self._overrun:
            self._refuse(http_problem(400, msg))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _check_header_bytes(self) -> None:
        allowed = self.limits.header_bytes_max
        if self._header_bytes > allowed and not self._refused:
            self._refuse(
                http_problem(
                    431,
                    f"a request's headers may have at most {allowed} bytes: send fewer or shorter "
                    "ones",
                )
            )

    def _start_header_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(
                self.limits.header_deadline_s, self._headers_late
            )

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_late(self) -> None:
        self._header_timer = None
        if self.transport.is_closing():
            return
        if self._awaits_headers and not self._answers():
            self._refuse(
                http_problem(
                    408, "the request's headers did not arrive in time: send them without pauses"
                )
            )

    def _answers(self) -> bool:
        """True while an answer to an earlier request of this connection is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, problem: Problem) -> None:
        """Send a problem document outside of any request, unless an answer is under way,
        and close.
        """
        self._refused = True
        self._stop_header_timer()
        if not self._answers():
            body = problem.body(_NO_REQUEST)
            reason = problem.row.title.encode("ascii")
            self.transport.write(
                b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
                b"Connection: close\r\n\r\n%s"
                % (problem.row.status, reason, PROBLEM_MEDIA_TYPE.encode(), len(body), body)
            )
        self._close()

    def _close(self) -> None:
        """Close once the client has read all bytes sent, or after the send deadline."""
        self.transport.close()
        if self._close_timer is None:
            self._close_timer = self.loop.call_later(
                self.limits.chunk_deadline_s, self.transport.abort
            )

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[socket.socket | None]:
        """Lend the socket; implements `api.http.direct_answer.Lend`. This process goes on reading,
        to notice a disconnect.
        """
        cycle = self._answered
        assert cycle is not None, "the head of an answer was sent"
        if not await self._flushed(cycle):
            self._abort()
            yield None
            return
        own = self.transport.get_extra_info("socket")
        with socket.socket(fileno=os.dup(own.fileno())) as lent:
            try:
                yield lent
            except BaseException:
                with suppress(OSError):  # closing ours would leave the borrower's open
                    lent.shutdown(socket.SHUT_RDWR)
                self._abort()
                raise
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits()
        cycle.expected_content_length = 0

    async def _flushed(self, cycle: RequestResponseCycle) -> bool:
        """True if all written bytes were sent in time; only then may a worker write to the
        socket.
        """
        if cycle.disconnected or self.transport.is_closing():
            return False
        self.transport.set_write_buffer_limits(high=0)
        try:
            async with asyncio.timeout(self.limits.chunk_deadline_s):
                await self.flow.drain()
        except TimeoutError:
            return False
        return not cycle.disconnected and not self.transport.is_closing()

    def _abort(self) -> None:
        """Abort the connection now; `close` would wait for a client that reads no bytes."""
        for cycle in (self.cycle, self._answered):
            if cycle is not None:
                cycle.disconnected = True
        self.transport.abort()


def connection_class(limits: ApiLimits) -> type[Connection]:
    """The protocol class that uvicorn instantiates for each connection."""
    return type("BoundConnection", (Connection,), {"limits": limits})
