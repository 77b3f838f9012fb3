"""The object store on a file system: for one machine, a shared mount, tests and the demo.

An object is whole or absent, and durable once a write returns; create-only uses link(2). See
`rsm_backends.object_files` for the layout and the order of the steps. Several processes may share a
root. The limits of file systems apply: a key part has at most 255 bytes, and a key cannot also be
the folder of other keys.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import (
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
    check_version_id,
    shown,
)
from rsm_backends.hung_calls import while_wanted
from rsm_backends.object_files import (
    READ_BYTES,
    STAGING,
    ObjectFiles,
    OpenObject,
    Place,
    object_info,
    write_all,
)
from rsm_backends.store import (
    FolderPage,
    ListPage,
    ObjectInfo,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
    VersionPage,
)
from rsm_backends.store_threads import StoreThreads
from rsm_backends.upload_files import UploadFiles

THREADS_MAX = 4
"""The threads of one store, its own pool, so that a slow disk does not delay other executors."""
LIST_TURN_S = 0.05
"""The time that a list runs alone. Threads interrupt each other at every file, so that several
lists at once take twice as long as one after the other, unless they wait for the disk.
"""
WALKS_KEPT = 16
"""The most lists kept open to continue where their last page ended; each keeps the names of a few
folders.
"""
WALK_KEPT_S = 5.0
"""The time after which a list that was not continued is dropped; the next page then starts a new
walk.
"""

_Answer = TypeVar("_Answer")


class _Walk:
    """A list in progress, read page by page."""

    def __init__(self, places: Iterator[Place]) -> None:
        self._places = places
        self.next: Place | None = None
        """The first place after the last page; None before the first page and at the end."""

    def page(self, limit: int) -> tuple[ObjectInfo, ...]:
        found: list[ObjectInfo] = []
        begun = () if self.next is None else (self.next,)
        for place in chain(begun, self._places):
            if len(found) == limit:
                self.next = place
                return tuple(found)
            info = place.described()
            if info is not None:
                found.append(info)
        self.next = None
        return tuple(found)


class FilesystemStore:
    """Objects under `root`, an existing folder. The blocking work runs in the store's threads."""

    def __init__(
        self, root: Path, files: ObjectFiles | None = None, threads: StoreThreads | None = None
    ) -> None:
        """Blocks while the root is opened, unless `files` and `threads` are those of `open`."""
        self._files = ObjectFiles(root) if files is None else files
        self._uploads = UploadFiles(self._files)
        self._threads = StoreThreads(str(root), THREADS_MAX) if threads is None else threads
        self._list_turn = asyncio.Lock()
        self._walks: OrderedDict[tuple[str, str], tuple[_Walk, asyncio.TimerHandle]] = OrderedDict()
        self._swept = False

    @classmethod
    async def open(cls, root: Path) -> FilesystemStore:
        """Open `root` in a thread: its mount may hang, or be dead (RetryLater)."""
        threads = StoreThreads(str(root), THREADS_MAX)

        def begin() -> ObjectFiles:
            try:
                return ObjectFiles(root)
            except OSError as error:
                raise store_error(error, str(root)) from error

        try:
            return cls(root, await threads.run("its folder", begin), threads)
        except StrandlineError:
            await threads.close()
            raise

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

        def begin() -> tuple[OpenObject, int, bytes]:
            """Open and read at once, so that a small object takes only one switch to a thread."""
            opened = self._files.open_object(key)
            size = opened.status().st_size
            last = size if end is None else min(end, size)
            return opened, last, opened.read(max(min(READ_BYTES, last - start), 0), start)

        opened, last, piece = await self._run(key, begin)
        try:
            at = start
            while piece:
                at += len(piece)
                yield piece
                if at >= last:
                    return
                piece = await self._run(key, partial(opened.read, min(READ_BYTES, last - at), at))
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
        kept = None if cursor is None else self._taken((prefix, cursor))

        def go_on() -> tuple[_Walk, tuple[ObjectInfo, ...]]:
            walk = kept or _Walk(self._files.walk(prefix, cursor))
            return walk, walk.page(limit)

        async with self._turn():
            walk, found = await self._run(prefix, go_on)
        if walk.next is None:
            return ListPage(found, None)
        next_cursor = found[-1].key
        self._keep((prefix, next_cursor), walk)
        return ListPage(found, next_cursor)

    def _keep(self, where: tuple[str, str], walk: _Walk) -> None:
        """Keep the walk for the next page; a new walk would have to read its folder again."""
        self._taken(where)
        in_time = asyncio.get_running_loop().call_later(WALK_KEPT_S, self._taken, where)
        self._walks[where] = walk, in_time
        while len(self._walks) > WALKS_KEPT:
            self._taken(next(iter(self._walks)))

    def _taken(self, where: tuple[str, str]) -> _Walk | None:
        """Take the walk kept at `where`, if any, and stop its timer: it keeps folders open."""
        if where not in self._walks:
            return None
        walk, in_time = self._walks.pop(where)
        in_time.cancel()
        return walk

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        check_prefix(prefix)
        check_limit(limit)
        found = await self._run(
            prefix, lambda: tuple(islice(self._files.folders(prefix, cursor), limit + 1))
        )
        if len(found) <= limit:
            return FolderPage(found, None)
        return FolderPage(found[:limit], found[limit - 1])

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            _check_key(key)
        await self._run(f"{len(keys)} keys", lambda: self._files.remove(while_wanted(keys)))

    async def start_multipart(self, key: str) -> str:
        _check_key(key)
        return await self._run(key, lambda: self._uploads.start(key))

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        _check_key(key)
        check_part_number(number)
        check_crc32c(data, crc32c, source=f"{key} part {number}")
        part = UploadedPart(number, len(data), crc32c, f'"{len(data):x}-{crc32c:08x}"')
        await self._run(key, lambda: self._uploads.put_part(key, upload_id, part, data))
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
        return await self._run(
            key,
            lambda: self._uploads.complete(key, upload_id, parts, crc32c, create_only=create_only),
        )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        _check_key(key)
        await self._run(key, lambda: self._uploads.abort(key, upload_id))

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        _check_key(key)
        return await self._run(key, lambda: self._uploads.listed(key))

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        check_prefix(prefix)
        return await self._run(prefix, lambda: self._uploads.below(prefix))

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        _check_key(key)
        return ()  # a file system keeps no versions

    async def get_version(
        self, key: str, version_id: str, *, start: int = 0
    ) -> AsyncIterator[bytes]:
        _check_key(key)
        check_range(start, None)
        for _ in await self.versions(key):
            yield b""
        raise NotFound(
            f"{shown(key)} has no version {shown(version_id)}: a filesystem store keeps no versions"
        )

    async def versions_below(
        self,
        prefix: str,
        *,
        cursor: str | None = None,  # noqa: ARG002 - a file system keeps no versions
        limit: int = 1000,
    ) -> VersionPage:
        check_prefix(prefix)
        check_limit(limit)
        return VersionPage((), None)

    async def delete_version(self, key: str, version_id: str) -> None:
        _check_key(key)
        check_version_id(version_id)  # an absent version counts as deleted, and there are none

    async def close(self) -> None:
        """Wait for calls under way, except those that hang, then close the root folder. Idempotent.

        A call that hangs may go on later: then its descriptor of the root must not be that of a
        different folder, so it stays open for the rest of the process.
        """
        ended = await self._threads.close()
        while self._walks:
            self._taken(next(iter(self._walks)))
        if ended:
            self._files.close()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for earlier lists; one that takes longer than `LIST_TURN_S` lets the next begin."""
        await self._list_turn.acquire()
        is_mine = True

        def end() -> None:
            nonlocal is_mine
            if is_mine:
                is_mine = False
                self._list_turn.release()

        in_time = asyncio.get_running_loop().call_later(LIST_TURN_S, end)
        try:
            yield
        finally:
            in_time.cancel()
            end()

    async def _run(self, key: str, work: Callable[[], _Answer]) -> _Answer:
        def run() -> _Answer:
            try:
                return work()
            except OSError as error:
                raise store_error(error, key) from error

        return await self._threads.run(shown(key), run)


def store_error(error: OSError, key: str) -> StrandlineError:
    """Our error for an error of the operating system; the only such mapping."""
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
                f"{what}; the key needs a folder where a file or link exists", field="key"
            )
        case errno.ENAMETOOLONG | errno.EINVAL | errno.EILSEQ:
            return InvalidRequest(f"{what}; the file system does not allow this name", field="key")
        case errno.ENOSPC | errno.EDQUOT:
            return RetryLater(f"{what}; free some space", retry_after_ms=10_000)
        case _:
            return RetryLater(what)


def _check_key(key: str) -> None:
    check_key(key)
    if key.partition("/")[0] == STAGING:
        raise InvalidRequest(
            f"{STAGING}/ is reserved for the store itself: choose a different key", field="key"
        )
