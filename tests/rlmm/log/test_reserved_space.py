"""The active segment has room for all that it may take, wherever it came from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rlmm.log.committed import encode_proposals
from rlmm.log.disk import OsDisk
from rlmm.log.log_directory import LogDirectory
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.metadata_log import Proposal, SnapshotId
from tests.rlmm.log.appending import append_and_sync

SEGMENT_BYTES = 256 * 1024

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux reserves behind a file's end"
)


def open_log(home: Path) -> LogDirectory:
    return LogDirectory.open(OsDisk(), home, view_flushed_end=0, segment_bytes_max=SEGMENT_BYTES)


def append(log: LogDirectory, batches: int) -> None:
    for _ in range(batches):
        offset, value = log.log_end_offset, Proposal(None, bytes(60_000))
        append_and_sync(log, encode_proposals([value], base_offset=offset, epoch=1, timestamp_ms=5))


def lengths_and_space(log: LogDirectory) -> list[tuple[int, bool]]:
    """Of each segment: its length, and whether the disk holds room for a full one."""
    stats = [os.stat(path) for path in sorted(log.directory.glob("*.log"))]
    return [(each.st_size, each.st_blocks * 512 >= SEGMENT_BYTES) for each in stats]


def test_a_new_a_next_a_cut_and_a_reopened_segment_have_their_space(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert lengths_and_space(log) == [(0, True)]
    append(log, 4)
    append(log, 1)
    full, last = lengths_and_space(log)
    assert full[0] > 240_000
    assert 60_000 < last[0] < 61_000
    assert last[1]
    log.truncate_to(2)
    ((length, has_space),) = lengths_and_space(log)
    assert 120_000 < length < 121_000
    assert has_space
    log.close()
    log = open_log(tmp_path)
    assert lengths_and_space(log) == [(length, True)]
    assert [batch.header.base_offset for batch in log.read(0, 2, bytes_max=10**6)] == [0, 1]
    log.close()


def test_a_log_that_begins_behind_a_snapshot_has_its_space(tmp_path: Path) -> None:
    log, snapshot = open_log(tmp_path), SnapshotId(7, 1)
    writer = SnapshotWriter(
        OsDisk(), log.directory, snapshot, last_contained_timestamp_ms=5, voters=()
    )
    part = log.directory / "downloaded"
    writer.finish().rename(part)
    log.install_snapshot(snapshot, part)
    assert lengths_and_space(log) == [(0, True)]
    log.close()
