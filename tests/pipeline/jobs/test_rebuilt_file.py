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
    written = write_snapshot(tmp_path / "new", 63, rows(2))
    assert dict(from_proposals(read_snapshot(OsDisk(), written))) == dict(rows(2))
    before = written.stat()
    assert write_snapshot(tmp_path / "new", 63, rows(2)) == written
    after = written.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(written.parent.iterdir()) == [written]


def test_another_snapshot_of_the_name_is_never_written_over(tmp_path: Path) -> None:
    written = write_snapshot(tmp_path, 63, rows(2))
    before = written.read_bytes()
    with pytest.raises(InvalidRequest, match=f"{written.name} is there already.*other bytes"):
        write_snapshot(tmp_path, 63, rows(3))
    assert written.read_bytes() == before
    assert list(tmp_path.iterdir()) == [written]


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def torn() -> Iterator[tuple[bytes, bytes]]:
        yield from rows(2)
        raise ConnectionError

    for _ in range(2):
        with pytest.raises(ConnectionError):
            write_snapshot(tmp_path, 63, torn())
        assert not [path for path in tmp_path.iterdir() if path.suffix != ".checkpoint"]
        write_snapshot(tmp_path, 63, rows(2))
