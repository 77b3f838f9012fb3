"""An object store in memory, for tests, the simulation and dry runs. It ends with the process.

It keeps every promise of the port that does not need a disk, so tests on it can be trusted
(`tests.rsm_backends.conformance` checks this).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import AlreadyExists, InvalidRequest, NotFound
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
from rsm_backends.store import (
    VERSIONS_MAX,
    FolderPage,
    KeptVersion,
    ListPage,
    ObjectInfo,
    ObjectVersion,
    UnfinishedUpload,
    UploadedPart,
    VersionPage,
)

GET_PIECE_BYTES = 256 * 1024


@dataclass(slots=True)
class _Upload:
    key: str
    parts: dict[int, tuple[UploadedPart, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A version; `info` None: a delete marker."""

    version_id: str
    info: ObjectInfo | None
    data: bytes


class MemoryStore:
    """Objects in a dict, keys also in a sorted list. For one event loop; needs no locks."""

    def __init__(self, now_ms: Callable[[], int], *, versioned: bool = False) -> None:
        """`versioned`: keeps replaced and deleted objects, as a versioned bucket does."""
        self._now_ms = now_ms
        self._kept: dict[str, list[_Kept]] | None = {} if versioned else None
        self._objects: dict[str, tuple[ObjectInfo, bytes]] = {}
        self._order: list[tuple[bytes, str]] = []  # (key in UTF-8, key), for list_page
        self._uploads: dict[str, _Upload] = {}
        self._writes = 0

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        check_key(key)
        check_crc32c(data, crc32c, source=key)
        return self._place(key, bytes(data), crc32c, create_only)

    async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
        check_key(key)
        check_crc32c(data, crc32c, source=key)
        if key not in self._objects or self._objects[key][0].etag != etag:
            raise changed(key)
        return self._place(key, bytes(data), crc32c, create_only=False)

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        check_key(key)
        check_range(start, end)
        _, data = self._find(key)
        stop = len(data) if end is None else min(end, len(data))
        for at in range(start, stop, GET_PIECE_BYTES):
            yield data[at : min(at + GET_PIECE_BYTES, stop)]

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return self._find(key)[0]

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        check_prefix(prefix)
        check_limit(limit)
        encoded = prefix.encode()
        if cursor is None:
            at = bisect_left(self._order, (encoded, ""))
        else:
            behind = bisect_right(self._order, (cursor.encode(), cursor))
            at = max(behind, bisect_left(self._order, (encoded, "")))
        found: list[ObjectInfo] = []
        while at < len(self._order) and self._order[at][0].startswith(encoded):
            if len(found) == limit:
                return ListPage(tuple(found), found[-1].key)
            found.append(self._objects[self._order[at][1]][0])
            at += 1
        return ListPage(tuple(found), None)

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        check_prefix(prefix)
        check_limit(limit)
        found: list[str] = []
        at = bisect_left(self._order, ((prefix if cursor is None else cursor).encode(), ""))
        while at < len(self._order) and self._order[at][1].startswith(prefix):
            name, slash, _ = self._order[at][1][len(prefix) :].partition("/")
            if not slash:
                at += 1
                continue
            behind = f"{prefix}{name}0"  # every key of the folder sorts below this
            if len(found) == limit:
                return FolderPage(tuple(found), found[-1][:-1] + "0")
            found.append(f"{prefix}{name}/")
            at = bisect_left(self._order, (behind.encode(), ""))
        return FolderPage(tuple(found), None)

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        for key in keys:
            self._hide(key)
            if self._kept is not None:
                self._writes += 1
                self._kept.setdefault(key, []).append(_Kept(str(self._writes), None, b""))

    async def start_multipart(self, key: str) -> str:
        check_key(key)
        self._writes += 1
        upload_id = f"upload-{self._writes}"
        self._uploads[upload_id] = _Upload(key)
        return upload_id

    async def put_part(
        self, key: str, upload_id: str, number: int, data: Buffer, *, crc32c: int
    ) -> UploadedPart:
        check_key(key)
        check_part_number(number)
        check_crc32c(data, crc32c, source=f"{key} part {number}")
        part = UploadedPart(number, len(data), crc32c, f'"{len(data):x}-{crc32c:08x}"')
        self._upload(key, upload_id).parts[number] = (part, bytes(data))
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
        check_key(key)
        check_parts(parts)
        check_combined_crc32c(parts, crc32c, source=key)
        stored = self._upload(key, upload_id).parts
        for part in parts:
            if part.number not in stored or stored[part.number][0].etag != part.etag:
                raise InvalidRequest(
                    f"part {part.number} of {shown(key)} was not stored as named", field="parts"
                )
        whole = b"".join(stored[part.number][1] for part in parts)
        info = self._place(key, whole, crc32c, create_only)
        del self._uploads[upload_id]
        return info

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        check_key(key)
        self._uploads.pop(upload_id, None)

    async def list_uploads(self, key: str) -> tuple[str, ...]:
        check_key(key)
        return tuple(name for name, upload in self._uploads.items() if upload.key == key)

    async def uploads_below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        check_prefix(prefix)
        return tuple(
            UnfinishedUpload(upload.key, name)
            for name, upload in self._uploads.items()
            if upload.key.startswith(prefix)
        )

    async def versions(self, key: str) -> tuple[ObjectVersion, ...]:
        check_key(key)
        kept = [] if self._kept is None else self._kept.get(key, [])
        found = (
            ObjectVersion(each.version_id, len(each.data))
            for each in reversed(kept)
            if each.info is not None
        )
        return tuple(islice(found, VERSIONS_MAX))

    async def get_version(
        self, key: str, version_id: str, *, start: int = 0
    ) -> AsyncIterator[bytes]:
        check_key(key)
        check_range(start, None)
        kept = [] if self._kept is None else self._kept.get(key, [])
        for each in kept:
            if each.version_id == version_id and each.info is not None:
                for at in range(start, len(each.data), GET_PIECE_BYTES):
                    yield each.data[at : at + GET_PIECE_BYTES]
                return
        raise NotFound(f"there is no version {shown(version_id)} of {shown(key)}")

    async def versions_below(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> VersionPage:
        check_prefix(prefix)
        check_limit(limit)
        found = [
            KeptVersion(key, each.version_id, len(each.data), each.info is None)
            for key, kept in sorted((self._kept or {}).items(), key=lambda entry: entry[0].encode())
            if key.startswith(prefix)
            for each in reversed(kept)
        ]
        behind = 0
        if cursor is not None:
            after_key, _, after_id = cursor.rpartition("\n")
            behind = sum(
                (each.key.encode(), -int(each.version_id)) <= (after_key.encode(), -int(after_id))
                for each in found
            )
        page = found[behind : behind + limit]
        more = behind + limit < len(found)
        return VersionPage(tuple(page), f"{page[-1].key}\n{page[-1].version_id}" if more else None)

    async def delete_version(self, key: str, version_id: str) -> None:
        check_key(key)
        check_version_id(version_id)
        kept = [] if self._kept is None else self._kept.get(key, [])
        left = [each for each in kept if each.version_id != version_id]
        if self._kept is None or len(left) == len(kept):
            return
        self._kept[key] = left
        if not left:
            del self._kept[key]
        self._hide(key)
        if left and left[-1].info is not None:
            self._show(key, left[-1].info, left[-1].data)

    async def close(self) -> None:
        """Nothing to free."""

    def _place(self, key: str, data: bytes, crc32c: int, create_only: bool) -> ObjectInfo:
        if create_only and key in self._objects:
            raise AlreadyExists(f"the object {shown(key)} exists already and was not changed")
        self._writes += 1
        info = ObjectInfo(key, len(data), crc32c, self._now_ms(), f'"{self._writes}"')
        self._show(key, info, data)
        if self._kept is not None:
            self._kept.setdefault(key, []).append(_Kept(str(self._writes), info, data))
        return info

    def _show(self, key: str, info: ObjectInfo, data: bytes) -> None:
        """Let every read find this under `key`."""
        if key not in self._objects:
            encoded = (key.encode(), key)
            self._order.insert(bisect_left(self._order, encoded), encoded)
        self._objects[key] = (info, data)

    def _hide(self, key: str) -> None:
        """Let no read find an object under `key`."""
        if self._objects.pop(key, None) is not None:
            del self._order[bisect_left(self._order, (key.encode(), key))]

    def _find(self, key: str) -> tuple[ObjectInfo, bytes]:
        found = self._objects.get(key)
        if found is None:
            raise NotFound(f"there is no object {shown(key)}")
        return found

    def _upload(self, key: str, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise NotFound(f"there is no unfinished upload {shown(upload_id)} of {shown(key)}")
        return upload
