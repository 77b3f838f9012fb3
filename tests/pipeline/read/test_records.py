"""Slices of segments read in a task: what a consumer read, and nothing that fails a check."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.batch_scan import scan
from kafka_formats.errors import Conflict, CorruptData, InvalidRequest, NotFound, RetryLater
from kafka_formats.record_batch import Record
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.read.open_stores import OpenStores
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import LATER_MAX, ReadSettings, SegmentSlice, cut, plan_slices
from pipeline.read.transactions import stable_end
from rlm.data_plane.read_request import Isolation
from tests.capture.captured import LOG_DIR, expected_offsets, expected_records
from tests.pipeline.read.folder_tier import FolderTier, tier_log_dir
from tests.rlm.broker_files import ReplicaWriter, write_log_dir

COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
TOPICS = ("codecs", "events", "orders", "payments", "profiles")
OFFSETS = ReadSettings(columns=("offset",))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> FolderTier:
    return tier_log_dir(LOG_DIR, tmp_path_factory.mktemp("captured") / "tier", *TOPICS)


@pytest.fixture
def tier(captured: FolderTier, tmp_path: Path) -> FolderTier:
    """One that a test may damage."""
    return captured.copied_to(tmp_path / "tier")


def rows(
    tier: FolderTier, slices: list[SegmentSlice], settings: ReadSettings, **options: Any
) -> list[dict[str, Any]]:
    batches = read_slices(slices, tier.stores, settings, **options)
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(tier: FolderTier, slices: list[SegmentSlice], **settings: Any) -> list[int]:
    return [row["offset"] for row in rows(tier, slices, replace(OFFSETS, **settings))]


def named(segment: TieredSegment) -> str:
    """What an error says to people who know topics and offsets, but no objects."""
    partition = segment.partition
    return (
        f"segment {segment.segment_id.id} of {partition.topic}-{partition.partition}, "
        f"offsets {segment.start_offset} to {segment.end_offset}"
    )


def stable(tier: FolderTier, segments: list[TieredSegment]) -> int:
    with OpenStores(tier.stores) as stores:
        return stable_end(segments, stores)


def turn(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_records_are_those_a_consumer_read(tier: FolderTier, isolation: Isolation) -> None:
    settings = ReadSettings(
        columns=("offset", "key", "value", "timestamp", "headers"), isolation=isolation
    )
    partitions = 0
    for partition, segments in tier.found.items():
        end = segments[-1].last_offset + 1
        if isolation is COMMITTED:
            end = stable(tier, segments)
        slices = plan_slices(segments, 0, end - 1, isolation)
        found = [
            Record(
                row["offset"],
                round(row["timestamp"].timestamp() * 1000),
                row["key"],
                row["value"],
                tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            )
            for row in rows(tier, slices, settings)
        ]
        name = f"{partition.topic}-{partition.partition}"
        start = expected_offsets()[name].log_start_offset
        assert found == [
            read.record
            for read in expected_records(name)
            if start <= read.record.offset < end and (read.committed or isolation is UNCOMMITTED)
        ]
        partitions += bool(found)
    assert partitions == 9


def emptied_tier(tmp_path: Path) -> FolderTier:
    """A segment that compaction left without a byte, and one with the offsets 10 to 13."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.skip(10)
    replica.roll()
    replica.append(4)
    replica.roll()
    return tier_log_dir(tmp_path, tmp_path / "tier")


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_segment_without_a_byte_is_passed_over(tmp_path: Path, isolation: Isolation) -> None:
    tier = emptied_tier(tmp_path)
    segments = tier.segments("orders")
    assert segments[0].log_bytes == 0
    assert stable(tier, segments) == 14
    slices = plan_slices(segments, 0, 13, isolation)
    assert offsets(tier, slices, isolation=isolation) == [10, 11, 12, 13]


@pytest.mark.parametrize("topic", ["payments", "profiles"])
def test_any_range_gives_its_own_records(tier: FolderTier, topic: str) -> None:
    segments = tier.segments(topic)
    end = stable(tier, segments)
    whole = offsets(tier, plan_slices(segments, 0, end - 1, COMMITTED))
    assert len(whole) > 100
    chance = random.Random(3)
    for _ in range(40):
        first, last = sorted(chance.randrange(end) for _ in range(2))
        planned = plan_slices(segments, first, last, COMMITTED)
        middle = (first + last) // 2
        halves = [cut(part, first, middle) for part in planned]
        halves += [cut(part, middle + 1, last) for part in planned]
        wanted = [offset for offset in whole if first <= offset <= last]
        assert offsets(tier, planned) == wanted
        assert offsets(tier, halves) == wanted


