"""Hard links to sealed segments: whole units, and no half one after a crash."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats import transaction_index
from kafka_formats.control_record import ControlType, control_key
from kafka_formats.errors import Refused
from kafka_formats.log_names import segment_file_name
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.transaction_index import AbortedTransaction
from rlm.local_log import hold_unit
from rlm.local_log.active_links import link_active
from rlm.local_log.committed_plan import NotCommittedError
from rlm.local_log.hold_directory import HeldFound, HoldDirectory, own_segment
from rlm.local_log.hold_dirs import hold_directories
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition, find_partitions
from rlm.local_log.replica_directory import read_replica
from tests.kafka_formats.transaction_markers import end_transaction_value
from tests.rlm.held_segments import all_of_it, nothing
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.planner_facts import epochs


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return new_log_dir(tmp_path / "kafka")


@pytest.fixture
def orders(log_dir: Path) -> KafkaLog:
    log = KafkaLog.create(log_dir, "orders", entries=((0, 0), (2, 15)))
    log.write(0, 10, 20, end=25, epoch=2)
    log.write(0, end=10)
    log.write_across(10, 15, 20, epochs=(0, 2))
    log.set_high_watermark(25)
    return log


@pytest.fixture
def directory(tmp_path: Path, log_dir: Path) -> HoldDirectory:
    (tmp_path / "hold").mkdir()
    (found,) = hold_directories([tmp_path / "hold"], [log_dir], own_name="cluster-1")
    found.prepare()
    return found


def local(log: KafkaLog) -> LocalPartition:
    (found,) = find_partitions([log.log_dir], kafka_cluster_id=None).partitions
    return found


def held(directory: HoldDirectory, log: KafkaLog, number: int) -> Unit:
    partition = local(log)
    unit = directory.hold(partition, partition.segments[number])
    assert unit is not None
    return unit


def let_go(directory: HoldDirectory, unit: Unit) -> None:
    going = directory.release(unit)
    assert going is not None
    directory.remove(going)


def test_a_unit_outlives_the_brokers_own_files_and_looks_like_a_replica(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    before = orders.log_bytes(10)
    unit = held(directory, orders, 1)
    assert (unit.alone, unit.followed_by) == (False, 2)
    assert unit.leader_epochs == epochs((0, 10), (2, 15))
    orders.delete_segment(0)
    orders.delete_segment(10)
    assert unit.segment.log_path.read_bytes() == before
    replica = read_replica(unit.segment.log_path.parent, None)
    assert replica.topic_id == orders.partition.topic_id
    assert replica.logs == ((10, len(before)), (20, 0))
    assert replica.leader_epochs == epochs((0, 0), (2, 15))
    assert replica.producer_snapshots == (10, 20)
    now = directory.look_again(unit, None, None)
    assert now is not None
    assert now.alone


def test_a_unit_says_nothing_of_the_epochs_that_delete_records_took_before_it_was_held(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    orders.set_epochs((2, 17))
    unit = held(directory, orders, 1)
    assert unit.leader_epochs == epochs((2, 17))
    assert unit.segment.first_known_offset == 17
    (found,) = directory.find().units
    assert found.first_known_offset == 17


def test_a_unit_has_the_lineage_up_to_its_end_as_a_copy_has(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    unit = held(directory, orders, 0)
    replica = read_replica(unit.segment.log_path.parent, None)
    assert replica.leader_epochs == epochs((0, 0))


def test_what_the_batches_told_of_a_lost_head_is_held_too(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    """By the checkpoint alone nothing is known of its epochs: it was wanted and never held."""
    orders.set_epochs((2, 15))
    found = replace(local(orders), leader_epochs=epochs((0, 0), (2, 15)))
    units = [directory.hold(found, segment) for segment in found.segments[:2]]
    assert [unit and unit.leader_epochs for unit in units] == [
        epochs((0, 0)),
        epochs((0, 10), (2, 15)),
    ]


def test_what_is_held_is_found_again_as_it_was(directory: HoldDirectory, orders: KafkaLog) -> None:
    unit = held(directory, orders, 0)
    assert directory.find().units == (unit,)


def test_what_follows_a_unit_is_told_by_the_live_log_while_the_unit_is_a_part_of_it(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    def followed_by(unit: Unit) -> int:
        log = local(orders)
        found = directory.look_again(unit, log, own_segment(log, unit.segment))
        assert found is not None
        return found.followed_by

    unit = held(directory, orders, 0)
    assert unit.followed_by == 0
    orders.set_epochs((0, 0), (3, 10))
    orders.write(10, 20, end=25, epoch=3)
    assert followed_by(unit) == 3
    copied = orders.log_bytes(0)
    for base in (0, 10, 20):
        orders.delete_segment(base)
    orders.set_epochs((4, 10))
    orders.write(10, 20, end=25, epoch=4)
    assert followed_by(unit) == 0, "it is not there any more"
    (orders.directory / unit.segment.log_path.name).write_bytes(copied)
    assert followed_by(unit) == 0, "another file has its place"


def test_what_follows_a_unit_is_told_by_the_live_log_that_begins_at_its_end(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    """Elections and retention between two looks: the snapshot of the roll says that no truncation
    came between.
    """
    unit = held(directory, orders, 1)
    assert unit.followed_by == 2
    orders.write(20, end=30, epoch=3)
    orders.write(30, end=35, epoch=5)
    orders.set_epochs((0, 0), (2, 15), (3, 20), (5, 30))
    orders.delete_segment(0)
    orders.delete_segment(10)
    now = directory.look_again(unit, local(orders), None)
    assert now is not None
    assert (now.alone, now.followed_by) == (True, 3)
    assert [each.followed_by for each in directory.find().units] == [3]
    orders.delete_segment(20)
    later = directory.look_again(unit, local(orders), None)
    assert later is not None
    assert later.followed_by == 2, "nothing shows what was at its end"


def test_a_log_that_was_truncated_and_written_anew_does_not_follow_a_unit_made_of_a_left_file(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    """Its snapshot was linked after the file had left the log, when it may be of another roll."""
    link = link_active(directory.path, local(orders))
    assert link is not None
    orders.write(20, 25, end=30, epoch=2)
    orders.delete_segment(20)
    unit = directory.hold_left(link, local(orders), all_of_it, may_cut=False).unit
    assert unit is not None
    orders.set_epochs((4, 25))
    now = directory.look_again(unit, local(orders), None)
    assert now is not None
    assert now.followed_by == unit.followed_by == 2


def test_nothing_is_held_of_a_segment_that_is_not_what_was_looked_at(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    before = local(orders)

    def unheld() -> bool:
        return directory.hold(before, before.segments[0]) is None and directory.find().units == ()

    orders.set_epochs((0, 0), (3, 12))
    assert unheld(), "an election between the look and the link"
    orders.set_epochs((0, 0), (2, 15))
    orders.delete_segment(10)
    orders.delete_segment(20)
    assert unheld(), "what followed was truncated away"
    orders.write(0, 10, 20, end=25)
    (orders.directory / "partition.metadata").unlink()
    assert unheld(), "the directory is being taken away"


def test_a_segment_whose_size_changed_is_not_held(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    before = local(orders)
    os.truncate(before.segments[0].log_path, 50)
    assert directory.hold(before, before.segments[0]) is None
    assert directory.find().units == ()


def found_again(directory: HoldDirectory) -> Unit:
    """The unit that a node finds at its start, with a file that has left the broker's log."""
    (found,) = directory.find().units
    now = directory.look_again(found, None, None)
    assert now is not None
    assert now.alone
    return now


