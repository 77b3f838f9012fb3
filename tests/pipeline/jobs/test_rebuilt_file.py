"""The snapshot that a rebuild writes, where a run before it wrote one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest
from pipeline.jobs.rebuild import write_snapshot
from rlmm import row_keys as keys
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import read_snapshot
from rlmm.partition_state import Totals
from rlmm.row_values import encode_totals
from rlmm.snapshot_rows import from_proposals


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
    with pytest.raises(InvalidRequest, match=f"{written.name} is there already.*other bytes"):
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
    with pytest.raises(InvalidRequest, match="other bytes"):
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
