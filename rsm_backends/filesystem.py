"""The object store on a file system: for one machine, a shared mount, tests and the demo.

Whole or absent, durable when told so, create-only by link(2); see `rsm_backends.object_files` for
the layout and the order of the steps. Several processes may share a root. Limits of file systems
apply: a key part has at most 255 bytes, and a key cannot also be the folder of other keys.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from kafka_formats.crc32c import Buffer
from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import (
    CorruptData,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from rsm_backends.arguments import (
    changed,
    check_combined_crc32c,
    check_crc32c,
    check_key,
    check_limit,
    check_part_number,
    check_parts,
    check_prefix,
    check_range,
    shown,
)
from rsm_backends.object_files import (
    READ_BYTES,
    STAGING,
    ObjectFiles,
    OpenObject,
    object_info,
    write_all,
)
from rsm_backends.store import ListPage, ObjectInfo, UploadedPart

THREADS_MAX = 4
"""Threads of one store; its own, so that a slow disk never holds up other executors."""

_UPLOAD_ID = re.compile(r"[A-Za-z0-9_]{1,64}")
_ABORT_ATTEMPTS_MAX = 10
_Answer = TypeVar("_Answer")


class FilesystemStore:
    """Objects under `root`, an existing folder. The blocking work runs in the store's threads."""

    def __init__(self, root: Path) -> None:
        self._files = ObjectFiles(root)
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="filesystem-store")
        self._swept = False

    def __repr__(self) -> str:
        """The root folder."""
        return f"FilesystemStore({str(self._files.root)!r})"

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        _check_key(key)
        check_crc32c(data, crc32c, source=key)

        def write() -> ObjectInfo:
            if not self._swept:
                self._swept = True
                self._files.sweep()
            with self._files.temporary_file() as (fd, path):
                write_all(fd, data)
                self._files.place((fd, path), key, crc32c, create_only)
                return object_info(key, os.fstat(fd), crc32c)

        return await self._run(key, write)

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        _check_key(key)
        check_crc32c(data, crc32c, source=key)

        def write() -> ObjectInfo:
            with self._files.temporary_file() as (fd, path):
                write_all(fd, data)
                with self._files.only_replacer(key):
                    if self._etag(key) != etag:
                        raise changed(key)
                    self._files.place((fd, path), key, crc32c, create_only=False)
                return object_info(key, os.fstat(fd), crc32c)

        return await self._run(key, write)

    def _etag(self, key: str) -> str | None:
        try:
            return self._files.describe(key).etag
        except NotFound:
            return None

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        _check_key(key)
        check_range(start, end)
        opened = await self._run(key, lambda: self._files.open_object(key))
        try:
            at = start
            while end is None or at < end:
                want = READ_BYTES if end is None else min(READ_BYTES, end - at)
                piece = await self._run(key, partial(opened.read, want, at))
                if not piece:
                    return
                at += len(piece)
                yield piece
        finally:
            opened.close()

    async def head(self, key: str) -> ObjectInfo:
        _check_key(key)
        return await self._run(key, lambda: self._files.describe(key))

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        check_prefix(prefix)
        check_limit(limit)
        found = await self._run(
            prefix, lambda: tuple(islice(self._files.walk(prefix, cursor), limit + 1))
        )
        if len(found) <= limit:
            return ListPage(found, None)
        return ListPage(found[:limit], found[limit - 1].key)

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            _check_key(key)
        await self._run(f"{len(keys)} keys", lambda: self._files.remove(keys))

    async def start_multipart(self, key: str) -> str:
        _check_key(key)

        def start() -> str:
            folder = Path(tempfile.mkdtemp(prefix="u", dir=self._files.staging_folder("uploads")))
            (folder / "key").write_text(key, "utf-8")
            return folder.name

        return await self._run(key, start)

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        _check_key(key)
        check_part_number(number)
        check_crc32c(data, crc32c, source=f"{key} part {number}")
        part = UploadedPart(number, len(data), crc32c, f'"{len(data):x}-{crc32c:08x}"')

        def write() -> None:
            folder = self._upload_folder(key, upload_id)
            # Not synced: nothing is promised before the upload completes, which reads it again.
            with self._files.temporary_file() as (fd, path):
                write_all(fd, data)
                try:
                    os.replace(path, folder / _part_name(part))
                except FileNotFoundError:
                    raise NotFound(f"the upload of {shown(key)} was aborted meanwhile") from None

        await self._run(key, write)
        return part

    async def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> ObjectInfo:
        _check_key(key)
        check_parts(parts)
        check_combined_crc32c(parts, crc32c, source=key)

        def complete() -> ObjectInfo:
            folder = self._upload_folder(key, upload_id)
            with self._files.temporary_file() as (fd, path):
                for part in parts:
                    _append_part(fd, folder, part, key)
                self._files.place((fd, path), key, crc32c, create_only)
                info = object_info(key, os.fstat(fd), crc32c)
            shutil.rmtree(folder, ignore_errors=True)
            return info

        return await self._run(key, complete)

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        _check_key(key)

        def abort() -> None:
            for _ in range(_ABORT_ATTEMPTS_MAX):  # a late part may arrive while we remove
                try:
                    folder = self._upload_folder(key, upload_id)
                except NotFound:
                    return
                # The key goes last: a half-removed upload is still listed and aborted again.
                for name in os.listdir(folder):
                    if name != "key":
                        os.unlink(folder / name)
                shutil.rmtree(folder, ignore_errors=True)

        await self._run(key, abort)

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        _check_key(key)

        def find() -> tuple[str, ...]:
            folder = self._files.root / STAGING / "uploads"
            try:
                names = sorted(os.listdir(folder))
            except FileNotFoundError:
                return ()
            return tuple(name for name in names if _upload_key(folder / name) == key)

        return await self._run(key, find)

    async def close(self) -> None:
        """Wait for writes under way, then close the root folder. Idempotent."""
        await asyncio.to_thread(self._threads.shutdown)
        self._files.close()

    def _upload_folder(self, key: str, upload_id: str) -> Path:
        folder = self._files.root / STAGING / "uploads" / upload_id
        if not _UPLOAD_ID.fullmatch(upload_id) or _upload_key(folder) != key:
            raise NotFound(f"there is no unfinished upload {shown(upload_id)} of {shown(key)}")
        return folder

    async def _run(self, key: str, work: Callable[[], _Answer]) -> _Answer:
        def run() -> _Answer:
            try:
                return work()
            except OSError as error:
                raise store_error(error, key) from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)


