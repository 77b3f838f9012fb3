"""Invariants of what a machine has stored: cuts of its log, and voters of its log and snapshots.

A cut that recovery makes is in the quorum state before anything is removed, and stays there
(cut_is_remembered); it is no lower than what the replica had acknowledged
(cut_covers_what_is_gone). The log is durable before an installed snapshot gets its name
(log_is_durable_before_its_snapshot). Voters are those of the committed history
(voters_as_committed), and damage above the recovery point takes none back that counted
(voters_below_recovery_point).

A snapshot taken here ends at or below the recovery point once it has its name, an installed one
above it (recovery_point_tells_installed). A download holds the bytes that were sent
(download_is_whole). A snapshot that is offered is there, but for the moment until its removal is
told (offers_its_snapshots). A truncation takes the epochs of what is gone along
(epochs_of_own_log). The log may be cut up to where the view's rows are durable (log_covers_view).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlmm.log.quorum_state_file import NOBODY
from rlmm.log.recovery import LOG_SUFFIX
from rlmm.log.snapshot_files import (
    DOWNLOAD_SUFFIX,
    parse_snapshot_file_name,
    snapshot_file_name,
    snapshot_voters,
)
from rlmm.quorum.framing import voter_set
from rlmm.quorum.initial_state import persisted
from rlmm.raft.messages import ReplicaKey
from sim.ground.forgetful_disk import ForgetfulDisk
from sim.ground.medium import File
from sim.nodes.durable import (
    LOG,
    recovery_point,
    snapshot_end,
    stored_epochs,
    stored_quorum_state,
)
from sim.nodes.situations import LOST_AN_EPOCH

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process
    from sim.nodes.world import World


LOOKS = 4
"""Looks at which a snapshot that is offered may be missing."""


class StoredAudit:
    """Looks at media, and at the committed voter sets in the order of their offsets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._voters: list[tuple[int, tuple[ReplicaKey, ...]]] = []
        self._missing: dict[Process, tuple[set[tuple[int, ...]], int]] = {}

    def log_shrinks(self, machine: Machine, path: Path) -> None:
        """A file is about to be cut or removed. Recovery does so with a part of the log that it
        remembers, or with what an installed snapshot replaces.
        """
        process, medium = machine.process, machine.disk.medium
        if path.suffix != LOG_SUFFIX or process is None or process.log is not None:
            return
        stored = stored_quorum_state(medium)
        if stored is None or recovery_point(medium) < snapshot_end(medium):
            return
        self._world.auditor.check(
            stored.cut_end_offset != NOBODY,
            "cut_is_remembered",
            f"{machine.name} cuts {path.name}, and its quorum state is {stored}",
        )

    def opened(self, machine: Machine, process: Process) -> None:
        """A log is recovered: it has what was acknowledged, or remembers having had it."""
        stored, copy = stored_quorum_state(machine.disk.medium), process.copy
        cut = None if stored is None else persisted(stored).cut
        has = [(copy.last_epoch, copy.end_offset)]
        gone = has[0][0] < machine.acknowledged[0]
        has += [(cut.epoch, cut.old_end_offset)] if cut is not None else []
        self._world.reached.note(LOST_AN_EPOCH, gone)
        self._world.auditor.check(
            max(has) >= machine.acknowledged,
            "cut_covers_what_is_gone",
            f"{machine.name} acknowledged (epoch, end) {machine.acknowledged}, and remembers {has}",
        )

    def speaks(self, machine: Machine) -> None:
        """A message leaves: what the core remembers of a cut is on the medium."""
        process = machine.process
        cut = None if process is None or process.log is None else process.log.driver.core.cut
        if cut is not None:
            stored = stored_quorum_state(machine.disk.medium)
            self._world.auditor.check(
                stored is not None and persisted(stored).cut == cut,
                "cut_is_remembered",
                f"{machine.name} lost {cut}, and its quorum state is {stored}",
            )

    def renames(self, machine: Machine, old: Path, new: Path) -> None:
        """A file is about to get another name, perhaps that of a complete snapshot."""
        snapshot = parse_snapshot_file_name(new.name)
        if snapshot is None:
            return
        if old.name.endswith(DOWNLOAD_SUFFIX):
            files = machine.disk.medium.files(LOG)
            waiting = [
                path.name
                for path, file in files
                if isinstance(file, File) and path.suffix == LOG_SUFFIX and file.unsynced
            ]
            self._world.auditor.check(
                not waiting,
                "log_is_durable_before_its_snapshot",
                f"{machine.name} names {new.name}, and {waiting} is not synced",
            )
        point, installed = recovery_point(machine.disk.medium), old.name.endswith(DOWNLOAD_SUFFIX)
        self._world.auditor.check(
            snapshot.end_offset == 0 or machine.lost or (point < snapshot.end_offset) == installed,
            "recovery_point_tells_installed",
            f"{machine.name} names {new.name} by {old.name}, and its recovery point is {point}",
        )
        disk = ForgetfulDisk()
        disk.medium = machine.disk.medium
        voters = voter_set(snapshot_voters(disk, old))
        self._as_committed(machine, snapshot.end_offset, voters.keys)

    def removes(self, machine: Machine, path: Path) -> None:
        """A file is about to go, perhaps a download that is refused."""
        process = machine.process
        if not path.name.endswith(DOWNLOAD_SUFFIX) or process is None or process.log is None:
            return
        download = process.log.driver.core.replica.download
        if process.installing is None or download is None:
            return
        if not path.name.startswith(Path(snapshot_file_name(process.installing)).stem):
            return  # another download replaces it, after an install that failed
        size = machine.disk.size(path)
        self._world.auditor.check(
            size == download.size_bytes,
            "download_is_whole",
            f"{machine.name} refuses {path.name}, {size} bytes where {download.size_bytes} came",
        )

    def truncated(self, machine: Machine, end: int) -> None:
        """The log was cut at its end, durably, and with it the epochs of what is gone."""
        entries = stored_epochs(machine.disk.medium)
        self._world.auditor.check(
            not entries or entries[-1].start_offset < end,
            "epochs_of_own_log",
            f"{machine.name} has truncated its log to {end}, and its checkpoint is {entries}",
        )

    def view_reaches(self, machine: Machine, end: int) -> None:
        """The log may be cut up to `end`: below it the rows survive any crash."""
        durable = machine.view_disk.applied_offset + 1
        self._world.auditor.check(
            end <= durable,
            "log_covers_view",
            f"{machine.name} lets its log be cut up to {end}, and its view is durable up to "
            f"{durable}",
        )

    def looks(self, machine: Machine) -> None:
        """Look now and then: what the core offers is there at one of a few looks, since a removal
        is told a moment later.
        """
        process = machine.up
        if process is None or process.log is None or process.life.paused:
            return
        missing = self._missing_at(machine)
        before, looks = self._missing.get(process, (set(), 0))
        still = missing & before if looks else missing
        looks = looks + 1 if still else 0
        self._missing[process] = still, looks
        self._world.auditor.check(
            looks < LOOKS,
            "offers_its_snapshots",
            f"{machine.name} has offered {sorted(still)} for long, and has lost them",
        )

    def has_its_snapshots(self, machine: Machine) -> bool:
        """True if the core offers snapshots that there are."""
        return not self._missing_at(machine)

    def _missing_at(self, machine: Machine) -> set[tuple[int, ...]]:
        log = None if machine.process is None else machine.process.log
        assert log is not None
        known = {tuple(each) for each in log.driver.core.replica.log.snapshots}
        return known - {tuple(each) for each in log._directory.snapshots()}

    def committed(self, offset: int, voters: tuple[ReplicaKey, ...] | None) -> None:
        """A batch at `offset` is committed, with a voter set or without."""
        if voters is not None:
            self._voters.append((offset, voters))

    def advanced(self, machine: Machine, process: Process, end: int) -> None:
        """The log is known to be committed up to `end`."""
        assert process.log is not None
        replica = process.log.driver.core.replica
        if replica.log.start_offset <= end:
            self._as_committed(machine, end, replica.voters.committed(end).keys)

    def counts(self, machine: Machine, process: Process, end: int) -> None:
        """The log counts as durable up to `end`: in a fetch, or because it is applied so far."""
        assert process.log is not None
        sets = process.log.driver.core.replica.voters._sets
        highest = max(offset for offset, _ in sets if offset < max(end, 0))
        medium = machine.disk.medium
        kept = max(recovery_point(medium), snapshot_end(medium))
        self._world.auditor.check(
            machine.lost or highest < kept,
            "voters_below_recovery_point",
            f"{machine.name} has synced up to {end}, with voters at {highest}, and its recovery "
            f"point is {kept}",
        )

    def _as_committed(self, machine: Machine, end: int, voters: tuple[ReplicaKey, ...]) -> None:
        known = [keys for offset, keys in self._voters if offset < end]
        self._world.auditor.check(
            not known or known[-1] == voters,
            "voters_as_committed",
            f"{machine.name} has the voters {voters} at {end}, committed are {known[-1:]}",
        )
