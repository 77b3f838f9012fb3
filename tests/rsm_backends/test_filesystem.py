"""Files that are whole or absent after a crash anywhere, and keys that never leave the root."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import (
    AlreadyExists,
    CorruptData,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
)
from rsm_backends.filesystem import FilesystemStore, store_error
from rsm_backends.object_files import STAGING, STALE_TEMPORARY_MS, OpenObject
from rsm_backends.streams import closing_stream, read_all

OLD, NEW = b"the old object", b"the new one"
CALLS = (
    "write", "pwrite", "ftruncate", "fsync", "link", "symlink", "replace", "mkdir", "unlink",
    "rmdir", "open", "fchmod",
)  # fmt: skip


class Crash(BaseException):
    """The process ends here, as far as the code under test can tell."""


class Calls:
    """Records the file system calls, and crashes just before one of them if told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        self.crash_before: int | None = None
        self.recording = False
        for name in CALLS:
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            if self.recording:
                if self.crash_before == len(self.seen):
                    raise Crash(f"before {name}{args}")
                self.seen.append((name, _described(args)))
            return real(*args, **kwargs)

        return call


def _described(args: tuple[object, ...]) -> str:
    first = args[0] if args else ""
    if isinstance(first, int):
        first = Path(f"/proc/self/fd/{first}").readlink()
    return str(first)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    recorder = Calls(monkeypatch)
    yield recorder
    recorder.recording = False


@pytest.fixture
async def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(tmp_path)


async def put(store: FilesystemStore, key: str, data: bytes, create_only: bool = False) -> None:
    await store.put(key, data, crc32c=crc32c(data), create_only=create_only)


async def upload(store: FilesystemStore, key: str, data: bytes) -> None:
    upload_id = await store.start_multipart(key)
    half = len(data) // 2
    parts = [
        await store.put_part(key, upload_id, number, piece, crc32c=crc32c(piece))
        for number, piece in ((1, data[:half]), (2, data[half:]))
    ]
    await store.complete_multipart(key, upload_id, parts, crc32c=crc32c(data))


async def crash_everywhere(
    root: Path, calls: Calls, write: Callable[[FilesystemStore], object]
) -> int:
    """Run `write` with a crash before each of its calls in turn; the object is always whole."""
    for at in range(1000):
        folder = root / f"{at}"
        folder.mkdir()
        store = FilesystemStore(folder)
        await put(store, "t/0/a", OLD)
        calls.seen, calls.crash_before, calls.recording = [], at, True
        try:
            await write(store)  # type: ignore[misc]  # a coroutine, made by the caller's lambda
        except Crash:
            crashed = True
        else:
            crashed = False
        calls.recording = False
        again = FilesystemStore(folder)
        assert await read_all(again, "t/0/a") in (OLD, NEW)
        described = await again.head("t/0/a")
        assert described.crc32c == crc32c(await read_all(again, "t/0/a"))
        for upload_id in await again.list_uploads("t/0/a"):
            await again.abort_multipart("t/0/a", upload_id)
        listed = [found.key for found in (await again.list_page("")).objects]
        assert listed in (["t/0/a"], ["t/0/a", "t/1/b"])
        if len(listed) == 2:
            assert await read_all(again, "t/1/b") == NEW
        await put(again, "t/0/a", NEW)
        assert await read_all(again, "t/0/a") == NEW
        await again.close()
        await store.close()
        if not crashed:
            return at
    raise AssertionError("it never ran to its end")


async def test_a_crash_at_any_step_of_a_put_leaves_the_old_or_the_new_object(
    tmp_path: Path, calls: Calls
) -> None:
    assert await crash_everywhere(tmp_path, calls, lambda store: put(store, "t/0/a", NEW)) > 8


async def test_a_crash_at_any_step_of_an_upload_leaves_the_old_or_the_new_object(
    tmp_path: Path, calls: Calls
) -> None:
    assert await crash_everywhere(tmp_path, calls, lambda store: upload(store, "t/0/a", NEW)) > 12


async def test_a_crash_at_any_step_of_a_first_put_leaves_it_whole_or_absent(
    tmp_path: Path, calls: Calls
) -> None:
    async def write(store: FilesystemStore) -> None:
        await put(store, "t/1/b", NEW, create_only=True)

    assert await crash_everywhere(tmp_path, calls, write) > 8