def store_error(error: OSError, key: str) -> StrandlineError:
    """The one mapping from the operating system's errors to our tree."""
    what = f"{shown(key)}: {error.strerror or error}"
    match error.errno:
        case errno.ENOENT:
            return NotFound(what)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Refused(
                f"{what}; give this user read and write permission on the store's folder"
            )
        case errno.ENOTDIR | errno.EISDIR | errno.ELOOP:
            return InvalidRequest(
                f"{what}; a file or link stands where the key needs a folder", field="key"
            )
        case errno.ENAMETOOLONG | errno.EINVAL | errno.EILSEQ:
            return InvalidRequest(f"{what}; the file system takes no such name", field="key")
        case errno.ENOSPC | errno.EDQUOT:
            return RetryLater(f"{what}; free some space", retry_after_ms=10_000)
        case _:
            return RetryLater(what)


def _check_key(key: str) -> None:
    check_key(key)
    if key.partition("/")[0] == STAGING:
        raise InvalidRequest(f"{STAGING}/ is the store's own folder", field="key")


def _part_name(part: UploadedPart) -> str:
    return f"{part.number}-{part.size:x}-{part.crc32c:08x}"


def _append_part(fd: int, folder: Path, part: UploadedPart, key: str) -> None:
    try:
        source = OpenObject(os.open(folder / _part_name(part), os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        raise InvalidRequest(
            f"part {part.number} of {shown(key)} was not stored as named", field="parts"
        ) from None
    crc32c = 0
    for piece in source.pieces():
        crc32c = crc32c_of(piece, crc32c)
        write_all(fd, piece)
    if crc32c != part.crc32c:
        raise CorruptData(
            f"part {part.number} has CRC32C {crc32c:08x} on disk, {part.crc32c:08x} was written",
            source=key,
            position=0,
        )


def _upload_key(folder: Path) -> str | None:
    try:
        return (folder / "key").read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None
