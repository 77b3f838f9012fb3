"""Damage below the durable end stops the node; above it the tail is cut, all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats import offset_checkpoint
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.committed import committed_group, encode_proposals
from rlmm.log.disk import replace_file
from rlmm.log.log_directory import LogDirectory
from rlmm.log.quorum_state_file import QuorumState
from rlmm.log.recovery import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_DIRECTORY,
    RECOVERY_POINT_CHECKPOINT,
    load_recovery_point,
    store_committed_end,
    store_recovery_point,
)
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.metadata_log import Proposal, SnapshotId
from tests.rlmm.log.appending import append_and_sync
from tests.rlmm.log.crash_disk import CrashDisk

METADATA = Path("/data/metadata")
PARTITION = METADATA / PARTITION_DIRECTORY
SEGMENT_BYTES_MAX = 500


def open_log(disk: CrashDisk, *, view_flushed_end: int = 0) -> LogDirectory:
    return LogDirectory.open(
        disk,
        METADATA,
        view_flushed_end=view_flushed_end,
        segment_bytes_max=SEGMENT_BYTES_MAX,
    )


def append(log: LogDirectory, count: int, *, epoch: int = 1) -> None:
    for _ in range(count):
        proposals = [Proposal(None, b"%d" % log.log_end_offset * 40)]
        append_and_sync(
            log,
            encode_proposals(
                proposals, base_offset=log.log_end_offset, epoch=epoch, timestamp_ms=5
            ),
        )


def written(count: int = 20) -> tuple[CrashDisk, list[Path]]:
    """A disk with a log of `count` records in several segments."""
    disk = CrashDisk()
    log = open_log(disk)
    append(log, count // 2, epoch=1)
    append(log, count - count // 2, epoch=2)
    log.close()
    segments = [PARTITION / name for name in disk.list_names(PARTITION) if name.endswith(".log")]
    assert len(segments) >= 4
    return disk, segments


def values(log: LogDirectory) -> list[bytes]:
    position, found = log.log_start_offset, []
    while position < log.log_end_offset:
        group = committed_group(log.read(position, log.log_end_offset, bytes_max=1), position)
        found += [record.value for record in group.records]
        position = group.end_offset
    return found


def expected(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % offset * 40 for offset in range(start, count)]


def write_snapshot(disk: CrashDisk, snapshot: SnapshotId) -> None:
    SnapshotWriter(disk, PARTITION, snapshot, last_contained_timestamp_ms=5, voters=()).finish()


def test_an_intact_log_is_found_as_it_was() -> None:
    disk, _ = written()
    log = open_log(disk)
    assert values(log) == expected(20)
    assert log.cut is None
    assert log.epochs == (EpochEntry(1, 0), EpochEntry(2, 10))
    assert log.synced_end == 20


def test_a_damaged_tail_is_cut_with_the_intact_batches_behind_it() -> None:
    disk, segments = written()
    first = int(segments[2].stem)
    disk.damage(segments[2], disk.size(segments[2]) - 1)
    log = open_log(disk)
    assert log.cut is not None
    assert first <= log.cut.offset < 20
    assert log.cut.bytes_removed > 0
    assert values(log) == expected(log.cut.offset)
    append(log, 3, epoch=3)
    log.close()
    again = open_log(disk)
    assert again.cut is None
    assert values(again) == expected(log.cut.offset + 3)


def test_the_tail_of_the_last_of_several_segments_leaves_its_file() -> None:
    disk, segments = written()
    whole = disk.size(segments[-1])
    disk.open_append(segments[-1]).append(b"half a batch")
    log = open_log(disk)
    assert values(log) == expected(20)
    assert disk.size(segments[-1]) == whole


def test_what_is_cut_is_remembered_in_the_quorum_state_before_it_goes() -> None:
    disk, segments = written()
    quorum_state.store(disk, PARTITION, QuorumState(2, leader_id=1))
    disk.damage(segments[-1], disk.size(segments[-1]) - 1)
    removals = []

    class Watched(CrashDisk):
        def truncate(self, path: Path, size: int) -> None:
            removals.append(quorum_state.load(self, PARTITION))
            super().truncate(path, size)

    disk.__class__ = Watched
    log = open_log(disk)
    assert log.cut is not None
    assert removals == [QuorumState(2, 1, cut_epoch=2, cut_end_offset=log.cut.old_end_offset)]
    assert log.cut.old_end_offset >= 20
    log.close()
    disk.damage(segments[0], disk.size(segments[0]) - 1)
    assert open_log(disk).cut is not None
    state = quorum_state.load(disk, PARTITION)
    assert state is not None
    assert state.cut_end_offset >= log.cut.old_end_offset


@pytest.mark.parametrize("content", [None, b"garbage"])
def test_a_cut_without_the_epoch_checkpoint_is_of_any_epoch_that_the_replica_was_in(
    content: bytes | None,
) -> None:
    disk, segments = written()
    quorum_state.store(disk, PARTITION, QuorumState(2, leader_id=1))
    checkpoint = PARTITION / LEADER_EPOCH_CHECKPOINT
    disk.remove(checkpoint)
    if content is not None:
        replace_file(disk, checkpoint, content)
    disk.damage(segments[0], disk.size(segments[0]) - 1)  # all of epoch 2 goes
    log = open_log(disk)
    assert log.last_epoch == 1
    state = quorum_state.load(disk, PARTITION)
    assert state is not None
    assert state.cut_epoch == 2


def test_every_flipped_bit_above_the_durable_end_only_cuts_or_stops_the_node() -> None:
    _, segments = written()
    for segment in (segments[0], segments[-1]):
        size = written()[0].size(segment)
        for position in range(0, size, 5):
            disk, _ = written()
            disk.damage(segment, position)
            log = open_unless_epochs_contradict(disk)
            if log is None:
                disk.damage(segment, position)
                assert values(open_log(disk)) == expected(20)
            else:
                assert log.cut is not None
                assert values(log) == expected(log.cut.offset)


def open_unless_epochs_contradict(disk: CrashDisk) -> LogDirectory | None:
    """A batch's epoch lies outside its CRC, so the batch is intact and the node stops."""
    try:
        return open_log(disk)
    except CorruptData as error:
        if "leader epoch checkpoint beside it says" in error.detail:
            return None
        raise


