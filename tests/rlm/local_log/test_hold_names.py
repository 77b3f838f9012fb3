"""A hold directory of an earlier name is taken over, whenever that is cut off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlm.local_log.hold_directory import HoldDirectory
from rlm.local_log.hold_names import hold_name, is_of_another_node, others, take_over
from rlm.local_log.log_dir import find_partitions
from tests.rlm.kafka_logs import KafkaLog, new_log_dir


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def holding(path: Path, log: KafkaLog, *bases: int) -> HoldDirectory:
    """A hold directory with these segments."""
    (local,) = find_partitions([log.log_dir], kafka_cluster_id=None).partitions
    directory = HoldDirectory(path, (log.log_dir,))
    directory.prepare()
    for segment in local.segments:
        if segment.base_offset in bases:
            assert directory.hold(local, segment) is not None
    return directory


def bases(directory: HoldDirectory) -> list[int]:
    return sorted(unit.base_offset for unit in directory.find().units)


def test_it_is_renamed(tmp_path: Path, orders: KafkaLog) -> None:
    before = holding(tmp_path / "before", orders, 0, 10)
    own = HoldDirectory(tmp_path / "own", (orders.log_dir,))
    for _ in range(2):
        take_over(before.path, own.path)
        assert bases(own) == [0, 10]
        assert not before.path.exists()


def test_of_two_each_unit_stays_once(tmp_path: Path, orders: KafkaLog) -> None:
    before = holding(tmp_path / "before", orders, 0, 10)
    own = holding(tmp_path / "own", orders, 10)
    (half,) = before.path.glob("*/*")
    (half / ".making-x").mkdir()
    take_over(before.path, own.path)
    assert bases(own) == [0, 10]
    assert not before.path.exists()
    assert os.stat(orders.directory / f"{10:020d}.log").st_nlink == 2
    assert not [*own.path.rglob(".making*")]


def test_a_unit_of_another_file_stays_where_it_is_and_is_told(
    tmp_path: Path, orders: KafkaLog
) -> None:
    before = holding(tmp_path / "before", orders, 0, 10)
    own = holding(tmp_path / "own", orders, 10)
    (log,) = before.path.glob(f"*/*/{10:020d}-*/{10:020d}.log")
    data = log.read_bytes()
    log.unlink()
    log.write_bytes(data)
    take_over(before.path, own.path)
    assert (bases(before), bases(own)) == ([10], [0, 10])
    assert [*others(own.path)] == [before.path]


def test_what_lies_beside_it_is_told_apart(tmp_path: Path, orders: KafkaLog) -> None:
    own = tmp_path / hold_name("kafka/one", 1)
    assert own.parent == tmp_path
    neighbour = holding(tmp_path / hold_name("kafka/one", 7), orders, 0)
    stranger = holding(tmp_path / hold_name("strandline", 1), orders, 0)
    holding(tmp_path / "empty-1", orders)
    (tmp_path / "file").touch()
    assert {*others(own)} == {neighbour.path, stranger.path}
    for name in (own.name, hold_name("kafka/one", 8), "empty-2"):
        (tmp_path / ".active" / name / "orders-0" / str(orders.partition.topic_id)).mkdir(
            parents=True
        )
    links = tmp_path / ".active" / hold_name("kafka/one", 8)
    assert {*others(own)} == {neighbour.path, stranger.path}
    (links / "orders-0" / str(orders.partition.topic_id) / f"{30:020d}-17").mkdir()
    assert {*others(own)} == {neighbour.path, stranger.path, links}
    assert is_of_another_node(links, own)
    assert is_of_another_node(neighbour.path, own)
    assert not is_of_another_node(stranger.path, own)
