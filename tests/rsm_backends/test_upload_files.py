"""An upload's parts go to their places at once; whatever does not fit is joined, and never told
before it is durable.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import AlreadyExists, NotFound, RetryLater
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.object_files import STAGING
from rsm_backends.store import UploadedPart
from rsm_backends.streams import read_all
from rsm_backends.upload_files import UploadFiles

KEY = "t/0/a.log"
PIECES = (b"a" * 1000, b"b" * 1000, b"c" * 300)
WHOLE = b"".join(PIECES)


class Written:
    """How many bytes the process writes, and what it syncs."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self.synced: list[str] = []
        write, pwrite, fsync = os.write, os.pwrite, os.fsync

        def counted_write(fd: int, data: bytes) -> int:
            self.bytes += len(data)
            return write(fd, data)

        def counted_pwrite(fd: int, data: bytes, position: int) -> int:
            self.bytes += len(data)
            return pwrite(fd, data, position)

        def noted_fsync(fd: int) -> None:
            self.synced.append(os.readlink(f"/proc/self/fd/{fd}"))
            fsync(fd)

        patch.setattr(os, "write", counted_write)
        patch.setattr(os, "pwrite", counted_pwrite)
        patch.setattr(os, "fsync", noted_fsync)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    return Written(monkeypatch)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    store = FilesystemStore(tmp_path)
    yield store
    await store.close()


async def put_part(
    store: FilesystemStore, upload_id: str, number: int, data: bytes | None = None
) -> UploadedPart:
    piece = PIECES[number - 1] if data is None else data
    return await store.put_part(KEY, upload_id, number, piece, crc32c=crc32c(piece))


async def uploaded(
    store: FilesystemStore, *, order: tuple[int, ...] = (1, 2, 3)
) -> tuple[str, list[UploadedPart]]:
    upload_id = await store.start_multipart(KEY)
    parts = [await put_part(store, upload_id, number) for number in order]
    return upload_id, sorted(parts, key=lambda part: part.number)


async def complete(
    store: FilesystemStore, upload_id: str, parts: list[UploadedPart], *, create_only: bool = False
) -> None:
    await store.complete_multipart(
        KEY, upload_id, parts, crc32c=crc32c(WHOLE), create_only=create_only
    )


def staged(root: Path) -> list[str]:
    """What is left of uploads, and of files on their way."""
    folders = (root / STAGING / "uploads", root / STAGING / "temporary")
    return [str(path) for folder in folders if folder.exists() for path in folder.iterdir()]


@pytest.mark.parametrize("create_only", [False, True])
async def test_no_byte_of_an_upload_is_written_twice(
    store: FilesystemStore, tmp_path: Path, written: Written, create_only: bool
) -> None:
    upload_id, parts = await uploaded(store)
    await complete(store, upload_id, parts, create_only=create_only)
    checksum_file = 100
    assert written.bytes < len(WHOLE) + checksum_file
    data = [path for path in written.synced if STAGING in path]
    assert data == [str(tmp_path / STAGING / "uploads" / upload_id / "data")]
    assert await read_all(store, KEY) == WHOLE
    assert (await store.head(KEY)).crc32c == crc32c(WHOLE)
    assert (tmp_path / KEY).stat().st_nlink == 1
    assert staged(tmp_path) == []


@pytest.mark.parametrize("order", [(2, 1, 3), (3, 2, 1), (3, 1, 2)])
async def test_parts_may_come_in_any_order(
    store: FilesystemStore, tmp_path: Path, order: tuple[int, ...]
) -> None:
    upload_id, parts = await uploaded(store, order=order)
    await complete(store, upload_id, parts)
    assert await read_all(store, KEY) == WHOLE
    assert staged(tmp_path) == []


async def test_parts_that_are_not_named_are_not_in_the_object(store: FilesystemStore) -> None:
    upload_id, parts = await uploaded(store)
    left = WHOLE[:1000]
    await store.complete_multipart(KEY, upload_id, parts[:1], crc32c=crc32c(left))
    assert await read_all(store, KEY) == left


async def test_a_part_left_out_in_the_middle_closes_the_gap(store: FilesystemStore) -> None:
    upload_id, parts = await uploaded(store)
    left = PIECES[0] + PIECES[2]
    await store.complete_multipart(KEY, upload_id, [parts[0], parts[2]], crc32c=crc32c(left))
    assert await read_all(store, KEY) == left


async def test_a_part_sent_again_never_touches_the_first(store: FilesystemStore) -> None:
    upload_id, parts = await uploaded(store)
    other = await put_part(store, upload_id, 2, b"x" * 1000)
    again = await put_part(store, upload_id, 3)
    assert again == parts[2]
    await complete(store, upload_id, parts)
    assert await read_all(store, KEY) == WHOLE
    assert other != parts[1]


