"""Reads of S3 objects by plain calls, straight into the caller's memory.

A request goes past most of botocore (see `s3_signed_get`), and an answer other than the one hoped
for is asked for again through all of it, so that it judges. The body goes from the socket into the
buffer by one `recv_into` after another, past urllib3, which would copy it twice: that takes half
the CPU of `body.readinto`, and a third of what the store of `rsm_backends.s3` takes to hand out
pieces.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
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
from rsm_backends.s3_client import USER_AGENT, client_arguments, client_config
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
        try:
            self._client = _client(config)
            self._target = _target(self._client, config.bucket)
        except _CLIENT_ERRORS as error:
            raise self._translated(error, None) from error

    def __repr__(self) -> str:
        """The bucket; never credentials."""
        return f"S3Reads(bucket={self._bucket!r})"

    def open(self, key: str) -> _S3Object:
        check_key(key)
        return _S3Object(self, key)

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def read_into(self, key: str, buffer: memoryview, start: int) -> tuple[int, int | None]:
        """See `BlockingObject.read_into`; and the object's length, where the answer tells it."""
        check_range(start, start + len(buffer))
        if not buffer:
            return 0, None
        byte_range = f"bytes={start}-{start + len(buffer) - 1}"
        try:
            answer = self._get(key, byte_range) or self._general_get(key, byte_range)
        except _CLIENT_ERRORS as error:
            raise self._translated(error, key) from error
        if answer is None:
            return 0, None
        try:
            self._check_range_answer(key, start, len(buffer), answer)
            filled = self._fill(key, answer.raw, buffer[: answer.body_bytes])
        except _CLIENT_ERRORS as error:
            raise self._translated(error, key) from error
        finally:
            # Read to its end the connection is the next request's; otherwise it is closed.
            if answer.raw._fp.isclosed():
                answer.raw.release_conn()
            else:
                answer.raw.close()
        return filled, answer.object_bytes

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

    def _fill(self, key: str, raw: Any, body: memoryview) -> int:
        ends_at = self._monotonic() + self._deadline_s
        at = 0
        waker = _plain_socket(raw) if len(body) > 2 * STEP_BYTES else None
        if waker is not None:
            waker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, WAKE_BYTES)
        while at < len(body):
            if waker is not None and len(body) - at <= 2 * STEP_BYTES:
                waker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                waker = None
            size = raw._fp.readinto(body[at : at + STEP_BYTES])
            if not size:
                raise RetryLater(
                    f"get of {shown(key)}: the connection ended after {at} of {len(body)} bytes"
                )
            at += size
            if self._monotonic() >= ends_at:
                raise RetryLater(f"get of {shown(key)} did not end within {self._deadline_s:g} s")
        return at

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


class _S3Object:
    """Nothing is held between reads: connections are the client's."""

    def __init__(self, store: S3Reads, key: str) -> None:
        self._store = store
        self._key = key
        self.object_bytes: int | None = None

    def read_into(self, buffer: memoryview, start: int) -> int:
        filled, object_bytes = self._store.read_into(self._key, buffer, start)
        if object_bytes is not None:
            self.object_bytes = object_bytes
        return filled

    def close(self) -> None:
        """Nothing to close."""


@cache
def _session() -> Session:
    """One a process: what it read of the service's description is not read again by each task."""
    return get_session()


def _client(config: StoreConfig) -> Any:
    return _session().create_client(
        **client_arguments(config), config=Config(**client_config(config))
    )


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
