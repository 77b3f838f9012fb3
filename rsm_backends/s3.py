"""The object store on S3 and everything that speaks its protocol, through aiobotocore.

Every PUT and every part carries its CRC32C, so that the store itself refuses damaged bytes; a
completed upload carries the CRC32C of the full object where the store knows how (AWS since 2024,
MinIO), elsewhere the store's checksum of checksums is compared. The client's own retries and
checksums are off: the retrying decorator and the port's callers do both, once.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from kafka_formats.crc32c import Buffer
from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import (
    AlreadyExists,
    CorruptData,
    InternalError,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from rsm_backends.arguments import (
    PAGE_KEYS_MAX,
    changed,
    check_combined_crc32c,
    check_crc32c,
    check_key,
    check_limit,
    check_part_number,
    check_parts,
    check_prefix,
    check_range,
)
from rsm_backends.s3_body import MemoryBody
from rsm_backends.s3_client import (
    USER_AGENT,
    client_arguments,
    client_config,
    service_descriptions,
)
from rsm_backends.s3_errors import error_for_code
from rsm_backends.s3_list_pages import QuickParsers, read_pages_once
from rsm_backends.s3_quick_get import QuickGets
from rsm_backends.store import FolderPage, ListPage, ObjectInfo, UnfinishedUpload, UploadedPart
from rsm_backends.store_config import StoreConfig

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

GET_PIECE_BYTES = 128 * 1024
_CONTINUED = "\0"
"""Stands before S3's token in a cursor; no key begins with it."""
UPLOAD_PAGES_MAX = 1000
"""How many pages `list_uploads` follows before it calls the store broken."""

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
_CONNECTION = (
    BotoConnectionError,
    HTTPClientError,
    IncompleteReadError,
    aiohttp.ClientError,
    OSError,
)