async def test_after_a_failed_sync_the_repeated_completion_is_a_new_file(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_id, parts = await uploaded(store)
    real, synced = os.fsync, list[int]()

    def fails_once(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        if len(synced) == 1:
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", fails_once)
    with pytest.raises(RetryLater):
        await complete(store, upload_id, parts)
    assert (await store.list_page("")).objects == ()
    await complete(store, upload_id, parts)
    assert await read_all(store, KEY) == WHOLE
    assert (tmp_path / KEY).stat().st_ino == synced[1] != synced[0]


async def test_a_completion_whose_name_did_not_get_durable_is_repeated_whole(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_id, parts = await uploaded(store)
    real, synced = os.fsync, list[str]()

    def fails_at_the_folder(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        if len(synced) == 2:
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", fails_at_the_folder)
    with pytest.raises(RetryLater):
        await complete(store, upload_id, parts)
    await complete(store, upload_id, parts)
    assert synced[1] == str(tmp_path / "t/0")
    assert synced[-3:] == [str(tmp_path / "t/0"), str(tmp_path / "t"), str(tmp_path)]
    assert await read_all(store, KEY) == WHOLE


async def test_a_refused_name_leaves_the_upload_as_it_was(
    store: FilesystemStore, tmp_path: Path
) -> None:
    await store.put(KEY, b"first", crc32c=crc32c(b"first"))
    upload_id, parts = await uploaded(store)
    with pytest.raises(AlreadyExists):
        await complete(store, upload_id, parts, create_only=True)
    assert await read_all(store, KEY) == b"first"
    assert not list((tmp_path / STAGING / "temporary").iterdir())
    await complete(store, upload_id, parts)
    assert await read_all(store, KEY) == WHOLE


@pytest.mark.parametrize("ends", ["completed", "completed and its folder not removed", "aborted"])
async def test_a_late_part_reaches_no_object(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The writer has opened the file, and has no lock yet, when the upload ends."""
    upload_id, parts = await uploaded(store, order=(1, 3))
    late = UploadedPart(2, 1000, crc32c(b"x" * 1000), "")
    real = fcntl.flock
    uploads = UploadFiles(store._files)

    def ends_first(fd: int, how: int) -> None:
        if how == fcntl.LOCK_SH:
            monkeypatch.setattr(fcntl, "flock", real)
            if ends == "aborted":
                uploads.abort(KEY, upload_id)
            else:
                if ends != "completed":
                    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
                uploads.complete(KEY, upload_id, [parts[0]], crc32c(PIECES[0]), create_only=False)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", ends_first)
    if ends == "completed and its folder not removed":
        uploads.put_part(KEY, upload_id, late, b"x" * 1000)
    else:
        with pytest.raises(NotFound):
            uploads.put_part(KEY, upload_id, late, b"x" * 1000)
    if ends != "aborted":
        assert await read_all(store, KEY) == PIECES[0]


@pytest.mark.parametrize("names_read", [True, False], ids=["after the names", "before them"])
async def test_two_that_abort_the_same_upload_both_succeed(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch, names_read: bool
) -> None:
    upload_id, _ = await uploaded(store, order=(1, 2))
    uploads, listdir = UploadFiles(store._files), os.listdir

    def other_first(folder: Path) -> list[str]:
        names = listdir(folder) if names_read else []
        monkeypatch.setattr(os, "listdir", listdir)
        uploads.abort(KEY, upload_id)
        return names or listdir(folder)

    monkeypatch.setattr(os, "listdir", other_first)
    uploads.abort(KEY, upload_id)
    assert uploads.listed(KEY) == ()


async def test_who_completes_is_alone_with_the_bytes(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, fsync, held = os.pwrite, os.fsync, list[str]()

    def is_held(how: int) -> bool:
        (path,) = (tmp_path / STAGING / "uploads").glob("*/data")
        with path.open("rb") as other:
            try:
                fcntl.flock(other, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def writing(fd: int, data: bytes, position: int) -> int:
        assert is_held(fcntl.LOCK_EX)
        assert not is_held(fcntl.LOCK_SH)
        held.append("shared")
        return pwrite(fd, data, position)

    def syncing(fd: int) -> None:
        if not held or held[-1] != "alone":
            assert is_held(fcntl.LOCK_SH)
            held.append("alone")
        fsync(fd)

    monkeypatch.setattr(os, "pwrite", writing)
    monkeypatch.setattr(os, "fsync", syncing)
    upload_id, parts = await uploaded(store)
    await complete(store, upload_id, parts)
    assert held == ["shared", "shared", "shared", "alone"]


@pytest.mark.parametrize("lacks", ["flock", "link"])
async def test_a_file_system_without_locks_or_links_takes_uploads_all_the_same(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if lacks == "flock":
        monkeypatch.setattr(fcntl, "flock", unknown)
    else:
        monkeypatch.setattr(os, "link", unknown)
    upload_id, parts = await uploaded(store)
    await complete(store, upload_id, parts)
    assert await read_all(store, KEY) == WHOLE


async def test_an_abort_takes_what_a_failed_completion_left(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_id, parts = await uploaded(store)

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(RetryLater):
            await complete(store, upload_id, parts)
    await store.abort_multipart(KEY, upload_id)
    assert staged(tmp_path) == []


async def test_two_stores_on_one_folder_share_an_upload(
    store: FilesystemStore, tmp_path: Path
) -> None:
    other = FilesystemStore(tmp_path)
    upload_id = await store.start_multipart(KEY)
    parts = [
        await put_part(store, upload_id, 1),
        await put_part(other, upload_id, 2),
        await put_part(store, upload_id, 3),
    ]
    await complete(other, upload_id, parts)
    assert await read_all(store, KEY) == WHOLE
    await other.close()
