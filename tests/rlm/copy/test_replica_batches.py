"""Batches of other replicas for a hole that begins inside one: a log start may lie there."""

from __future__ import annotations

from pathlib import Path

from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.record_batch import Record, encode_batch
from rlm.copy.replica_batches import take_batches
from rlm.local_log.damage import Damage, Run, Survey, next_fill, next_stretch
from rlmm.partition_state import LostOffsets

LINEAGE = (EpochEntry(1, 13),)
FETCHED = Path("fetched")


def batch(first: int, last: int, epoch: int = 1) -> bytes:
    records = [Record(each, 0, None, b"%d" % each, ()) for each in range(first, last + 1)]
    return encode_batch(records, base_offset=first, partition_leader_epoch=epoch)


def test_a_batch_that_the_log_start_lies_in_is_taken_whole() -> None:
    data = batch(10, 14) + batch(15, 19)
    taken = take_batches(data, 13, 19, LINEAGE, "broker 2", free_from=0)
    assert (taken.data, taken.stretches, taken.next_offset) == (data, ((10, 19, len(data)),), 20)
    assert (taken.lacking, taken.wrong) == ((), "")


def test_it_is_refused_over_what_this_replica_has_or_where_what_is_below_is_wanted() -> None:
    for free_from in (None, 11):
        taken = take_batches(batch(10, 14), 13, 19, LINEAGE, "broker 2", free_from=free_from)
        assert taken.wrong == "a batch 10 to 14 does not fit the hole"
        assert taken.stretches == ()
    other = take_batches(batch(10, 14, epoch=2), 13, 19, LINEAGE, "broker 2", free_from=0)
    assert "has leader epoch 2, the lineage 1" in other.wrong


def test_only_the_first_may_begin_below() -> None:
    taken = take_batches(batch(10, 14) + batch(13, 19), 13, 19, LINEAGE, "broker 2", free_from=0)
    assert taken.stretches[0][:2] == (10, 14)
    assert taken.wrong == "a batch 13 to 19 does not fit the hole"


def test_nothing_is_taken_where_two_batches_want_the_same_offset() -> None:
    """A bit of a base offset turned over on that replica's disk: no CRC has it."""
    data = batch(13, 14) + batch(16, 16) + batch(16, 16) + batch(17, 19)
    taken = take_batches(data, 13, 19, LINEAGE, "broker 2")
    assert (taken.stretches, taken.lacking, taken.next_offset) == ((), (), 13)
    assert taken.wrong == "a batch at 16 stands behind the offset 16"


def test_a_stretch_begins_with_the_batch_that_the_log_start_lies_in() -> None:
    run = Run(10, 19, FETCHED, 0, 200)
    damage = Damage(13, 20, 0, Survey((), ((13, 19),), (), -1), fetched=(run,), head=True)
    stretch = next_stretch(damage, 13, ())
    assert stretch is not None
    assert (stretch.first, stretch.last, stretch.runs) == (10, 19, (run,))  # type: ignore[union-attr]


def test_what_is_good_of_a_damaged_segment_fills_lost_ranges_one_stretch_after_the_other() -> None:
    runs = (Run(10, 14, FETCHED, 0, 200), Run(17, 19, FETCHED, 200, 120))
    damage = Damage(10, 20, 320, Survey(runs, ((15, 16),), (), -1))

    def fill(lost: tuple[int, int], next_offset: int = 30, known: int = 0) -> object:
        found = next_fill(damage, next_offset, (LostOffsets(*lost, "why"),), known)
        return None if found is None else (found.first, found.last, found.runs)

    assert fill((5, 25)) == (10, 14, runs[:1])
    assert fill((15, 25)) == (17, 19, runs[1:])
    assert fill((15, 16)) is None
    assert fill((20, 25)) is None
    assert fill((17, 19), next_offset=15) is None  # it would leave a gap
    assert fill((5, 14), known=15) is None  # DeleteRecords took it