def test_an_open_transaction_ends_what_is_stable(tier: FolderTier) -> None:
    """The captured one never ended: it stands behind the last copied segment, or in it."""
    segments = tier.segments("payments", 1)
    decided = expected_offsets()["payments-1"].last_stable_offset
    assert stable(tier, segments) == min(decided, segments[-1].end_offset + 1)
    assert stable(tier, []) == 0
    cut_off = replace(segments[-1], last_offset=segments[-1].end_offset - 1)
    with pytest.raises(Conflict, match="lineage"):
        stable(tier, [cut_off])


def test_a_byte_that_was_turned_never_becomes_a_row(tier: FolderTier) -> None:
    segment = tier.segments("orders")[1]
    part = plan_slices([segment], 0, segment.last_offset, UNCOMMITTED)
    path = tier.file(segment)
    turn(path, 3_000)
    with pytest.raises(CorruptData, match="fail their CRC32C") as raised:
        offsets(tier, part, isolation=UNCOMMITTED)
    assert (raised.value.source, raised.value.position) == (segment.keys("tier/").log, 0)
    assert named(segment) in str(raised.value)
    with pytest.raises(CorruptData, match="fails its CRC") as raised:
        offsets(tier, part, isolation=UNCOMMITTED, verify=False)
    assert 0 < raised.value.position <= 3_000
    assert named(segment) in str(raised.value)


def test_an_object_that_was_cut_is_told_by_where_it_ends(tier: FolderTier) -> None:
    segment = tier.segments("orders")[1]
    part = plan_slices([segment], 0, segment.last_offset, UNCOMMITTED)
    path = tier.file(segment)
    path.write_bytes(path.read_bytes()[:4_000])
    with pytest.raises(CorruptData) as raised:
        offsets(tier, part, isolation=UNCOMMITTED, verify=False)
    assert "ends" in raised.value.detail


@pytest.mark.parametrize("batches_left", [0, 1, -1])
def test_zeros_in_the_place_of_batches_are_no_end_of_a_log(
    tier: FolderTier, batches_left: int
) -> None:
    """They pass every CRC: nothing else proves a log that another program tiered."""
    segment = tier.segments("orders")[1]
    path = tier.file(segment)
    log = path.read_bytes()
    places = [batch.position for batch in scan(log, source="log")]
    at = places[batches_left]
    path.write_bytes(log[:at] + bytes(len(log) - at))
    for last in (segment.last_offset - 1, segment.last_offset):
        part = plan_slices([segment], segment.first_offset, last, UNCOMMITTED)
        with pytest.raises(CorruptData, match="zeros follow the last batch") as raised:
            offsets(tier, part, isolation=UNCOMMITTED, verify=False)
        assert (raised.value.source, raised.value.position) == (segment.keys("tier/").log, at)


