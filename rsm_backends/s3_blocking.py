"""Reads of S3 objects by plain calls, straight into the caller's memory.

A request goes past most of botocore (see `s3_signed_get`), and an answer other than the one hoped
for is asked for again through all of it, so that it judges. The body goes from the socket into the
buffer by one `recv_into` after another, past urllib3, which would copy it twice: that takes half
the CPU of `body.readinto`, and a third of what the store of `rsm_backends.s3` takes to hand out
pieces.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from botocore.session import Session, get_session
from urllib3.exceptions import HTTPError

from kafka_formats.errors import CorruptData, RetryLater
from rsm_backends.arguments import check_key, check_range, shown
from rsm_backends.s3 import store_error
from rsm_backends.s3_client import (
    USER_AGENT,
    client_arguments,
    client_config,
    service_descriptions,
)
from rsm_backends.s3_errors import error_for_code
from rsm_backends.s3_signed_get import PLAIN_KEY, PROBE_KEY, GetTarget, signed_get, target_of
from rsm_backends.store_config import StoreConfig

STEP_BYTES = 1024 * 1024
"""The deadline is looked at after each."""

WAKE_BYTES = 256 * 1024
"""Without TLS a reader sleeps until so much is there: stores write some 32 KiB at a time, and to be
woken for each takes about half of the system's share again. A body's last two steps come as they
come.
"""

KEPT_CLIENTS = 4
"""How many of closed stores wait for the next of the same settings: each task opens its stores, and
to make a client takes some 30 ms of CPU.
"""

_CLIENT_ERRORS = (BotoCoreError, ClientError, ResponseParserError, HTTPError, OSError)
_PARTIAL_CONTENT = 206
_RANGE_BEHIND_THE_END = 416
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


class _Answer(NamedTuple):
    """To a ranged GET: the body to come, and what its header says of it."""

    raw: Any
    body_bytes: int
    content_range: str

    @property
    def object_bytes(self) -> int | None:
        """How long the whole object is; None if the store does not say."""
        size = self.content_range.rpartition("/")[2]
        return int(size) if size.isdecimal() else None


class S3Reads:
    """One bucket. A call ends within `deadline_s`, and a connection that is silent for
    `read_timeout_s` is given up.
    """

    def __init__(self, config: StoreConfig, *, monotonic: Callable[[], float]) -> None:
        self._bucket = config.bucket
        self._deadline_s = config.deadline_s
        self._monotonic = monotonic
        with self.translated(None):
            kept = _kept.pop(config, None)
            self._made = _client(config) if kept is None else kept
        self._client, self._target = self._made
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
        if config is not None:  # else the client may be another's by now
            self._client.close()
            _keep(config, self._made)

    def begin(self, key: str, start: int, end: int) -> _Body | None:
        """Ask for bytes [start, end); None if the object ends before them."""
        check_range(start, end)
        byte_range = f"bytes={start}-{end - 1}"
        with self.translated(key):
            answer = self._get(key, byte_range) or self._general_get(key, byte_range)
        if answer is None:
            return None
        try:
            self._check_range_answer(key, start, end - start, answer)
        except CorruptData:
            answer.raw.close()
            raise
        return _Body(self, key, answer, start)

    def read_into(self, body: _Body, buffer: memoryview) -> int:
        """What comes next of a body: fewer bytes than fit only at its end."""
        ends_at = self._monotonic() + self._deadline_s
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
        """The client's errors as those of the store port."""
        try:
            yield
        except _CLIENT_ERRORS as error:
            raise self._translated(error, key) from error

    def _get(self, key: str, byte_range: str) -> _Answer | None:
        """The answer hoped for; None: go the general way."""
        credentials = self._client._get_credentials()
        if self._target is None or credentials is None or PLAIN_KEY.fullmatch(key) is None:
            return None
        request = signed_get(
            self._target,
            key,
            byte_range=byte_range,
            user_agent=USER_AGENT,
            credentials=credentials.get_frozen_credentials(),
        )
        answer = self._client._endpoint.http_session.send(request)
        status, length = answer.status_code, answer.headers.get("content-length", "")
        if status == _PARTIAL_CONTENT and length.isdecimal():
            return _Answer(answer.raw, int(length), answer.headers.get("content-range", ""))
        answer.raw.close()
        if status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS:
            # To ask again at once is the last thing that it needs.
            raise error_for_code(
                str(status), status, "", operation="get", bucket=self._bucket, key=key
            )
        return None

    def _general_get(self, key: str, byte_range: str) -> _Answer | None:
        """Through all of the client; None if the object ends before the range."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key, Range=byte_range)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == _RANGE_BEHIND_THE_END:
                return None
            raise
        return _Answer(
            answer["Body"]._raw_stream, answer["ContentLength"], answer.get("ContentRange", "")
        )

    def _check_range_answer(self, key: str, start: int, size: int, answer: _Answer) -> None:
        """A proxy that ignores Range would hand out the wrong bytes: refuse them."""
        told = answer.content_range
        if not told.startswith(f"bytes {start}-") or answer.body_bytes > size:
            raise CorruptData(
                f"asked for {size} bytes from {start}, the store answered {told!r}",
                source=f"s3://{self._bucket}/{key}",
                position=start,
            )

    def _translated(self, error: Exception, key: str | None) -> Exception:
        if isinstance(error, HTTPError):
            return RetryLater(
                f"get in bucket {self._bucket!r}: the connection failed: "
                f"{type(error).__name__}: {error}"
            )
        return store_error(error, operation="get", bucket=self._bucket, key=key)


class _Body:
    """An answer that is being read, by one thread."""

    def __init__(self, store: S3Reads, key: str, answer: _Answer, start: int) -> None:
        self.key = key
        self.position = start
        self.left = answer.body_bytes
        self.object_bytes = answer.object_bytes
        self._raw = answer.raw
        self._waker = _plain_socket(answer.raw) if self.left > 2 * STEP_BYTES else None
        if self._waker is not None:
            with store.translated(key):
                self._wake_at(WAKE_BYTES)

    def step_into(self, buffer: memoryview) -> int:
        """Some bytes, at most `STEP_BYTES`; RetryLater if none come any more."""
        if self._waker is not None and self.left <= 2 * STEP_BYTES:
            self._wake_at(1)
            self._waker = None
        size: int = self._raw._fp.readinto(buffer)
        if not size:
            raise RetryLater(
                f"get of {shown(self.key)}: the connection ended at byte {self.position}, "
                f"{self.left} before its end"
            )
        self.left -= size
        self.position += size
        return size

    def close(self) -> None:
        """Read to its end the connection is the next request's; otherwise it is closed."""
        if self._raw._fp.isclosed():
            self._raw.release_conn()
        else:
            self._raw.close()

    def _wake_at(self, size: int) -> None:
        assert self._waker is not None, "asked of plain connections only"
        self._waker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


