"""Batches of other replicas for a hole that begins inside one: a log start may lie there."""

from __future__ import annotations

from pathlib import Path

from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.record_batch import Record, encode_batch
from rlm.copy.replica_batches import HoleWalk, Taken
from rlm.local_log.damage import Damage, Run, Survey, next_fill, next_stretch
from rlmm.partition_state import LostOffsets

LINEAGE = (EpochEntry(1, 13),)
FETCHED = Path("fetched")


def batch(first: int, last: int, epoch: int = 1) -> bytes:
    records = [Record(each, 0, None, b"%d" % each, ()) for each in range(first, last + 1)]
    return encode_batch(records, base_offset=first, partition_leader_epoch=epoch)


def walked(
    data: bytes, *, first: int = 13, last: int = 19, free_from: int | None = None
) -> tuple[HoleWalk, Taken]:
    walk = HoleWalk(first, last, LINEAGE, "broker 2", free_from)
    return walk, walk.take(data)


def test_a_batch_that_the_log_start_lies_in_is_taken_whole() -> None:
    data = batch(10, 14) + batch(15, 19)
    walk, taken = walked(data, free_from=0)
    assert (bytes(taken.data), taken.stretches) == (data, [(10, 19, len(data))])
    assert (walk.done, walk.lacking, walk.wrong) == (True, [], "")


def test_it_is_refused_over_what_this_replica_has_or_where_what_is_below_is_wanted() -> None:
    for free_from in (None, 11):
        walk, taken = walked(batch(10, 14) + batch(15, 19), free_from=free_from)
        assert walk.wrong == "broker 2: a batch 10 to 14 does not fit the hole"
        assert (taken.stretches, walk.lacking) == ([(15, 19, len(taken.data))], [])
    walk, _ = walked(batch(10, 14, epoch=2) + batch(15, 19), free_from=0)
    assert "has leader epoch 2, the lineage 1" in walk.wrong


def test_only_the_first_may_begin_below() -> None:
    walk, taken = walked(batch(10, 14) + batch(13, 19) + batch(20, 20), free_from=0)
    assert [each[:2] for each in taken.stretches] == [(13, 19)]
    assert (walk.doubtful, walk.wrong) == ([(10, 14)], "")


def test_of_two_batches_that_want_the_same_offset_the_one_that_others_join_is_taken() -> None:
    """A bit of a base offset turned over on that replica's disk: no CRC has it."""
    walk, taken = walked(batch(13, 14) + batch(16, 16) + batch(16, 16) + batch(17, 19))
    assert [each[:2] for each in taken.stretches] == [(16, 19)]
    assert (walk.lacking, walk.doubtful) == ([], [(13, 14), (16, 16)])
    walk, taken = walked(batch(12, 12) + batch(13, 14) + batch(16, 16) + batch(16, 19))
    assert [each[:2] for each in taken.stretches] == [(13, 14)]


def test_an_answer_begins_with_the_batch_that_the_last_one_ended_with() -> None:
    batches = [batch(each, each) for each in range(12, 20)]
    walk, taken = walked(b"".join(batches[:3])[:-1])
    assert (walk.question, [each[:2] for each in taken.stretches]) == (13, [(13, 13)])
    taken = walk.take(b"".join(batches[1:]))
    assert (walk.done, [each[:2] for each in taken.stretches]) == (True, [(14, 19)])
    walk, _ = walked(b"".join(batches[:3])[:-1])
    walk.take(batch(13, 13, epoch=2) + batches[2])
    assert (walk.done, walk.wrong) == (True, "broker 2 has two batches that claim offset 13")


def test_a_batch_behind_a_gap_is_looked_behind_before_it_is_taken() -> None:
    batches = [batch(17, 17), batch(19, 19), batch(19, 19), batch(20, 20)]
    walk, taken = walked(b"".join(batches[:2]) + b"\0", first=18)
    assert (taken.stretches, walk.done, walk.question) == ([], False, 19)
    taken = walk.take(b"".join(batches[1:]))
    assert ([each[:2] for each in taken.stretches], walk.lacking) == ([(19, 19)], [])
    assert taken.data == batches[2]


def test_where_a_file_ends_the_next_one_is_asked_for() -> None:
    walk, _ = walked(batch(12, 12))
    assert walk.question == 12
    walk.take(batch(12, 12))
    assert walk.question == 13
    taken = walk.take(batch(16, 16) + batch(17, 20) + batch(21, 21))
    assert [each[:2] for each in taken.stretches] == [(16, 16)]
    assert (walk.lacking, walk.wrong) == (
        [(13, 15)],
        "broker 2: a batch 17 to 20 does not fit the hole",
    )


def test_a_gap_with_something_damaged_in_it_is_not_lacking() -> None:
    bad = bytearray(batch(14, 15))
    bad[65] ^= 1
    walk, taken = walked(batch(13, 13) + bytes(bad) + batch(16, 19) + batch(20, 20))
    assert [each[:2] for each in taken.stretches] == [(13, 13), (16, 19)]
    assert walk.lacking == []
    assert "fails its CRC" in walk.wrong


def test_a_log_that_does_not_reach_says_from_where_to_where_it_goes() -> None:
    walk = HoleWalk(10, 19, LINEAGE, "broker 2")
    assert walk.question == 9
    walk.out_of_range(12, 17)
    assert (walk.question, walk.done, walk.lacking) == (12, False, [(10, 11)])
    walk.take(batch(12, 16, epoch=0))
    walk = HoleWalk(13, 19, LINEAGE, "broker 2")
    walk.out_of_range(0, 12)
    assert (walk.done, walk.lacking) == (True, [(13, 19)])
    walk = HoleWalk(13, 19, LINEAGE, "broker 2")
    walk.out_of_range(20, 30)
    assert (walk.done, walk.lacking) == (True, [(13, 19)])


def test_in_a_thinned_log_only_what_is_out_of_order_shows() -> None:
    data = batch(14, 14) + batch(17, 17) + batch(16, 16) + batch(30, 30) + b"\0"
    walk = HoleWalk(13, 19, LINEAGE, "broker 2", thinned=True)
    taken = walk.take(data)
    assert [each[:2] for each in taken.stretches] == [(14, 14)]
    assert walk.doubtful == [(17, 17), (16, 16)]


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
