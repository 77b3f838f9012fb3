"""Blocking reads of S3 objects, straight into the caller's memory.

A request bypasses most of botocore (see `s3_signed_get`); after any answer but 206 it is repeated
through all of botocore, which then interprets the answer. The body goes from the socket into the
buffer by one `recv_into` after another, past urllib3, which would copy it twice: that takes half
the CPU of `body.readinto`, and a third of the CPU that `rsm_backends.s3` needs to return pieces.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from botocore.session import Session, get_session
from urllib3.exceptions import HTTPError

from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.arguments import check_key, check_range, shown
from rsm_backends.s3_answers import Asked
from rsm_backends.s3_client import (
    USER_AGENT,
    client_arguments,
    client_config,
    service_descriptions,
)
from rsm_backends.s3_client_errors import code_of, status_of, store_error
from rsm_backends.s3_credentials import BlockingCredentials, are_fixed
from rsm_backends.s3_errors import error_for_code, may_be_of_keys
from rsm_backends.s3_http import BlockingHttpSession
from rsm_backends.s3_plain_connections import Deadlines
from rsm_backends.s3_range_answers import (
    AnswerHead,
    UnfitAnswerError,
    WantedBytes,
    bytes_of_object,
    head_of,
    wanted_bytes,
)
from rsm_backends.s3_signed_get import PLAIN_KEY, PROBE_KEY, GetTarget, signed_get, target_of
from rsm_backends.store_config import StoreConfig

STEP_BYTES = 1024 * 1024
"""The bytes of one step; the deadline is checked after each."""

WAKE_BYTES = 256 * 1024
"""The number of bytes for which a reader without TLS sleeps: stores write some 32 KiB at a time,
and waking for each takes half as much system time again. It does not apply to the last two steps of
a body.
"""

KEPT_CLIENTS = 4
"""The most clients of closed stores that are kept for the next store with the same settings: each
task opens its stores, and making a client takes some 30 ms of CPU.
"""

_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RuntimeError)
"""Errors of the library's own code on an answer that it cannot parse."""
_CLIENT_ERRORS = (
    BotoCoreError, ClientError, ResponseParserError, HTTPError, HTTPException, OSError,
    *_UNREADABLE,
)  # fmt: skip
_PARTIAL_CONTENT = 206
_RANGE_BEHIND_THE_END = 416
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a ranged GET: its body, not yet read, and its status and headers."""

    raw: Any
    head: AnswerHead


class S3Reads:
    """Reads of one bucket. A call ends within `deadline_s`, and a connection on which no byte comes
    for `read_timeout_s` is given up.
    """

    def __init__(self, config: StoreConfig, *, monotonic: Callable[[], float]) -> None:
        self._bucket = config.bucket
        self._store = f"the store {config.name!r} at {config.endpoint_url or 'AWS'}"
        self._deadline_s = config.deadline_s
        self._monotonic = monotonic
        with self.translated(None):
            kept = _kept.pop(config, None)
            self._made = _client(config) if kept is None else kept
        self._made.clock.now = monotonic
        self._client = self._made.client
        self._config: StoreConfig | None = config

    def __repr__(self) -> str:
        """The bucket; never credentials."""
        return f"S3Reads(bucket={self._bucket!r})"

    def open(self, key: str, *, in_order_to: int | None = None) -> _S3Object | _S3Stream:
        check_key(key)
        return _S3Object(self, key) if in_order_to is None else _S3Stream(self, key, in_order_to)

    def close(self) -> None:
        """Close every connection."""
        config, self._config = self._config, None
        if config is not None:  # a second close: a different store may use the client by now
            self._client.close()
            _keep(config, self._made)

    def begin(self, key: str, start: int, end: int) -> _Body | None:
        """Request bytes [start, end); None if the object ends before them."""
        check_range(start, end)
        byte_range = f"bytes={start}-{end - 1}"
        with self.translated(key):
            answer = self._get(key, byte_range) or self._general_get(key, byte_range, start)
        if answer is None:
            return None
        try:
            wanted = wanted_bytes(answer.head, start, end)
            if wanted.size is None:
                raise UnfitAnswerError("Content-Length is missing")
        except UnfitAnswerError as error:
            answer.raw.close()
            raise self._asked(key).unexpected(str(error)) from None
        return _Body(self, key, answer.raw, wanted, start)

    def read_into(self, body: _Body, buffer: memoryview) -> int:
        """Fill `buffer` with the next bytes of a body; returns fewer than fit only at its end."""
        ends_at = self._monotonic() + self._deadline_s
        self._made.deadlines.begin(self._deadline_s)
        buffer = buffer[: body.left]
        at = 0
        with self.translated(body.key):
            while at < len(buffer):
                at += body.step_into(buffer[at : at + STEP_BYTES])
                if self._monotonic() >= ends_at:
                    raise RetryLater(
                        f"get of {shown(body.key)} did not end within {self._deadline_s:g} s"
                    )
        return at

    @contextmanager
    def translated(self, key: str | None) -> Iterator[None]:
        """Turn the client's errors into those of the store port."""
        try:
            yield
        except _CLIENT_ERRORS as error:
            raise self._translated(error, key) from error

    def _get(self, key: str, byte_range: str) -> _Answer | None:
        """A 206 answer, bypassing most of botocore; None if all of botocore has to be used."""
        if PLAIN_KEY.fullmatch(key) is None:
            return None
        target, credentials = self._made.target(self._bucket), self._client._get_credentials()
        if target is None or credentials is None:
            return None
        request = signed_get(
            target,
            key,
            byte_range=byte_range,
            user_agent=USER_AGENT,
            credentials=credentials.get_frozen_credentials(),
        )
        answer = self._client._endpoint.http_session.send(request)
        status = answer.status_code
        if status == _PARTIAL_CONTENT:
            metadata = {"HTTPStatusCode": status, "HTTPHeaders": answer.headers}
            return _Answer(answer.raw, head_of({"ResponseMetadata": metadata}))
        answer.raw.close()
        if status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS:
            # A store under pressure gets no second request at once.
            raise error_for_code(
                str(status),
                status,
                "",
                operation="get",
                bucket=self._bucket,
                key=key,
                retry_after=answer.headers.get("retry-after"),
            )
        return None

    def _general_get(self, key: str, byte_range: str, start: int) -> _Answer | None:
        """The answer through all of botocore; None if the object ends before the range."""
        try:
            answer = self._renewing(
                lambda: self._client.get_object(Bucket=self._bucket, Key=key, Range=byte_range)
            )
        except ClientError as error:
            if status_of(error) != _RANGE_BEHIND_THE_END:
                raise
            headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
            size = bytes_of_object(headers.get("content-range"))
        else:
            return _Answer(answer["Body"]._raw_stream, head_of(answer))
        if size is None:
            size = self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"]
        if start < size:
            raise self._asked(key).unexpected(f"the status is 416, and the object has {size} bytes")
        return None

    def _renewing(self, attempt: Callable[[], Any]) -> Any:
        """Repeat a refused request once, if new credentials are found by then."""
        credentials = self._made.credentials
        if credentials is None:
            return attempt()
        used = credentials.get_frozen_credentials()
        try:
            return attempt()
        except ClientError as error:
            if not may_be_of_keys(code_of(error)) or not credentials.are_others_than(used):
                raise
        return attempt()

    def _asked(self, key: str | None) -> Asked:
        return Asked("get", self._bucket, key, self._store)

    def _translated(self, error: Exception, key: str | None) -> StrandlineError:
        if isinstance(error, HTTPError | HTTPException):
            return RetryLater(
                f"get in bucket {self._bucket!r}: the connection failed: "
                f"{type(error).__name__}: {str(error)[:200]}"
            )
        if isinstance(error, _UNREADABLE):
            return self._asked(key).unexpected(
                f"one of its fields cannot be read: {type(error).__name__}"
            )
        return store_error(error, self._asked(key))


