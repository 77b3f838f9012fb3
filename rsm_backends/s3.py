"""The object store on S3 and every store that supports its protocol, through aiobotocore.

Every PUT and every part carries its CRC32C, so that the store itself refuses damaged bytes. The
client's own retries and checksums are off: the retrying decorator and the port's callers do both,
once. `rsm_backends.s3_answers` checks the form of every answer before it counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import AlreadyExists, NotFound, RetryLater
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
    check_version_id,
    shown,
)
from rsm_backends.s3_answer_parsers import AnswerParsers, read_answers_once
from rsm_backends.s3_answers import (
    GONE,
    REMOVED,
    STORED,
    Asked,
    batches,
    check_deleted,
    listed_folders,
    listed_keys,
    next_of,
)
from rsm_backends.s3_client import (
    USER_AGENT,
    client_arguments,
    client_config,
    service_descriptions,
    without_waiting_for_leave,
)
from rsm_backends.s3_client_errors import code_of, status_of
from rsm_backends.s3_credentials import RenewedCredentials, are_fixed
from rsm_backends.s3_http import S3HttpSession
from rsm_backends.s3_quick_get import QuickGets
from rsm_backends.s3_range_answers import (
    UnfitAnswerError,
    bytes_of_object,
    head_of,
    wanted_bytes,
)
from rsm_backends.s3_requests import (
    S3Requests,
    confirmed,
    sign_deletes_with_md5,
    translated,
)
from rsm_backends.s3_uploads import S3Uploads
from rsm_backends.s3_versions import list_versions, list_versions_below
from rsm_backends.store import (
    FolderPage,
    ListPage,
    ObjectInfo,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
    VersionPage,
)
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import closing_stream

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

GET_PIECE_BYTES = 128 * 1024
EMPTY_PAGES_MAX = 1000
"""The empty pages in a row after which a list counts as endless."""
SINGLE_DELETES_AT_ONCE = 8

_BEHIND_THE_END, _RANGE_CODE = 416, "InvalidRange"
_UNSAID = ("400", "403", "404")
_CONTINUED = "\0"
"""The separator before the last key and before S3's token in a cursor; no key begins with it."""


_LAST_CHARACTER = "\U0010ffff"
"""Sorts after any other character, so that everything in a folder comes before it."""


