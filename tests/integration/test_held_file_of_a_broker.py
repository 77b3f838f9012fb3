"""A held segment whose file a stock broker cuts, goes on in, and deletes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_formats.leader_epoch_checkpoint import EpochEntry
from rlm.local_log.hold_directory import HoldDirectory
from rlm.local_log.hold_dirs import hold_directories
from rlm.local_log.hold_unit import is_roll_of
from rlm.local_log.log_dir import LocalPartition, find_partitions
from tests.real.kafka_clients import NewRecord, produce
from tests.real.kafka_cluster import KafkaCluster
from tests.rlm.held_segments import all_of_it

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

HELD, OTHER = 1, 2
TOPIC = "orders"
CONFIG = {
    "internal.segment.bytes": "16384",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "true",
    "file.delete.delay.ms": "5000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path / "kafka") as running:
        yield running


def write(cluster: KafkaCluster, count: int, size: int) -> None:
    """Records of this size, one a batch."""
    records = [NewRecord(b"%0*d" % (size, number)) for number in range(count)]
    produce(cluster.bootstrap, TOPIC, 0, records, config={"batch.num.messages": 1})


def look_at(cluster: KafkaCluster) -> LocalPartition:
    scan = find_partitions([cluster.brokers[HELD].log_dir], kafka_cluster_id=None)
    return next(each for each in scan.partitions if each.partition.topic == TOPIC)


def directory_beside(cluster: KafkaCluster, path: Path) -> HoldDirectory:
    path.mkdir()
    (found,) = hold_directories([path], [cluster.brokers[HELD].log_dir], own_name="held")
    found.prepare()
    return found


def test_a_held_file_that_a_broker_cut_and_went_on_in_and_deleted_tells_what_it_has(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    brokers, wait_until = cluster.brokers, cluster.brokers[OTHER].wait_until
    cluster.create_topic(TOPIC, replicas=[[HELD, OTHER]], config=CONFIG)
    write(cluster, 30, 100)
    brokers[OTHER].kill()
    brokers[HELD].wait_until(lambda: cluster.isr(TOPIC, 0) == {HELD}, "broker 2 to fall behind")
    write(cluster, 150, 100)
    directory = directory_beside(cluster, tmp_path / "hold")
    local = look_at(cluster)
    unit = directory.hold(local, local.segments[0])
    assert unit is not None
    brokers[HELD].kill()
    brokers[OTHER].start()
    wait_until(lambda: cluster.leader(TOPIC, 0) == OTHER, "an unclean election")
    write(cluster, 60, 500)
    brokers[HELD].start()
    cluster.wait_for_replicas(TOPIC, 1)
    log = unit.segment.log_path
    wait_until(lambda: len(brokers[HELD].segment_files(TOPIC, 0)) > 1, "what is left to be sealed")
    own = brokers[HELD].segment_files(TOPIC, 0)[0]
    assert os.path.samefile(own, log), "the broker cut the file itself"
    border = look_at(cluster).leader_epochs[-1].start_offset
    assert 30 <= border < unit.next_base_offset
    assert not is_roll_of(unit, look_at(cluster))
    written = log.stat()
    brokers[HELD].alter_topic(TOPIC, {"retention.bytes": "1"})
    wait_until(lambda: not own.exists(), "retention")
    now = directory.look_again(unit, None, None)
    assert now is not None
    assert now.doubt is not None, "in doubt by size and time, whichever name the file has"
    wait_until(lambda: log.stat().st_nlink == 1, "the broker's own link to go")
    gone = log.stat()
    assert (gone.st_size, gone.st_mtime_ns) == (written.st_size, written.st_mtime_ns)
    (found,) = directory.find().units
    told = directory.rebuild_from_batches(found, all_of_it, may_cut=False).unit
    assert told is not None
    assert (told.doubt, told.segment.size_bytes) == (None, written.st_size)
    epochs = told.leader_epochs
    assert (epochs[0].start_offset, epochs[-1].start_offset) == (0, border)
    assert epochs[-1] > EpochEntry(unit.leader_epochs[-1].epoch, border)


def test_the_snapshot_of_a_roll_stands_until_the_log_is_truncated_below_it(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Local retention and elections leave it, so that a held segment knows the log behind it."""
    broker = cluster.brokers[HELD]
    cluster.create_topic(TOPIC, replicas=[[HELD, OTHER]], config=CONFIG)
    write(cluster, 150, 100)
    local = look_at(cluster)
    unit = directory_beside(cluster, tmp_path / "hold").hold(local, local.segments[0])
    assert unit is not None
    for leader in (OTHER, HELD):
        cluster.move_leader(TOPIC, 0, leader)
        write(cluster, 150, 100)
    sizes = [each.stat().st_size for each in broker.segment_files(TOPIC, 0)]
    broker.alter_topic(TOPIC, {"retention.bytes": str(sum(sizes[1:]))})
    first = local.segments[0].log_path
    broker.wait_until(lambda: not first.exists(), "retention of the first segment")
    local = look_at(cluster)
    assert local.segments[0].base_offset == unit.next_base_offset
    assert is_roll_of(unit, local)
