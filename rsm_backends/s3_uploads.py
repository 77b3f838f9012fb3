"""Multipart uploads of S3.

A completed upload carries the CRC32C of the full object if the store supports that (AWS since 2024,
MinIO); otherwise the store's composite checksum is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import RetryLater
from rsm_backends.s3_answers import ANSWERED, REMOVED, STORED, Asked, listed_uploads
from rsm_backends.s3_checksums import encoded
from rsm_backends.s3_client_errors import code_of
from rsm_backends.s3_requests import Head, S3Requests, confirmed, translated
from rsm_backends.store import ObjectInfo, UnfinishedUpload, UploadedPart

UPLOAD_PAGES_MAX = 1000
"""The pages of uploads after which a list counts as endless."""

_NOT_KNOWN = ("InvalidRequest", "InvalidArgument", "NotImplemented")


class S3Uploads:
    """Uploads to one bucket; the methods are the port's, for arguments already checked."""

    def __init__(self, requests: S3Requests, head: Head) -> None:
        self._requests = requests
        self._head = head
        # True until an answer shows that the store does not support FULL_OBJECT.
        self._full_object_checksums = requests.has_checksums

    async def start_multipart(self, key: str) -> str:
        asked = self._requests.asked("start upload", key)
        with translated(asked):
            answer = await self._requests.renewing(lambda: self._start(key))
        asked.status(answer, ANSWERED)
        if answer.get("ChecksumType") != "FULL_OBJECT":
            self._full_object_checksums = False
        return asked.text(answer, "UploadId")

    async def _start(self, key: str) -> dict[str, Any]:
        requests = self._requests
        plain: dict[str, Any] = {"Bucket": requests.bucket, "Key": key}
        if requests.has_checksums:
            plain["ChecksumAlgorithm"] = "CRC32C"
        create: Any = requests.client.create_multipart_upload
        answer: dict[str, Any]
        if self._full_object_checksums:
            try:
                answer = await create(**plain, ChecksumType="FULL_OBJECT")
            except ClientError as error:
                if code_of(error) not in _NOT_KNOWN:
                    raise
                self._full_object_checksums = False
            else:
                return answer
        answer = await create(**plain)
        return answer

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        asked = self._requests.asked("put part", key)
        answer = await self._requests.call(
            asked,
            "upload_part",
            Key=key,
            UploadId=upload_id,
            PartNumber=number,
            **await self._requests.summed(data, crc32c),
        )
        asked.status(answer, STORED)
        asked.check_crc32c(answer, crc32c)
        return UploadedPart(number, len(data), crc32c, asked.etag(answer))

    async def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> ObjectInfo:
        extra: dict[str, Any] = {"IfNoneMatch": "*"} if create_only else {}
        if self._full_object_checksums:
            extra |= {"ChecksumCRC32C": encoded(crc32c), "ChecksumType": "FULL_OBJECT"}
        asked = self._requests.asked("complete upload", key)
        answer = await self._requests.call(
            asked,
            "complete_multipart_upload",
            Key=key,
            UploadId=upload_id,
            MultipartUpload={"Parts": [self._named(part) for part in parts]},
            **extra,
        )
        asked.status(answer, ANSWERED)
        asked.check_crc32c(answer, crc32c, parts)
        size = sum(part.size for part in parts)
        info = ObjectInfo(key, size, crc32c, None, asked.text(answer, "ETag"))
        return await confirmed(asked, info, answer, self._head)

    def _named(self, part: UploadedPart) -> dict[str, Any]:
        named: dict[str, Any] = {"PartNumber": part.number, "ETag": part.etag}
        if self._requests.has_checksums:
            named["ChecksumCRC32C"] = encoded(part.crc32c)
        return named

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        asked = self._requests.asked("abort upload", key)

        async def abort() -> Any:
            try:
                return await self._requests.client.abort_multipart_upload(
                    Bucket=self._requests.bucket, Key=key, UploadId=upload_id
                )
            except ClientError as error:
                if code_of(error) == "NoSuchUpload":
                    return None
                raise

        with translated(asked):
            answer = await self._requests.renewing(abort)
        if answer is not None:
            asked.status(answer, REMOVED)

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        # The prefix also matches longer keys, which come after this one.
        found = await self._uploads(key, last=key)
        return tuple(each.upload_id for each in found if each.key == key)

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        return tuple(await self._uploads(prefix, last=None))

    async def _uploads(self, prefix: str, *, last: str | None) -> list[UnfinishedUpload]:
        """Read page by page, up to the page on which keys after `last` begin."""
        found: list[UnfinishedUpload] = []
        markers: dict[str, str] = {}
        asked: Asked = self._requests.asked("list uploads", prefix)
        for _ in range(UPLOAD_PAGES_MAX):
            page = listed_uploads(
                asked,
                await self._requests.call(
                    asked, "list_multipart_uploads", Prefix=prefix, **markers
                ),
                prefix,
            )
            found += page.uploads
            beyond = last is not None and bool(found) and found[-1].key > last
            if beyond or page.markers is None:
                return found
            if page.markers == markers:
                raise asked.unexpected("its element NextKeyMarker leads to the same page again")
            markers = page.markers
        raise RetryLater(
            f"{asked.operation} in bucket {asked.bucket!r}: the list does not end after "
            f"{UPLOAD_PAGES_MAX} pages"
        )