class _Body:
    """The body of an answer, read by one thread."""

    def __init__(self, store: S3Reads, key: str, raw: Any, wanted: WantedBytes, start: int) -> None:
        self.key = key
        self.position = start
        self.left = wanted.size or 0
        self.object_bytes = wanted.object_bytes
        self._raw = raw
        self._waker = _plain_socket(raw) if self.left > 2 * STEP_BYTES else None
        if self._waker is not None:
            with store.translated(key):
                self._wake_at(WAKE_BYTES)

    def step_into(self, buffer: memoryview) -> int:
        """Read some bytes, at most `STEP_BYTES`; RetryLater if the connection has ended."""
        if self._waker is not None and self.left <= 2 * STEP_BYTES:
            self._wake_at(1)
            self._waker = None
        size = self._received_into(buffer)
        if not size:
            raise RetryLater(
                f"get of {shown(self.key)}: the connection ended at byte {self.position}, "
                f"{self.left} before its end"
            )
        self.left -= size
        self.position += size
        return size

    def _received_into(self, buffer: memoryview) -> int:
        """Read with one `recv_into` only: the library's `readinto` waits until the buffer is full,
        for any length of time, so that no deadline could be kept.
        """
        answer = self._raw._fp
        if answer.fp is None:
            return 0
        size: int
        if answer.chunked or answer.length is None:
            piece = answer.read1(len(buffer))
            size = len(piece)
            buffer[:size] = piece
            return size
        size = answer.fp.readinto1(buffer[: answer.length])
        answer.length -= size
        if not answer.length:
            answer._close_conn()
        return size

    def close(self) -> None:
        """Free the connection for the next request if the body was read whole, else close it."""
        if self._raw._fp.isclosed():
            self._raw.release_conn()
        else:
            self._raw.close()

    def _wake_at(self, size: int) -> None:
        assert self._waker is not None, "set for plain connections only"
        self._waker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