class S3Store:
    """One bucket. Build with `await S3Store.open(config)`; call `close` when done."""

    def __init__(
        self,
        config: StoreConfig,
        client: S3Client,
        resources: AsyncExitStack,
        quick_gets: QuickGets | None = None,
    ) -> None:
        self._bucket = config.bucket
        self._endpoint = config.endpoint_url
        self._client = client
        self._resources = resources
        self._quick_gets = quick_gets
        # Whether the store takes FULL_OBJECT checksums: assumed until an upload's answer denies it.
        self._full_object_checksums = True

    @classmethod
    async def open(cls, config: StoreConfig) -> Self:
        """Make a client; no request is sent yet: an unreachable store is noticed at first use."""
        resources = AsyncExitStack()
        session = get_session()
        session.register_component("data_loader", service_descriptions())
        session.register_component("response_parser_factory", QuickParsers())
        with _translated("connect", config.bucket, None):
            client = await resources.enter_async_context(
                session.create_client(
                    **client_arguments(config),
                    config=AioConfig(**client_config(config), warm_up_loader_caches=True),
                )
            )
        read_pages_once(client)
        return cls(config, client, resources, QuickGets(client, config.bucket, USER_AGENT))

    def __repr__(self) -> str:
        """Bucket and endpoint; never credentials."""
        return f"S3Store(bucket={self._bucket!r}, endpoint={self._endpoint!r})"

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        extra: dict[str, Any] = {"IfNoneMatch": "*"} if create_only else {}
        return await self._put(key, data, crc32c, extra)

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        # Looked at first as well: there are stores that pass over If-Match in silence.
        try:
            found = await self.head(key)
        except NotFound:
            raise changed(key) from None
        if found.etag != etag:
            raise changed(key)
        try:
            return await self._put(key, data, crc32c, {"IfMatch": etag})
        except (AlreadyExists, NotFound):  # how a failed precondition reads elsewhere
            raise changed(key) from None

    async def _put(self, key: str, data: bytes, crc32c: int, extra: dict[str, Any]) -> ObjectInfo:
        check_key(key)
        check_crc32c(data, crc32c, source=self._url(key))
        with self._errors("put", key):
            answer = await self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=_body(data),
                ContentLength=len(data),
                ChecksumAlgorithm="CRC32C",
                ChecksumCRC32C=_encoded(crc32c),
                **extra,
            )
        self._check_answered_crc32c(key, _crc32c_of(answer), crc32c)
        return ObjectInfo(key, len(data), crc32c, None, answer["ETag"])

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        check_key(key)
        check_range(start, end)
        if end == start:
            await self.head(key)  # S3 has no empty range; an absent object is still NotFound
            return
        extra: dict[str, Any] = {}
        if start > 0 or end is not None:
            extra["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        with self._errors("get", key):
            try:
                answer: Any = None
                if self._quick_gets is not None:
                    answer = await self._quick_gets.get(key, extra.get("Range"))
                if answer is None:
                    answer = await self._client.get_object(Bucket=self._bucket, Key=key, **extra)
            except ClientError as error:
                if _status(error) == 416:  # the range starts at or past the end
                    return
                raise
            body = answer["Body"]
            # Leaving early closes the connection: the rest of the object is not read for nothing.
            try:
                self._check_range_answer(key, start, answer)
                while piece := await body.read(GET_PIECE_BYTES):
                    yield piece
            finally:
                body.close()

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        with self._errors("head", key):
            answer = await self._client.head_object(
                Bucket=self._bucket, Key=key, ChecksumMode="ENABLED"
            )
        return ObjectInfo(
            key,
            answer["ContentLength"],
            _crc32c_of(answer),
            int(answer["LastModified"].timestamp() * 1000),
            answer["ETag"],
        )

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        check_prefix(prefix)
        check_limit(limit)
        extra: dict[str, Any] = {}
        if cursor is not None and cursor.startswith(_CONTINUED):
            extra = {"ContinuationToken": cursor.removeprefix(_CONTINUED)}
        elif cursor is not None:
            extra = {"StartAfter": cursor}
        with self._errors("list", prefix):
            answer = await self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, MaxKeys=limit, **extra
            )
        found = tuple(
            ObjectInfo(
                entry["Key"],
                entry["Size"],
                None,
                int(entry["LastModified"].timestamp() * 1000),
                entry["ETag"],
            )
            for entry in answer.get("Contents", ())
        )
        more = answer.get("IsTruncated")
        return ListPage(found, _CONTINUED + answer["NextContinuationToken"] if more else None)

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        check_prefix(prefix)
        check_limit(limit)
        extra: dict[str, Any] = {} if cursor is None else {"ContinuationToken": cursor}
        with self._errors("list", prefix):
            answer = await self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/", MaxKeys=limit, **extra
            )
        found = tuple(each["Prefix"] for each in answer.get("CommonPrefixes", ()))
        more = answer.get("IsTruncated")
        return FolderPage(found, answer["NextContinuationToken"] if more else None)

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        for at in range(0, len(keys), PAGE_KEYS_MAX):
            batch = keys[at : at + PAGE_KEYS_MAX]
            with self._errors("delete", batch[0] if len(batch) == 1 else None):
                answer = await self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True},
                )
            refused = [
                error_for_code(
                    entry.get("Code", "unknown"),
                    0,
                    entry.get("Message", ""),
                    operation="delete",
                    bucket=self._bucket,
                    key=entry.get("Key"),
                )
                for entry in answer.get("Errors", ())
                if entry.get("Code") not in ("NoSuchKey", "NoSuchVersion")
            ]
            if refused:
                # What will not pass by itself comes first: a retry would only hide it.
                raise min(refused, key=lambda error: isinstance(error, RetryLater))

    async def start_multipart(self, key: str) -> str:
        check_key(key)
        extra: dict[str, Any] = {}
        if self._full_object_checksums:
            extra["ChecksumType"] = "FULL_OBJECT"
        with self._errors("start upload", key):
            try:
                answer = await self._client.create_multipart_upload(
                    Bucket=self._bucket, Key=key, ChecksumAlgorithm="CRC32C", **extra
                )
            except ClientError as error:
                if not extra or _code(error) not in (
                    "InvalidRequest",
                    "InvalidArgument",
                    "NotImplemented",
                ):
                    raise
                self._full_object_checksums = False
                answer = await self._client.create_multipart_upload(
                    Bucket=self._bucket, Key=key, ChecksumAlgorithm="CRC32C"
                )
        if answer.get("ChecksumType") != "FULL_OBJECT":
            self._full_object_checksums = False
        return answer["UploadId"]

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        check_key(key)
        check_part_number(number)
        check_crc32c(data, crc32c, source=f"{self._url(key)} part {number}")
        with self._errors("put part", key):
            answer = await self._client.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                Body=_body(data),
                ContentLength=len(data),
                ChecksumAlgorithm="CRC32C",
                ChecksumCRC32C=_encoded(crc32c),
            )
        self._check_answered_crc32c(key, _crc32c_of(answer), crc32c)
        return UploadedPart(number, len(data), crc32c, answer["ETag"])

    async def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> ObjectInfo:
        check_key(key)
        check_parts(parts)
        check_combined_crc32c(parts, crc32c, source=self._url(key))
        extra: dict[str, Any] = {"IfNoneMatch": "*"} if create_only else {}
        if self._full_object_checksums:
            extra |= {"ChecksumCRC32C": _encoded(crc32c), "ChecksumType": "FULL_OBJECT"}
        with self._errors("complete upload", key):
            answer = await self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={
                    "Parts": [
                        {
                            "PartNumber": part.number,
                            "ETag": part.etag,
                            "ChecksumCRC32C": _encoded(part.crc32c),
                        }
                        for part in parts
                    ]
                },
                **extra,
            )
        self._check_answered_crc32c(key, _crc32c_of(answer), crc32c)
        self._check_answered_crc32c(key, _composite_crc32c_of(answer), _composite(parts))
        size = sum(part.size for part in parts)
        return ObjectInfo(key, size, crc32c, None, answer["ETag"])

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        check_key(key)
        with self._errors("abort upload", key):
            try:
                await self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=key, UploadId=upload_id
                )
            except ClientError as error:
                if _code(error) != "NoSuchUpload":
                    raise

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        check_key(key)
        # The prefix also matches longer keys, which come after this one.
        found = await self._uploads(key, last=key)
        return tuple(each.upload_id for each in found if each.key == key)

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        check_prefix(prefix)
        return tuple(await self._uploads(prefix, last=None))

    async def _uploads(self, prefix: str, *, last: str | None) -> list[UnfinishedUpload]:
        """Page by page, not beyond the one on which keys behind `last` begin."""
        found: list[UnfinishedUpload] = []
        markers: dict[str, Any] = {}
        for _ in range(UPLOAD_PAGES_MAX):
            with self._errors("list uploads", prefix):
                answer = await self._client.list_multipart_uploads(
                    Bucket=self._bucket, Prefix=prefix, **markers
                )
            uploads = answer.get("Uploads", [])
            found += [UnfinishedUpload(each["Key"], each["UploadId"]) for each in uploads]
            beyond = last is not None and bool(found) and found[-1].key > last
            if beyond or not answer.get("IsTruncated"):
                return found
            markers = {
                "KeyMarker": answer["NextKeyMarker"],
                "UploadIdMarker": answer["NextUploadIdMarker"],
            }
        raise InternalError(f"the store pages endlessly through the uploads of {self._url(prefix)}")

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        await self._resources.aclose()

    def _url(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"

    def _errors(self, operation: str, key: str | None) -> AbstractContextManager[None]:
        return _translated(operation, self._bucket, key)

    def _check_answered_crc32c(self, key: str, answered: int | None, sent: int) -> None:
        if answered is not None and answered != sent:
            raise CorruptData(
                f"the store holds CRC32C {answered:08x}, sent was {sent:08x}",
                source=self._url(key),
                position=0,
            )

    def _check_range_answer(self, key: str, start: int, answer: Any) -> None:
        """A proxy that ignores Range would hand out the wrong bytes: refuse them."""
        if start == 0 and "ContentRange" not in answer:
            return
        if not str(answer.get("ContentRange", "")).startswith(f"bytes {start}-"):
            raise CorruptData(
                f"asked for bytes from {start}, the store answered "
                f"{answer.get('ContentRange', 'without a range')!r}",
                source=self._url(key),
                position=start,
            )


@contextmanager
def _translated(operation: str, bucket: str, key: str | None) -> Iterator[None]:
    """Turn every error of the client into ours; cancellation and our own errors pass."""
    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError, aiohttp.ClientError, OSError) as error:
        raise store_error(error, operation=operation, bucket=bucket, key=key) from error


