"""Hold directory of a process that reports each link made and removed to the auditor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlm.local_log.active_links import ActiveLink
from rlm.local_log.committed_plan import NotCommittedError, Proof
from rlm.local_log.hold_directory import HoldDirectory, RebuiltUnit
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition, LocalSegment

if TYPE_CHECKING:
    from sim.tier.machine import Process

FREE_BYTES_MIN = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class WatchedHold(HoldDirectory):
    """A process's hold directory; the auditor sees every link made and removed."""

    process: Process

    def free_bytes(self) -> int:
        """Asked at the end of each pass."""
        self.process.machine.world.hold_audit.passed(self.process)
        return FREE_BYTES_MIN - self.process.machine.missing_bytes

    def hold(self, local: LocalPartition, segment: LocalSegment) -> Unit | None:
        unit = HoldDirectory.hold(self, local, segment)
        if unit is not None:
            self.process.machine.world.hold_audit.held(self.process, unit)
        return unit

    def hold_left(
        self, link: ActiveLink, local: LocalPartition | None, proof: Proof, *, may_cut: bool
    ) -> RebuiltUnit:
        try:
            told = HoldDirectory.hold_left(self, link, local, proof, may_cut=may_cut)
        except NotCommittedError as denied:
            self.process.machine.world.hold_audit.denied(self.process, denied.unit, local)
            raise
        if told.rest is not None:
            self.process.machine.world.hold_audit.denied(self.process, told.rest, local)
        if told.unit is not None:
            self.process.machine.world.hold_audit.held_left(self.process, told.unit)
        return told

    def rebuild_from_batches(self, unit: Unit, proof: Proof, *, may_cut: bool) -> RebuiltUnit:
        try:
            told = HoldDirectory.rebuild_from_batches(self, unit, proof, may_cut=may_cut)
        except NotCommittedError:
            self.process.machine.world.hold_audit.denied_anew(unit)
            raise
        self.process.machine.world.hold_audit.told_anew(self.process, unit, told.unit)
        return told

    def release(self, unit: Unit) -> Path | None:
        self.process.machine.world.hold_audit.releasing(self.process, unit)
        return HoldDirectory.release(self, unit)