class _S3Object:
    """An object read by one request for each read; it keeps no connection between reads."""

    def __init__(self, store: S3Reads, key: str) -> None:
        self._store = store
        self._key = key
        self.object_bytes: int | None = None

    def read_into(self, buffer: memoryview, start: int) -> int:
        if not buffer:
            return 0
        body = self._store.begin(self._key, start, start + len(buffer))
        if body is None:
            return 0
        try:
            filled = self._store.read_into(body, buffer)
        finally:
            body.close()
        if body.object_bytes is not None:
            self.object_bytes = body.object_bytes
        return filled

    def close(self) -> None:
        """Do nothing: no connection is kept."""


class _S3Stream:
    """An object read in order from one answer, requested up to `end`. After a failed read, or one
    at a different position, the next read sends a new request from its position.
    """

    def __init__(self, store: S3Reads, key: str, end: int) -> None:
        self._store = store
        self._key = key
        self._end = end
        self._body: _Body | None = None
        self.object_bytes: int | None = None

    def read_into(self, buffer: memoryview, start: int) -> int:
        if not buffer:
            return 0
        if self._body is None or self._body.position != start:
            self.close()
            self._body = self._store.begin(self._key, start, max(self._end, start + len(buffer)))
            if self._body is None:
                return 0
            self.object_bytes = self._body.object_bytes or self.object_bytes
        try:
            filled = self._store.read_into(self._body, buffer)
        except BaseException:
            self.close()
            raise
        if not self._body.left:
            self.close()
        return filled

    def close(self) -> None:
        """Close the connection, unless its answer was read to the end."""
        if self._body is not None:
            self._body.close()
            self._body = None


@cache
def _session() -> Session:
    """The session that all clients with fixed keys in this process share."""
    session = get_session()
    session.register_component("data_loader", service_descriptions())
    return session


class _Clock:
    """The clock of the store that uses the client now."""

    now: Callable[[], float]

    def read(self) -> float:
        return self.now()


@dataclass(slots=True)
class _Client:
    """The client of a store, its credentials if they may change, and the URL of its objects."""

    client: Any
    clock: _Clock
    deadlines: Deadlines
    credentials: BlockingCredentials | None
    _target: GetTarget | None = None
    _signs_otherwise: bool = False

    def target(self, bucket: str) -> GetTarget | None:
        """The URL of the bucket's objects, with a signature's scope. None if the client signs in a
        different way, or cannot sign now because keys are missing, which botocore then reports.
        """
        if self._target is None and not self._signs_otherwise:
            try:
                signed = self.client.generate_presigned_url(
                    "get_object", Params={"Bucket": bucket, "Key": PROBE_KEY}
                )
            except BotoCoreError:
                return None
            self._target = target_of(signed)
            self._signs_otherwise = self._target is None
        return self._target


def _client(config: StoreConfig) -> _Client:
    clock = _Clock()
    credentials = None if are_fixed(config) else BlockingCredentials(config, clock.read)
    session = _session()
    if credentials is not None:
        session = get_session()
        session.register_component("data_loader", service_descriptions())
        session.register_component("credential_provider", credentials)
    client: Any = session.create_client(
        **client_arguments(config), config=Config(**client_config(config))
    )
    endpoint, deadlines = client._endpoint, Deadlines(clock.read)
    endpoint.http_session = BlockingHttpSession(endpoint.http_session, deadlines, config.deadline_s)
    return _Client(client, clock, deadlines, credentials)


_kept: dict[StoreConfig, _Client] = {}  # clients not in use; a store that takes one removes it


def _keep(config: StoreConfig, made: _Client) -> None:
    """Keep a client for the next store with the same settings, if these include the keys:
    credentials that a client finds by itself may be different by then.
    """
    if config.access_key_id is not None:
        _kept[config] = made
        for oldest in list(_kept)[:-KEPT_CLIENTS]:
            _kept.pop(oldest, None)


def _plain_socket(raw: Any) -> socket.socket | None:
    """The socket of an answer; None if the connection uses TLS."""
    stream = getattr(raw._fp.fp, "raw", None)
    found = getattr(stream, "_sock", None)
    return found if type(found) is socket.socket else None
