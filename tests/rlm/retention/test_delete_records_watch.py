"""DeleteRecords, told from retention by where a leader's log start comes to lie."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlm.retention.delete_records_watch import Look, Watched, watched

FIRST = Look(token=7, leader_epoch=3, directory=(1, 40), bases=(0, 100, 200), log_start_offset=0)


def seen(*looks: Look) -> Watched:
    found: Watched | None = None
    for look in looks:
        found = watched(found, look)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("log_start", "bases"), [(150, (0, 100, 200)), (150, (100, 200)), (230, (200,)), (1, (0,))]
)
def test_a_log_start_inside_a_segment_that_was_seen_to_move_is_followed(
    log_start: int, bases: tuple[int, ...]
) -> None:
    found = seen(FIRST, replace(FIRST, bases=bases, log_start_offset=log_start))
    assert (found.proven, found.unproven) == (log_start, -1)


@pytest.mark.parametrize(
    "change",
    [
        {"bases": (100, 200), "log_start_offset": 100},  # what retention leaves
        {"bases": (0, 100, 200), "log_start_offset": 100},  # files not yet renamed
        {"bases": (250,), "log_start_offset": 250},  # all of it expired: a new segment was rolled
        {"bases": (200,), "log_start_offset": 150},  # the listing is older than what it left
        {"bases": (), "log_start_offset": 150},
    ],
)
def test_what_retention_may_have_done_is_told_and_not_followed(change: dict[str, object]) -> None:
    found = seen(FIRST, replace(FIRST, **change))  # type: ignore[arg-type]
    assert (found.proven, found.unproven) == (-1, change["log_start_offset"])


@pytest.mark.parametrize(
    "change", [{"token": 8}, {"leader_epoch": 4}, {"directory": (1, 41)}, {"directory": (2, 40)}]
)
def test_a_move_that_nobody_saw_under_one_claim_is_not_followed(change: dict[str, object]) -> None:
    moved = replace(FIRST, log_start_offset=150, **change)  # type: ignore[arg-type]
    assert seen(FIRST, moved).proven == -1
    assert seen(moved).proven == -1
    assert seen(moved, moved).proven == -1
    assert seen(moved, replace(moved, log_start_offset=160)).proven == 160


def test_what_is_proven_stays_so_while_retention_goes_on() -> None:
    deleted = replace(FIRST, log_start_offset=150)
    found = seen(FIRST, deleted, replace(deleted, bases=(200,), log_start_offset=200))
    assert (found.proven, found.unproven) == (150, 200)
    assert seen(FIRST, deleted, deleted) == seen(FIRST, deleted)


def test_a_log_start_that_falls_begins_anew() -> None:
    deleted = replace(FIRST, log_start_offset=150)
    found = seen(FIRST, deleted, FIRST)
    assert (found.proven, found.unproven) == (-1, 0)
