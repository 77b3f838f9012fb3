"""Which snapshots go up, and which go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlm.stores.snapshot_plan import (
    SnapshotFacts,
    UploadedSnapshot,
    newest_of,
    parse_snapshot_key,
    snapshot_key,
    take_is_due,
    to_delete,
    to_upload,
)
from rlmm.metadata_log import SnapshotId

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
NEW = SnapshotId(300, 2)

FACTS = SnapshotFacts(
    leads=True, newest=NEW, uploaded=(), last_taken_ms=None, has_segments=True, now_ms=NOW_MS
)


def uploaded(*ends: int, age_ms: int | None = None) -> tuple[UploadedSnapshot, ...]:
    at = None if age_ms is None else NOW_MS - age_ms
    return tuple(UploadedSnapshot(SnapshotId(end, 2), at) for end in ends)


def test_the_newest_goes_up_unless_the_store_has_it_or_a_later_one() -> None:
    assert to_upload(FACTS) == NEW
    assert to_upload(replace(FACTS, uploaded=uploaded(100, 200))) == NEW
    assert to_upload(replace(FACTS, uploaded=uploaded(300))) is None
    assert to_upload(replace(FACTS, uploaded=uploaded(100, 301))) is None
    older_epoch = (UploadedSnapshot(SnapshotId(300, 1), None),)
    assert to_upload(replace(FACTS, uploaded=older_epoch)) == NEW
    assert to_upload(replace(FACTS, newest=None)) is None


def test_only_the_leader_takes_uploads_and_deletes() -> None:
    follower = replace(FACTS, leads=False, uploaded=uploaded(*range(1, 100), age_ms=10 * HOUR_MS))
    assert to_upload(replace(follower, uploaded=())) is None
    assert to_delete(follower, kept=24) == ()
    assert not take_is_due(follower, interval_ms=HOUR_MS)
    assert take_is_due(replace(follower, leads=True), interval_ms=HOUR_MS)


def test_a_snapshot_is_due_an_hour_after_the_last_one() -> None:
    for age_ms, due in ((0, False), (HOUR_MS - 1, False), (HOUR_MS, True), (9 * HOUR_MS, True)):
        in_the_store = replace(FACTS, uploaded=uploaded(100, age_ms=age_ms))
        assert take_is_due(in_the_store, interval_ms=HOUR_MS) is due
        taken = replace(FACTS, last_taken_ms=NOW_MS - age_ms)
        assert take_is_due(taken, interval_ms=HOUR_MS) is due
    both = replace(FACTS, uploaded=uploaded(100, age_ms=9 * HOUR_MS), last_taken_ms=NOW_MS)
    assert not take_is_due(both, interval_ms=HOUR_MS)


def test_a_clock_that_was_wrong_puts_nothing_off() -> None:
    ahead = replace(FACTS, uploaded=uploaded(100, age_ms=-5 * HOUR_MS))
    assert take_is_due(ahead, interval_ms=HOUR_MS)


def test_a_store_whose_clock_is_ahead_is_not_filled_with_snapshots() -> None:
    """Its own time of the last one would stay ahead of the clock here at each look."""
    minutes = (1, 2, 59)
    for since in (each * HOUR_MS // 60 for each in minutes):
        in_the_store = replace(FACTS, uploaded=uploaded(100, age_ms=since - 5 * HOUR_MS))
        assert take_is_due(in_the_store, interval_ms=HOUR_MS), "once, by a leader that took none"
        taken = replace(in_the_store, last_taken_ms=NOW_MS - since)
        assert not take_is_due(taken, interval_ms=HOUR_MS)
    taken = replace(FACTS, uploaded=uploaded(100, age_ms=-HOUR_MS), last_taken_ms=NOW_MS - HOUR_MS)
    assert take_is_due(taken, interval_ms=HOUR_MS)


@pytest.mark.parametrize("known", [(), uploaded(100)])
def test_the_first_is_due_once_the_tier_holds_a_segment(
    known: tuple[UploadedSnapshot, ...],
) -> None:
    assert take_is_due(replace(FACTS, uploaded=known), interval_ms=HOUR_MS)
    nothing = replace(FACTS, uploaded=known, has_segments=False)
    assert not take_is_due(nothing, interval_ms=HOUR_MS)


def test_the_newest_stay_in_whatever_order_they_are_listed() -> None:
    facts = replace(FACTS, uploaded=uploaded(5, 1, 4, 2, 3))
    assert [each.end_offset for each in to_delete(facts, kept=2)] == [1, 2, 3]
    assert to_delete(facts, kept=5) == ()
    assert to_delete(facts, kept=24) == ()
    # Whatever is set, the newest is never removed.
    assert [each.end_offset for each in to_delete(facts, kept=0)] == [1, 2, 3, 4]


def test_a_key_is_read_back_in_its_own_cluster_only() -> None:
    key = snapshot_key("p/", "cluster-a", NEW)
    assert key == "p/_strandline/snapshots/cluster-a/00000000000000000300-0000000002.checkpoint"
    assert parse_snapshot_key("p/", "cluster-a", key) == NEW
    assert parse_snapshot_key("p/", "cluster-b", key) is None
    assert parse_snapshot_key("q/", "cluster-a", key) is None
    assert parse_snapshot_key("p/", "cluster-a", key + ".part") is None


def test_the_bootstrap_snapshot_is_not_worth_an_upload() -> None:
    assert newest_of([]) is None
    assert newest_of([SnapshotId(0, 0)]) is None
    assert newest_of([SnapshotId(0, 0), NEW, SnapshotId(200, 9)]) == NEW
