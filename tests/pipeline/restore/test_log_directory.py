"""Restored log directories: the broker's own bytes, whole or not at all, never over records."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import multiprocessing
import os
import shutil
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import pytest

from kafka_formats import leader_epoch_checkpoint, offset_checkpoint
from kafka_formats.batch_scan import scan
from kafka_formats.errors import Conflict, CorruptData, InvalidRequest, NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.restore.log_directory import (
    Place,
    check_empty,
    find_place,
    no_broker_in,
    prepare,
)
from pipeline.restore.log_directory_plan import RestoredLog, join, wanted_segments
from pipeline.restore.log_segment import SegmentFiles, WrittenSegment, restore_segment
from pipeline.restore.ranges import Wanted, find_ranges, holes
from pipeline.restore.restore_note import Begun
from rlm.data_plane.read_request import Isolation
from tests.pipeline.restore.captured_tier import CapturedTier, captured_partitions, tier_captured
from tests.pipeline.restore.one_log import restored_log
from tests.rlm.tier import STORE

NEW_ID = Uuid(b"a topic id of 16")
ANYTHING = Begun("orders", 0, 300, "")
TOPICS = ("codecs", "events", "orders", "payments", "profiles")


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> CapturedTier:
    """Everything that was captured. Copy the folder before you damage it."""
    return asyncio.run(tier_captured(tmp_path_factory.mktemp("tier") / "bucket", *TOPICS))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Of a broker that has never run."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def restore(
    tier: CapturedTier, partition: TopicIdPartition, place: Place, start: int, end: int
) -> RestoredLog:
    return restored_log(tier.segments(partition), tier.stores, place, start, end)


def whole(tier: CapturedTier, partition: TopicIdPartition) -> tuple[int, int]:
    bounds = tier.bounds(partition)
    return bounds.earliest, bounds.latest


@pytest.mark.parametrize("topic", TOPICS)
def test_a_log_comes_back_byte_for_byte_with_its_indexes_and_producers(
    tier: CapturedTier, log_dir: Path, topic: str
) -> None:
    for local in captured_partitions(topic):
        partition = local.partition
        place = Place(log_dir, topic, partition.partition, partition.topic_id)
        log = restore(tier, partition, place, *whole(tier, partition))
        # Those of payments end in a transaction: it and what follows is left out.
        ends = {"payments-0": 252, "payments-1": 336}
        end = ends.get(f"{topic}-{partition.partition}", whole(tier, partition)[1])
        sealed = [
            one
            for one in local.segments
            if one.next_base_offset is not None and one.base_offset < end
        ]
        files = {path.name: path.read_bytes() for path in place.directory.iterdir()}
        logs = {one.log_path.name: one.log_path.read_bytes() for one in sealed}
        last = sealed[-1].log_path.name
        logs[last] = b"".join(
            batch.data for batch in scan(logs[last], source=last) if batch.header.base_offset < end
        )
        assert {name: data for name, data in files.items() if name.endswith(".log")} == logs
        for segment in sealed if (sealed[-1].next_base_offset or 0) <= end else sealed[:-1]:
            for suffix in (".index", ".timeindex", ".txnindex"):
                path = segment.log_path.with_suffix(suffix)
                expected = path.read_bytes() if path.exists() else b""
                assert files.get(path.name, b"") == expected, path
        names = {name for name in files if name.endswith(".snapshot")}
        assert names == {f"{min(one.next_base_offset or 0, end):020}.snapshot" for one in sealed}
        assert log.end_offset == end
        lineage = leader_epoch_checkpoint.parse(files["leader-epoch-checkpoint"], source="")
        expected_lineage = leader_epoch_checkpoint.truncate_from_end(
            local.leader_epochs, log.end_offset
        )
        assert lineage[-1] == expected_lineage[-1]
        assert files["partition.metadata"].endswith(str(partition.topic_id).encode())


@pytest.mark.parametrize("characters", [233, 234, 249])
def test_a_topic_of_the_longest_names_is_restored_like_any_other(
    tier: CapturedTier, log_dir: Path, characters: int
) -> None:
    (partition, *_) = tier.partitions("orders")
    topic = "t" * characters
    place = Place(log_dir, topic, 99_999, NEW_ID)
    log = restore(tier, partition, place, *whole(tier, partition))
    assert [path.name for path in log_dir.iterdir() if path.is_dir()] == [f"{topic}-99999"]
    going_on = Begun(str(partition), *whole(tier, partition), "")
    assert find_place([log_dir], topic, 99_999, None, going_on) == place
    assert log.end_offset > 0


def test_records_below_the_log_start_stay_hidden(tier: CapturedTier, log_dir: Path) -> None:
    partition = TopicIdPartition("events", tier.partitions("events")[1].topic_id, 1)
    place = Place(log_dir, "events", 1, NEW_ID)
    start, end = whole(tier, partition)
    log = restore(tier, partition, place, start, end)
    assert log.base_offset < start == log.log_start_offset
    text = (log_dir / "log-start-offset-checkpoint").read_bytes()
    assert offset_checkpoint.parse(text, source="") == {("events", 1): start}


def test_another_topic_begins_in_leader_epoch_0_and_its_batches_pass_their_crc(
    tier: CapturedTier, log_dir: Path
) -> None:
    partition = tier.partitions("orders")[0]
    place = Place(log_dir, "again", 0, NEW_ID)
    log = restore(tier, partition, place, *whole(tier, partition))
    assert log.epochs == ((0, 0),)
    path = place.directory / "00000000000000000048.log"
    batches = list(scan(path.read_bytes(), source=path.name))
    assert {batch.header.partition_leader_epoch for batch in batches} == {0}
    original = captured_partitions("orders")[0].segments[1].log_path.read_bytes()
    assert [batch.header.crc for batch in batches] == [
        batch.header.crc for batch in scan(original, source="original")
    ]


def test_a_range_is_restored_with_its_offsets(tier: CapturedTier, log_dir: Path) -> None:
    partition = tier.partitions("orders")[0]
    place = Place(log_dir, "orders", 0, NEW_ID)
    log = restore(tier, partition, place, 100, 200)
    assert (log.base_offset, log.log_start_offset) == (96, 100)
    assert log.end_offset >= 200
    assert sorted(path.name for path in place.directory.glob("*.log")) == [
        "00000000000000000096.log",
        "00000000000000000144.log",
        "00000000000000000192.log",
    ]


def test_a_killed_restore_goes_on_behind_the_last_whole_segment(
    tier: CapturedTier, log_dir: Path
) -> None:
    partition = tier.partitions("orders")[0]
    place = Place(log_dir, "orders", 0, partition.topic_id)
    start, end = whole(tier, partition)
    prepare(place, f"{start} {end}")
    files = [
        SegmentFiles(
            one, tier.stores, (), str(place.staging), one.first_offset, one.last_offset, None
        )
        for one in tier.segments(partition)
    ]
    first = restore_segment(files[0])
    again = restore_segment(files[0])
    assert again == replace(first, resumed=True)
    damaged = place.staging / "00000000000000000000.log"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert not restore_segment(files[0]).resumed
    restore(tier, partition, place, start, end)
    assert not place.staging.exists()


def test_files_of_another_range_do_not_come_into_the_log(tier: CapturedTier, log_dir: Path) -> None:
    partition = tier.partitions("orders")[0]
    place = Place(log_dir, "orders", 0, partition.topic_id)
    prepare(place, "0 48")
    (place.staging / "00000000000000000000.log").write_bytes(b"of an earlier plan")
    restore(tier, partition, place, 144, 240)
    assert sorted(path.stem for path in place.directory.glob("*.log"))[0] == f"{144:020}"


def test_a_damaged_object_is_told_by_name_and_nothing_gets_the_partitions_name(
    tier: CapturedTier, tmp_path: Path, log_dir: Path
) -> None:
    shutil.copytree(next(iter(tier.stores.values())).path or "", tmp_path / "bucket")
    config = replace(tier.stores[STORE], path=tmp_path / "bucket")
    tier = replace(tier, stores={STORE: config})
    path = sorted((tmp_path / "bucket").rglob("orders-*/0/*.log"))[2]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    partition = tier.partitions("orders")[0]
    place = Place(log_dir, "orders", 0, partition.topic_id)
    with pytest.raises(CorruptData, match=rf"{path.name} .* of orders-0, offsets 96 to"):
        restore(tier, partition, place, *whole(tier, partition))
    assert not place.directory.exists()


@pytest.mark.parametrize("damage", ["zeros", "base offset"])
def test_damage_that_passes_every_crc_of_a_log_without_checksums_is_told(
    tier: CapturedTier, tmp_path: Path, log_dir: Path, damage: str
) -> None:
    """As another program's segments are: their batches' CRCs do not cover a first offset."""
    partition = tier.partitions("orders")[0]
    shutil.copytree(next(iter(tier.stores.values())).path or "", tmp_path / "bucket")
    config = replace(tier.stores[STORE], path=tmp_path / "bucket")
    segments = [replace(each, objects=None) for each in tier.segments(partition)]
    tier = replace(tier, stores={STORE: config}, found={partition: segments})
    for path in (tmp_path / "bucket").rglob("orders-*/0/*.rsm-manifest"):
        manifest = json.loads(path.read_bytes())
        del manifest["remoteLogSegmentMetadata"]["strandline"]
        path.write_text(json.dumps(manifest))
    path = sorted((tmp_path / "bucket").rglob("orders-*/0/*.log"))[2]
    data = bytearray(path.read_bytes())
    at = [batch.position for batch in scan(bytes(data), source="log")][1]
    if damage == "zeros":
        data[at:] = bytes(len(data) - at)
    else:
        data[at + 7] ^= 0x10  # up, and still within the segment
    path.write_bytes(data)
    place = Place(log_dir, "orders", 0, partition.topic_id)
    with pytest.raises(CorruptData, match=rf"{path.name} at byte (?!0:)\d+: "):
        restore(tier, partition, place, 0, 110)
    assert not place.directory.exists()


def test_a_directory_that_holds_a_log_is_never_written_to(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(b"")
    check_empty(directory, 0)
    (directory / "00000000000000000007.log").write_bytes(b"x")
    with pytest.raises(Conflict, match="holds a log"):
        find_place([tmp_path], "orders", 0, NEW_ID, ANYTHING)


def test_a_directory_that_cannot_be_listed_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be removed, to make room for the restored log."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / "00000000000000000007.log").write_bytes(b"x")

    def refuses(path: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "scandir", refuses)  # root may list any directory
    monkeypatch.setattr(os, "listdir", refuses)
    with pytest.raises(PermissionError):
        check_empty(directory, 10)


def test_a_log_never_ends_below_the_offsets_that_a_broker_has_given_out(
    tier: CapturedTier, log_dir: Path
) -> None:
    """A broker whose records all expired has one empty segment, named by the next offset."""
    (partition, *_) = tier.partitions("orders")
    start, end = whole(tier, partition)
    directory = log_dir / "orders-0"
    directory.mkdir()
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {partition.topic_id}")
    empty = directory / f"{end + 1:020}.log"
    empty.write_bytes(b"")
    going_on = Begun(str(partition), start, end, "")
    with pytest.raises(Conflict, match=rf"records up to {end + 1}, .* would end at {end}: "):
        find_place([log_dir], "orders", 0, None, going_on)
    place = Place(log_dir, "orders", 0, partition.topic_id)
    with pytest.raises(Conflict, match="new records would get the offsets of earlier ones"):
        restore(tier, partition, place, start, end)
    assert list(directory.glob("*.log")) == [empty], "it stays as it is"
    empty.rename(directory / f"{end:020}.log")
    assert find_place([log_dir], "orders", 0, None, going_on) == place
    assert restore(tier, partition, place, start, end).end_offset == end


def test_the_topic_id_is_the_brokers_own_or_has_to_be_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--topic-id"):
        find_place([tmp_path], "orders", 0, None, ANYTHING)
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {NEW_ID}")
    assert find_place([tmp_path], "orders", 0, None, ANYTHING).topic_id == NEW_ID
    with pytest.raises(Conflict, match="belongs to the topic id"):
        find_place([tmp_path], "orders", 0, Uuid(bytes(15) + b"\x01"), ANYTHING)


def hold_lock(path: Path, told: Connection) -> None:
    """As a broker does: a lock of another process."""
    with path.open("ab") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        told.send("locked")
        told.recv()


@pytest.mark.parametrize("used", [True, False], ids=["by a broker", "by none yet"])
def test_a_directory_with_a_running_broker_or_restore_is_refused(
    tmp_path: Path, used: bool
) -> None:
    if used:
        (tmp_path / "meta.properties").write_text("version=1\n")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold_lock, args=(tmp_path / ".lock", theirs))
    process.start()
    assert ours.recv() == "locked"
    with pytest.raises(Conflict, match="stop it first"), no_broker_in([tmp_path]):
        pass
    ours.send("end")
    process.join()
    with no_broker_in([tmp_path]):
        pass


def test_a_hole_in_the_range_is_told_before_anything_is_written(
    tier: CapturedTier, log_dir: Path
) -> None:
    segments = list(tier.segments(tier.partitions("orders")[0]))
    del segments[3]
    with pytest.raises(NotFound, match="offset 144 is in no tiered segment"):
        wanted_segments(segments, 0, 300)


def test_offsets_in_no_segment_are_passed_over_only_where_that_is_asked_for(
    tier: CapturedTier,
) -> None:
    partition = tier.partitions("orders")[0]
    segments = list(tier.segments(partition))
    del segments[3]
    holed = replace(tier, found={partition: segments})
    wanted = Wanted("orders", (0,))
    isolation = Isolation.READ_COMMITTED
    with pytest.raises(Conflict, match="offsets 144 to 191 are in no tiered segment"):
        find_ranges(holed, {}, wanted, isolation, ("offset",))
    ranges = find_ranges(holed, {}, replace(wanted, skip_lost=True), isolation, ("offset",))
    assert holes(ranges.slices[partition]) == ((144, 191),)
    assert ranges.settings.fail_on_data_loss


def test_segments_that_overlap_are_no_log() -> None:
    one = WrittenSegment("a", 0, 99, 0, 0, 99, 10, "")
    other = WrittenSegment("b", 100, 199, 0, 95, 199, 10, "")
    with pytest.raises(CorruptData, match="inside a"):
        join([one, other], 0, 0, source="orders-0")
