"""Copies and reads each get their share while both want all, and all of it while one does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.quota.copy_turns import (
    COPIED_PER_READ,
    COPY_BYTES_PER_S_MIN,
    DEBT_BYTES_MAX,
    LATE_S,
    CopyShare,
)

MIB = 1024 * 1024
PART = 12 * MIB
FRAME = 256 * 1024

sizes = st.integers(1, 2**30)
pauses = st.floats(0.0, 0.5)
events = st.lists(
    st.one_of(
        st.tuples(st.just("waits"), pauses, sizes),
        st.tuples(st.just("goes on"), pauses, sizes),
        st.tuples(st.just("sends"), pauses, sizes),
        st.tuples(st.just("asks"), pauses, sizes),
    ),
    max_size=60,
)


def played(script: list[tuple[str, float, int]]) -> tuple[CopyShare, float, int]:
    """What it is after all that, when, and how many reads wait."""
    share, now_s, waiting = CopyShare(100.0), 100.0, 0
    for what, passed_s, size in script:
        now_s += passed_s
        if what == "waits":
            share.read_waits(now_s)
            waiting += 1
        elif what == "goes on" and waiting:
            share.read_goes_on(size, now_s)
            waiting -= 1
        elif what == "sends":
            share.sent(size, now_s)
        else:
            share.wait_s(now_s)
    return share, now_s, waiting


@given(events)
def test_no_part_waits_longer_than_the_largest_debt_takes_to_pass(
    script: list[tuple[str, float, int]],
) -> None:
    share, now_s, _ = played(script)
    wait_s = share.wait_s(now_s)
    assert 0 <= wait_s <= DEBT_BYTES_MAX / COPY_BYTES_PER_S_MIN
    assert share.wait_s(now_s + wait_s) == pytest.approx(0, abs=1e-6)


@given(events)
def test_once_reads_are_gone_copies_are_soon_free(script: list[tuple[str, float, int]]) -> None:
    share, now_s, waiting = played(script)
    for _ in range(waiting):
        share.read_goes_on(0, now_s)
    now_s += 3 * LATE_S
    for _ in range(100):
        assert share.wait_s(now_s) == 0
        share.sent(PART, now_s)


@given(st.lists(st.tuples(pauses, sizes), max_size=30))
def test_without_reads_no_copy_ever_waits(sends: list[tuple[float, int]]) -> None:
    share, now_s = CopyShare(100.0), 100.0
    for passed_s, size in sends:
        now_s += passed_s
        assert share.wait_s(now_s) == 0
        share.sent(size, now_s)


@settings(max_examples=30)
@given(
    read_bytes_per_s=st.floats(5 * MIB, 1000 * MIB),
    part_bytes=st.integers(5 * MIB, 32 * MIB),
)
def test_beside_reads_that_queue_copies_get_their_share_and_no_more(
    read_bytes_per_s: float, part_bytes: int
) -> None:
    share, now_s = CopyShare(0.0), 0.0
    copied = 0
    share.read_waits(now_s)
    now_s += 10 * LATE_S
    share.sent(part_bytes, now_s)
    for _ in range(2_000):
        now_s += FRAME / read_bytes_per_s
        share.read_goes_on(FRAME, now_s)
        share.read_waits(now_s)
        while share.wait_s(now_s) == 0:
            share.sent(part_bytes, now_s)
            copied += part_bytes
    paid_at_once = FRAME * COPIED_PER_READ + FRAME / read_bytes_per_s * COPY_BYTES_PER_S_MIN
    due = 2_000 * paid_at_once
    # Each part goes a frame late at most, and the first had been sent before.
    spared = copied / part_bytes * paid_at_once + part_bytes
    assert due - spared <= copied <= due


@pytest.mark.parametrize(("client_s", "holds"), [(0.05, False), (0.0, True)])
def test_only_reads_that_wait_for_a_core_hold_copies_back(client_s: float, holds: bool) -> None:
    """Four readers take turns; a client, or a store, keeps each from asking for `client_s`."""
    share, now_s = CopyShare(100.0), 100.0
    held = 0
    for _ in range(1000):
        share.read_waits(now_s)
        now_s += 0.001
        share.read_goes_on(FRAME, now_s)
        now_s += client_s / 4
        held += share.wait_s(now_s) > 0
        share.sent(PART, now_s)
    assert (held > 900) is holds
    assert holds or held == 0