def store_error(
    error: Exception, *, operation: str, bucket: str, key: str | None
) -> StrandlineError:
    """The one mapping from botocore's and aiohttp's errors to our tree."""
    if isinstance(error, ClientError):
        code, status = _code(error), _status(error)
        message = str(error.response.get("Error", {}).get("Message", ""))
        return error_for_code(code, status, message, operation=operation, bucket=bucket, key=key)
    where = f"{operation} in bucket {bucket!r}"
    if isinstance(error, _NO_CREDENTIALS):
        return Refused(
            f"{where}: no credentials; set the store's access_key_id and secret_access_key"
        )
    if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Refused(
            f"{where}: the store's TLS certificate is not trusted; set the store's ca_bundle"
        )
    if isinstance(error, ResponseParserError):
        return RetryLater(
            f"{where}: the answer is not S3's; if this lasts, correct the store's endpoint_url"
        )
    if isinstance(error, _CONNECTION):
        return RetryLater(f"{where}: the connection failed: {type(error).__name__}: {error}")
    return InvalidRequest(f"{where}: the client refused the request: {error}")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _body(data: Buffer) -> Any:
    # botocore asks no more of a body than `read`; its stubs do.
    return MemoryBody(data)


def _encoded(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def _composite(parts: Sequence[UploadedPart]) -> int:
    """S3's composite checksum: that of the parts' checksums one after another."""
    return crc32c_of(b"".join(part.crc32c.to_bytes(4, "big") for part in parts))


def _composite_crc32c_of(answer: Mapping[str, Any]) -> int | None:
    text = answer.get("ChecksumCRC32C")
    if not text or not ("-" in text or answer.get("ChecksumType") == "COMPOSITE"):
        return None
    return int.from_bytes(base64.b64decode(text.partition("-")[0]), "big")


def _crc32c_of(answer: Mapping[str, Any]) -> int | None:
    """The full object's CRC32C in an answer; None where there is none or one of part checksums."""
    text = answer.get("ChecksumCRC32C")
    if not text or "-" in text or answer.get("ChecksumType") == "COMPOSITE":
        return None
    return int.from_bytes(base64.b64decode(text), "big")