def test_a_unit_that_the_broker_wrote_to_is_in_doubt_whatever_its_size_is(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    unit = held(directory, orders, 0)
    orders.write(0, end=10, epoch=1)
    assert unit.segment.log_path.stat().st_size == unit.segment.size_bytes
    now = directory.look_again(unit, None, None)
    assert now is not None
    assert now.doubt is not None


@pytest.mark.parametrize("end", [17, 20, 25])
def test_a_file_that_was_cut_and_written_on_and_left_the_log_has_the_end_and_epochs_of_its_batches(
    directory: HoldDirectory, orders: KafkaLog, end: int
) -> None:
    held(directory, orders, 1)
    orders.delete_segment(20)
    orders.write_across(10, 15, end, epochs=(0, 3))
    written = orders.log_bytes(10)
    orders.delete_segment(10)
    told = directory.rebuild_from_batches(found_again(directory), all_of_it, may_cut=False).unit
    assert told is not None
    assert (told.next_base_offset, told.segment.size_bytes) == (end, len(written))
    assert (told.leader_epochs, told.followed_by) == (epochs((0, 10), (3, 15)), 3)
    assert directory.find() == HeldFound((told,), ())
    replica = read_replica(told.segment.log_path.parent, None)
    assert replica.logs == ((10, len(written)), (end, 0))
    assert replica.leader_epochs == told.leader_epochs
    assert replica.producer_snapshots == (10,), "what stood at the former end is of another log"


def test_a_file_of_which_only_the_time_is_another_is_followed_by_what_it_was(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    orders.write(20, end=25, epoch=3)
    orders.set_epochs((0, 0), (2, 15), (3, 20))
    unit = held(directory, orders, 1)
    assert unit.followed_by == 3
    os.utime(unit.segment.log_path)
    orders.delete_segment(10)
    found = found_again(directory)
    assert found.doubt is not None
    told = directory.rebuild_from_batches(found, all_of_it, may_cut=False).unit
    assert told is not None
    assert (told.doubt, told.leader_epochs, told.followed_by) == (None, unit.leader_epochs, 3)


def test_a_file_written_anew_tells_nothing_of_what_delete_records_took_before_it_was_held(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    orders.set_epochs((2, 17))
    held(directory, orders, 1)
    orders.write_across(10, 18, 19, epochs=(0, 3))
    orders.delete_segment(10)
    told = directory.rebuild_from_batches(found_again(directory), all_of_it, may_cut=False).unit
    assert told is not None
    assert (told.leader_epochs, told.next_base_offset) == (epochs((0, 17), (3, 18)), 19)


def test_a_crash_while_a_unit_is_put_right_leaves_one_that_is_put_right_again(
    directory: HoldDirectory, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(directory, orders, 1)
    orders.write_across(10, 15, 25, epochs=(0, 3))
    orders.delete_segment(10)
    found = found_again(directory)
    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
        with pytest.raises(OSError, match="I/O error"):
            directory.rebuild_from_batches(found, all_of_it, may_cut=False)
    told = directory.rebuild_from_batches(found_again(directory), all_of_it, may_cut=False).unit
    assert told is not None
    assert (told.next_base_offset, told.doubt) == (25, None)


def test_a_file_written_anew_that_may_be_uncommitted_stays_as_it_was(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    held(directory, orders, 1)
    orders.write_across(10, 15, 25, epochs=(0, 3))
    orders.delete_segment(10)
    found = found_again(directory)
    with pytest.raises(NotCommittedError, match="offsets 10 to 24"):
        directory.rebuild_from_batches(found, nothing, may_cut=True)
    assert found_again(directory) == found


@pytest.mark.parametrize("restarts", [False, True])
def test_of_a_file_written_anew_the_part_that_is_surely_committed_stays(
    directory: HoldDirectory,
    orders: KafkaLog,
    monkeypatch: pytest.MonkeyPatch,
    restarts: bool,
) -> None:
    """As a copy, since the file may have other links; also after a crash behind that copy."""
    held(directory, orders, 1)
    orders.write_across(10, 15, 25, epochs=(0, 3))
    written = orders.log_bytes(10)
    other = orders.directory.with_name("of-another-cluster")
    os.link(orders.directory / segment_file_name(10, ".log"), other)
    orders.delete_segment(10)
    found = found_again(directory)
    if restarts:
        with monkeypatch.context() as broken:
            broken.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
            with pytest.raises(OSError, match="I/O error"):
                directory.rebuild_from_batches(found, lambda _: 17, may_cut=True)
        found = found_again(directory)
    told = directory.rebuild_from_batches(found, lambda _: 17, may_cut=True)
    assert told.unit is not None
    unit = told.unit
    size = unit.segment.size_bytes
    assert (unit.next_base_offset, unit.doubt) == (17, None)
    assert unit.leader_epochs == epochs((0, 10), (3, 15))
    assert unit.segment.log_path.read_bytes() == written[:size]
    assert directory.find() == HeldFound((unit,), ())
    assert other.read_bytes() == written
    if not restarts:
        assert told.rest is not None
        rest = told.rest
        assert (rest.base_offset, rest.next_base_offset) == (17, 25)
        assert rest.segment.size_bytes == len(written) - size


def test_a_crash_behind_the_cut_leaves_no_aborted_transaction_of_the_rest(
    directory: HoldDirectory, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy compares each with the batches: with one too many it could be refused for ever."""
    entries = AbortedTransaction(1, 10, 12, 12), AbortedTransaction(2, 18, 20, 20)
    index = orders.directory / segment_file_name(10, ".txnindex")
    index.write_bytes(transaction_index.encode(entries))
    held(directory, orders, 1)
    orders.write_across(10, 15, 25, epochs=(0, 3))
    orders.delete_segment(10)
    with monkeypatch.context() as broken:
        broken.setattr(hold_unit, "cut_beside", lambda *_: (_ for _ in ()).throw(OSError(5, "")))
        with pytest.raises(OSError, match="Errno 5"):
            directory.rebuild_from_batches(found_again(directory), lambda _: 17, may_cut=True)
    unit = directory.rebuild_from_batches(found_again(directory), lambda _: 17, may_cut=True).unit
    assert unit is not None
    left = unit.segment.log_path.with_suffix(".txnindex").read_bytes()
    assert transaction_index.parse(left, source="test") == entries[:1]


@pytest.mark.parametrize("index", [None, b"damaged"])
@pytest.mark.parametrize("end", [17, 25])
def test_a_file_written_anew_counts_as_one_with_the_aborted_transactions_of_its_batches(
    directory: HoldDirectory, orders: KafkaLog, index: bytes | None, end: int
) -> None:
    """The broker makes the index after the links. Without one the copy is refused for ever."""
    if index is not None:
        (orders.directory / segment_file_name(10, ".txnindex")).write_bytes(index)
    held(directory, orders, 1)
    orders.write_across(10, 15, 16, epochs=(0, 3))
    log = orders.directory / segment_file_name(10, ".log")
    records = log.read_bytes() + transaction(16, producer_id=7)
    log.write_bytes(records + b"".join(batch(each) for each in range(18, 25)))
    orders.delete_segment(10)
    unit = directory.rebuild_from_batches(found_again(directory), lambda _: end, may_cut=True).unit
    assert unit is not None
    assert (unit.next_base_offset, unit.doubt) == (end, None)
    told = unit.segment.log_path.with_suffix(".txnindex")
    assert (told.exists() and told.stat().st_size > 0) is (end > 17)


def batch(offset: int) -> bytes:
    record = Record(offset, 5, None, b"v")
    return encode_batch([record], base_offset=offset, partition_leader_epoch=3)


def transaction(offset: int, *, producer_id: int) -> bytes:
    """A record, and the marker that aborts it."""
    record = Record(offset, 5, None, b"v")
    marker = Record(offset + 1, 5, control_key(ControlType.ABORT), end_transaction_value(7))
    return b"".join(
        encode_batch(
            [each], base_offset=each.offset, partition_leader_epoch=3, producer_id=producer_id,
            producer_epoch=0, base_sequence=-1 if each is marker else 0, transactional=True,
            control=each is marker,
        )
        for each in (record, marker)
    )  # fmt: skip


@pytest.mark.parametrize("size", [10, 100])
def test_a_file_whose_batches_tell_no_end_stays_in_doubt(
    directory: HoldDirectory, orders: KafkaLog, size: int
) -> None:
    held(directory, orders, 1)
    os.truncate(local(orders).segments[1].log_path, size)
    orders.delete_segment(10)
    told = directory.rebuild_from_batches(found_again(directory), all_of_it, may_cut=False).unit
    assert told is not None
    assert told.doubt is not None
    assert (
        directory.rebuild_from_batches(found_again(directory), all_of_it, may_cut=False).unit
        == told
    )


@pytest.mark.parametrize("cut_to", [0, 17])
def test_a_file_of_which_nothing_that_a_unit_may_tell_of_is_left_is_no_unit(
    directory: HoldDirectory, orders: KafkaLog, cut_to: int
) -> None:
    orders.set_epochs((2, 17))
    held(directory, orders, 1)
    orders.write(10, end=cut_to, epoch=3)
    orders.delete_segment(10)
    assert (
        directory.rebuild_from_batches(found_again(directory), all_of_it, may_cut=False).unit
        is None
    )


def test_a_unit_whose_epochs_are_gone_is_there_while_it_has_its_records(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    """A file that a file system lost is not taken for the unit."""
    log = held(directory, orders, 0).segment.log_path
    log.with_name("leader-epoch-checkpoint").unlink()
    found = directory.find()
    assert found.units == ()
    assert str(log.parent) in found.unread[0].why
    log.unlink()
    assert directory.find() == HeldFound((), ())


def test_a_released_unit_leaves_nothing_behind_and_takes_nothing_from_the_broker(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    before = orders.log_bytes(0)
    let_go(directory, held(directory, orders, 0))
    assert orders.log_bytes(0) == before
    assert os.listdir(directory.path) == []


@pytest.mark.parametrize("name", [".making-x", ".removing-y"])
def test_what_a_crash_left_half_done_goes_at_the_next_start(
    directory: HoldDirectory, orders: KafkaLog, name: str
) -> None:
    unit = held(directory, orders, 0)
    half = unit.segment.log_path.parent.parent / name
    half.mkdir()
    os.link(unit.segment.log_path, half / "00000000000000000000.log")
    directory.sweep()
    assert not half.exists()
    assert len(directory.find().units) == 1


def test_a_directory_where_no_link_can_be_made_is_refused_with_what_to_do(
    tmp_path: Path, log_dir: Path
) -> None:
    (log_dir / "meta.properties").unlink()
    directory = HoldDirectory(tmp_path / "hold", (log_dir,))
    with pytest.raises(Refused, match="CAP_FOWNER"):
        directory.prepare()
