"""The epochs of a log, as its start and its end move."""

from __future__ import annotations

import pytest

from rlmm.raft.epoch_cache import EpochCache


@pytest.mark.parametrize(
    ("start", "base_epoch", "entries"),
    [
        (4, 1, ((2, 4), (3, 7))),
        (5, 2, ((2, 5), (3, 7))),
        (7, 2, ((3, 7),)),
        (8, 3, ((3, 8),)),
    ],
)
def test_the_epoch_before_the_start_is_that_of_the_last_record_that_went(
    start: int, base_epoch: int, entries: tuple[tuple[int, int], ...]
) -> None:
    cache = EpochCache(0, 0, ((1, 0), (2, 4), (3, 7)))
    cache.advance_start(start, 9)
    assert (cache.base_offset, cache.base_epoch) == (start, base_epoch)
    assert tuple(cache.entries) == entries


def test_the_epoch_cache_forgets_an_epoch_that_starts_at_the_cut_even_at_the_log_end() -> None:
    # KAFKA-10706: what stays behind makes a follower loop for ever.
    cache = EpochCache(0, 0, ((1, 0), (2, 10), (5, 30)))
    cache.truncate_to(30)
    assert list(cache.entries) == [(1, 0), (2, 10)]
    cache.truncate_to(30)
    assert cache.last_epoch == 2
    cache.truncate_to(10)
    assert list(cache.entries) == [(1, 0)]
    cache.truncate_to(0)
    assert cache.last_epoch == 0


def test_the_epoch_cache_follows_the_log_start() -> None:
    cache = EpochCache(0, 0, ((1, 0), (2, 10), (5, 30)))
    cache.advance_start(12, 40)
    assert list(cache.entries) == [(2, 12), (5, 30)]
    assert cache.base_epoch == 2
    cache.advance_start(30, 40)
    assert list(cache.entries) == [(5, 30)]
    assert cache.base_epoch == 2
    cache.advance_start(40, 40)
    assert list(cache.entries) == []
    assert cache.last_epoch == 5