class S3Store:
    """One bucket. Made by `await S3Store.open(config)`; call `close` when done."""

    def __init__(
        self,
        config: StoreConfig,
        client: S3Client,
        resources: AsyncExitStack,
        quick_gets: QuickGets | None = None,
        credentials: RenewedCredentials | None = None,
    ) -> None:
        self._bucket = config.bucket
        self._endpoint = config.endpoint_url
        self._client = client
        self._resources = resources
        self._quick_gets = quick_gets
        self._single_deletes = "single-deletes" in config.compatibility
        self._requests = S3Requests(config, client, credentials)
        self._uploads = S3Uploads(self._requests, self.head)

    @classmethod
    async def open(cls, config: StoreConfig) -> Self:
        """Make a client. No request is sent yet: an unreachable store is noticed at first use."""
        resources = AsyncExitStack()
        session = get_session()
        session.register_component("data_loader", service_descriptions())
        session.register_component("response_parser_factory", AnswerParsers())
        credentials = None if are_fixed(config) else RenewedCredentials(config)
        if credentials is not None:
            session.register_component("credential_provider", credentials)
        where = f"the store {config.name!r} at {config.endpoint_url or 'AWS'}"
        with translated(Asked("connect", config.bucket, None, where)):
            made = AioConfig(
                **client_config(config), warm_up_loader_caches=True, http_session_cls=S3HttpSession
            )
            client = await resources.enter_async_context(
                session.create_client(**client_arguments(config), config=made)
            )
        read_answers_once(client)
        without_waiting_for_leave(client)
        if {"delete-md5", "no-checksums"} & config.compatibility:
            sign_deletes_with_md5(client, alone="no-checksums" in config.compatibility)
        quick_gets = QuickGets(client, config.bucket, USER_AGENT)
        return cls(config, client, resources, quick_gets, credentials)

    def __repr__(self) -> str:
        """Bucket and endpoint; never credentials."""
        return f"S3Store(bucket={self._bucket!r}, endpoint={self._endpoint!r})"

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        extra: dict[str, Any] = {"IfNoneMatch": "*"} if create_only else {}
        info, answer = await self._put(key, data, crc32c, extra)
        return await confirmed(self._requests.asked("put", key), info, answer, self.head)

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        # The object is also checked first: some stores silently ignore If-Match.
        try:
            found = await self.head(key)
        except NotFound:
            raise changed(key) from None
        if found.etag != etag:
            raise changed(key)
        try:
            # Its size is not read back: the next replacement may have happened by then.
            return (await self._put(key, data, crc32c, {"IfMatch": etag}))[0]
        except (AlreadyExists, NotFound):  # the errors of a failed precondition
            raise changed(key) from None

    async def _put(
        self, key: str, data: bytes, crc32c: int, extra: dict[str, Any]
    ) -> tuple[ObjectInfo, dict[str, Any]]:
        """The stored object, and the answer that confirms it."""
        check_key(key)
        check_crc32c(data, crc32c, source=self._url(key))
        asked = self._requests.asked("put", key)
        extra |= await self._requests.summed(data, crc32c)
        answer = await self._requests.call(asked, "put_object", Key=key, **extra)
        asked.status(answer, STORED)
        asked.check_crc32c(answer, crc32c)
        return ObjectInfo(key, len(data), crc32c, None, asked.etag(answer)), answer

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        check_key(key)
        check_range(start, end)
        if end == start:
            await self.head(key)  # S3 has no empty range; an absent object is still NotFound
            return
        asked = self._requests.asked("get", key)
        answer = await self._answer(asked, key, start, end)
        if answer is None:
            return
        async with closing_stream(self._pieces(asked, answer, start, end)) as pieces:
            async for piece in pieces:
                yield piece

    async def _pieces(
        self, asked: Asked, answer: Any, start: int, end: int | None
    ) -> AsyncIterator[bytes]:
        """The requested bytes, from the body of an answer to a GET."""
        body = answer["Body"]
        # Leaving early closes the connection, so that the rest of the object is not received.
        try:
            try:
                wanted = wanted_bytes(head_of(answer), start, end)
            except UnfitAnswerError as error:
                raise asked.unexpected(str(error)) from None
            got = 0
            with translated(asked):
                while piece := await body.read(GET_PIECE_BYTES):
                    if wanted.size_max is not None:
                        piece = piece[: wanted.size_max - got]
                    got += len(piece)
                    yield piece
                    if got == wanted.size_max:
                        return
            if wanted.size is not None and got < wanted.size:
                raise RetryLater(
                    f"get of {shown(asked.key or '')} in bucket {self._bucket!r}: the answer ended "
                    f"{wanted.size - got} bytes before its end"
                )
        finally:
            body.close()

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        check_key(key)
        return await list_versions(self._requests, key)

    async def get_version(
        self, key: str, version_id: str, *, start: int = 0
    ) -> AsyncIterator[bytes]:
        check_key(key)
        check_range(start, None)
        asked = self._requests.asked("get version", key)
        answer = await self._answer(asked, key, start, None, VersionId=version_id)
        if answer is None:
            return
        async with closing_stream(self._pieces(asked, answer, start, None)) as pieces:
            async for piece in pieces:
                yield piece

    async def versions_below(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> VersionPage:
        check_prefix(prefix)
        check_limit(limit)
        return await list_versions_below(self._requests, prefix, cursor, limit)

    async def delete_version(self, key: str, version_id: str) -> None:
        check_key(key)
        check_version_id(version_id)
        await self._delete(key, version_id)

    async def _answer(
        self, asked: Asked, key: str, start: int, end: int | None, **extra: str
    ) -> Any:
        """The answer to a GET, its body not yet read; None if the object ends before the range."""
        versioned = bool(extra)
        if start > 0 or end is not None:
            extra["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        with translated(asked):
            if self._quick_gets is not None and not versioned:
                answer = await self._quick_gets.get(key, extra.get("Range"))
                if answer is not None:
                    return answer
            get: Any = self._client.get_object
            try:
                return await self._requests.renewing(
                    lambda: get(Bucket=self._bucket, Key=key, **extra)
                )
            except ClientError as error:
                if status_of(error) != _BEHIND_THE_END:
                    raise
                headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
                size = bytes_of_object(headers.get("content-range"))
                unproven = start == 0 or code_of(error) != _RANGE_CODE
        if versioned and size is None and unproven:  # nothing else tells the size of a version
            raise asked.unexpected(f"the status is 416, without the code {_RANGE_CODE}")
        if size is None and not versioned:
            size = (await self.head(key)).size
        if size is not None and start < size:
            raise asked.unexpected(f"the status is 416, and the object has {size} bytes")
        return None

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        asked = self._requests.asked("head", key)
        extra = {"ChecksumMode": "ENABLED"} if self._requests.has_checksums else {}
        with translated(asked):
            head: Any = self._client.head_object
            try:
                answer = await self._requests.renewing(
                    lambda: head(Bucket=self._bucket, Key=key, **extra)
                )
            except ClientError as error:
                if code_of(error) in _UNSAID:
                    await self._hear(asked, key)
                raise
        return asked.described(key, answer)

    async def _hear(self, asked: Asked, key: str) -> None:
        """Raise the reason for a refused HEAD, whose answer has no body (and any proxy answers
        404): the error of a GET of the same object, or RetryLater if that GET is not refused.
        """
        get: Any = self._client.get_object
        try:
            answer = await get(Bucket=self._bucket, Key=key, Range="bytes=0-0")
        except ClientError as error:
            if status_of(error) != _BEHIND_THE_END:
                raise
        else:
            answer["Body"].close()
        raise asked.unexpected("a HEAD is refused, but a GET of the same object succeeds")

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        check_prefix(prefix)
        check_limit(limit)
        asked = self._requests.asked("list", prefix)
        for _ in range(EMPTY_PAGES_MAX):
            after, extra = _continued(cursor)
            answer = await self._requests.call(
                asked, "list_objects_v2", Prefix=prefix, MaxKeys=limit, **extra
            )
            page = listed_keys(asked, answer, prefix, after)
            last = page.objects[-1].key if page.objects else after
            cursor = _cursor(last, next_of(asked, page.more, page.token, last))
            if page.objects or cursor is None:
                return ListPage(page.objects, cursor)
        raise asked.unexpected(f"{EMPTY_PAGES_MAX} pages in a row have no key, and more follow")

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        check_prefix(prefix)
        check_limit(limit)
        asked = self._requests.asked("list", prefix)
        for _ in range(EMPTY_PAGES_MAX):
            after, extra = _continued(cursor, _LAST_CHARACTER)
            answer = await self._requests.call(
                asked, "list_objects_v2", Prefix=prefix, Delimiter="/", MaxKeys=limit, **extra
            )
            page = listed_folders(asked, answer, prefix, after)
            last = page.last or after
            cursor = _cursor(last, next_of(asked, page.more, page.token, last))
            if page.folders or cursor is None:
                return FolderPage(page.folders, cursor)
        raise asked.unexpected(f"{EMPTY_PAGES_MAX} pages in a row have no folder, and more follow")

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        if self._single_deletes:
            await self._delete_singly(keys)
            return
        for batch in batches(keys, PAGE_KEYS_MAX):
            asked = self._requests.asked("delete", batch[0] if len(batch) == 1 else None)
            named = {"Objects": [{"Key": key} for key in batch], "Quiet": False}
            answer = await self._requests.call(asked, "delete_objects", Delete=named)
            check_deleted(asked, answer, batch)

    async def _delete_singly(self, keys: Sequence[str]) -> None:
        for batch in batches(keys, SINGLE_DELETES_AT_ONCE):
            done = await asyncio.gather(*map(self._delete, batch), return_exceptions=True)
            errors = [each for each in done if each is not None]
            if errors:
                raise min(errors, key=lambda error: isinstance(error, RetryLater))

    async def _delete(self, key: str, version_id: str | None = None) -> None:
        asked = self._requests.asked("delete" if version_id is None else "delete version", key)
        which: Any = {} if version_id is None else {"VersionId": version_id}

        async def delete() -> Any:
            try:
                return await self._client.delete_object(Bucket=self._bucket, Key=key, **which)
            except ClientError as error:
                if code_of(error) in GONE:
                    return None
                raise

        with translated(asked):
            answer = await self._requests.renewing(delete)
        if answer is not None:
            asked.status(answer, REMOVED)

    async def start_multipart(self, key: str) -> str:
        check_key(key)
        return await self._uploads.start_multipart(key)

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        check_key(key)
        check_part_number(number)
        check_crc32c(data, crc32c, source=f"{self._url(key)} part {number}")
        return await self._uploads.put_part(key, upload_id, number, data, crc32c=crc32c)

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
        return await self._uploads.complete_multipart(
            key, upload_id, parts, crc32c=crc32c, create_only=create_only
        )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        check_key(key)
        await self._uploads.abort_multipart(key, upload_id)

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        check_key(key)
        return await self._uploads.list_uploads(key)

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        check_prefix(prefix)
        return await self._uploads.uploads_below(prefix)

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        await self._resources.aclose()

    def _url(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"


def _cursor(last: str | None, following: str | None) -> str | None:
    """The cursor that continues a list after the last key seen, by S3's token if it gave one."""
    if following is None or following == last:
        return following
    return f"{_CONTINUED}{last or ''}{_CONTINUED}{following}"


def _continued(cursor: str | None, behind_folder: str = "") -> tuple[str | None, dict[str, str]]:
    """The last key seen, and the parameters that continue after it; if it is a folder, after all
    its keys.
    """
    if cursor is None:
        return None, {}
    if not cursor.startswith(_CONTINUED):
        return cursor, {"StartAfter": cursor + (behind_folder if cursor.endswith("/") else "")}
    last, _, token = cursor[1:].partition(_CONTINUED)
    return last or None, {"ContinuationToken": token}