class _S3Object:
    """Nothing is held between reads: connections are the client's."""

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
        """Nothing to close."""


class _S3Stream:
    """Reads that follow one another take from one answer, which was asked for to the end. After a
    read that failed the next one asks anew, from where it is.
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
        """Give the connection up, unless all of its answer was read."""
        if self._body is not None:
            self._body.close()
            self._body = None


@cache
def _session() -> Session:
    """One a process."""
    session = get_session()
    session.register_component("data_loader", service_descriptions())
    return session


class _Client(NamedTuple):
    """The client of a store, and where it asks for objects."""

    client: Any
    target: GetTarget | None


def _client(config: StoreConfig) -> _Client:
    client = _session().create_client(
        **client_arguments(config), config=Config(**client_config(config))
    )
    return _Client(client, _target(client, config.bucket))


_kept: dict[StoreConfig, _Client] = {}  # of nobody: who takes one takes it out


def _keep(config: StoreConfig, made: _Client) -> None:
    """For the next of the same settings, if these are all: credentials that a client looks for by
    itself may be others by then.
    """
    if config.access_key_id is not None:
        _kept[config] = made
        for oldest in list(_kept)[:-KEPT_CLIENTS]:
            _kept.pop(oldest, None)


def _plain_socket(raw: Any) -> socket.socket | None:
    """The connection of an answer; None where TLS is spoken on it."""
    stream = getattr(raw._fp.fp, "raw", None)
    found = getattr(stream, "_sock", None)
    return found if type(found) is socket.socket else None


def _target(client: Any, bucket: str) -> GetTarget | None:
    """None where the client can't sign a URL: without credentials, which its errors then tell."""
    try:
        signed = client.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": PROBE_KEY}
        )
    except BotoCoreError:
        return None
    return target_of(signed)
