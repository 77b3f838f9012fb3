"""A snapshot is due after so many records, and after more bytes of them the larger the last was."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlmm.metadata_limits import MetadataLimits
from rlmm.snapshot_due import bytes_between_snapshots, snapshot_due
from tests.rlmm.metadata_node import copied, running_node

MIB = 1024 * 1024
LIMITS = MetadataLimits(
    snapshot_records=1_000,
    snapshot_bytes=20 * MIB,
    snapshot_bytes_max=128 * MIB,
    snapshot_growth_percent=100,
)


@pytest.mark.parametrize(
    ("last_bytes", "between"),
    [
        (0, 20 * MIB),
        (20 * MIB, 20 * MIB),
        (50 * MIB, 50 * MIB),
        (128 * MIB, 128 * MIB),
        (4_000 * MIB, 128 * MIB),
    ],
)
def test_the_distance_grows_with_the_last_snapshot_between_two_bounds(
    last_bytes: int, between: int
) -> None:
    assert bytes_between_snapshots(last_bytes, LIMITS) == between
    for size, due in ((between - 1, False), (between, True)):
        assert snapshot_due(1, size, last_snapshot_bytes=last_bytes, limits=LIMITS) is due


def test_a_bound_below_kafkas_distance_shortens_nothing() -> None:
    limits = MetadataLimits(snapshot_bytes=20, snapshot_bytes_max=10)
    assert bytes_between_snapshots(1_000, limits) == 20


@pytest.mark.parametrize("last_bytes", [0, 4_000 * MIB])
def test_a_fresh_node_never_has_more_records_to_apply_however_large_the_state(
    last_bytes: int,
) -> None:
    for records, due in ((999, False), (1_000, True)):
        assert snapshot_due(records, 1, last_snapshot_bytes=last_bytes, limits=LIMITS) is due


def test_what_is_written_for_snapshots_stays_in_proportion_to_the_log() -> None:
    """Nothing but adds of 400 bytes: each snapshot holds all of them."""
    limits = MetadataLimits(snapshot_records=2**62, snapshot_bytes_max=2**62)
    log_bytes = since = last = written = 0
    while log_bytes < 2_000 * MIB:
        log_bytes, since = log_bytes + MIB, since + MIB
        if snapshot_due(1, since, last_snapshot_bytes=last, limits=limits):
            since, last = 0, log_bytes
            written += log_bytes
    assert written <= 2 * log_bytes


async def test_a_large_snapshot_puts_the_next_one_off(tmp_path: Path) -> None:
    limits = MetadataLimits(snapshot_bytes=1_000)
    async with running_node(tmp_path, limits=limits) as node:
        await copied(node.manager, 30)
        first = await node.manager.take_snapshot()
        due = node.manager._applying.snapshot_due
        assert not due.is_set()
        await copied(node.manager, 5, first=30)
        assert not due.is_set()
        assert node.log.latest_snapshot() == first
