"""The offsets of both sides of a restore: all of them, or it is said which are not there."""

from __future__ import annotations

import json
import random
from pathlib import Path
from unittest import mock

import pytest

from pipeline.jobs.restore import write_mapping
from pipeline.read.segment_slice import ReadSettings
from pipeline.restore import produce
from pipeline.restore.kafka_target import KafkaAddress, KafkaRecord
from pipeline.restore.offset_runs import OffsetRuns, unpacked
from pipeline.restore.produce import Compared, PartitionRestore, compare_partition
from pipeline.restore.reports import ProducedPartition, ProduceReport
from pipeline.restore.restore_note import Begun
from tests.pipeline.source.tiered import partition

PAIRS = ((0, 0), (5, 1), (6, 2), (9, 3), (10, 4), (20, 5), (30, 30))
"""Offsets of a record in the source and in the target: five runs."""


def compared(monkeypatch: pytest.MonkeyPatch, runs_max: int, bytes_max: int = 1 << 20) -> Compared:
    ours, theirs = (
        [KafkaRecord(pair[side], 1, None, b"v", ()) for pair in PAIRS] for side in (0, 1)
    )
    monkeypatch.setattr(produce, "RUNS_MAX", runs_max)
    monkeypatch.setattr(produce, "_source_records", mock.Mock(return_value=ours))
    monkeypatch.setattr(produce, "read_partition", mock.Mock(return_value=theirs))
    address = KafkaAddress({"bootstrap.servers": "nowhere:1"})
    begun, settings = Begun("orders", 0, 31, ""), ReadSettings()
    work = PartitionRestore(
        partition(), begun, (), {}, settings, address, {}, "orders", "owner", None, bytes_max
    )
    return compare_partition(work)


def report(found: Compared, mapping_file: str | None) -> ProduceReport:
    row = ProducedPartition(
        partition=0, source_start=0, source_end=31, records=7, bytes=7, resumed_from=None,
        same_records=found.records, compared_from=None, offsets_kept=found.offsets_kept,
        unmapped_from=found.unmapped_from, difference=found.difference,
    )  # fmt: skip
    return ProduceReport("orders", "orders-again", (row,), mapping_file, 1.0)


def test_a_mapping_that_is_cut_says_from_which_offset_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = compared(monkeypatch, 3)
    assert (found.records, found.unmapped_from, found.difference) == (len(PAIRS), 20, None)
    write_mapping(tmp_path / "mapping.csv", [found])
    lines = (tmp_path / "mapping.csv").read_text().splitlines()
    assert lines[1:] == ["0,0,0,1", "0,5,1,2", "0,9,3,2", "0,20,,"]
    told = report(found, "mapping.csv")
    assert "orders-0: the mapping is CUT before the offset 20 " in "\n".join(told.lines())
    assert "CUT" not in "\n".join(report(found, None).lines())
    assert '"unmapped_from": 20' in json.dumps(told.as_json())


def test_a_mapping_with_room_for_all_has_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = compared(monkeypatch, 5)
    assert found.unmapped_from is None
    assert sum(records for _, _, records in found.mapping()) == len(PAIRS)
    write_mapping(tmp_path / "mapping.csv", [found])
    assert not (tmp_path / "mapping.csv").read_text().endswith(",,\n")
    assert "CUT" not in "\n".join(report(found, "mapping.csv").lines())


def test_offsets_are_not_told_as_kept_where_only_the_mapped_ones_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = compared(monkeypatch, 1)
    assert [source == target for source, target, _ in found.mapping()] == [True]
    assert not found.offsets_kept


def test_offsets_nobody_asks_for_are_not_sent_to_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = compared(monkeypatch, 5, 0)
    assert (found.runs, [*found.mapping()], found.unmapped_from) == (b"", [], None)
    assert (found.records, found.offsets_kept) == (len(PAIRS), False)


@pytest.mark.parametrize("seed", range(5))
def test_runs_come_back_as_they_were_packed(seed: int) -> None:
    rng = random.Random(seed)
    wanted, source, target = [], rng.randint(0, 2**40), 0
    runs = OffsetRuns(100_000, 1 << 30)
    for _ in range(rng.choice([0, 1, 1023, 1024, 1025, 5000])):
        source, target = source + rng.randint(1, 2**20), target + rng.randint(0, 9)
        count = rng.randint(1, 5)
        wanted.append((source, target, count))
        assert all(runs.add(source + each, target + each) for each in range(count))
        source, target = source + count, target + count
    packed = runs.packed()
    assert [*unpacked(packed)] == wanted


def test_what_a_comparison_returns_stays_within_its_bytes() -> None:
    rng = random.Random(1)
    runs, taken, at = OffsetRuns(4_000_000, 1 << 20), 0, 0
    while runs.add(at, rng.randint(0, 2**62)):
        taken, at = taken + 1, at + rng.randint(2, 2**30)
    assert not runs.add(at + 1, 0)
    packed = runs.packed()
    assert len(packed) < (1 << 20) + 200_000
    assert sum(1 for _ in unpacked(packed)) == taken
    usual = OffsetRuns(4_000_000, 1 << 20)
    assert all(usual.add(at * 12 + at // 7, at * 12) for at in range(200_000))
    assert len(usual.packed()) < 200_000 * 3
