"""Fetched snapshots that must not replace the log: cut inside a batch, or of another quorum."""

from __future__ import annotations

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_records import Voter
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import SnapshotWriter, download_name, snapshot_file_name
from rlmm.metadata_log import SnapshotId
from rlmm.raft.actions import InstallSnapshot
from rlmm.raft.events import SnapshotDamaged, SnapshotInstalled
from rlmm.raft.messages import ReplicaKey
from rlmm.raft.messages import SnapshotId as CoreSnapshotId
from tests.rlmm.log.crash_disk import CrashDisk
from tests.rlmm.quorum.test_sole_voter import METADATA, VOTER, data, open_log

FOLDER = METADATA / PARTITION_DIRECTORY
OTHER = Voter(9, Uuid(b"another quorum.."))
ANEW = Voter(VOTER.node_id, Uuid(b"the disk was new"))
VOTERS = (VOTER, *(Voter(each, Uuid(b"directory of no%d" % each)) for each in (2, 3, 4, 5)))


def key(voter: Voter) -> ReplicaKey:
    return ReplicaKey(voter.node_id, str(voter.directory_id))


def written(snapshot: SnapshotId, *voters: Voter) -> bytes:
    """The bytes of a whole snapshot, as a leader sends them."""
    disk = CrashDisk()
    disk.make_directory(FOLDER)
    SnapshotWriter(disk, FOLDER, snapshot, last_contained_timestamp_ms=9, voters=voters).finish()
    return disk.read(FOLDER / snapshot_file_name(snapshot))


async def is_installed(
    behind_base: int, *voters: Voter, epoch: int = 1, known: tuple[Voter, ...] = (VOTER,)
) -> bool:
    """True if a fetched snapshot of `voters` replaces a log with the voters `known`. It ends so
    many offsets behind the base of the log's last batch, which has three records.
    """
    disk = CrashDisk()
    log = await open_log(disk)
    base = await log.propose(data(b"a", b"b", b"c"), deadline_s=5)
    await log.driver.jobs.settled()
    snapshot = SnapshotId(base + behind_base, epoch)
    whole, part = written(snapshot, *voters), FOLDER / download_name(snapshot)
    handle = disk.open_append(part)
    handle.append(whole)
    handle.close()
    wanted = InstallSnapshot(CoreSnapshotId(*snapshot), len(whole), 1, tuple(map(key, known)))
    event = log.driver.jobs._install(wanted)
    assert isinstance(event, SnapshotDamaged | SnapshotInstalled)
    assert part.name not in disk.list_names(FOLDER)
    installed = isinstance(event, SnapshotInstalled)
    assert (snapshot_file_name(snapshot) in disk.list_names(FOLDER)) is installed
    await log.close()
    return installed


@pytest.mark.parametrize(
    ("behind_base", "epoch", "installed"),
    [
        (1, 1, False),
        (2, 1, False),
        (3, 1, True),
        (2, 7, True),  # of another history: this log's borders say nothing about it
    ],
)
async def test_one_that_ends_inside_a_batch_of_the_own_log_is_refused(
    behind_base: int, epoch: int, installed: bool
) -> None:
    """The rest of that batch is never sent: whole batches are."""
    assert await is_installed(behind_base, VOTER, epoch=epoch) is installed


@pytest.mark.parametrize(
    ("offered", "installed"),
    [
        (VOTERS[2:], True),  # two of three were replaced, one after the other, while this was away
        (VOTERS[:1], True),  # or removed
        (VOTERS[3:], False),  # all three were replaced: nothing tells that from another quorum
        ((OTHER,), False),
        ((ANEW,), False),  # a lost disk, formatted as a quorum of its own under the old node id
        ((ANEW, OTHER), False),  # that has grown since
    ],
)
async def test_one_with_none_of_the_voters_that_are_known_is_refused(
    caplog: pytest.LogCaptureFixture, offered: tuple[Voter, ...], installed: bool
) -> None:
    """A voter is a node id and its directory's id, and that directory follows no other quorum."""
    assert await is_installed(3, *offered, known=VOTERS[:3]) is installed
    assert ("none of those that this log has" in caplog.text) is not installed
