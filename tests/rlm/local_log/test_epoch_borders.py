"""The leader-epoch-checkpoint against the batches beside its borders."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from kafka_formats import offset_index
from kafka_formats.leader_epoch_checkpoint import Epochs, parse
from kafka_formats.log_names import segment_file_name
from kafka_formats.offset_index import OffsetIndex
from kafka_formats.record_batch import Record, encode_batch
from rlm.local_log.epoch_borders import EpochsContradictedError, _place, check_epochs
from rlm.local_log.replica_directory import ReplicaError
from rlm.local_log.replica_memory import ReplicaMemory
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.planner_facts import epochs

TRUE = ((0, 0), (2, 30), (5, 47))


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    """Segments at 0, 10, 20, 30, and at 40, in which epoch 5 begins at offset 47; it ends at 60."""
    made = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=TRUE)
    made.write(0, 10, 20, end=30, epoch=0)
    made.write(30, end=40, epoch=2)
    made.write_across(40, 47, 60, epochs=(2, 5))
    made.set_high_watermark(60)
    return made


def bases_of(log: KafkaLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.log"))


def test_the_true_checkpoint_is_settled(log: KafkaLog) -> None:
    assert check_epochs(log.directory, bases_of(log), epochs(*TRUE))


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("brief", [False, True])
def test_no_turned_bit_of_the_file_is_taken(log: KafkaLog, bit: int, *, brief: bool) -> None:
    """Each is refused, by the format or by the batches, but for the first offset. `brief`: epoch 5
    has one batch.
    """
    true_epochs = (*TRUE, (9, 48)) if brief else TRUE
    if brief:
        log.write_as(40, 60, true_epochs)
        log.set_epochs(*true_epochs)
    path = log.directory / "leader-epoch-checkpoint"
    true = path.read_bytes()
    taken: set[Epochs] = set()
    for at in range(len(true)):
        turned = bytearray(true)
        turned[at] ^= 1 << bit
        path.write_bytes(turned)
        try:
            found = ReplicaMemory().read(log.directory, 60).leader_epochs
        except ReplicaError:
            continue
        taken.add(found)
    # "0 0" may become "0 4": a checkpoint that begins later, as one does that was lost.
    true_tail = epochs(*true_epochs)[1:]
    assert all(each[0].epoch == 0 and each[1:] == true_tail for each in taken)


@pytest.mark.parametrize(
    "wrong",
    [
        ((0, 0), (2, 29), (5, 47)),
        ((0, 0), (2, 31), (5, 47)),
        ((0, 0), (3, 30), (5, 47)),
        ((0, 0), (2, 30), (5, 46)),
        ((0, 0), (2, 30), (5, 48)),
        ((0, 0), (2, 30), (4, 47)),
        ((0, 0), (5, 47)),
        ((1, 0), (2, 30), (5, 47)),
    ],
)
@pytest.mark.parametrize("indexed", [True, False])
def test_a_border_at_the_wrong_place_is_contradicted(
    log: KafkaLog, wrong: tuple[tuple[int, int], ...], *, indexed: bool
) -> None:
    if not indexed:
        for path in log.directory.glob("*.index"):
            path.unlink()
    with pytest.raises(EpochsContradictedError, match=r"has epoch|begins inside"):
        check_epochs(log.directory, bases_of(log), epochs(*wrong))


def test_the_index_of_the_active_segment_ends_in_zeros(log: KafkaLog) -> None:
    path = log.directory / segment_file_name(40, ".index")
    path.write_bytes(path.read_bytes() + bytes(8_000))
    assert check_epochs(log.directory, bases_of(log), epochs(*TRUE))


def test_an_epoch_without_a_record_is_looked_at_until_it_has_one(log: KafkaLog) -> None:
    log.set_epochs(*TRUE, (7, 62))  # it begins at 60
    memory = ReplicaMemory()
    for _ in range(4):
        assert memory.read(log.directory, 60).leader_epochs[-1] == (7, 62)
    log.write(60, end=70, epoch=7)
    with pytest.raises(ReplicaError, match="offset 61 is of epoch 5 by the checkpoint"):
        memory.read(log.directory, 60)


def test_the_checkpoint_of_a_log_whose_head_is_gone_is_settled(log: KafkaLog) -> None:
    for base in (0, 10, 20, 30):
        log.delete_segment(base)
    data = (log.directory / "leader-epoch-checkpoint").read_bytes()
    own = parse(data, source="test")
    assert own[0] == (2, 40)
    assert check_epochs(log.directory, bases_of(log), own)


def test_a_batch_that_cannot_be_read_proves_nothing(log: KafkaLog) -> None:
    path = log.directory / segment_file_name(30, ".log")
    path.write_bytes(bytes(path.stat().st_size))
    assert check_epochs(log.directory, bases_of(log), epochs(*TRUE))


def test_one_batch_with_a_turned_epoch_is_not_the_checkpoints_fault(log: KafkaLog) -> None:
    path = log.directory / segment_file_name(30, ".log")
    data = bytearray(path.read_bytes())
    data[15] ^= 0x10  # the lowest byte of its partitionLeaderEpoch
    path.write_bytes(data)
    assert check_epochs(log.directory, bases_of(log), epochs(*TRUE))


def test_an_epoch_that_begins_inside_a_batch_is_contradicted(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=())
    batches = [
        encode_batch(
            [Record(offset, 0, None, b"v", ()) for offset in offsets],
            base_offset=offsets[0],
            partition_leader_epoch=epoch,
        )
        for offsets, epoch in ((range(10), 0), (range(10, 20), 1))
    ]
    (log.directory / segment_file_name(0, ".log")).write_bytes(b"".join(batches))
    assert check_epochs(log.directory, bases_of(log), epochs((0, 0), (1, 10)))
    for start in (8, 11):
        with pytest.raises(EpochsContradictedError):
            check_epochs(log.directory, bases_of(log), epochs((0, 0), (1, start)))


@pytest.mark.parametrize("zeros", [0, 8, 800])
def test_the_place_in_an_index_is_the_entry_before_the_one_that_a_look_up_finds(
    tmp_path: Path, zeros: int
) -> None:
    entries = [(10 * number + 7, 4_096 * number + 61) for number in range(1, 40)]
    data = offset_index.encode(entries, 0)
    (tmp_path / "index").write_bytes(data + bytes(zeros))
    index = OffsetIndex.parse(data, base_offset=0, source="test")
    for offset in range(1, 450):
        last = index.lookup(offset - 1)
        positions = [0, 0, *(position for _, position in entries if position <= last)]
        assert _place(tmp_path / "index", offset) == positions[-2]


def test_a_damaged_index_leads_to_no_other_error(log: KafkaLog) -> None:
    for seed in range(300):
        random = Random(seed)
        for path in log.directory.glob("*.index"):
            path.write_bytes(random.randbytes(random.randrange(120)))
        with suppress(EpochsContradictedError):
            check_epochs(log.directory, bases_of(log), epochs(*TRUE))


def test_an_index_that_is_cut_meanwhile_is_read_as_far_as_it_goes(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live index has room for more entries, which the broker cuts off when it rolls."""
    read = os.pread

    def cut(descriptor: int, size: int, position: int) -> bytes:
        return b"" if size == 8 and position >= 16 else read(descriptor, size, position)

    monkeypatch.setattr(os, "pread", cut)
    assert check_epochs(log.directory, bases_of(log), epochs(*TRUE))
