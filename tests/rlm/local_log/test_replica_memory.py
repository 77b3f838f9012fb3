"""What is remembered of a replica is what reading it anew would tell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import DEFAULT, Mock, patch

import pytest

from kafka_formats.log_names import LEADER_EPOCH_CHECKPOINT_FILE
from rlm.local_log import replica_memory
from rlm.local_log.epoch_borders import check_epochs
from rlm.local_log.replica_directory import ReplicaError, ReplicaGoneError, read_replica
from rlm.local_log.replica_memory import READS_TO_TRUST, ReplicaMemory
from tests.rlm.broker_files import ReplicaWriter, write_log_dir


class Reads:
    """Counts how often a replica was really read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, directory: Path, high_watermark: int | None) -> object:
        self.count += 1
        return read_replica(directory, high_watermark)


@pytest.fixture
def reads() -> Iterator[Reads]:
    counted = Reads()
    with patch.object(replica_memory, "read_replica", counted):
        yield counted


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    write_log_dir(tmp_path / "logs")
    writer = ReplicaWriter(tmp_path / "logs", topic="orders")
    writer.append(10)
    writer.roll()
    writer.append(5)
    writer.flush()
    return writer


def settled(memory: ReplicaMemory, directory: Path) -> None:
    # Old enough that the clock's tick plays no part.
    os.utime(directory, ns=(1, 1_700_000_000_000_000_000))
    for _ in range(READS_TO_TRUST):
        memory.read(directory, 15)


def test_an_unchanged_replica_is_not_read_again(replica: ReplicaWriter, reads: Reads) -> None:
    memory = ReplicaMemory()
    settled(memory, replica.directory)
    for _ in range(3):
        assert memory.read(replica.directory, 15) == read_replica(replica.directory, 15)
    assert reads.count == READS_TO_TRUST


def test_one_read_is_not_trusted(replica: ReplicaWriter, reads: Reads) -> None:
    memory = ReplicaMemory()
    memory.read(replica.directory, 15)
    memory.read(replica.directory, 15)
    assert reads.count == 2


def restore_in_place(replica: ReplicaWriter) -> None:
    (replica.directory / LEADER_EPOCH_CHECKPOINT_FILE).write_bytes(b"0\n2\n0 0\n4 1200\n")


def roll(replica: ReplicaWriter) -> None:
    replica.roll()
    replica.append(3)
    replica.flush()


def grow(replica: ReplicaWriter) -> None:
    replica.append(7)
    replica.flush()


def drop_the_first_segment(replica: ReplicaWriter) -> None:
    for path in replica.directory.glob("00000000000000000000.*"):
        path.unlink()


@pytest.mark.parametrize("change", [restore_in_place, roll, grow, drop_the_first_segment])
def test_every_change_is_seen_by_the_next_look(
    replica: ReplicaWriter, change: Callable[[ReplicaWriter], None]
) -> None:
    memory = ReplicaMemory()
    settled(memory, replica.directory)
    before = memory.read(replica.directory, 15)
    change(replica)
    for _ in range(4):
        assert memory.read(replica.directory, 15) == read_replica(replica.directory, 15)
    assert memory.read(replica.directory, 15) != before


def test_another_high_watermark_is_another_answer(replica: ReplicaWriter, reads: Reads) -> None:
    memory = ReplicaMemory()
    settled(memory, replica.directory)
    assert memory.read(replica.directory, 5) == read_replica(replica.directory, 5)
    assert reads.count == READS_TO_TRUST + 1


def test_trouble_is_never_remembered(replica: ReplicaWriter, tmp_path: Path) -> None:
    memory = ReplicaMemory()
    settled(memory, replica.directory)
    (replica.directory / "partition.metadata").unlink()
    for _ in range(3):
        with pytest.raises(ReplicaError):
            memory.read(replica.directory, 15)
    for _ in range(3):
        with pytest.raises(ReplicaGoneError):
            memory.read(tmp_path / "gone-0", 15)


def test_replicas_that_are_gone_are_forgotten(replica: ReplicaWriter, reads: Reads) -> None:
    memory = ReplicaMemory()
    settled(memory, replica.directory)
    memory.keep([])
    memory.read(replica.directory, 15)
    assert reads.count == READS_TO_TRUST + 1


@pytest.mark.parametrize("error", [FileNotFoundError, OSError])
def test_a_checkpoint_that_was_not_compared_once_is_compared_again(
    replica: ReplicaWriter, error: type[OSError]
) -> None:
    """Its last border is wrong, and at the first looks a file is gone or the disk fails."""
    (replica.directory / LEADER_EPOCH_CHECKPOINT_FILE).write_bytes(b"0\n2\n0 0\n4 12\n")
    memory = ReplicaMemory()
    fails = Mock(side_effect=error, wraps=check_epochs)
    with patch.object(replica_memory, "check_epochs", fails), suppress(ReplicaError):
        settled(memory, replica.directory)
    with pytest.raises(ReplicaError, match="is damaged, or a batch is"):
        memory.read(replica.directory, 15)


def test_a_file_that_went_while_its_replica_was_read_proves_no_checkpoint(
    replica: ReplicaWriter,
) -> None:
    (replica.directory / LEADER_EPOCH_CHECKPOINT_FILE).write_bytes(b"0\n2\n0 0\n4 12\n")
    once = Mock(side_effect=[FileNotFoundError, DEFAULT], wraps=check_epochs)
    with (
        patch.object(replica_memory, "check_epochs", once),
        pytest.raises(ReplicaError, match="is damaged, or a batch is"),
    ):
        ReplicaMemory().read(replica.directory, 15)
