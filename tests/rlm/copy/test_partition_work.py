"""What is remembered of a partition from look to look."""

from __future__ import annotations

from pathlib import Path

from rlm.control.backoff import BackOff
from rlm.copy.partition_work import PartitionWork
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition, LocalSegment
from tests.rlm.planner_facts import NOW_MS, ONE_EPOCH, PARTITION

FAILED = BackOff(1, NOW_MS + 60_000)


def segment(base: int, next_base: int | None) -> LocalSegment:
    return LocalSegment(base, Path("log") / f"{base}.log", 100, next_base)


def replica(*bases: int) -> LocalPartition:
    nexts = (*bases[1:], None)
    segments = tuple(segment(*each) for each in zip(bases, nexts, strict=True))
    return LocalPartition(PARTITION, Path("log"), segments, ONE_EPOCH, b"", None, None, (), 0)


def held(base: int, next_base: int) -> Unit:
    return Unit(PARTITION, segment(base, next_base), ONE_EPOCH, base, True, 0)


def test_a_segment_that_failed_to_fill_a_lost_range_is_forgotten_once_it_is_gone() -> None:
    work = PartitionWork(PARTITION, fills_failed={(0, 9): FAILED, (10, 19): FAILED})
    work.seen(replica(10, 20))
    assert set(work.fills_failed) == {(10, 19)}
    work.seen(None)
    assert work.fills_failed == {}


def test_a_held_one_backs_off_over_looks_as_well() -> None:
    """Its copy was tried at each look."""
    work = PartitionWork(PARTITION, units=(held(0, 10),), fills_failed={(0, 9): FAILED})
    work.seen(replica(10, 20))
    assert set(work.fills_failed) == {(0, 9)}
    assert work.fills_not_now(NOW_MS) == {(0, 9)}
    work.units = ()
    work.seen(replica(10, 20))
    assert work.fills_failed == {}
