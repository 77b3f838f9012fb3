"""The power goes at any system call of the filesystem store: objects are whole or absent, and what
was told is durable."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.object_files import STAGING
from rsm_backends.streams import read_all
from sim.ground.medium import Medium, Survivors, Torn
from tests.durability.log_life import BrokenPromiseError
from tests.durability.recorded_store import DELETED, content
from tests.durability.syscalls import Call, play, read_calls, record, with_directories
from tests.real.toolbox import REPOSITORY


@dataclass
class Told:
    """What each key was told to hold, and what it may hold while a step is under way."""

    durable: dict[str, str] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Told:
        told = cls()
        for line in text.splitlines():
            word, *changes = line.split()
            told.begun = dict(change.split("=") for change in changes)
            if word == "done":
                told.durable |= told.begun
                told.begun = {}
        return told

    def may_hold(self, key: str) -> set[str]:
        """Contents, or DELETED, that the key may have."""
        return {self.durable.get(key, DELETED), self.begun.get(key, self.durable.get(key, DELETED))}


@dataclass(frozen=True, slots=True)
class Recording:
    root: Path
    calls: tuple[Call, ...]

    @property
    def store(self) -> Path:
        return self.root / "store"

    def told(self, medium: Medium) -> Told:
        try:
            return Told.read(medium.file(self.root / "told").live.decode())
        except FileNotFoundError:
            return Told()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    root = tmp_path_factory.mktemp("recorded")
    (root / "store").mkdir()
    command = [sys.executable, "-m", "tests.durability.recorded_store"]
    trace = root.with_name("store.trace")
    paths = [str(root / "store"), str(root / "told")]
    record([*command, *paths], REPOSITORY, trace, dict(os.environ))
    return Recording(root, tuple(read_calls(trace, root)))


def check_everywhere(recording: Recording, home: Path, *, fates: int, first_seed: int = 0) -> int:
    """Cut the power before every call, `fates` times each; look at each state that is left once."""
    medium, cases = with_directories(recording.store), 0
    for index in range(len(recording.calls) + 1):
        told, states = recording.told(medium), dict[object, Medium]()
        for seed in range(fates):
            choose = random.Random((first_seed + seed) * 10_000 + index)
            sector_bytes = choose.choice((512, 4096))
            contents = Torn(choose.getrandbits(32), sector_bytes) if seed else Survivors.NONE
            names = Torn(choose.getrandbits(32)) if seed else Survivors.NONE
            left = medium.after_power_cut(contents, names)
            states.setdefault(left.content(), left)
        for left in states.values():
            home.mkdir()
            left.write_out(recording.store, home)
            asyncio.run(check_store(home, told))
            shutil.rmtree(home)
        cases += fates
        if index < len(recording.calls):
            play(medium, recording.calls[index])
    return cases


async def check_store(home: Path, told: Told) -> None:
    store = FilesystemStore(home)
    try:
        listed = {found.key for found in (await store.list_page("")).objects}
        for key in {*told.durable, *told.begun}:
            allowed = told.may_hold(key)
            if key not in listed:
                if DELETED not in allowed:
                    raise BrokenPromiseError(f"{key} is gone, it was told to hold {allowed}")
                continue
            data = await read_all(store, key)
            if data not in [content(number) for number in allowed if number != DELETED]:
                raise BrokenPromiseError(f"{key} holds {data[:40]!r}, not one of {allowed}")
            if (await store.head(key)).crc32c != crc32c(data):
                raise BrokenPromiseError(f"{key} is described with another checksum")
        if not listed <= {*told.durable, *told.begun}:
            raise BrokenPromiseError(f"there is an object that nobody wrote: {listed}")
        for upload_id in await store.list_uploads("orders/1/c.log"):
            await store.abort_multipart("orders/1/c.log", upload_id)
    except StrandlineError as error:
        raise BrokenPromiseError(f"the store does not work: {error}") from error
    finally:
        await store.close()


@pytest.mark.integration
def test_objects_are_whole_or_absent_and_what_was_told_is_durable(
    recording: Recording, home: Path
) -> None:
    assert check_everywhere(recording, home, fates=6) > 1_000


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_power_cuts_of_the_store(recording: Recording, home: Path) -> None:
    assert check_everywhere(recording, home, fates=60, first_seed=100) > 10_000


SYNCS = {
    "the bytes": f"{STAGING}/temporary",
    "the bytes of an upload": f"{STAGING}/uploads",
    "an object's folder": "orders/0",
    "another object's folder": "orders/1",
    "the folder above": "orders",
    "the root": "",
}


@pytest.mark.integration
@pytest.mark.parametrize("of", SYNCS)
def test_each_sync_left_out_is_caught(recording: Recording, home: Path, of: str) -> None:
    folder = recording.store / SYNCS[of]

    def left_out(call: Call) -> bool:
        path = call.paths[0]
        same = path.is_relative_to(folder) if STAGING in SYNCS[of] else path == folder
        return call.name == "fsync" and same

    calls = tuple(call for call in recording.calls if not left_out(call))
    assert len(calls) < len(recording.calls)
    with pytest.raises(BrokenPromiseError):
        check_everywhere(Recording(recording.root, calls), home, fates=6)


@pytest.mark.integration
def test_every_sync_is_of_one_of_these_kinds(recording: Recording) -> None:
    kinds = {recording.store / path for path in SYNCS.values()}
    synced = {call.paths[0] for call in recording.calls if call.name in ("fsync", "fdatasync")}
    staged = [kind for kind in kinds if STAGING in kind.parts]
    others = synced - kinds
    assert {path for path in others if not any(map(path.is_relative_to, staged))} == set()


async def test_a_failed_sync_is_an_error_and_the_repeated_write_is_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fails_once(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if len(synced) == 1:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    store = FilesystemStore(tmp_path)
    monkeypatch.setattr(os, "fsync", fails_once)
    data = content("1")
    with pytest.raises(RetryLater, match="Input/output error"):
        await store.put("a", data, crc32c=crc32c(data))
    assert (await store.list_page("")).objects == ()
    await store.put("a", data, crc32c=crc32c(data))
    temporary = [path for path in synced if STAGING in path]
    assert len(temporary) == len(set(temporary)) == 2
    await store.close()


@pytest.mark.parametrize("call", ["write", "link", "replace", "mkdir", "fchmod", "open"])
async def test_a_full_disk_leaves_objects_whole_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = FilesystemStore(tmp_path)
    await store.put("t/a", content("1"), crc32c=crc32c(content("1")))
    for at in range(50):
        with monkeypatch.context() as patch:
            fill_up(patch, call, at)
            try:
                await store.put("t/a", content("2"), crc32c=crc32c(content("2")))
            except RetryLater as error:
                assert "free some space" in str(error)  # noqa: PT017 - the outcome decides below
            else:
                break
        assert await read_all(store, "t/a") in (content("1"), content("2"))
    assert await read_all(store, "t/a") == content("2")
    await store.close()


def fill_up(patch: pytest.MonkeyPatch, name: str, at: int) -> None:
    """From the call number `at` on there is no space."""
    real = getattr(os, name)
    calls = 0

    def call(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls > at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    patch.setattr(os, name, call)


async def test_every_flipped_bit_of_a_checksum_file_only_has_the_object_read_again(
    tmp_path: Path,
) -> None:
    store = FilesystemStore(tmp_path)
    await store.put("a", content("1"), crc32c=crc32c(content("1")))
    (path,) = (file for file in (tmp_path / STAGING / "checksums").rglob("*") if file.is_file())
    line = path.read_bytes()
    for position in range(len(line)):
        for bit in range(8):
            damaged = bytearray(line)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            assert (await store.head("a")).crc32c == crc32c(content("1"))
    await store.close()


async def test_a_removal_is_durable_although_the_folder_was_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FilesystemStore(tmp_path)
    await store.put("t/0/a", content("1"), crc32c=crc32c(content("1")))
    unlink, fsync, synced = os.unlink, os.fsync, list[str]()

    def unlinked_and_folder_gone(path: str, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        if path == "a":
            (tmp_path / "t" / "0").rmdir()

    def recorded(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "unlink", unlinked_and_folder_gone)
    monkeypatch.setattr(os, "fsync", recorded)
    await store.delete_many(["t/0/a"])
    assert str(tmp_path / "t") in synced
    await store.close()
