"""A source that is held open while the broker does anything to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from kafka_formats.errors import Conflict, CorruptData, Refused, RetryLater, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.properties import encode_partition_metadata
from rlm.data_plane import segment_source
from rlm.data_plane.segment_source import SegmentSource, same_lineage
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import copy_job, only_partition


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    """Segments 0, 10, 20 (another epoch), and the active one at 30."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    for epoch in (0, 0, 2):
        if epoch:
            replica.new_epoch(epoch)
        replica.append(10)
        replica.roll()
    return replica


@pytest.fixture
def source(replica: ReplicaWriter) -> Iterator[SegmentSource]:
    """The segment at 10, open."""
    partition = only_partition(replica.log_dir)
    source = SegmentSource(copy_job(partition, partition.segments[1]))
    yield source
    source.close()


def read_log(source: SegmentSource, position: int, size: int) -> bytes:
    buffer = bytearray(size)
    source.read_log_into(position, memoryview(buffer))
    return bytes(buffer)


def test_bytes_are_those_of_the_files(replica: ReplicaWriter, source: SegmentSource) -> None:
    log = replica.path(10, ".log").read_bytes()
    assert source.size_bytes == len(log)
    assert read_log(source, 0, len(log)) == log
    assert read_log(source, 5, 7) == log[5:12]
    index = source.index_path(".timeindex")
    assert source.read_beside(index) == index.read_bytes()
    assert source.read_beside(source.snapshot_path(20)) is not None
    assert source.read_beside(source.index_path(".txnindex")) is None


def test_what_was_removed_stays_readable(replica: ReplicaWriter, source: SegmentSource) -> None:
    log = replica.path(10, ".log").read_bytes()
    replica.cut_head(20)
    assert read_log(source, 0, len(log)) == log
    source.check_unchanged()


def test_removal_by_retention_beyond_the_next_segment_is_no_change(
    replica: ReplicaWriter, source: SegmentSource
) -> None:
    replica.cut_head(30)
    source.check_unchanged()


def test_later_appends_and_epochs_are_no_change(
    replica: ReplicaWriter, source: SegmentSource
) -> None:
    replica.new_epoch(7)
    replica.append(5)
    replica.roll()
    source.check_unchanged()


def truncate_log(replica: ReplicaWriter) -> None:
    os.truncate(replica.path(10, ".log"), 20)


def truncate_to_nothing(replica: ReplicaWriter) -> None:
    os.truncate(replica.path(10, ".log"), 0)


def touch(replica: ReplicaWriter) -> None:
    os.utime(replica.path(10, ".log"), ns=(0, 0))


def replace_log(replica: ReplicaWriter) -> None:
    path = replica.path(10, ".log")
    data = path.read_bytes()
    path.unlink()
    path.with_suffix(".keep").write_bytes(b"so that the inode is not used again")
    path.write_bytes(data)


def remove_only_this(replica: ReplicaWriter) -> None:
    replica.path(10, ".log").unlink()


def drop_next(replica: ReplicaWriter) -> None:
    replica.path(20, ".log").unlink()


def split(replica: ReplicaWriter) -> None:
    replica.path(15, ".log").write_bytes(b"")


def remove_replica(replica: ReplicaWriter) -> None:
    replica.directory.rename(replica.log_dir / f"orders-0.{'a' * 32}-delete")


def recreate_topic(replica: ReplicaWriter) -> None:
    metadata = encode_partition_metadata(Uuid(b"another-topic-id"))
    (replica.directory / "partition.metadata").write_bytes(metadata)


def remove_all_logs(replica: ReplicaWriter) -> None:
    for path in replica.directory.glob("*.log"):
        path.unlink()


def diverge(replica: ReplicaWriter) -> None:
    replica.epochs = [EpochEntry(0, 0), EpochEntry(1, 15), EpochEntry(2, 20)]
    replica._write_checkpoint()


def forget_epochs(replica: ReplicaWriter) -> None:
    replica.epochs = []
    replica._write_checkpoint()


