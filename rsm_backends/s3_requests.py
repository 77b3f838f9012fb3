"""Sends requests to one bucket with the current credentials, and raises the port's errors."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import NotFound
from rsm_backends.s3_answers import Asked
from rsm_backends.s3_body import MemoryBody
from rsm_backends.s3_checksums import encoded
from rsm_backends.s3_client_errors import CLIENT_ERRORS, code_of, store_error
from rsm_backends.s3_credentials import RenewedCredentials
from rsm_backends.s3_errors import may_be_of_keys
from rsm_backends.store import ObjectInfo
from rsm_backends.store_config import StoreConfig

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

_Answer = TypeVar("_Answer")
Head = Callable[[str], Awaitable[ObjectInfo]]
"""A store's `head`."""
_HASHED_AT_ONCE_BYTES = 256 * 1024
_SUM_HEADERS = ("x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm")


class S3Requests:
    """Requests to one bucket. `credentials` is None if the client's keys are fixed."""

    def __init__(
        self, config: StoreConfig, client: S3Client, credentials: RenewedCredentials | None
    ) -> None:
        self.bucket = config.bucket
        self.client = client
        self.has_checksums = "no-checksums" not in config.compatibility
        """True if the store accepts CRC32C in headers and fields."""
        self._store = f"the store {config.name!r} at {config.endpoint_url or 'AWS'}"
        self._read_timeout_s = config.read_timeout_s
        self._credentials = credentials

    def asked(self, operation: str, key: str | None) -> Asked:
        """The request, for error messages."""
        return Asked(operation, self.bucket, key, self._store)

    async def call(self, asked: Asked, method: str, **parameters: Any) -> dict[str, Any]:
        """Call the client's `method` and return its answer. Raises the port's errors."""
        ask = getattr(self.client, method)
        with translated(asked):
            return await self.renewing(lambda: ask(Bucket=self.bucket, **parameters))

    async def renewing(self, attempt: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Repeat a refused request once, if new credentials are found by then. Raises the client's
        errors.
        """
        if self._credentials is None:
            return await attempt()
        used = await self._credentials.get_frozen_credentials()
        try:
            return await attempt()
        except ClientError as error:
            if not may_be_of_keys(code_of(error)):
                raise
            if not await self._credentials.are_others_than(used):
                raise
        return await attempt()

    async def summed(self, data: Buffer, crc32c: int) -> dict[str, Any]:
        """The parameters of a body, with the checksum by which the store checks it."""
        found = {"Body": MemoryBody(data, self._read_timeout_s), "ContentLength": len(data)}
        if self.has_checksums:
            return found | {"ChecksumAlgorithm": "CRC32C", "ChecksumCRC32C": encoded(crc32c)}
        if len(data) > _HASHED_AT_ONCE_BYTES:
            return found | {"ContentMD5": await asyncio.to_thread(_md5, data)}
        return found | {"ContentMD5": _md5(data)}


@contextmanager
def translated(asked: Asked) -> Iterator[None]:
    """Turn every error of the client into ours; cancellation and our own errors pass."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise store_error(error, asked) from error


async def confirmed(
    asked: Asked, info: ObjectInfo, answer: Mapping[str, Any], head: Head
) -> ObjectInfo:
    """`info`, once it is certain that the store has all bytes. An answer with a checksum, which was
    compared, shows that. For stores that ignore checksums a HEAD checks the size: otherwise dropped
    bytes would be noticed only when the object is read. RetryLater if bytes are missing.
    """
    if answer.get("ChecksumCRC32C"):
        return info
    try:
        found = await head(info.key)
    except NotFound:
        raise asked.unexpected(
            "it reports the object as stored, but a HEAD does not find it"
        ) from None
    if found.size != info.size:
        raise asked.unexpected(
            f"it reports the object as stored, of which {info.size} bytes were sent, but by a HEAD "
            f"it has {found.size}"
        )
    return info


def sign_deletes_with_md5(client: Any, *, alone: bool) -> None:
    """Add Content-MD5 to DeleteObjects; `alone` removes the checksum that newer clients send."""

    def add(request: Any, **_: Any) -> None:
        request.headers["Content-MD5"] = _md5(request.body)
        for name in _SUM_HEADERS if alone else ():
            if name in request.headers:
                del request.headers[name]

    client.meta.events.register_first("before-sign.s3.DeleteObjects", add)


def _md5(data: Buffer) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