async def test_a_put_is_durable_before_it_is_told(
    store: FilesystemStore, tmp_path: Path, calls: Calls
) -> None:
    await put(store, "warm-up", OLD)
    for create_only, step in ((True, "link"), (False, "replace")):
        calls.seen, calls.recording = [], True
        await put(store, "t/0/a", NEW, create_only)
        calls.recording = False
        named = next(at for at, (name, _) in enumerate(calls.seen) if name == step)
        before = [path for name, path in calls.seen[:named] if name == "fsync"]
        assert len(before) == 1
        assert f"/{STAGING}/temporary/" in before[0]
        after = [path for name, path in calls.seen[named:] if name == "fsync"]
        assert after == [str(tmp_path / "t/0"), str(tmp_path / "t"), str(tmp_path)]


async def test_a_delete_is_durable_before_it_is_told(
    store: FilesystemStore, tmp_path: Path, calls: Calls
) -> None:
    await put(store, "t/0/a", OLD)
    await put(store, "b", OLD)
    calls.recording = True
    await store.delete_many(["t/0/a", "b"])
    calls.recording = False
    names = [name for name, _ in calls.seen if name in ("unlink", "fsync")]
    assert names.index("fsync") > names.index("unlink")
    synced = {path for name, path in calls.seen if name == "fsync"}
    assert synced == {str(tmp_path / "t/0"), str(tmp_path)}
    assert not (tmp_path / "t").exists()


async def test_an_object_lost_without_its_checksum_file_is_read_again(
    store: FilesystemStore, tmp_path: Path
) -> None:
    await put(store, "a", OLD)
    for path in (tmp_path / STAGING / "checksums").rglob("*"):
        if path.is_file():
            path.write_text("")
    assert (await store.head("a")).crc32c == crc32c(OLD)
    assert (await store.head("a")).crc32c == crc32c(OLD)


async def test_a_checksum_file_of_another_object_is_not_believed(
    store: FilesystemStore, tmp_path: Path
) -> None:
    await put(store, "a", OLD)
    (tmp_path / "b").write_bytes(NEW)
    os.replace(tmp_path / "b", tmp_path / "a")
    described = await store.head("a")
    assert (described.size, described.crc32c) == (len(NEW), crc32c(NEW))


async def test_objects_are_plain_files_that_others_may_read(
    store: FilesystemStore, tmp_path: Path
) -> None:
    await put(store, "t/0/a", OLD)
    await upload(store, "t/0/b", NEW)
    assert (tmp_path / "t/0/a").read_bytes() == OLD
    assert (tmp_path / "t/0/b").read_bytes() == NEW
    assert (tmp_path / "t/0/b").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("key", ["link/a", "t/link/a", "link"])