def test_a_batch_whose_base_offset_was_turned_hides_no_records(tier: FolderTier) -> None:
    """No CRC covers it. A slice ends at the first batch above it."""
    segment = tier.segments("orders")[1]
    first, last = segment.first_offset, segment.last_offset
    path = tier.file(segment)
    log = path.read_bytes()
    places = [batch.position for batch in scan(log, source="log")]
    assert len(places) > 3
    for at in places:
        for bit in range(63):
            base_offset = int.from_bytes(log[at : at + 8], "big") ^ 1 << bit
            path.write_bytes(log[:at] + base_offset.to_bytes(8, "big") + log[at + 8 :])
            for end in (last, (first + last) // 2):
                part = plan_slices([segment], first, end, UNCOMMITTED)
                with pytest.raises(CorruptData):
                    offsets(tier, part, isolation=UNCOMMITTED, verify=False)


@pytest.mark.parametrize("damaged", ["rsm-manifest", "indexes"])
def test_a_manifest_or_index_that_was_turned_is_refused(tier: FolderTier, damaged: str) -> None:
    segments = tier.segments("payments")
    segment = next(s for s in segments if not s.txn_index_empty)
    path = tier.file(segment, damaged)
    turn(path, path.stat().st_size - 1)
    with pytest.raises(CorruptData) as raised:
        offsets(tier, plan_slices(segments, segment.first_offset, segment.last_offset, COMMITTED))
    assert raised.value.source.endswith(damaged)
    assert named(segment) in str(raised.value)


def test_a_damaged_index_behind_the_slice_is_told_by_the_segment_that_has_it(
    tmp_path: Path,
) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    replica.append(2, producer_id=1, transactional=True)
    replica.roll()
    replica.end_transaction(1, commit=False)
    replica.roll()
    tier = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    first, behind = tier.segments("orders")
    path = tier.file(behind, "indexes")
    turn(path, path.stat().st_size - 1)
    with pytest.raises(CorruptData) as raised:
        offsets(tier, plan_slices([first, behind], 0, 1, COMMITTED))
    assert str(raised.value).count("segment ") == 1
    assert named(behind) in str(raised.value)


def test_another_segments_manifest_is_refused(tier: FolderTier) -> None:
    first, second = tier.segments("orders")[:2]
    tier.file(first, "rsm-manifest").write_bytes(tier.file(second, "rsm-manifest").read_bytes())
    unknown = replace(first, objects=None)
    with pytest.raises(CorruptData, match="the manifest has the id"):
        offsets(tier, plan_slices([unknown], 0, first.last_offset, UNCOMMITTED))


def test_a_deleted_segment_is_not_found_by_name(tier: FolderTier) -> None:
    segments = tier.segments("orders")
    slices = plan_slices(segments, 5, segments[-1].last_offset, UNCOMMITTED)
    whole = offsets(tier, slices)
    gone = segments[2]
    tier.file(gone).unlink()
    with pytest.raises(NotFound, match=rf"orders-0, offsets {gone.start_offset} to") as raised:
        offsets(tier, slices)
    assert str(gone.segment_id.id) in str(raised.value)
    lost: list[tuple[SegmentSlice, int]] = []
    settings = replace(OFFSETS, fail_on_data_loss=False, isolation=UNCOMMITTED)
    found = rows(tier, slices, settings, on_lost=lambda part, at: lost.append((part, at)))
    assert [row["offset"] for row in found] == [
        offset for offset in whole if not gone.start_offset <= offset <= gone.end_offset
    ]
    assert lost == [(slices[2], gone.start_offset)]


def test_a_store_that_no_option_names_is_asked_for(tier: FolderTier) -> None:
    segment = replace(tier.segments("orders")[0], store="cold")
    with pytest.raises(InvalidRequest, match=r"strandline\.store\.cold"):
        offsets(tier, plan_slices([segment], 0, 9, UNCOMMITTED))


def history(replica: ReplicaWriter, chance: random.Random) -> list[int]:
    """Transactions of three producers, plain records between; the committed offsets."""
    committed: list[int] = []
    open_: dict[int, list[int]] = {}
    for _ in range(120):
        step = chance.random()
        first = replica.next_offset
        if step < 0.2:
            replica.append(2)
            committed += [first, first + 1]
        elif step < 0.6:
            producer = chance.randrange(1, 4)
            replica.append(2, producer_id=producer, transactional=True)
            open_.setdefault(producer, []).extend((first, first + 1))
        elif step < 0.85 and open_:
            producer = chance.choice(sorted(open_))
            commit = chance.random() < 0.5
            replica.end_transaction(producer, commit=commit)
            taken = open_.pop(producer)
            committed += taken if commit else []
        elif replica.batches and step >= 0.85:
            replica.roll()
    replica.roll()
    return sorted(committed)


@pytest.mark.parametrize("seed", range(8))
def test_aborted_records_are_left_out_wherever_their_marker_is(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    committed = history(replica, chance)
    tier = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    segments = tier.segments("orders")
    end = stable(tier, segments)
    assert 0 < end <= replica.next_offset
    for _ in range(12):
        first, last = sorted(chance.randrange(end) for _ in range(2))
        found = offsets(tier, plan_slices(segments, first, last, COMMITTED))
        assert found == [offset for offset in committed if first <= offset <= last]


def test_without_an_end_of_the_search_nothing_is_guessed(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    replica.append(2, producer_id=9, transactional=True)  # open to the end: no search is complete
    for _ in range(LATER_MAX + 2):
        replica.append(1, producer_id=1, transactional=True)
        replica.end_transaction(1, commit=False)
        replica.roll()
    tier = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    segments = tier.segments("orders")
    assert stable(tier, segments) == 0
    with pytest.raises(Conflict, match="read_uncommitted") as raised:
        offsets(tier, plan_slices(segments, 0, 1, COMMITTED))
    assert raised.value.reason == "TRANSACTIONS_UNKNOWN"


def test_only_segments_with_aborts_are_looked_into(tier: FolderTier) -> None:
    segments = [
        replace(
            tier.segments("orders")[0],
            start_offset=10 * n,
            end_offset=10 * n + 9,
            first_offset=10 * n,
            last_offset=10 * n + 9,
            txn_index_empty=n % 2 == 0,
        )
        for n in range(300)
    ]
    slices = plan_slices(segments, 15, 34, COMMITTED)
    assert [(s.first_offset, s.last_offset) for s in slices] == [(15, 19), (20, 29), (30, 34)]
    assert [s.later[0].start_offset for s in slices] == [30, 30, 50]
    assert {len(s.later) for s in slices} == {LATER_MAX}
    assert plan_slices(segments, 15, 34, UNCOMMITTED)[0].later == ()
    assert plan_slices(segments, 2_995, 9_999, COMMITTED)[0].later == ()


def test_an_abort_among_lost_offsets_leaves_its_records_out_counted(tmp_path: Path) -> None:
    """As a node does it: `tests/rlm/data_plane/test_read_committed.py` has the other cases."""
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    replica.append(2, producer_id=1, transactional=True)  # 0, 1: aborted at 3, which is lost
    replica.append(1, producer_id=2, transactional=True)  # 2: committed at 6
    replica.roll()
    replica.end_transaction(1, commit=False)  # 3
    replica.roll()
    replica.append(2)  # 4, 5
    replica.roll()
    replica.end_transaction(2, commit=True)  # 6
    replica.append(1)  # 7
    replica.roll()
    tier = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    before, _, behind, last = tier.segments("orders")
    counted: list[int] = []
    slices = plan_slices([before, behind, last], 0, 7, COMMITTED)
    assert [s.later for s in slices] == [(behind,), (), ()]
    found = rows(tier, slices, OFFSETS, on_undecided=counted.append)
    assert [row["offset"] for row in found] == [2, 4, 5, 7]
    assert counted == [2]
    every = plan_slices([before, behind, last], 0, 7, UNCOMMITTED)
    assert offsets(tier, every, isolation=UNCOMMITTED) == [0, 1, 2, 4, 5, 7]


def test_the_two_at_the_ends_of_a_hole_tell_of_transactions(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(7):
        replica.append(1)
        replica.roll()
    segments = tier_log_dir(tmp_path / "logs", tmp_path / "tier").segments("orders")
    there = [segment for segment in segments if segment.start_offset != 4]
    slices = plan_slices(there, 0, 6, COMMITTED)
    later = [[segment.start_offset for segment in each.later] for each in slices]
    assert later == [[3, 5], [3, 5], [3, 5], [5], [], []]
    assert [each.behind_holes for each in slices] == [(5,)] * 4 + [()] * 2


def aborted_in_the_next_segment(tmp_path: Path) -> FolderTier:
    """Two segments: a transaction at 0 and 1, and two records without one; the marker."""
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    replica.append(2, producer_id=1, transactional=True)
    replica.append(2)
    replica.roll()
    replica.end_transaction(1, commit=False)
    replica.roll()
    return tier_log_dir(tmp_path / "logs", tmp_path / "tier")


def test_a_later_segment_that_was_deleted_leaves_only_its_transactions_undecided(
    tmp_path: Path,
) -> None:
    tier = aborted_in_the_next_segment(tmp_path)
    first, second = tier.segments("orders")
    slices = plan_slices([first, second], 0, 3, COMMITTED)
    for suffix in ("rsm-manifest", "indexes"):  # as a repair does that copies it anew
        tier.file(second, suffix).unlink()
    counted: list[int] = []
    lost: list[int] = []
    lenient = replace(OFFSETS, fail_on_data_loss=False)
    found = read_slices(
        slices,
        tier.stores,
        lenient,
        on_lost=lambda _, offset: lost.append(offset),
        on_undecided=counted.append,
    )
    assert [row["offset"] for batch in found for row in batch.to_pylist()] == [2, 3]
    assert (counted, lost) == ([2], [])
    with pytest.raises(NotFound, match=f"^segment {second.segment_id.id} of orders-0"):
        list(read_slices(slices, tier.stores, OFFSETS))


def test_a_tier_whose_disk_is_not_mounted_is_never_taken_for_a_deleted_one(
    tier: FolderTier,
) -> None:
    """As on one executor of many: its rows would be missing, and a stream would go on without."""
    segments = tier.segments("codecs")
    slices = plan_slices(segments, 0, segments[-1].last_offset, COMMITTED)
    for each in tier.folder.iterdir():
        shutil.rmtree(each)
    lost: list[int] = []
    with pytest.raises(RetryLater, match="is empty: mount its disk"):
        rows(
            tier,
            slices,
            replace(OFFSETS, fail_on_data_loss=False),
            on_lost=lambda _, offset: lost.append(offset),
        )
    assert lost == []


def test_the_store_of_a_later_segment_that_is_not_mounted_decides_no_transaction(
    tmp_path: Path,
) -> None:
    """As on an executor without the folder: a stream would go on without these records."""
    tier = aborted_in_the_next_segment(tmp_path)
    first, second = tier.segments("orders")
    (old,) = tier.stores.values()
    stores = {**tier.stores, "new": replace(old, name="new", path=tmp_path / "unmounted")}
    slices = plan_slices([first, replace(second, store="new")], 0, 3, COMMITTED)
    with pytest.raises(RetryLater, match="unmounted' does not exist: create it, or mount its disk"):
        list(read_slices(slices, stores, replace(OFFSETS, fail_on_data_loss=False)))
