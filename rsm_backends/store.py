"""The object store port: all operations that Strandline needs of S3, a file system or a fake.

Keys are text with `/` between parts. Every write is whole or absent: no reader ever sees half an
object. All methods raise only errors of `kafka_formats.errors`:

    RetryLater      throttled, timed out, truncated, or an answer that is not the store's: repeat
                    (reads always; writes after a check)
    NotFound        no such object or upload
    AlreadyExists   create-only found an existing object; never repeat
    Conflict        a replacement found a different object than the one to replace; never repeat
    CorruptData     the store's or our checksum does not fit the bytes
    Refused         credentials or permissions
    InvalidRequest  a key or range that no store accepts, or a bucket that does not exist

Writes are idempotent as long as the bytes are equal; a `create_only` write whose answer is lost is
settled by `head` and a comparison of `crc32c` and `size`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kafka_formats.crc32c import Buffer


class ObjectInfo(NamedTuple):
    """The store's description of an object.

    `size` in bytes; `crc32c` of the whole object, or None if the store did not keep it;
    `last_modified_ms` is Unix time by the store's clock; `etag` is opaque.
    """

    key: str
    size: int
    crc32c: int | None
    last_modified_ms: int | None
    etag: str


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page in key order. `next_cursor` is opaque; None on the last page."""

    objects: tuple[ObjectInfo, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class FolderPage:
    """One page of folders, each with its slash. `next_cursor` is opaque; None on the last page."""

    folders: tuple[str, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A finished part of a multipart upload; `number` counts from 1."""

    number: int
    size: int
    crc32c: int
    etag: str


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that was neither completed nor aborted."""

    key: str
    upload_id: str


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of an object that a store kept, of `size` bytes; `version_id` is opaque."""

    version_id: str
    size: int


class KeptVersion(NamedTuple):
    """One version of `key` in a store that keeps them, or a delete marker of 0 bytes."""

    key: str
    version_id: str
    size: int
    is_marker: bool


@dataclass(frozen=True, slots=True)
class VersionPage:
    """One page of versions, by key. `next_cursor` is opaque; None on the last page."""

    versions: tuple[KeptVersion, ...]
    next_cursor: str | None


class ObjectStore(Protocol):
    """The port. Implementations: memory, filesystem, s3. Wrappers around one: `store_wrapper`."""

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        """Write a whole object durably; `crc32c` of `data` is checked before it counts.

        It survives a crash once this has returned. Safe to repeat unless `create_only`.
        """

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        """Compare and set: as `put`, but only if the present object has this `etag` (of `head`).

        If several callers replace one object at once, exactly one succeeds. Conflict(CHANGED) if
        the object was changed or deleted in between; then nothing was written.
        """

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Stream bytes [start, end). `end` None means to the object's end; a larger `end` is cut.

        NotFound is raised at the first step. Abandoning the iterator frees the connection.
        """

    async def head(self, key: str) -> ObjectInfo:
        """Describe one object; NotFound if absent."""

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        """List keys that start with `prefix`, at most `limit` (1 to 1000), in UTF-8 byte order.

        `cursor` is a page's `next_cursor`, or any key: the list continues after it. Keys written
        during a list may be missing from its later pages.
        """

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        """List the folders directly below `prefix`: keys that start with it, cut after the next
        slash, each once, in UTF-8 byte order. `cursor` is a page's `next_cursor`.

        A page has at most `limit` (1 to 1000), and may have fewer, or none, before the last.
        """

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Delete objects; absent ones count as deleted. Raises if any could not be deleted."""

    async def start_multipart(self, key: str) -> str:
        """Begin a multipart upload and return its id. Nothing is visible until it completes."""

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        """Upload one part (numbers from 1; every part but the last >= `PART_BYTES_MIN`).

        `data` may be overwritten once this has returned: a store keeps a copy or nothing.
        """

    async def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> ObjectInfo:
        """Make the object visible, whole. `crc32c` is that of the full object and is checked."""

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        """Drop an upload and its parts; an unknown upload counts as dropped."""

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        """Ids of the unfinished uploads of exactly this key."""

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        """Unfinished uploads whose keys start with `prefix`. MinIO lists none of them, so use
        `list_uploads` where the key is known.
        """

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        """Kept versions of exactly this key, newest first, at most `VERSIONS_MAX`, without delete
        markers. Empty if the store keeps no versions: only some buckets do.
        """

    def get_version(self, key: str, version_id: str, *, start: int = 0) -> AsyncIterator[bytes]:
        """Stream one of `versions` from `start` to its end; NotFound once the store dropped it."""

    async def versions_below(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> VersionPage:
        """List the versions, including the one that `get` reads, and delete markers of keys that
        start with `prefix`, at most `limit` (1 to 1000), by key. `cursor`: a page's `next_cursor`.

        Empty if the store keeps no versions. Versions created or deleted during a list may be
        missing from its later pages.
        """

    async def delete_version(self, key: str, version_id: str) -> None:
        """Delete one of `versions_below` for good; an absent one counts as deleted. Deleting a
        key's last delete marker makes its newest version visible again. Refused: permissions, or a
        lock of the object.
        """

    async def close(self) -> None:
        """Free connections and handles. Idempotent."""


PART_BYTES_MIN = 5 * 1024 * 1024
"""The smallest part that S3 accepts, except as the last one (AWS S3 multipart limits)."""

VERSIONS_MAX = 100
"""The most versions listed of one key: a segment's is written once; more are not Strandline's."""
