"""The real disk, and the one that forgets: both do what the port says."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlmm.log.disk import Disk, OsDisk, replace_file
from tests.rlmm.log.crash_disk import CrashDisk

both = pytest.mark.parametrize("make", [OsDisk, CrashDisk])


@both
def test_appended_bytes_are_read_back_from_any_position(
    make: Callable[[], Disk], tmp_path: Path
) -> None:
    disk = make()
    disk.make_directory(tmp_path / "a" / "b")
    path = tmp_path / "a" / "b" / "file"
    for part in (b"one", b"two"):
        handle = disk.open_append(path)
        handle.append(part)
        handle.sync()
        handle.close()
        handle.close()
    assert disk.read(path) == b"onetwo"
    assert disk.read(path, 2, 3) == b"etw"
    assert disk.read(path, 99) == b""
    assert disk.size(path) == 6


@both
def test_names_come_sorted_and_a_missing_directory_is_empty(
    make: Callable[[], Disk], tmp_path: Path
) -> None:
    disk = make()
    disk.make_directory(tmp_path)
    disk.make_directory(tmp_path)
    for name in ("b", "a"):
        disk.open_append(tmp_path / name).close()
    assert disk.list_names(tmp_path) == ("a", "b")
    assert disk.list_names(tmp_path / "missing") == ()


@both
def test_rename_replaces_and_remove_does_not_mind_absence(
    make: Callable[[], Disk], tmp_path: Path
) -> None:
    disk = make()
    disk.make_directory(tmp_path)
    replace_file(disk, tmp_path / "file", b"first")
    replace_file(disk, tmp_path / "file", b"second")
    assert disk.read(tmp_path / "file") == b"second"
    disk.remove(tmp_path / "file")
    disk.remove(tmp_path / "file")
    disk.sync_directory(tmp_path)
    assert disk.list_names(tmp_path) == ()


@both
def test_truncate_cuts_the_end(make: Callable[[], Disk], tmp_path: Path) -> None:
    disk = make()
    disk.make_directory(tmp_path)
    replace_file(disk, tmp_path / "file", b"0123456789")
    disk.truncate(tmp_path / "file", 4)
    assert disk.read(tmp_path / "file") == b"0123"


@both
def test_a_missing_file_is_file_not_found(make: Callable[[], Disk], tmp_path: Path) -> None:
    disk = make()
    disk.make_directory(tmp_path)
    with pytest.raises(FileNotFoundError):
        disk.read(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        disk.size(tmp_path / "missing")


@both
@pytest.mark.parametrize("size_bytes", [0, 2, 1 << 20, 1 << 62])
def test_reserved_space_changes_neither_length_nor_bytes(
    make: Callable[[], Disk], tmp_path: Path, size_bytes: int
) -> None:
    disk = make()
    disk.make_directory(tmp_path)
    handle = disk.open_append(tmp_path / "file")
    handle.append(b"one")
    handle.reserve(size_bytes)
    assert disk.read(tmp_path / "file") == b"one"
    handle.append(b"two")
    handle.sync()
    handle.close()
    assert disk.size(tmp_path / "file") == 6
    assert disk.read(tmp_path / "file") == b"onetwo"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reserves behind a file's end")
def test_space_is_really_reserved(tmp_path: Path) -> None:
    handle = OsDisk().open_append(tmp_path / "file")
    handle.reserve(1 << 20)
    handle.close()
    assert _space_bytes(tmp_path / "file") >= 1 << 20


def _space_bytes(path: Path) -> int:
    return os.stat(path).st_blocks * 512


def test_a_replacement_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    class Full(OsDisk):
        def rename(self, old: Path, new: Path) -> None:
            raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    replace_file(OsDisk(), path, b"old")
    with pytest.raises(OSError, match="No space"):
        replace_file(Full(), path, b"new")
    assert path.read_bytes() == b"old"
