"""The metadata log on a disk that tears, reorders, fills up and fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kafka_formats.errors import RetryLater
from tests.durability.log_life import (
    LOSSES,
    BrokenPromiseError,
    Loss,
    Witness,
    keep_every_promise,
    one_life,
    open_after_each,
    open_log,
    process_death_then_power_cut,
    survive_every_crash,
)
from tests.rlmm.log.crash_disk import CrashDisk, PowerCut, Torn


def torn(seeds: range) -> list[Loss]:
    """Subsets of sectors and of changed names, drawn anew for each seed."""
    return [(Torn(2 * seed, (512, 4096, 64)[seed % 3]), Torn(2 * seed + 1)) for seed in seeds]


def test_torn_and_reordered_writes_lose_nothing_acknowledged() -> None:
    assert survive_every_crash(losses=torn(range(20))) > 2_000
    assert process_death_then_power_cut(losses=torn(range(20))) > 900


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_tens_of_thousands_of_power_cuts_lose_nothing_acknowledged() -> None:
    assert survive_every_crash(losses=torn(range(20, 320))) > 30_000
    assert process_death_then_power_cut(losses=torn(range(20, 320))) >= 15_000


NEEDLESS = {
    "log_directory.cut_start > log_directory._store_epochs: names":
        "the older checkpoint also covers what is left of the log",
    "recovery.recover > recovery._write_anew: names":
        "recovery ends with a sync of the same directory",
    "recovery.recover > recovery._start_empty: names":
        "an empty segment is made again, and the first epoch's checkpoint syncs the directory",
}  # fmt: skip
"""Syncs that a shared function does and this caller could do without."""


def sync_sites() -> list[str]:
    disk, witness = CrashDisk(), Witness()
    one_life(disk, witness)
    disk.process_death()
    one_life(disk, witness)
    disk.crash_at = 30
    with pytest.raises(PowerCut):
        one_life(disk, witness)
    disk.process_death()
    open_log(disk, witness)
    return sorted(disk.sync_sites)


@pytest.mark.parametrize("site", sync_sites())
def test_each_sync_left_out_is_caught(site: str) -> None:
    def make() -> CrashDisk:
        disk = CrashDisk()
        disk.ignored_site = site
        return disk

    if site in NEEDLESS:
        keep_every_promise(make, LOSSES)
        return
    with pytest.raises(BrokenPromiseError):
        keep_every_promise(make, [*LOSSES, *torn(range(3))])


@contextmanager
def refused() -> Iterator[None]:
    """The disk's failure reaches the caller as an error of ours or of the operating system."""
    try:
        yield
    except (RetryLater, OSError):
        return


def fail_everywhere(
    fail: Callable[[CrashDisk, int], None], make: Callable[[], CrashDisk] = CrashDisk
) -> int:
    """One fault at each operation of a second life; a restart, a power cut; nothing is lost."""
    cases = at = 0
    met: set[object] = set()
    while True:
        disk, witness = make(), Witness()
        one_life(disk, witness)
        disk.process_death()
        fail(disk, at)
        with refused():
            one_life(disk, witness)
        if disk.operations <= at:
            return cases
        disk.process_death()
        # The operator starts the node again: with the page cache as the fault left it.
        if not disk.read_only:
            open_log(disk, witness)
        cases += open_after_each([*LOSSES[:3], *torn(range(3))], disk, witness, met)
        at += 1


def test_a_sync_that_fails_once_loses_nothing_acknowledged_even_if_the_next_one_succeeds() -> None:
    def fail(disk: CrashDisk, at: int) -> None:
        disk.fail_sync_at = at

    assert fail_everywhere(fail) > 300


def test_a_disk_that_fills_up_loses_nothing_acknowledged() -> None:
    def fail(disk: CrashDisk, at: int) -> None:
        disk.full_at = at

    assert fail_everywhere(fail) > 300