CHANGES = [
    truncate_log,
    truncate_to_nothing,
    touch,
    replace_log,
    remove_only_this,
    drop_next,
    split,
    remove_replica,
    recreate_topic,
    remove_all_logs,
    diverge,
    forget_epochs,
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_other_change_is_a_conflict(
    replica: ReplicaWriter, source: SegmentSource, change: Callable[[ReplicaWriter], None]
) -> None:
    change(replica)
    with pytest.raises(Conflict) as caught:
        source.check_unchanged()
    assert caught.value.reason == "SOURCE_CHANGED"


@pytest.mark.parametrize("change", [truncate_log, truncate_to_nothing])
def test_a_truncated_file_is_told_while_it_is_read(
    replica: ReplicaWriter, source: SegmentSource, change: Callable[[ReplicaWriter], None]
) -> None:
    change(replica)
    with pytest.raises(Conflict) as caught:
        read_log(source, 0, source.size_bytes)
    assert caught.value.reason == "SOURCE_CHANGED"


@pytest.mark.parametrize(
    "change", [remove_only_this, drop_next, remove_replica, recreate_topic, diverge]
)
def test_a_segment_that_changed_before_it_was_opened_is_not_opened(
    replica: ReplicaWriter, change: Callable[[ReplicaWriter], None]
) -> None:
    partition = only_partition(replica.log_dir)
    job = copy_job(partition, partition.segments[1])
    change(replica)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Conflict) as caught:
        SegmentSource(job)
    assert caught.value.reason == "SOURCE_CHANGED"
    assert len(os.listdir("/proc/self/fd")) == before


def test_closing_gives_every_descriptor_back(replica: ReplicaWriter) -> None:
    before = len(os.listdir("/proc/self/fd"))
    partition = only_partition(replica.log_dir)
    source = SegmentSource(copy_job(partition, partition.segments[1]))
    assert len(os.listdir("/proc/self/fd")) > before
    source.close()
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(13, "Permission denied"), Refused),
        (OSError(5, "Input/output error"), CorruptData),
        (OSError(24, "Too many open files"), RetryLater),
    ],
)
def test_errors_of_the_disk_are_translated(
    source: SegmentSource, error: OSError, kind: type[StrandlineError]
) -> None:
    with patch.object(os, "preadv", side_effect=error), pytest.raises(kind):
        read_log(source, 0, 10)
    with patch.object(os, "pread", side_effect=error), pytest.raises(kind):
        source.read_beside(source.index_path(".index"))


def test_a_directory_that_cannot_be_listed_is_no_damage_of_the_segment(
    source: SegmentSource,
) -> None:
    with (
        patch.object(os, "listdir", side_effect=OSError(5, "Input/output error")),
        pytest.raises(RetryLater),
    ):
        source.check_unchanged()


def test_a_short_read_is_continued(source: SegmentSource) -> None:
    real = os.preadv
    wanted = read_log(source, 0, source.size_bytes)
    with patch.object(os, "preadv", lambda fd, views, at: real(fd, [views[0][:7]], at)):
        assert read_log(source, 0, source.size_bytes) == wanted


def test_a_huge_file_beside_is_not_read(source: SegmentSource) -> None:
    with (
        patch.object(segment_source, "SMALL_FILE_BYTES_MAX", 4),
        pytest.raises(CorruptData, match="too many"),
    ):
        source.read_beside(source.index_path(".timeindex"))


class TestSameLineage:
    """Only what both still know is compared."""

    PLANNED = (EpochEntry(3, 100), EpochEntry(5, 150))

    @pytest.mark.parametrize(
        "current",
        [
            (EpochEntry(0, 0), EpochEntry(3, 50), EpochEntry(5, 150)),
            (EpochEntry(3, 100), EpochEntry(5, 150), EpochEntry(8, 200)),
            (EpochEntry(3, 120), EpochEntry(5, 150)),
            (EpochEntry(5, 170), EpochEntry(6, 300)),
            (EpochEntry(5, 250),),
            (EpochEntry(9, 400),),
        ],
    )
    def test_the_same(self, current: tuple[EpochEntry, ...]) -> None:
        assert same_lineage(self.PLANNED, current, 100, 200)

    @pytest.mark.parametrize(
        "current",
        [
            (),
            (EpochEntry(3, 50), EpochEntry(5, 151)),
            (EpochEntry(3, 50), EpochEntry(4, 140), EpochEntry(5, 150)),
            (EpochEntry(3, 50), EpochEntry(6, 150)),
            (EpochEntry(3, 50),),
            (EpochEntry(6, 170),),
            (EpochEntry(3, 250),),
        ],
    )
    def test_another(self, current: tuple[EpochEntry, ...]) -> None:
        assert not same_lineage(self.PLANNED, current, 100, 200)


def test_a_hold_on_the_wrong_range_is_not_opened(replica: ReplicaWriter) -> None:
    partition = only_partition(replica.log_dir)
    job = replace(copy_job(partition, partition.segments[0]), end_offset=19)
    with pytest.raises(Conflict, match="other segments"):
        SegmentSource(job)
