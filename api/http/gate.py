"""Outermost layer: request id, limits, deadlines, and the last handler of errors.

It is a plain ASGI layer, because it must see each chunk. It adds HEAD to every path that has GET,
by running the GET without sending the body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.context import ApiContext
from api.http.errors import PROBLEM_MEDIA_TYPE, Problem, http_problem, internal_problem, problem_of
from api.http.route_table import ROUTE_SCOPE_KEY, RouteTable, route_of, writes
from api.http.streaming import HEAD_SCOPE_KEY
from api.http.validation import validation_problem
from kafka_formats.errors import (
    CorruptData,
    InvalidRequest,
    OutcomeUnknown,
    RetryLater,
    StrandlineError,
)
from rlm.worker.send_pace import SendPace

REQUEST_ID_HEADER = "Strandline-Request-Id"
METADATA_OFFSET_HEADER = "Strandline-Metadata-Offset"
METADATA_OFFSET_SCOPE_KEY = "strandline.metadata_offset"
CONTEXT_SCOPE_KEY = "strandline.context"
ABORT_EXTENSION = "strandline.abort"
"""Key in `scope["extensions"]` of a function that aborts the connection, unsent bytes included."""

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
"""The paths that are answered under any load: a busy node must not be restarted for being busy."""

BROKER_PATHS = "/v1/broker/"
"""The prefix of paths whose errors are also in headers: the broker's plug-in reads no JSON."""

SEGMENT_PATH = f"{BROKER_PATHS}copy-files"
SEGMENT_BODY_BYTES_MAX = 4 * 2**30
"""The largest body with a segment, which has at most 2 GiB. Its files come as one body, which the
route reads piece by piece.
"""

_BODY_LATE = "the request's body did not arrive in time: send it without pauses"
_log = logging.getLogger("strandline.api")


class Gate:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, context: ApiContext, routes: RouteTable) -> None:
        self.inner = app
        self._context = context
        self._metrics = context.metrics.http
        self._routes = routes
        self._running = {False: 0, True: 0}  # True: of HEALTH_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        route = self._routes.find(scope["path"])
        exchange = Exchange({**scope, ROUTE_SCOPE_KEY: route}, receive, send, self._context)
        limits, is_health = self._context.limits, scope["path"] in HEALTH_PATHS
        most = limits.health_parallel_max if is_health else limits.requests_parallel_max
        running = self._running
        running[is_health] += 1
        started = self._context.monotonic()
        self._metrics.started()
        try:
            if running[is_health] > most:
                await exchange.fail(
                    problem_of(RetryLater("too many requests at once: ask again later"))
                )
            else:
                await self._run(exchange)
        finally:
            running[is_health] -= 1
            took_s = self._context.monotonic() - started
            self._metrics.finished(exchange.method, route.template, exchange.status, took_s)
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s in %.0f ms", exchange, took_s * 1_000)

    async def _run(self, exchange: Exchange) -> None:
        limits = self._context.limits
        deadline = asyncio.timeout(limits.answer_deadline_s)
        try:
            exchange.check_head()
            async with deadline:
                await exchange.answered_by(self.inner, deadline)
        except TimeoutError:
            if exchange.send_timed_out:
                _log.info("request %s: the client stopped reading its answer", exchange.request_id)
                exchange.abort()
            elif deadline.expired():
                await exchange.fail(exchange.late(limits.answer_deadline_s))
            else:
                self._log_failure(exchange)
                await exchange.fail(internal_problem())
        except asyncio.CancelledError:
            # Cancelled by the server's shutdown deadline, unless no server runs it; uvicorn logs an
            # error that is raised.
            if not exchange.is_served:
                raise
            _log.warning("%s is aborted: the node stops", exchange)
            exchange.abort()
        except RequestValidationError as error:
            await exchange.fail(validation_problem(error))
        except HTTPException as error:
            await exchange.fail(http_problem(error.status_code, error.detail, error.headers))
        except StrandlineError as error:
            if error.kind == "internal":
                self._log_failure(exchange)
            elif isinstance(error, CorruptData):
                self._metrics.corrupt()
                _log.error(
                    "request %s gets no bytes, as they are damaged: %s", exchange.request_id, error
                )
            await exchange.fail(problem_of(error))
        except Exception:  # noqa: BLE001 - the top of a request: logged, and answered as internal
            self._log_failure(exchange)
            await exchange.fail(internal_problem())

    def _log_failure(self, exchange: Exchange) -> None:
        _log.exception(
            "request %s (%s %s) failed", exchange.request_id, exchange.method, exchange.shown_path
        )


