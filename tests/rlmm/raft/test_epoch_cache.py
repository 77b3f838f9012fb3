"""The epochs of a log, as its start moves."""

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
