"""The broker's high watermark behind a cut counts once its file surely is of behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from rlm.local_log.cut_doubt import CutDoubt

CUT_AT = 100


def looks_until_it_counts(doubt: CutDoubt, written_ns: Iterable[int | None]) -> int | None:
    """The number of looks behind which the mark counts again; None: it does not."""
    at: CutDoubt | None = doubt
    for number, each in enumerate(written_ns, 1):
        assert at is not None
        at = at.looked(each)
        if at is None:
            return number
    return None


def test_a_file_that_nobody_writes_proves_nothing() -> None:
    assert looks_until_it_counts(CutDoubt(10), [10] * 50) is None
    assert looks_until_it_counts(CutDoubt(10), [11] * 50) is None
    assert looks_until_it_counts(CutDoubt(10), [11, 12, *[12] * 50]) is None


def test_the_third_write_counts() -> None:
    assert looks_until_it_counts(CutDoubt(10), [11, 12, 13]) == 3
    assert looks_until_it_counts(CutDoubt(10), [10, 11, 11, 12, 12, 12, 15]) == 7


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    assert looks_until_it_counts(CutDoubt(1_000), [7, 8, 7]) == 3
    assert looks_until_it_counts(CutDoubt(1_000), [2_000, 3, 3, 3]) is None


def test_a_file_that_is_not_there_is_no_write() -> None:
    assert looks_until_it_counts(CutDoubt(10), [None, 10, None, 11, None, 11, 12]) is None
    assert looks_until_it_counts(CutDoubt(None), [None, 11, None, 12, 13]) == 5


def test_a_process_that_starts_behind_the_cut_counts_from_its_first_look_on() -> None:
    assert looks_until_it_counts(CutDoubt(), [11, 11, 12, 13]) == 4


def test_two_doubts_are_one_that_ends_with_the_later_and_is_of_the_lower_cut() -> None:
    early, late = CutDoubt(11, others=2, same_to=30), CutDoubt(11, others=0, same_to=40)
    assert late.joined(early) == early.joined(late) == CutDoubt(11, others=0, same_to=30)
    assert late.joined(None) == late


def test_what_the_leader_told_is_in_no_doubt() -> None:
    assert CutDoubt(11, 1, same_to=30).told(33) == CutDoubt(11, 1, same_to=33)
    assert CutDoubt(11, 1, same_to=30).told(-1) == CutDoubt(11, 1, same_to=30)


def writes(first: int, gap: int, delay: int) -> Iterator[tuple[int, int]]:
    """Of each write the time at which the broker collects its content, and of its rename: each
    begins behind the one before.
    """
    at = first
    while at < CUT_AT + 500:
        yield at, at + delay
        at += max(gap, delay)


def test_no_write_whose_content_was_collected_before_the_cut_counts() -> None:
    """Whatever the times of looks and writes: a look reads the file first, and the epochs, which
    show the cut, a while later.
    """
    waited = []
    choices = product(range(0, 60, 7), (5, 20, 50), (0, 1, 19, 60), (5, 10, 30, 45), (0, 8, 40))
    for first, gap, delay, every, reading in choices:
        renamed = list(writes(first, gap, delay))
        doubt: CutDoubt | None = None
        for look in range(first + delay, CUT_AT + 500, every + reading):
            collected, written = [each for each in renamed if each[1] <= look][-1]
            if doubt is None:
                doubt = CutDoubt(written) if look + reading >= CUT_AT else None
                continue
            doubt = doubt.looked(written)
            if doubt is None:
                assert collected >= CUT_AT
                waited.append(look - CUT_AT)
                break
    assert waited