@pytest.mark.parametrize("how", ["view", "snapshot", "recovery point"])
def test_damage_below_the_durable_end_stops_the_node_and_changes_nothing(how: str) -> None:
    disk, segments = written()
    if how == "snapshot":
        write_snapshot(disk, SnapshotId(20, 2))
    if how == "recovery point":
        store_recovery_point(disk, METADATA, 20)
    disk.damage(segments[1], 30)
    before = {name: disk.read(PARTITION / name) for name in disk.list_names(PARTITION)}
    with pytest.raises(CorruptData, match="damaged or replaced disk") as caught:
        open_log(disk, view_flushed_end=20 if how == "view" else 0)
    assert caught.value.source == str(segments[1])
    assert {name: disk.read(PARTITION / name) for name in disk.list_names(PARTITION)} == before


@pytest.mark.parametrize("recovery_point", [None, 3])
@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_what_is_known_to_be_committed_is_never_cut_whatever_became_of_the_recovery_point(
    recovery_point: int | None, how: str
) -> None:
    disk, segments = written()
    if (
        recovery_point is not None
    ):  # a lower one: a bit of it is another, or an older file came back
        store_recovery_point(disk, METADATA, recovery_point)
    store_committed_end(disk, METADATA, 20)
    if how == "damaged":
        disk.damage(segments[-1], disk.size(segments[-1]) - 1)
    else:
        disk.remove(segments[-1])
    with pytest.raises(CorruptData, match=r"below offset 20 was durable here.*from-snapshot"):
        open_log(disk)


def test_damage_just_above_the_durable_end_is_cut() -> None:
    disk, segments = written()
    end = int(segments[3].stem)
    store_recovery_point(disk, METADATA, end)
    disk.damage(segments[3], 0)
    log = open_log(disk, view_flushed_end=end - 1)
    assert log.log_end_offset == end


def test_a_view_ahead_of_the_log_is_an_error() -> None:
    disk, _ = written()
    with pytest.raises(CorruptData, match="ends at offset 20"):
        open_log(disk, view_flushed_end=21)


def test_a_missing_segment_is_damage_like_any_other() -> None:
    disk, segments = written()
    disk.remove(segments[2])
    log = open_log(disk)
    assert values(log) == expected(int(segments[2].stem))
    disk, segments = written()
    disk.remove(segments[2])
    with pytest.raises(CorruptData, match="the next one starts at"):
        open_log(disk, view_flushed_end=20)


