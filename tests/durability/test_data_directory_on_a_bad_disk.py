"""Formatting and opening a data directory, with the power gone or the disk failing at any step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, InvalidRequest, Refused, RetryLater
from rlmm.data_directory.data_directory import (
    META_PROPERTIES,
    NewDirectory,
    format_data_directory,
    open_data_directory,
)
from tests.durability.log_life import LOSSES, BrokenPromiseError, Loss
from tests.durability.test_damaged_files import CLUSTER_ID, DIRECTORY_ID, VOTERS
from tests.durability.test_log_on_a_bad_disk import torn
from tests.rlmm.log.crash_disk import CrashDisk, PowerCut, Survivors

BOOTS = 3


def format_(disk: CrashDisk, home: Path) -> None:
    format_data_directory(
        home,
        NewDirectory(CLUSTER_ID, "kafka-one", 3, DIRECTORY_ID, VOTERS),
        disk=disk,
    )


class Told:
    """What callers heard: whether the directory is formatted, and every boot it counted."""

    def __init__(self, *, formatted: bool = False, boots: Sequence[int] = ()) -> None:
        self.formatted = formatted
        self.boots = list(boots)

    def copy(self) -> Told:
        return Told(formatted=self.formatted, boots=self.boots)

    def life(self, disk: CrashDisk, home: Path) -> None:
        """Format where need be, then start a few times."""
        if META_PROPERTIES not in disk.list_names(home):
            if self.formatted:
                raise BrokenPromiseError("a formatted directory is no longer one")
            format_(disk, home)
        self.formatted = True
        for _ in range(BOOTS):
            self.boot(disk, home)

    def boot(self, disk: CrashDisk, home: Path) -> None:
        try:
            with open_data_directory(home, disk=disk) as directory:
                boot = directory.boot_counter
                if directory.initial_voters != VOTERS:
                    raise BrokenPromiseError("the voters are others")
        except (CorruptData, InvalidRequest) as error:
            raise BrokenPromiseError(f"it does not open: {error}") from error
        if boot <= max(self.boots, default=0):
            raise BrokenPromiseError(f"boot {boot} after {self.boots}")
        self.boots.append(boot)


def new_disk(home: Path, make: Callable[[], CrashDisk] = CrashDisk) -> CrashDisk:
    """With the directory that the real lock file needs as well."""
    disk = make()
    disk.make_directory(home)
    disk.operations = 0
    return disk


def lose_power_everywhere(
    home: Path, losses: list[Loss], make: Callable[[], CrashDisk] = CrashDisk
) -> int:
    cases = crash_at = 0
    ended = False
    met: set[object] = set()
    while not ended:
        disk, told = new_disk(home, make), Told()
        disk.crash_at = crash_at
        with suppress(PowerCut):
            told.life(disk, home)
            ended = True  # the power goes right after the last answer, too
        for left in disk.states_left(losses, met, (told.formatted, *told.boots)):
            told.copy().life(left, home)
        cases += len(losses)
        crash_at += 1
    return cases


def test_a_format_is_complete_or_repeated_and_no_boot_is_counted_twice(tmp_path: Path) -> None:
    assert lose_power_everywhere(tmp_path, [*LOSSES, *torn(range(25))]) > 900


def sync_sites(home: Path) -> list[str]:
    disk = new_disk(home)
    Told().life(disk, home)
    return sorted(disk.sync_sites)


NEEDLESS = {
    "snapshot_files.write_bootstrap_snapshot > snapshot_files.finish: names":
        "partition.metadata, written next, syncs the same directory",
}  # fmt: skip


def test_each_sync_left_out_is_caught(tmp_path: Path) -> None:
    caught = {}
    for site in sync_sites(tmp_path):

        def make(site: str = site) -> CrashDisk:
            disk = CrashDisk()
            disk.ignored_site = site
            return disk

        try:
            lose_power_everywhere(tmp_path, [*LOSSES, *torn(range(10))], make)
        except BrokenPromiseError:
            caught[site] = True
        else:
            caught[site] = False
    assert caught == {site: site not in NEEDLESS for site in caught}
    assert len(caught) > len(NEEDLESS)


@pytest.mark.parametrize("fault", ["fail_sync_at", "full_at"])
def test_a_failing_disk_is_reported_and_costs_nothing(tmp_path: Path, fault: str) -> None:
    at = 0
    while True:
        disk, told = new_disk(tmp_path), Told()
        setattr(disk, fault, at)
        with suppress(RetryLater, Refused):
            told.life(disk, tmp_path)
        if disk.operations <= at:
            break
        failed_read_only = disk.read_only
        disk.process_death()
        if not failed_read_only:
            told.life(disk, tmp_path)
        disk.power_cut(Survivors.NONE, Survivors.NONE)
        told.life(disk, tmp_path)
        at += 1
    assert at > 20
