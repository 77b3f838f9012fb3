"""The snapshot that a rebuild writes, where a run before it wrote one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict, InvalidRequest
from pipeline.rebuild.snapshot_file import write_snapshot
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import read_snapshot
from rlmm.partition_state import Totals
from rlmm.rows import keys
from rlmm.rows.snapshot_rows import from_proposals
from rlmm.rows.values import encode_totals


def rows(segments: int) -> list[tuple[bytes, bytes]]:
    return [(keys.TOTALS_KEY, encode_totals(Totals(segments, 0, 1)))]


def test_the_same_snapshot_made_again_is_left_as_it_is(tmp_path: Path) -> None:
    written, was_there = write_snapshot(tmp_path / "new", 63, rows(2))
    assert not was_there
    assert dict(from_proposals(read_snapshot(OsDisk(), written))) == dict(rows(2))
    before = written.stat()
    assert write_snapshot(tmp_path / "new", 63, rows(2)) == (written, True)
    after = written.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(written.parent.iterdir()) == [written]


def test_another_snapshot_of_the_name_is_never_written_over(tmp_path: Path) -> None:
    written, _ = write_snapshot(tmp_path, 63, rows(2))
    before = written.read_bytes()
    with pytest.raises(InvalidRequest, match=f"{written.name} exists already.*different bytes"):
        write_snapshot(tmp_path, 63, rows(3))
    assert written.read_bytes() == before
    assert list(tmp_path.iterdir()) == [written]


@pytest.mark.parametrize("change", ["longer", "shorter", "empty"])
def test_a_file_of_the_name_that_is_not_the_whole_snapshot_is_told(
    tmp_path: Path, change: str
) -> None:
    written, _ = write_snapshot(tmp_path, 63, rows(2))
    whole = written.read_bytes()
    written.write_bytes({"longer": whole + b"\0", "shorter": whole[:-1], "empty": b""}[change])
    before = written.read_bytes()
    with pytest.raises(InvalidRequest, match="different bytes"):
        write_snapshot(tmp_path, 63, rows(2))
    assert written.read_bytes() == before


def test_a_second_run_writes_nothing_that_a_kill_could_leave(tmp_path: Path) -> None:
    written, _ = write_snapshot(tmp_path, 63, rows(2))

    def looked_at() -> Iterator[tuple[bytes, bytes]]:
        for row in rows(2):
            assert list(tmp_path.iterdir()) == [written]
            yield row
            assert list(tmp_path.iterdir()) == [written]

    assert write_snapshot(tmp_path, 63, looked_at()) == (written, True)


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def torn() -> Iterator[tuple[bytes, bytes]]:
        yield from rows(2)
        raise ConnectionError

    for _ in range(2):
        with pytest.raises(ConnectionError):
            write_snapshot(tmp_path, 63, torn())
        assert not [path for path in tmp_path.iterdir() if path.suffix != ".checkpoint"]
        write_snapshot(tmp_path, 63, rows(2))


def test_of_two_runs_at_once_the_second_is_refused(tmp_path: Path) -> None:
    refused: list[str] = []

    def beside() -> Iterator[tuple[bytes, bytes]]:
        for row in rows(2):
            with pytest.raises(Conflict, match=f"a different rebuild writes to {tmp_path}"):
                write_snapshot(tmp_path, 63, rows(2))
            refused.append("second")
            yield row

    written, was_there = write_snapshot(tmp_path, 63, beside())
    assert (refused, was_there) == (["second"], False)
    assert dict(from_proposals(read_snapshot(OsDisk(), written))) == dict(rows(2))
    assert write_snapshot(tmp_path, 63, rows(2)) == (written, True)


@pytest.mark.parametrize("step", ["open_append", "rename", "append"])
def test_a_full_disk_is_told_by_its_folder_and_leaves_nothing(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        if step == "append":
            patched.setattr(os, "write", full)
        else:
            patched.setattr(OsDisk, step, full)
        with pytest.raises(InvalidRequest, match=f"{tmp_path} can't be written: No space left"):
            write_snapshot(tmp_path, 63, rows(2))
    assert not list(tmp_path.iterdir())
    write_snapshot(tmp_path, 63, rows(2))
