"""Every single bit of every file of the data directory: repaired by a stated rule, or a hard error.

After a bit was turned over, the node either starts with all it had acknowledged and an identity
that is still its own, or it refuses, names the file and says what to do. It never starts with less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, InvalidRequest, Refused
from kafka_formats.kafka_uuid import Uuid
from rlmm.damaged_replica import needed_snapshot
from rlmm.data_directory.data_directory import (
    DataDirectory,
    NewDirectory,
    format_data_directory,
    open_data_directory,
)
from rlmm.log.committed import encode_proposals
from rlmm.log.log_directory import LogDirectory
from rlmm.log.quorum_records import Voter
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import SnapshotWriter, read_snapshot
from rlmm.metadata_log import CommittedRecord, Proposal, SnapshotId
from tests.durability.leader_of_one import open_as_leader
from tests.durability.log_life import records_of
from tests.rlmm.log.appending import append_and_sync
from tests.rlmm.log.crash_disk import CrashDisk

CLUSTER_ID = Uuid(b"cluster-one.....")
DIRECTORY_ID = Uuid(b"directory-one...")
VOTERS = (Voter(3, DIRECTORY_ID),)
ROWS = [Proposal(None, b"row")]
SEGMENT_BYTES_MAX = 300
INSTRUCTIONS = ("backup", "format", "remove that file", "remove this file")


@dataclass(frozen=True, slots=True)
class Found:
    """What a start finds; a later one must find the same, with a higher boot and epoch."""

    records: tuple[CommittedRecord, ...]
    snapshot: SnapshotId
    identity: tuple[object, ...]
    boot: int
    epoch: int


def start(disk: CrashDisk, home: Path, *, append: int = 0) -> Found:
    """One life as far as the data directory and the log are concerned, ended by SIGKILL."""
    with open_data_directory(home, disk=disk) as directory:
        log, epoch = open_as_leader(
            disk,
            directory.metadata_path,
            node_id=directory.node_id,
            view_flushed_end=0,
            segment_bytes_max=SEGMENT_BYTES_MAX,
        )
        for _ in range(append):
            end = log.log_end_offset
            append_and_sync(
                log,
                encode_proposals(
                    [Proposal(None, b"%d" % end * 30)],
                    base_offset=end,
                    epoch=epoch,
                    timestamp_ms=end,
                ),
            )
        if append:
            log.committed_end = log.synced_end
            log.store_recovery_point()
            write_snapshot(disk, log.directory, SnapshotId(log.log_end_offset, epoch))
        newest = newest_whole_snapshot(disk, log)
        found = tuple(records_of(log))
        return Found(found, newest, _identity(directory), directory.boot_counter, epoch)


def newest_whole_snapshot(disk: CrashDisk, log: LogDirectory) -> SnapshotId:
    """As a view starts: a damaged one is set aside while the log goes on without it."""
    while True:
        newest = log.snapshots()[-1]
        try:
            rows = list(read_snapshot(disk, log.snapshot_path(newest)))
        except CorruptData as error:
            if not log.set_aside(newest):
                raise needed_snapshot(error, log.log_start_offset) from error
        else:
            assert rows == ROWS
            return newest


def _identity(directory: DataDirectory) -> tuple[object, ...]:
    return (
        directory.cluster_id,
        directory.kafka_cluster_id,
        directory.node_id,
        directory.directory_id,
        directory.initial_voters,
    )


def write_snapshot(disk: CrashDisk, directory: Path, snapshot: SnapshotId) -> None:
    writer = SnapshotWriter(disk, directory, snapshot, last_contained_timestamp_ms=5, voters=VOTERS)
    writer.add(ROWS)
    writer.finish()


def lived(home: Path) -> tuple[CrashDisk, Found]:
    """A directory after two lives, the second with an unacknowledged rest of nothing."""
    disk = CrashDisk()
    disk.make_directory(home)
    format_data_directory(
        home,
        NewDirectory(CLUSTER_ID, "kafka-one", 3, DIRECTORY_ID, VOTERS),
        disk=disk,
    )
    start(disk, home, append=3)
    return disk, start(disk, home, append=3)


def files(disk: CrashDisk, directory: Path) -> Iterator[Path]:
    """All of them, but for the lock, which is a real one."""
    partition = directory / "metadata" / PARTITION_DIRECTORY
    for folder in (directory, directory / "metadata", partition):
        for name in disk.list_names(folder):
            if folder / name not in (directory / "metadata", partition):
                yield folder / name


KINDS = (
    "boot-counter",
    "cluster.json",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "committed-end",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "quorum-state",
    "*.log",
    "*.checkpoint",
)


def test_every_file_is_of_a_kind_that_is_damaged_below(tmp_path: Path) -> None:
    disk, _ = lived(tmp_path)
    found = list(files(disk, tmp_path))
    assert [path for path in found if sum(map(path.match, KINDS)) != 1] == []
    assert {kind for kind in KINDS for path in found if path.match(kind)} == set(KINDS)


def damage_everywhere(home: Path, kind: str, *, bits_per_byte: int) -> int:
    """Turn bits over one by one, each in a directory of its own; returns how many."""
    whole, before = lived(home)
    cases = 0
    for path in [path for path in files(whole, home) if path.match(kind)]:
        for position in range(whole.size(path)):
            for bit in range(bits_per_byte):
                disk = whole.copy()
                disk.damage(path, position, bit=(position + 3 * bit) % 8)
                check_start(disk, home, before, path)
                cases += 1
    return cases


def check_start(disk: CrashDisk, home: Path, before: Found, damaged: Path) -> None:
    try:
        after = start(disk, home)
    except (CorruptData, Refused, InvalidRequest) as error:
        refusal = str(error)
    else:
        check_found(after, before, snapshot_damaged=damaged.match("*.checkpoint"))
        return
    assert any(word in refusal for word in INSTRUCTIONS), refusal


def check_found(after: Found, before: Found, *, snapshot_damaged: bool) -> None:
    """The log, from 0, has all records: without its newest snapshot an older one will do."""
    assert after.records == before.records
    assert after.identity == before.identity
    assert after.snapshot == before.snapshot or snapshot_damaged
    assert after.boot > before.boot
    assert after.epoch > before.epoch


@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_makes_a_node_start_with_less_or_as_another(
    tmp_path: Path, kind: str
) -> None:
    assert damage_everywhere(tmp_path, kind, bits_per_byte=1) > 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_at_all_makes_a_node_start_with_less_or_as_another(
    tmp_path: Path, kind: str
) -> None:
    assert damage_everywhere(tmp_path, kind, bits_per_byte=8) > 80


@pytest.mark.parametrize("kind", KINDS)
def test_no_cut_tail_makes_a_node_start_with_less_or_as_another(tmp_path: Path, kind: str) -> None:
    whole, before = lived(tmp_path)
    for path in [path for path in files(whole, tmp_path) if path.match(kind)]:
        for size in range(whole.size(path)):
            disk = whole.copy()
            disk.truncate(path, size)
            check_start(disk, tmp_path, before, path)