class Exchange:
    """One request and its answer, with the checks that each message passes."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, context: ApiContext) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.request_id = str(context.new_uuid())
        self.status = 499  # the client disconnected before an answer (nginx's code)
        self.send_timed_out = False
        self.shown_path = repr(scope["path"][:200])
        self._receive = receive
        self._send = send
        self._abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT_EXTENSION)
        self._context = context
        self._headers = Headers(scope=scope)
        self._is_head = self.method == "HEAD"
        self._started = False
        self._body_bytes = 0
        self._body_done = not self._has_body()
        self._awaits_body = False
        self._answer_deadline: asyncio.Timeout | None = None
        limits = context.limits
        is_segment = scope["path"] == SEGMENT_PATH
        self._body_bytes_max = SEGMENT_BODY_BYTES_MAX if is_segment else limits.body_bytes_max
        self._pace = SendPace(limits.chunk_deadline_s, limits.stream_bytes_per_s_min)
        scope[CONTEXT_SCOPE_KEY] = context
        if self._is_head:
            scope["method"] = "GET"
            scope[HEAD_SCOPE_KEY] = True

    def __str__(self) -> str:
        """Text for the log: method and path without the query, and the status."""
        return f"request {self.request_id} ({self.method} {self.shown_path}): {self.status}"

    def late(self, deadline_s: float) -> Problem:
        """The problem document of a missed answer deadline. The outcome of a write is unknown,
        unless the request still waits for its body.
        """
        if self._awaits_body:
            return http_problem(408, _BODY_LATE)
        message = f"no answer within {deadline_s:g} s"
        if writes(self.method, route_of(self.scope).template):
            return problem_of(
                OutcomeUnknown(f"{message}; read the present state before you repeat the request")
            )
        return problem_of(RetryLater(f"{message}: ask again"))

    def check_head(self) -> None:
        """Refuse a request by its headers, before its body is read."""
        length = self._headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise InvalidRequest("must be the number of bytes of the body", field="Content-Length")
        if len(length) > 18 or int(length) > self._body_bytes_max:
            raise self._too_large()

    async def answered_by(self, app: ASGIApp, deadline: asyncio.Timeout) -> None:
        """Let `app` answer; `deadline` ends once the answer starts."""
        self._answer_deadline = deadline
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            self._answer_deadline = None

    async def receive(self) -> Message:
        """The next piece of the body, counted and under a deadline; after the body: disconnect."""
        deadline_s = None if self._body_done else self._context.limits.body_deadline_s
        self._awaits_body = not self._body_done
        try:
            async with asyncio.timeout(deadline_s):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, _BODY_LATE) from None
        self._awaits_body = False
        if message["type"] == "http.request":
            self._body_bytes += len(message.get("body", b""))
            self._body_done = not message.get("more_body", False)
            if self._body_bytes > self._body_bytes_max:
                raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        """Send a message within the send deadline; the first message gets the gate's headers."""
        if message["type"] == "http.response.start":
            self._started = True
            self.status = message["status"]
            self._add_headers(MutableHeaders(scope=message))
            if self._answer_deadline is not None and not self._answer_deadline.expired():
                self._answer_deadline.reschedule(None)
        elif self._is_head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        began_at = self._context.monotonic()
        try:
            deadline_s = min(self._context.limits.chunk_deadline_s, self._pace.left_s)
            async with asyncio.timeout(deadline_s):
                await self._send(message)
        except TimeoutError:
            self.send_timed_out = True
            raise
        self._pace.took(len(message.get("body", b"")), self._context.monotonic() - began_at)

    async def fail(self, problem: Problem) -> None:
        """Answer with `problem`; if an answer is under way, abort the connection."""
        if self._started:
            _log.warning(
                "request %s (%s %s) was aborted after its answer had begun: %s",
                self.request_id,
                self.method,
                self.shown_path,
                problem.detail,
            )
            self.abort()
            return
        body = problem.body(self.request_id)
        headers = {
            "Content-Type": PROBLEM_MEDIA_TYPE,
            "Content-Length": str(len(body)),
            **problem.headers,
            **(problem.as_headers() if self.scope["path"].startswith(BROKER_PATHS) else {}),
        }
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        start = {"type": "http.response.start", "status": problem.row.status, "headers": raw}
        try:
            await self.send(start)
            await self.send({"type": "http.response.body", "body": body, "more_body": False})
        except TimeoutError:
            self.abort()

    @property
    def is_served(self) -> bool:
        """True if a server runs the request, whose connection can be aborted."""
        return self._abort is not None

    def abort(self) -> None:
        """Abort the connection, so that no client takes a part for the whole answer."""
        if self._abort is None:
            raise ConnectionAbortedError("the answer broke off")
        self._abort()

    def _add_headers(self, headers: MutableHeaders) -> None:
        headers[REQUEST_ID_HEADER] = self.request_id
        headers["X-Content-Type-Options"] = "nosniff"
        headers.setdefault("Cache-Control", "no-store")
        if self.scope["path"].startswith("/v1/"):
            applied = self.scope.get(METADATA_OFFSET_SCOPE_KEY)
            if applied is None:
                applied = self._context.manager.applied_offset
            headers[METADATA_OFFSET_HEADER] = str(applied)
        if not self._body_done:
            headers["Connection"] = "close"  # the rest of the body is not read

    def _has_body(self) -> bool:
        return (
            self._headers.get("content-length", "0") != "0" or "transfer-encoding" in self._headers
        )

    def _too_large(self) -> HTTPException:
        allowed = self._body_bytes_max
        return HTTPException(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request body may have at most {allowed} bytes"
        )
