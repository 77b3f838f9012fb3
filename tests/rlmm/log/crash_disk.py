"""A disk in memory that forgets what was not synced, dies before any operation, fills up, fails.

SIGKILL keeps the page cache, so it proves nothing about fsync. `power_cut` is what the machine's
death leaves: bytes and names that were synced, and of the rest what the given fate says (see
`sim/ground/medium.py`). A process's death alone (`process_death`) leaves everything in place,
still unsynced.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from sim.ground.forgetful_disk import ForgetfulDisk, PowerCut
from sim.ground.medium import Fate, Survivors, Torn

SITE_DEPTH = 2

__all__ = ["CrashDisk", "Fate", "PowerCut", "Survivors", "Torn"]


class CrashDisk(ForgetfulDisk):
    """Operations that change something are counted, from 0.

    `crash_at`: the power goes before this operation. `full_at`: from this operation on the disk is
    full, and an append that meets that leaves half of its bytes. `fail_sync_at`: this one sync
    fails. `before_sync` is called before each sync (a slow disk waits there). `sync_sites` are the
    places in the code that sync; the one in `ignored_site` syncs nothing: a planted bug.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.crash_at: int | None = None
        self.full_at: int | None = None
        self.fail_sync_at: int | None = None
        self.before_sync: Callable[[], None] = _at_once
        self.ignored_site: str | None = None
        self.sync_sites: set[str] = set()
        self.failed_syncs = 0

    def operate(self, *, grows: bool = False) -> None:
        """Count one operation, which `grows` what is stored."""
        if self.crash_at is not None and self.operations >= self.crash_at:
            raise PowerCut
        super().operate(grows=grows)
        self.operations += 1
        if grows and self.full_at is not None and self.operations > self.full_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync_fails(self) -> bool:
        """Count one sync; whether it is the one that is to fail."""
        self.operate()
        self.before_sync()
        failed = self.fail_sync_at is not None and self.operations > self.fail_sync_at
        if failed:
            self.fail_sync_at = None
            self.failed_syncs += 1
        return failed

    def sync_is_left_out(self, what: str) -> bool:
        site = f"{sync_site()}: {what}"
        self.sync_sites.add(site)
        return site == self.ignored_site

    def process_death(self) -> None:
        """The page cache stays; the next life counts its operations anew."""
        self.crash_at = self.full_at = self.fail_sync_at = None
        self.operations = 0

    def power_cut(self, content: Fate, names: Fate) -> None:
        """Only what was synced, and the given part of the rest, is there afterwards."""
        self.process_death()
        self.read_only = False
        self.medium = self.medium.after_power_cut(content, names)

    def copy(self) -> CrashDisk:
        """Another disk with everything that is on this one, durably."""
        return self.after_power_cut(Survivors.ALL, Survivors.ALL)

    def after_power_cut(self, content: Fate, names: Fate) -> CrashDisk:
        """The disk that a power cut would leave; this one stays as it is."""
        disk = CrashDisk()
        disk.medium = self.medium.after_power_cut(content, names)
        disk.ignored_site = self.ignored_site
        return disk

    def states_left(
        self, losses: Sequence[tuple[Fate, Fate]], met: set[object], told: Hashable
    ) -> Iterator[CrashDisk]:
        """The disks that power cuts would leave, with one loss each, but for those in `met`: they
        were there before, with the same promises `told`, so a check would show the same again.
        """
        for loss in losses:
            disk = self.after_power_cut(*loss)
            state = disk.medium.content(), told
            if state not in met:
                met.add(state)
                yield disk

    def damage(self, path: Path, position: int, *, bit: int = 4) -> None:
        """Turn one bit over, durably."""
        file = self.medium.file(path)
        file.sync()
        file.live[position] ^= 1 << bit
        file.durable[:] = file.live


def _at_once() -> None:
    pass


def sync_site(packages: tuple[str, ...] = ("rlmm", "rsm_backends")) -> str:
    """Who syncs: the innermost functions of ours on the stack, callers first, without the shared
    `replace_file`.
    """
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(names) < SITE_DEPTH:
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_name
        ours = module.split(".")[0] in packages and not name.startswith("<")
        if ours and name != "replace_file":
            names.append(f"{module.split('.')[-1]}.{name}")
        frame = frame.f_back
    return " > ".join(reversed(names))
