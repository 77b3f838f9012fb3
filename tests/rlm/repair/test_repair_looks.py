"""Which damaged segments are looked at next, by what is remembered of earlier looks."""

from __future__ import annotations

from kafka_formats.kafka_uuid import Uuid
from rlm.repair.repair_looks import LOOK_AGAIN_MAX_S, LOOKS_MAX, Looks


def ids(count: int) -> list[Uuid]:
    return [Uuid(number.to_bytes(16)) for number in range(1, count + 1)]


def test_the_first_look_comes_before_the_longest_ago() -> None:
    first, second, third = ids(3)
    looks = Looks()
    looks.begin(second, 0, 10)
    looks.begin(first, 5, 10)
    assert looks.due([first, second, third], (), 100) == [third, second, first]


def test_each_look_in_vain_doubles_the_pause() -> None:
    (one,) = ids(1)
    looks, now_s, pauses = Looks(), 0.0, []
    for _ in range(9):
        looks.begin(one, now_s, 300)
        began_s = now_s
        while not looks.due([one], (one,), now_s):
            now_s += 60
        pauses.append(now_s - began_s)
    assert pauses[:4] == [300, 600, 1200, 2400]
    assert pauses[-1] == LOOK_AGAIN_MAX_S


def test_damage_that_a_reader_meets_where_all_was_whole_is_looked_at_at_once() -> None:
    whole, damaged = ids(2)
    looks = Looks()
    for each in (whole, damaged):
        looks.begin(each, 0, 300)
    looks.found_whole(whole)
    assert looks.due([whole, damaged], (), 1) == []
    assert looks.due([whole, damaged], (whole, damaged), 1) == [whole]


def test_what_is_mended_begins_anew_and_no_more_is_remembered_than_was_said() -> None:
    many = ids(LOOKS_MAX + 1)
    looks = Looks()
    for each in many:
        looks.begin(each, 0, 300)
    assert len(looks.last) == LOOKS_MAX
    assert looks.due(many, (), 1) == many[:1], "the oldest is forgotten"
    looks.forget(many[-1])
    assert looks.due(many[-1:], (), 1) == many[-1:]
