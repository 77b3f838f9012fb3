"""Small files read a folder at a time: what the general way reads, or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rsm_backends.file_runs import read_runs
from rsm_backends.object_files import ObjectFiles

BYTES_MAX = 8


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ObjectFiles]:
    (tmp_path / "store").mkdir()
    with closing(ObjectFiles(tmp_path / "store")) as found:
        yield found


def read(files: ObjectFiles, *keys: str) -> list[bytes | None]:
    return list(read_runs(files, keys, bytes_max=BYTES_MAX))


def put(files: ObjectFiles, key: str, data: bytes) -> None:
    path = files.root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_files_of_several_folders_come_in_the_order_of_their_keys(files: ObjectFiles) -> None:
    keys = ["top", "a/1", "a/2", "b/c/1", "a/3", "other"]
    for key in keys:
        put(files, key, key.encode())
    assert read(files, *keys) == [key.encode() for key in keys]
    assert read(files) == []


def test_a_longer_one_is_read_up_to_the_bound(files: ObjectFiles) -> None:
    for size in (1, BYTES_MAX - 1, BYTES_MAX, BYTES_MAX + 1):
        put(files, f"{size}", bytes(range(size)))
        assert read(files, f"{size}") == [bytes(range(min(size, BYTES_MAX)))]


def test_what_is_unusual_is_left_and_its_neighbours_are_read(files: ObjectFiles) -> None:
    put(files, "a/there", b"data")
    put(files, "a/empty", b"")
    put(files, "a/folder/inside", b"data")
    os.mkfifo(files.root / "a/pipe")
    (files.root / "a/link").symlink_to("there")
    (files.root / "linked").symlink_to("a")
    odd = ["a/gone", "a/empty", "a/folder", "a/pipe", "a/link", "a/", "linked/there", "gone/there"]
    for key in odd:
        assert read(files, "a/there", key, "a/there") == [b"data", None, b"data"]


def test_no_key_leads_out_of_the_root(files: ObjectFiles, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    put(files, "a/there", b"data")
    for key in ("../outside", "a/../../outside", "/etc/hostname", "a/..", "a/.", "..", ""):
        assert read(files, key) == [None]


def test_nothing_stays_open(files: ObjectFiles) -> None:
    for key in ("a/1", "a/2", "b/1"):
        put(files, key, b"data")
    before = len(os.listdir("/proc/self/fd"))
    assert read(files, "a/1", "a/2", "b/1", "gone/1") == [b"data"] * 3 + [None]
    with closing(read_runs(files, ["a/1", "a/2"], bytes_max=BYTES_MAX)) as begun:
        assert next(begun) == b"data"
    assert len(os.listdir("/proc/self/fd")) == before
    files.close()
    assert read(files, "a/1") == [None]
