"""A small file is read whole, without room for the largest one."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlm.local_log import replica_directory
from rlm.local_log.replica_directory import read_small


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_directory, "USUAL_FILE_BYTES_MAX", 4)
    monkeypatch.setattr(replica_directory, "SMALL_FILE_BYTES_MAX", 9)


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("size_bytes", [0, 1, 3, 4, 5, 8, 9])
def test_a_file_up_to_the_bound_is_read_whole(tmp_path: Path, size_bytes: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := bytes(range(size_bytes)))
    assert read_small(path) == data


@pytest.mark.usefixtures("bounds")
def test_a_larger_one_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    with pytest.raises(CorruptData, match="more than 9 bytes"):
        read_small(path)


def test_it_takes_room_for_its_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0\n")
    tracemalloc.start()
    try:
        read_small(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20