async def test_links_never_lead_out_of_the_root(
    store: FilesystemStore, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, key: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a").write_bytes(OLD)
    await put(store, "t/0/a", OLD)
    link = tmp_path / key.removesuffix("/a")
    link.symlink_to(outside if key.endswith("/a") else outside / "a")
    above = key.partition("link")[0]
    for asked in (store.head(key), read_all(store, key), store.list_page(above)):
        with pytest.raises(Refused, match=r"'link' on the way to .* is a symbolic link"):
            await asked
    assert [found.key for found in (await store.list_page("t/0/")).objects] == ["t/0/a"]
    if key.endswith("/a"):
        with pytest.raises(Refused, match="symbolic link"):
            await store.delete_many([key])
        with pytest.raises(Refused, match="symbolic link"):
            await put(store, key, NEW)
    else:
        await store.delete_many([key])
        await put(store, key, NEW)  # the link was removed, not what it pointed to
    assert (outside / "a").read_bytes() == OLD


async def test_a_folder_that_was_moved_to_another_disk_is_not_told_as_gone(
    store: FilesystemStore, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whoever did that left a link; the disk behind it may be away, too."""
    await put(store, "t/0/a", OLD)
    there = tmp_path_factory.mktemp("another disk") / "0"
    (tmp_path / "t/0").rename(there)
    (tmp_path / "t/0").symlink_to(there)
    away = there.with_name("away")
    for is_there in (True, False):
        if not is_there:
            there.rename(away)
        for asked in (
            store.head("t/0/a"), store.list_page("t/"), store.list_page("t/0/a"),
            store.delete_many(["t/0/a"]),
        ):  # fmt: skip
            with pytest.raises(Refused, match="mount its disk there"):
                await asked
    (tmp_path / "t/0").unlink()
    away.rename(tmp_path / "t/0")
    assert await read_all(store, "t/0/a") == OLD


@pytest.mark.parametrize("key", [STAGING, f"{STAGING}/uploads/x", f"{STAGING}/temporary/x"])
async def test_the_staging_area_is_no_place_for_objects(store: FilesystemStore, key: str) -> None:
    await store.start_multipart("a")
    with pytest.raises(InvalidRequest):
        await put(store, key, NEW)
    with pytest.raises(InvalidRequest):
        await store.delete_many([key])
    assert (await store.list_page("")).objects == ()
    assert (await store.list_page(STAGING)).objects == ()
    assert (await store.list_page(f"{STAGING}/uploads/")).objects == ()


@pytest.mark.parametrize("upload_id", ["", ".", "..", "../uploads", "u/x", "none", "\0"])
async def test_an_upload_id_from_elsewhere_is_not_found(
    store: FilesystemStore, upload_id: str
) -> None:
    await store.start_multipart("a")
    with pytest.raises(NotFound):
        await store.put_part("a", upload_id, 1, NEW, crc32c=crc32c(NEW))
    await store.abort_multipart("a", upload_id)
    assert len(await store.list_uploads("a")) == 1


async def test_an_upload_belongs_to_its_key(store: FilesystemStore) -> None:
    upload_id = await store.start_multipart("a")
    with pytest.raises(NotFound):
        await store.put_part("b", upload_id, 1, NEW, crc32c=crc32c(NEW))
    await store.abort_multipart("b", upload_id)
    assert await store.list_uploads("a") == (upload_id,)


async def test_a_part_damaged_on_disk_is_noticed_at_completion(
    store: FilesystemStore, tmp_path: Path
) -> None:
    upload_id = await store.start_multipart("a")
    part = await store.put_part("a", upload_id, 1, NEW, crc32c=crc32c(NEW))
    (stored,) = (tmp_path / STAGING / "uploads" / upload_id).glob("1-*")
    stored.write_bytes(NEW[:-1] + b"?")
    with pytest.raises(CorruptData):
        await store.complete_multipart("a", upload_id, [part], crc32c=crc32c(NEW))
    with pytest.raises(NotFound):
        await store.head("a")


async def test_a_key_cannot_be_object_and_folder(store: FilesystemStore) -> None:
    await put(store, "a/b", OLD)
    with pytest.raises(InvalidRequest, match="folder of other objects"):
        await put(store, "a", NEW)
    with pytest.raises(InvalidRequest):
        await put(store, "a/b/c", NEW)
    await store.delete_many(["a", "a/b/c"])
    assert await read_all(store, "a/b") == OLD


async def test_a_part_of_a_key_longer_than_the_file_system_takes_is_refused(
    store: FilesystemStore,
) -> None:
    with pytest.raises(InvalidRequest, match="does not allow this name"):
        await put(store, "x" * 256, NEW)


async def test_folders_of_other_tools_and_odd_names_are_passed_over(
    store: FilesystemStore, tmp_path: Path
) -> None:
    await put(store, "a", OLD)
    os.mkfifo(tmp_path / "fifo")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    (tmp_path / "empty" / "empty").mkdir(parents=True)
    assert [found.key for found in (await store.list_page("")).objects] == ["a"]
    with pytest.raises(NotFound):
        await read_all(store, "fifo")


async def test_old_temporary_files_are_swept_and_young_ones_kept(tmp_path: Path) -> None:
    folder = tmp_path / STAGING / "temporary"
    folder.mkdir(parents=True)
    for name, age_s in (("old", STALE_TEMPORARY_MS / 1000 + 60), ("young", 60)):
        (folder / name).write_bytes(b"half")
        then = (folder / name).stat().st_mtime - age_s
        os.utime(folder / name, (then, then))
    await put(FilesystemStore(tmp_path), "a", OLD)
    assert [path.name for path in folder.iterdir()] == ["young"]


async def test_a_folder_removed_while_it_is_written_to_is_made_again(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_link = os.link
    removed: list[str] = []

    def link(path: str, name: str, *, dst_dir_fd: int, follow_symlinks: bool) -> None:
        if not removed:
            removed.append(name)
            (tmp_path / "t" / "0").rmdir()
            (tmp_path / "t").rmdir()
        real_link(path, name, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "link", link)
    await put(store, "t/0/a", NEW, create_only=True)
    assert await read_all(store, "t/0/a") == NEW


async def test_streams_left_early_close_their_files(store: FilesystemStore, tmp_path: Path) -> None:
    def times_open() -> int:
        paths = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        return sum(path.is_symlink() and path.readlink() == tmp_path / "a" for path in paths)

    await put(store, "a", bytes(3 * 1024 * 1024))
    async with AsyncExitStack() as stack:
        for _ in range(5):
            stream = await stack.enter_async_context(closing_stream(store.get("a")))
            await anext(stream)
        assert times_open() == 5
    assert times_open() == 0


def test_a_file_is_not_closed_under_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(OLD)
    opened = OpenObject(os.open(tmp_path / "a", os.O_RDONLY))
    real_pread = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        opened.close()  # the stream's reader leaves while a thread reads
        return real_pread(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    assert opened.read(100, 0) == OLD
    assert opened.read(100, 0) == b""
    with pytest.raises(OSError, match="Bad file descriptor"):
        opened.status()
    opened.close()


async def test_a_root_that_is_missing_or_no_folder_is_refused_clearly(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="create it, or mount its disk"):
        FilesystemStore(tmp_path / "none")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidRequest, match="not a folder"):
        FilesystemStore(tmp_path / "file")


async def test_a_staging_area_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / STAGING).symlink_to(tmp_path.parent)
    with pytest.raises(Refused, match="symbolic link"):
        await put(FilesystemStore(tmp_path), "a", NEW)


async def test_close_may_be_called_twice(store: FilesystemStore) -> None:
    await put(store, "a", NEW)
    await store.close()
    await store.close()


async def test_create_only_holds_between_processes_that_share_a_root(tmp_path: Path) -> None:
    first, second = FilesystemStore(tmp_path), FilesystemStore(tmp_path)
    await put(first, "a", OLD, create_only=True)
    with pytest.raises(AlreadyExists):
        await put(second, "a", NEW, create_only=True)
    assert await read_all(second, "a") == OLD


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, NotFound),
        (errno.EACCES, Refused),
        (errno.EROFS, Refused),
        (errno.EPERM, Refused),
        (errno.ENOTDIR, InvalidRequest),
        (errno.EISDIR, InvalidRequest),
        (errno.ENAMETOOLONG, InvalidRequest),
        (errno.ENOSPC, RetryLater),
        (errno.EDQUOT, RetryLater),
        (errno.EIO, RetryLater),
        (errno.EMFILE, RetryLater),
    ],
)
def test_the_systems_errors_become_ours(number: int, kind: type[Exception]) -> None:
    error = store_error(OSError(number, os.strerror(number)), "some/key")
    assert type(error) is kind
    assert "some/key" in str(error)


async def test_a_full_disk_leaves_the_old_object(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "a", OLD)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RetryLater, match="free some space"):
        await put(store, "a", NEW)
    monkeypatch.undo()
    assert await read_all(store, "a") == OLD
    assert list((tmp_path / STAGING / "temporary").iterdir()) == []


async def test_a_key_that_no_file_can_have_is_not_there_and_counts_as_deleted(
    tmp_path: Path,
) -> None:
    store = FilesystemStore(tmp_path)
    key = f"{'t' * 256}/0/a"
    await store.put("b", b"b", crc32c=crc32c(b"b"))
    await store.delete_many([key, "b", f"a/{'x' * 300}"])
    for missing in (key, "b"):
        with pytest.raises(NotFound):
            await store.head(missing)
    await store.close()
