"""Restored logs end where no transaction is open, and have their producers' snapshot there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from kafka_formats import producer_snapshot, transaction_index
from kafka_formats.batch_scan import scan
from kafka_formats.errors import Conflict
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import parse_partition_metadata
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.restore.log_directory import Place
from pipeline.restore.log_directory_plan import RestoredLog
from pipeline.restore.reports import LogDirsReport, LogPartition
from tests.pipeline.read.folder_tier import tier_log_dir
from tests.pipeline.restore.captured_tier import CapturedTier, tier_captured
from tests.pipeline.restore.one_log import restored_log
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import NewRecord, consume_all, log_bounds, produce
from tests.rlm.broker_files import ReplicaWriter, write_log_dir

ID = Uuid(b"a topic id of 16")
TRANSACTIONAL, CONTROL = 0x10, 0x20


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> CapturedTier:
    return asyncio.run(tier_captured(tmp_path_factory.mktemp("tier") / "bucket", "payments"))


def restored(
    tier: CapturedTier, partition: TopicIdPartition, place: Place, end: int
) -> RestoredLog:
    return restored_log(tier.segments(partition), tier.stores, place, 0, end)


def open_at_end(logs: Iterable[Path], end: int) -> set[int]:
    """Producers with a transaction open at the offset. All markers here are COMMIT or ABORT."""
    found: set[int] = set()
    for log in logs:
        for batch in scan(log.read_bytes(), source=log.name):
            header = batch.header
            if header.base_offset >= end:
                break
            if header.attributes & CONTROL:
                found.discard(header.producer_id)
            elif header.attributes & TRANSACTIONAL:
                found.add(header.producer_id)
    return found


def check_end(log: RestoredLog, directory: Path) -> None:
    logs = sorted(directory.glob("*.log"))
    assert not open_at_end(logs, log.end_offset)
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots[-1].name == f"{log.end_offset:020}.snapshot"
    assert not producer_snapshot.parse_open(snapshots[-1].read_bytes(), source="")
    for index in directory.glob("*.txnindex"):
        entries = transaction_index.parse(index.read_bytes(), source="")
        assert all(entry.last_offset < log.end_offset for entry in entries)


def test_transactions_open_at_the_tiers_end_are_left_out_and_named(
    tier: CapturedTier, tmp_path: Path
) -> None:
    ends = {}
    for partition in tier.partitions("payments"):
        place = Place(tmp_path, "payments", partition.partition, ID)
        log = restored(tier, partition, place, tier.bounds(partition).latest)
        check_end(log, place.directory)
        ends[partition.partition] = (log.end_offset, log.left_out_last)
        report = LogDirsReport(
            "payments", (LogPartition(str(place.directory), str(ID), 1, 0, log),), 1.0
        )
        told = f"the offsets {log.end_offset} to {log.left_out_last} are LEFT OUT"
        assert any(told in line for line in report.lines())
    assert (ends[0], ends[1]) == ((252, 266), (336, 340))


@pytest.mark.parametrize("end", [17, 20, 26, 27, 60, 68, 100, 143, 150, 200, 341])
def test_a_range_that_cuts_a_transaction_ends_before_it(
    tier: CapturedTier, tmp_path: Path, end: int
) -> None:
    partition = tier.partitions("payments")[1]
    place = Place(tmp_path, "payments", 1, ID)
    log = restored(tier, partition, place, end)
    check_end(log, place.directory)
    assert log.end_offset <= end


def test_a_range_within_one_transaction_is_refused(tier: CapturedTier, tmp_path: Path) -> None:
    partition = tier.partitions("payments")[1]
    place = Place(tmp_path, "payments", 1, ID)
    with pytest.raises(Conflict, match="transactions are open from the offset 16 to the end"):
        restored_log(tier.segments(partition), tier.stores, place, 18, 22)
    assert not place.directory.exists()


def written_at_random(replica: ReplicaWriter, seed: int) -> None:
    """Producers with and without transactions, one of which never ends its own; some segments."""
    rng = random.Random(seed)
    open_: set[int] = set()
    if rng.random() < 0.5:
        replica.append(1, producer_id=99, transactional=True)
    for _ in range(rng.randint(2, 6)):
        for _ in range(rng.randint(1, 12)):
            producer = rng.randint(1, 3)
            kind = rng.random()
            if producer in open_ and kind < 0.5:
                replica.end_transaction(producer, commit=rng.random() < 0.5)
                open_.discard(producer)
            elif kind < 0.75:
                replica.append(rng.randint(1, 3), producer_id=producer, transactional=True)
                open_.add(producer)
            else:
                replica.append(rng.randint(1, 2), producer_id=7 if kind < 0.9 else -1)
        replica.roll()


@pytest.mark.parametrize("seed", range(40))
def test_the_end_is_the_last_offset_at_which_nothing_in_the_log_is_open(
    tmp_path: Path, seed: int
) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    written_at_random(replica, seed)
    segments = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    there = segments.segments("orders")
    rng = random.Random(seed)
    start = rng.choice([each.start_offset for each in there])
    end = rng.randint(start + 1, there[-1].end_offset + 1)
    place = Place(tmp_path, "orders", 0, rng.choice([ID, replica.topic_id]))
    originals = [
        path for path in sorted(replica.directory.glob("*.log")) if int(path.stem) >= start
    ]
    bounds = [
        batch.header.last_offset + 1
        for path in originals
        for batch in scan(path.read_bytes(), source=path.name)
        if batch.header.base_offset < end
    ]
    quiet = [at for at in bounds if not open_at_end(originals, at)]
    if not quiet:
        with pytest.raises(Conflict, match="transactions are open"):
            restored_log(there, segments.stores, place, start, end)
        return
    log = restored_log(there, segments.stores, place, start, end)
    assert log.end_offset == quiet[-1]
    assert log.left_out_last == (None if quiet[-1] == bounds[-1] else bounds[-1] - 1)
    check_end(log, place.directory)


def test_what_is_open_since_before_the_log_is_in_no_snapshot(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    replica.append(1, producer_id=99, transactional=True)
    for _ in range(4):
        replica.append(3, producer_id=7)
        replica.roll()
    tier = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    place = Place(tmp_path, "orders", 0, ID)
    log = restored_log(tier.segments("orders"), tier.stores, place, 4, 13)
    assert (log.end_offset, log.left_out_last) == (13, None)
    snapshots = sorted(place.directory.glob("*.snapshot"))
    assert [path.stem for path in snapshots] == [f"{at:020}" for at in (7, 10, 13)]
    for path in snapshots:
        states = producer_snapshot.parse(path.read_bytes(), source="")
        assert {state.producer_id for state in states} == {7, 99}
        assert not producer_snapshot.open_transactions(states)


@pytest.mark.integration
@pytest.mark.parametrize("end", [26, 341])
def test_a_broker_goes_on_with_a_restored_log_and_readers_of_committed_records_with_it(
    tier: CapturedTier, tmp_path: Path, end: int
) -> None:
    partition = tier.partitions("payments")[1]
    with KafkaBroker(tmp_path / "broker") as broker:
        broker.create_topic("payments", partitions=1, config={"retention.ms": "-1"})
        broker.stop()
        metadata = broker.log_dir / "payments-0" / "partition.metadata"
        topic_id = parse_partition_metadata(metadata.read_bytes(), source="")
        log = restored(tier, partition, Place(broker.log_dir, "payments", 0, topic_id), end)
        broker.start()
        produce(broker.bootstrap, "payments", 0, [NewRecord(b"new-%d" % n) for n in range(5)])
        bounds = log_bounds(broker.bootstrap, "payments", 0, isolation="read_committed")
        assert bounds == (0, log.end_offset + 5)
        read = consume_all(broker.bootstrap, "payments", 0, isolation="read_committed")
    assert [each.offset for each in read][-5:] == [*range(log.end_offset, log.end_offset + 5)]
    aborted = {*range(16, 26)}
    assert not aborted & {each.offset for each in read if each.offset < log.end_offset}
