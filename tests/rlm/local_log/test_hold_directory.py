"""Hard links to sealed segments: whole units, and no half one after a crash."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest, Refused
from rlm.local_log.hold_directory import HeldFound, HoldDirectory, hold_directories
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition, find_partitions
from rlm.local_log.replica_directory import read_replica
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
    now = directory.look_again(unit, None)
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
        found = directory.look_again(unit, local(orders))
        assert found is not None
        return found.followed_by

    unit = held(directory, orders, 0)
    assert unit.followed_by == 0
    orders.set_epochs((0, 0), (3, 10))
    orders.write(10, 20, end=25, epoch=3)
    assert followed_by(unit) == 3
    copied = orders.log_bytes(0)
    orders.delete_segment(0)
    orders.set_epochs((4, 10))
    orders.write(10, 20, end=25, epoch=4)
    assert followed_by(unit) == 0, "it is not there any more"
    (orders.directory / unit.segment.log_path.name).write_bytes(copied)
    assert followed_by(unit) == 0, "another file has its place"


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


def test_a_unit_that_a_truncation_reached_through_its_inode_is_not_it_any_more(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    unit = held(directory, orders, 0)
    os.truncate(local(orders).segments[0].log_path, 50)
    assert directory.look_again(unit, None) is None


def test_a_unit_that_a_truncation_reached_while_the_node_was_down_is_found_and_let_go(
    directory: HoldDirectory, orders: KafkaLog
) -> None:
    """What nobody knows of would take its bytes from the disk for good."""
    unit = held(directory, orders, 1)
    os.truncate(local(orders).segments[1].log_path, 10)
    (found,) = directory.find().units
    assert found.base_offset == unit.base_offset
    assert directory.look_again(found, None) is None
    let_go(directory, found)
    assert directory.find().units == ()


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


def test_a_hold_directory_in_a_log_directory_is_refused(log_dir: Path) -> None:
    (log_dir / "hold").mkdir()
    with pytest.raises(InvalidRequest, match="lies in the log directory") as refused:
        hold_directories([log_dir / "hold"], [log_dir], own_name="x")
    assert refused.value.field == "hold.dirs"


def test_a_log_directory_without_one_on_its_mount_is_named(log_dir: Path) -> None:
    elsewhere = Path("/dev/shm")
    if elsewhere.stat().st_dev == log_dir.stat().st_dev:
        pytest.skip("one mount for everything")
    with pytest.raises(InvalidRequest, match=f"mount of {log_dir}"):
        hold_directories([elsewhere], [log_dir], own_name="x")


def test_a_missing_hold_directory_is_named(tmp_path: Path, log_dir: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be looked at"):
        hold_directories([tmp_path / "none"], [log_dir], own_name="x")


def test_a_directory_where_no_link_can_be_made_is_refused_with_what_to_do(
    tmp_path: Path, log_dir: Path
) -> None:
    (log_dir / "meta.properties").unlink()
    directory = HoldDirectory(tmp_path / "hold", (log_dir,))
    with pytest.raises(Refused, match="CAP_FOWNER"):
        directory.prepare()
