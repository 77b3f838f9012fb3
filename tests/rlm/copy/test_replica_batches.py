"""Batches of other replicas for a hole that begins inside one: a log start may lie there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.record_batch import HEADER_BYTES, Record, encode_batch
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


def offsets(taken: Taken) -> list[tuple[int, int]]:
    return [each[:2] for each in taken.stretches]


def test_a_batch_that_the_log_start_lies_in_is_taken_whole() -> None:
    data = batch(10, 14) + batch(15, 19)
    walk, taken = walked(data, free_from=0)
    assert (bytes(taken.data), taken.stretches) == (data, [(10, 19, len(data))])
    assert (walk.done, walk.wrong) == (True, "")


def test_it_is_refused_over_what_this_replica_has_or_where_what_is_below_is_wanted() -> None:
    for free_from in (None, 11):
        walk, taken = walked(batch(10, 14) + batch(15, 19), free_from=free_from)
        assert walk.wrong == "broker 2: a batch 10 to 14 does not fit the hole"
        assert taken.stretches == [(15, 19, len(taken.data))]
    walk, _ = walked(batch(10, 14, epoch=2) + batch(15, 19), free_from=0)
    assert "has leader epoch 2, but the lineage has 1" in walk.wrong


def test_only_the_first_may_begin_below() -> None:
    walk, taken = walked(batch(10, 14) + batch(13, 19) + batch(20, 20), free_from=0)
    assert offsets(taken) == [(13, 19)]
    assert "claims offsets 10 to 14" in walk.wrong


def test_of_two_batches_that_want_the_same_offset_the_one_that_others_join_is_taken() -> None:
    """A bit of a base offset turned over on that replica's disk: no CRC has it."""
    data = batch(13, 14) + batch(16, 16) + batch(16, 16) + batch(17, 19)
    walk, _ = walked(data)
    assert walk.question == 14
    assert offsets(walk.take(data)) == [(13, 14), (16, 19)]
    _, taken = walked(batch(12, 12) + batch(13, 14) + batch(16, 16) + batch(16, 19))
    assert offsets(taken) == [(13, 14)]


def test_a_batch_that_nothing_joins_is_asked_for_by_its_first_and_its_last_offset() -> None:
    """What a turned bit made of a base offset is another batch's: that one is answered."""
    alone = batch(15, 17)
    for last in (b"", batch(19, 19)):
        walk, taken = walked(alone + last)
        assert (offsets(taken), walk.question) == ([], 15)
        assert (offsets(walk.take(alone + last)), walk.question) == ([], 17)
        taken = walk.take(alone + last)
        if not last:
            assert (offsets(taken), walk.question) == ([], 14)
            taken = walk.take(batch(14, 14))
        assert offsets(taken) == [(15, 17)]
    for answers in ([batch(14, 16)], [alone, batch(16, 18)], [alone, alone + batch(17, 19)], [b""]):
        walk, _ = walked(alone)
        for answer in answers:
            assert offsets(walk.take(answer)) == []
        assert (walk.question, walk.done) == (16, False)
        assert "claims offsets 15 to 17" in walk.wrong
        assert offsets(walk.take(batch(16, 17) + batch(18, 19))) == [(16, 19)]


@pytest.mark.parametrize("rest", [0, HEADER_BYTES - 1])
def test_a_batch_alone_is_not_to_be_what_is_answered_below_it(rest: int) -> None:
    """An answer's limit may have cut off what stands behind it."""
    for below, found in ((batch(11, 12), [(13, 18)]), (b"", [(13, 18)]), (batch(13, 18), [])):
        walk, taken = walked(batch(13, 18) + bytes(rest))
        assert (offsets(taken), walk.question) == ([], 18)
        taken = walk.take(batch(13, 18))
        assert (offsets(taken), walk.question) == ([], 12)
        assert offsets(walk.take(below)) == found


def test_a_batch_alone_ends_its_file_where_a_longer_answer_was_sent() -> None:
    longer = batch(1, 1) + batch(2, 9)
    walk, _ = walked(batch(13, 18))
    for question, answer in ((18, batch(13, 18)), (12, batch(13, 18)), (11, longer)):
        assert walk.question == question
        taken = walk.take(answer)
    assert offsets(taken) == [(13, 18)]


def test_two_answers_that_seem_to_join_say_nothing() -> None:
    walk, _ = walked(batch(13, 14) + batch(15, 15))
    assert walk.question == 16
    assert offsets(walk.take(batch(16, 18))) == []
    assert walk.question == 18
    assert offsets(walk.take(batch(17, 19))) == []
    assert (walk.question, walk.done) == (19, False)


def test_behind_something_damaged_the_next_file_is_asked_for() -> None:
    bad = bytearray(batch(14, 15))
    bad[65] ^= 1
    walk, taken = walked(batch(13, 13) + bytes(bad) + batch(16, 19) + batch(20, 20))
    assert offsets(taken) == [(13, 13), (16, 19)]
    assert "fails its CRC" in walk.wrong
    walk, taken = walked(batch(13, 13) + bytes(bad))
    assert (offsets(taken), walk.question) == ([(13, 13)], 14)
    walk.take(bytes(bad))
    assert walk.question == 16
    assert offsets(walk.take(batch(16, 17) + batch(18, 19))) == [(16, 19)]


def test_a_log_is_asked_from_where_it_starts_inside_the_hole_to_where_it_ends() -> None:
    walk = HoleWalk(10, 19, LINEAGE, "broker 2", start=14)
    assert walk.question == 14
    assert offsets(walk.take(batch(13, 15) + batch(16, 16))) == [(13, 16)]
    walk.take(b"")
    assert (walk.question, walk.done) == (17, True)


def test_in_a_thinned_log_only_what_is_out_of_order_shows() -> None:
    data = batch(14, 14) + batch(17, 17) + batch(16, 16) + batch(30, 30) + b"\0"
    walk = HoleWalk(13, 19, LINEAGE, "broker 2", thinned=True)
    taken = walk.take(data)
    assert (offsets(taken), walk.question) == ([(14, 14)], 30)
    walk = HoleWalk(13, 19, LINEAGE, "broker 2", thinned=True)
    assert offsets(walk.take(batch(14, 14) + batch(17, 17) + batch(23, 23))) == [(14, 14), (17, 17)]


def test_in_a_thinned_log_the_last_batch_of_a_file_is_asked_for_by_its_offsets() -> None:
    walk = HoleWalk(13, 19, LINEAGE, "broker 2", thinned=True)
    assert (offsets(walk.take(batch(14, 14) + batch(17, 17))), walk.question) == ([(14, 14)], 17)
    assert offsets(walk.take(batch(17, 17))) == [(17, 17)]


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
