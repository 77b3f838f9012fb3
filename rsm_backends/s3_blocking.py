"""Reads of S3 objects by plain calls, straight into the caller's memory.

botocore makes the request and judges the answer. The body goes from the socket into the buffer by
one `recv_into` after another, past urllib3, which would copy it twice: that takes half the CPU of
`body.readinto`, and a third of what the store of `rsm_backends.s3` takes to hand out pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from botocore.session import Session, get_session
from urllib3.exceptions import HTTPError

from kafka_formats.errors import CorruptData, RetryLater
from rsm_backends.arguments import check_key, check_range, shown
from rsm_backends.s3 import store_error
from rsm_backends.s3_client import client_arguments, client_config
from rsm_backends.store_config import StoreConfig

STEP_BYTES = 1024 * 1024
"""The deadline is looked at after each."""

_CLIENT_ERRORS = (BotoCoreError, ClientError, ResponseParserError, HTTPError, OSError)
_RANGE_BEHIND_THE_END = 416


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

    def read_into(self, key: str, buffer: memoryview, start: int) -> int:
        """See `BlockingObject.read_into`."""
        check_range(start, start + len(buffer))
        if not buffer:
            return 0
        try:
            answer = self._client.get_object(
                Bucket=self._bucket, Key=key, Range=f"bytes={start}-{start + len(buffer) - 1}"
            )
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == _RANGE_BEHIND_THE_END:
                return 0
            raise self._translated(error, key) from error
        except _CLIENT_ERRORS as error:
            raise self._translated(error, key) from error
        raw = answer["Body"]._raw_stream
        try:
            self._check_range_answer(key, start, len(buffer), answer)
            filled = self._fill(key, raw, buffer[: answer["ContentLength"]])
        except _CLIENT_ERRORS as error:
            raise self._translated(error, key) from error
        finally:
            # Read to its end the connection is the next request's; otherwise it is closed.
            if raw._fp.isclosed():
                raw.release_conn()
            else:
                raw.close()
        return filled

    def _fill(self, key: str, raw: Any, body: memoryview) -> int:
        ends_at = self._monotonic() + self._deadline_s
        at = 0
        while at < len(body):
            size = raw._fp.readinto(body[at : at + STEP_BYTES])
            if not size:
                raise RetryLater(
                    f"get of {shown(key)}: the connection ended after {at} of {len(body)} bytes"
                )
            at += size
            if self._monotonic() >= ends_at:
                raise RetryLater(f"get of {shown(key)} did not end within {self._deadline_s:g} s")
        return at

    def _check_range_answer(self, key: str, start: int, size: int, answer: Any) -> None:
        """A proxy that ignores Range would hand out the wrong bytes: refuse them."""
        told = str(answer.get("ContentRange", ""))
        if not told.startswith(f"bytes {start}-") or answer["ContentLength"] > size:
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

    def read_into(self, buffer: memoryview, start: int) -> int:
        return self._store.read_into(self._key, buffer, start)

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