def test_a_log_that_starts_above_zero_needs_a_snapshot() -> None:
    disk, segments = written()
    disk.remove(segments[0])
    start = int(segments[1].stem)
    told = rf"starts at offset {start}, but no snapshot covers.* where other voters live, replace"
    with pytest.raises(CorruptData, match=told):
        open_log(disk)
    write_snapshot(disk, SnapshotId(int(segments[1].stem), 1))
    assert values(open_log(disk)) == expected(20, int(segments[1].stem))


def test_a_lost_log_is_an_error_unless_a_snapshot_holds_it_all() -> None:
    disk, segments = written()
    for segment in segments:
        disk.remove(segment)
    write_snapshot(disk, SnapshotId(20, 2))
    with pytest.raises(CorruptData, match="the metadata log is gone"):
        open_log(disk, view_flushed_end=21)
    log = open_log(disk, view_flushed_end=20)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    append(log, 1, epoch=3)
    log.close()
    assert values(open_log(disk)) == [b"20" * 40]


def test_a_zeroed_tail_is_cut() -> None:
    disk, segments = written()
    handle = disk.open_append(segments[-1])
    handle.append(bytes(500))
    log = open_log(disk)
    assert values(log) == expected(20)
    assert log.cut is not None
    assert log.cut.bytes_removed == 500


def test_an_epoch_that_contradicts_the_checkpoint_stops_the_node_and_says_what_to_do() -> None:
    disk, _ = written()
    disk.remove(PARTITION / LEADER_EPOCH_CHECKPOINT)
    handle = disk.open_append(PARTITION / LEADER_EPOCH_CHECKPOINT)
    handle.append(b"0\n2\n1 0\n3 10\n")
    with pytest.raises(CorruptData, match=r"has epoch 2, .* says 3: .* remove that file"):
        open_log(disk)
    disk.remove(PARTITION / LEADER_EPOCH_CHECKPOINT)
    log = open_log(disk)
    assert log.epochs == (EpochEntry(1, 0), EpochEntry(2, 10))
    assert values(log) == expected(20)


@pytest.mark.parametrize("content", [None, b"garbage"])
def test_a_lost_epoch_checkpoint_is_made_anew_from_the_batches(content: bytes | None) -> None:
    disk, _ = written()
    disk.remove(PARTITION / LEADER_EPOCH_CHECKPOINT)
    if content is not None:
        disk.open_append(PARTITION / LEADER_EPOCH_CHECKPOINT).append(content)
    open_log(disk).close()
    assert disk.read(PARTITION / LEADER_EPOCH_CHECKPOINT) == b"0\n2\n1 0\n2 10\n"


def test_left_overs_of_interrupted_writes_are_removed() -> None:
    disk, _ = written()
    names = [
        PARTITION / "00000000000000000010-0000000001.checkpoint.part",
        PARTITION / "quorum-state.tmp",
        METADATA / "recovery-point-offset-checkpoint.tmp",
    ]
    for name in names:
        disk.open_append(name).append(b"half")
    open_log(disk).close()
    assert not [name for name in names if name.name in disk.list_names(name.parent)]


def test_the_recovery_point_is_kept_in_kafkas_format() -> None:
    disk = CrashDisk()
    disk.make_directory(METADATA)
    assert load_recovery_point(disk, METADATA) == 0
    store_recovery_point(disk, METADATA, 17)
    assert disk.read(METADATA / RECOVERY_POINT_CHECKPOINT) == b"0\n1\n__remote_log_metadata 0 17\n"
    assert load_recovery_point(disk, METADATA) == 17


def test_an_unreadable_recovery_point_stops_the_node() -> None:
    disk, _ = written()
    disk.open_append(METADATA / RECOVERY_POINT_CHECKPOINT).append(b"garbage\n")
    with pytest.raises(CorruptData, match="how much of the metadata log was durable"):
        open_log(disk)


def test_a_recovery_point_of_something_else_says_nothing_of_this_log() -> None:
    disk = CrashDisk()
    disk.make_directory(METADATA)
    path = METADATA / RECOVERY_POINT_CHECKPOINT
    replace_file(disk, path, offset_checkpoint.encode({("orders", 0): 20}))
    assert load_recovery_point(disk, METADATA) == 0
