"""What takes an offset for the end of a record batch: snapshots, and a view's flush."""

from __future__ import annotations

import pytest

from kafka_formats.errors import CorruptData, RetryLater
from rlmm.log.log_directory import LogDirectory
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.metadata_log import SnapshotId
from rlmm.quorum.framing import voter_set
from rlmm.quorum.initial_state import initial_state
from rlmm.quorum.quorum_log import QuorumLog
from tests.rlmm.log.crash_disk import CrashDisk
from tests.rlmm.quorum.test_sole_voter import METADATA, ROLLING, VOTER, data, open_log


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


async def a_batch_of_three(disk: CrashDisk) -> int:
    """A log whose last batch has three records; where it begins."""
    log = await open_log(disk)
    base = await log.propose(data(b"a", b"b", b"c"), deadline_s=5)
    await log.close()
    return base


async def test_a_snapshot_ends_where_a_batch_does(disk: CrashDisk) -> None:
    """Whoever begins its log behind it gets whole batches, and could never take the cut one."""
    log: QuorumLog = await open_log(disk)
    base = await log.propose(data(b"a", b"b", b"c"), deadline_s=5)
    for inside in (base + 1, base + 2):
        with pytest.raises(RetryLater, match=f"inside the record batch that ends at {base + 3}"):
            await log.begin_snapshot(SnapshotId(inside, 1), last_contained_timestamp_ms=9)
    assert not [n for n in disk.list_names(METADATA / PARTITION_DIRECTORY) if ".part" in n]
    for end in (base, base + 3):
        await (await log.begin_snapshot(SnapshotId(end, 1), last_contained_timestamp_ms=9)).finish()
    await log.close()


async def test_a_snapshot_file_that_ends_inside_a_batch_is_refused_at_the_start(
    disk: CrashDisk,
) -> None:
    inside = SnapshotId(await a_batch_of_three(disk) + 1, 1)
    SnapshotWriter(
        disk,
        METADATA / PARTITION_DIRECTORY,
        inside,
        last_contained_timestamp_ms=9,
        voters=(VOTER,),
    ).finish()
    with pytest.raises(CorruptData, match="ends inside the record batch that ends at"):
        await open_log(disk)


async def test_a_view_that_was_flushed_inside_a_batch_stops_nobody(disk: CrashDisk) -> None:
    """A reader at that batch got "no batch holds this offset", taken for a broken disk."""
    base = await a_batch_of_three(disk)
    directory = LogDirectory.open(
        disk, METADATA, view_flushed_end=base + 1, segment_bytes_max=10_000
    )
    voters = voter_set((VOTER,))
    initial = initial_state(disk, directory, format_voters=voters, view_flushed_end=base + 1)
    assert initial.committed_offset == base + 3  # a batch is committed whole
    directory.close()
    log = await open_log(disk, limits=ROLLING, view_flushed_end=base + 1)
    assert await log.driver.read_bytes(base, 1000) != b""
    for inside in (base + 1, base + 2):
        log.driver.apply_to = inside
        assert await log.driver.read_bytes(base, 1000) == b""
        assert await log.read(base, limit=9) == ()
    assert log.driver.failure is None
    await log.close()
