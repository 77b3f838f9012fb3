"""Logs that part on purpose: a leader is cut off with a tail of its own, and comes back at a moment
that chance hardly ever finds.

Even: the next leader's log ends where the tail ends, and so does its snapshot. Overtaken: the
leader still reads for a replica when it hears of the next one, and truncates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from sim.nodes.loop import Lane

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process
    from sim.nodes.world import World

POLL_MS = 10
FORK_MS_MAX = 10_000
"""Longest time without another leader until a fork is given up."""
AGAIN_MS = 100
JOINED_MS = 1000
"""The pause until a leader is looked for again, and the time that a fork has to heal."""
SLOW_READS_MS = 80


class Forks:
    """The forks of a world, one after the other, until `stop`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"forks of {world.seed}")
        kinds = (self._even, self._overtaken) if world.log_is_short else ()
        self._kinds = [kind for kind in kinds if self._random.randrange(3)]
        self._cut: set[tuple[str, str]] = set()
        self._on = True

    def begin(self) -> None:
        if self._on and self._kinds:
            self._world.schedule.after(self._random.randrange(1, 2000), self._fork)

    def stop(self) -> None:
        self._on = self._world.clients.quiet = False

    def _fork(self) -> None:
        leaders = self._world.faults.leaders()
        if self._on and len(leaders) == 1:
            self._calm()
            self._random.choice(self._kinds)(leaders[0])
        else:
            self._world.schedule.after(AGAIN_MS, self._fork)

    def _calm(self) -> None:
        """Nothing else goes wrong for a while."""
        world = self._world
        world.faults.quiet = True
        world.network.blocked.clear()
        for machine in world.machines:
            machine.resume()
            if machine.process is not None:
                machine.process.life.latency_ms = 2

    def _part(self, *side: Machine) -> None:
        """Cut these off until `_join`."""
        for one in side:
            for other in self._world.machines:
                if other not in side:
                    self._cut |= {(one.name, other.name), (other.name, one.name)}
        self._world.network.blocked |= self._cut

    def _join(self) -> None:
        self._world.network.blocked -= self._cut
        self._cut.clear()

    def _await_next(self, leader: Machine, then: Callable[[Machine, Machine], bool]) -> None:
        """Call `then` with the leader and the next one, now and again until it says that all is
        done, or the fork has taken too long.
        """
        self._poll(leader, leader.process, self._world.schedule.now_ms + FORK_MS_MAX, then)

    def _poll(
        self,
        leader: Machine,
        process: Process | None,
        until_ms: int,
        then: Callable[[Machine, Machine], bool],
    ) -> None:
        is_over = leader.process is not process or self._world.schedule.now_ms > until_ms
        if not self._on or process is None or is_over:
            self._end(leader)
            return
        later = [each for each in self._world.faults.leaders() if each is not leader]
        later = [each for each in later if each.process and each.process.epoch > process.epoch]
        if later and then(leader, later[0]):
            self._world.schedule.after(JOINED_MS, partial(self._end, leader))
            return
        call = partial(self._poll, leader, process, until_ms, then)
        self._world.schedule.after(POLL_MS, call)

    def _end(self, leader: Machine) -> None:
        self._world.clients.quiet = self._world.faults.quiet = False
        self._join()
        if self._on:
            leader.clock.set_rate(1000, self._world.schedule.now_ms)
        self.begin()

    # ---- even

    def _even(self, leader: Machine) -> None:
        self._world.clients.quiet = True
        self._part(leader)
        self._world.faults.pour(self._random.randrange(12, 30), leader)
        self._await_next(leader, self._make_even)

    def _make_even(self, leader: Machine, other: Machine) -> bool:
        """True once the next leader has a snapshot that ends with the tail, or is beyond it."""
        process = other.up
        assert leader.process is not None
        if process is None or process.view is None or process.log is None:
            return False
        end, reached = leader.process.copy.end_offset, process.copy.end_offset
        if process.high_watermark < reached or process.view.applied_offset < reached - 1:
            return False
        assert process.manager is not None
        if reached > end:
            return True
        if reached < end:
            # The last few by themselves: others write, too.
            self._world.faults.pour(max(end - reached - 4, min(end - reached, 4)), other)
            return False
        if any(each.end_offset == end for each in process.log._directory.snapshots()):
            self._join()
            return True
        if process.view.flushed_offset < end - 1:
            process.manager._applying.flush_due.set()
        else:
            process.manager._applying.snapshot_due.set()
        return False

    # ---- overtaken

    def _overtaken(self, leader: Machine) -> None:
        """Cut off the leader with a replica that does not vote, and that is late with its tail."""
        world = self._world
        assert leader.process is not None
        assert leader.process.log is not None
        voters, epoch = leader.process.log.driver.core.voters.keys, leader.process.epoch
        followers = [
            each
            for each in world.machines
            if each.up and each.up.epoch == epoch and each.key not in voters
            if not world.is_impostor(each)
        ]
        if not followers:
            self._end(leader)
            return
        follower = self._random.choice(followers)
        follower.pause()
        self._part(leader, follower)
        leader.clock.set_rate(500, world.schedule.now_ms)  # it notices late that it is alone
        for at_ms in range(0, 100, POLL_MS):
            world.schedule.after(at_ms, partial(self._pour, leader, leader.process))
        self._await_next(leader, partial(self._read_slowly, follower))

    def _pour(self, leader: Machine, process: Process) -> None:
        if self._on and leader.up is process and leader.leads:
            self._world.faults.pour(4, leader)

    def _read_slowly(self, follower: Machine, leader: Machine, _: Machine) -> bool:
        """The replica goes on and asks for the tail, which its leader reads for it."""
        world = self._world
        follower.resume()
        process = leader.process
        assert process is not None
        assert process.log is not None
        lane = process.life.lanes.setdefault(process.log._reader, Lane())
        lane.slow_ms = SLOW_READS_MS
        world.schedule.after(self._random.randrange(1, 40), self._join)
        world.schedule.after(JOINED_MS, partial(setattr, lane, "slow_ms", 0))
        return True
