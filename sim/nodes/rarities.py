"""Situations that chance alone hardly ever brings about: a seed draws some, and arranges them.

Each is what may happen to real nodes: a read that fails once, a snapshot that goes bad while it is
asked for, a replica that is left far behind.
"""

from __future__ import annotations

import errno
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from rlmm.log.snapshot_files import snapshot_file_name
from rlmm.metadata_log import SnapshotId
from rlmm.raft.messages import SnapshotRead
from sim.nodes.durable import LOG, found_at, recovery_point, snapshot_end

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process
    from sim.nodes.world import World


LOOK_EVERY_MS = 1000


class Rarities:
    """The situations of a world, until `stop`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._downloads = Random(f"downloads of {world.seed}")
        self._fails_percent = self._downloads.choice((0, 2, 5, 10))
        self._rots_percent = self._downloads.choice((0, 10, 50))
        self._left_behind_max = self._downloads.choice((0, 30, 120))
        self._wipe_every_ms = self._downloads.choice((0, 1000, 4000))
        self._tails = Random(f"rotten tails of {world.seed}")
        self._tail_rots_percent = self._tails.choice((0, 10, 50))
        self._on = True

    def begin(self) -> None:
        self._leave_behind()
        self._wipe_an_observer()
        self._look()

    def stop(self) -> None:
        self._on = False

    def _look(self) -> None:
        for machine in self._world.machines:
            self._world.auditor.stored.looks(machine)
        self._world.schedule.after(LOOK_EVERY_MS, self._look)

    # ---- snapshots on their way

    def piece_is_read(self, machine: Machine, read: SnapshotRead) -> None:
        """A piece of a snapshot is about to be read for another node: the file may have gone bad,
        or the read fails once. OSError: it does.
        """
        if not self._on:
            return
        draw, snapshot = self._downloads.randrange, SnapshotId(*read.snapshot)
        log = None if machine.process is None else machine.process.log
        # Where the log needs the snapshot the node stops, which `bit_flip` shows.
        may = read.position == 0 and log is not None and log._directory._goes_on_without(snapshot)
        if may and draw(100) < self._rots_percent:
            self._world.faults.flip(machine, LOG / snapshot_file_name(snapshot))
        if draw(100) < self._fails_percent:
            raise OSError(errno.EMFILE, "Too many open files")

    def _leave_behind(self) -> None:
        """Cut a follower off now and then, while the leader writes more than its log keeps, and
        sometimes goes on writing when the follower is back.
        """
        if not self._on or not self._left_behind_max:
            return
        world, draw = self._world, self._downloads.randrange
        followers = [each for each in world.machines if each.up is not None and not each.leads]
        if followers and not world.faults.quiet:
            follower = self._downloads.choice(followers)
            world.network.part([follower.name], [each.name for each in world.machines])
            for at_ms in range(0, self._downloads.choice((500, 500, 4000)), 100):
                count = draw(1 + self._left_behind_max // 5)
                world.schedule.after(at_ms, partial(self._write, count))
        world.schedule.after(draw(1, 5_000), self._leave_behind)

    def _wipe_an_observer(self) -> None:
        """Have a machine that votes nowhere begin anew now and then: it downloads a snapshot."""
        if not self._on or not self._wipe_every_ms:
            return
        world = self._world
        voters = {key for keys in world.voter_sets_in_force() for key in keys}
        for machine in world.machines if not world.faults.quiet else ():
            if machine.key not in voters and not world.is_impostor(machine):
                world.faults.wipe(machine)
        delay_ms = 1 + self._downloads.randrange(2 * self._wipe_every_ms)
        world.schedule.after(delay_ms, self._wipe_an_observer)

    def _write(self, count: int) -> None:
        faults = self._world.faults
        for leader in faults.leaders() if self._on and not faults.quiet else ():
            faults.pour(count, leader)

    # ---- the end of a log

    def appended(self, machine: Machine, process: Process, epoch: int) -> None:
        """Records are appended; the first ones of an epoch may go bad soon, with the power."""
        if not self._on or epoch == process.copy.last_epoch or not process.copy.batches:
            return
        draw = self._tails.randrange
        if draw(100) < self._tail_rots_percent:
            self._world.schedule.after(draw(5, 100), partial(self._tail_rots, machine, process))

    def _tail_rots(self, machine: Machine, process: Process) -> None:
        """Damage the log from the first record of its last epoch on, if recovery may cut it."""
        copy, medium = process.copy, machine.disk.medium
        first = next((each for each in copy.batches if each.epoch == copy.last_epoch), None)
        if not self._on or machine.process is not process or first is None or process.log is None:
            return
        durable = max(
            recovery_point(medium),
            snapshot_end(medium),
            machine.view_disk.applied_offset + 1,
            process.log._directory._stored_committed_end,
        )
        found = found_at(medium, first.base_offset, first.data)
        if first.base_offset < durable or found is None:
            return
        if self._world.faults.flip(machine, found[0], from_byte=found[1]):
            self._world.faults.cut_power(machine)
