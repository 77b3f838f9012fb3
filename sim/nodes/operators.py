"""Operators, who change voters, move leadership, and repair what only people can."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafka_formats.errors import RetryLater
from rlmm.raft.events import AcceptCut, TransferLeadership
from rlmm.raft.messages import (
    AddVoterRequest,
    DescribeQuorumRequest,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
)

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process
    from sim.nodes.world import World


class Operators:
    """A sane operator: dead voters go first, never below the number formatted."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.on = True
        self._period_ms = world.random.choice((0, 300, 1000, 4000))

    def begin(self) -> None:
        if self.on and self._period_ms:
            if not self._world.faults.quiet:
                self._act()
            delay_ms = 1 + self._world.random.randrange(2 * self._period_ms)
            self._world.schedule.after(delay_ms, self.begin)

    def _act(self) -> None:
        world, random = self._world, self._world.random
        leaders = [machine for machine in world.machines if machine.leads and machine.up]
        process = random.choice(leaders or world.machines).up
        if process is None or process.log is None:
            return
        core = process.log.driver.core
        if random.randrange(3) == 0:
            target = random.choice([None, *(key for key in core.voters.keys)])
            world.loop.spawn(process.life, self._transfer(process, target))
            return
        if random.randrange(8) == 0:
            world.loop.spawn(process.life, self._ask(process, DescribeQuorumRequest()))
            return
        request = self._voter_change(core.voters.keys)
        if request is not None:
            world.loop.spawn(process.life, self._ask(process, request))

    def _voter_change(self, keys: tuple[ReplicaKey, ...]) -> Request | None:
        world, random = self._world, self._world.random
        machines = {m.key: m for m in world.machines if not world.is_impostor(m)}
        dead = [key for key in keys if key not in machines]
        wait_ms = random.choice((500, 5000))
        if dead:
            return RemoveVoterRequest(dead[0], wait_ms)
        # A damaged disk beside another one would be more than a minority may lose.
        spare = [key for key in sorted(machines) if key not in keys and not machines[key].lost]
        if spare and (len(keys) < world.voter_count or random.randrange(2)):
            return AddVoterRequest(machines[random.choice(spare)].voter, wait_ms)
        if len(keys) > world.voter_count and not any(machines[key].lost for key in keys):
            return RemoveVoterRequest(random.choice(keys), wait_ms)
        return None

    async def _ask(self, process: Process, request: Request) -> None:
        assert process.log is not None
        try:
            async with asyncio.timeout(10):
                await process.log.driver.answer(request)
        except (RetryLater, TimeoutError):
            pass

    async def _transfer(self, process: Process, target: ReplicaKey | None) -> None:
        assert process.log is not None
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        process.log.driver.feed(TransferLeadership(done, target))
        try:
            async with asyncio.timeout(10):
                await done
        except TimeoutError:
            pass

    def accept_cuts(self) -> None:
        """Accept cuts that nobody who answers can disprove, as an operator would; never real
        losses.
        """
        for machine in self._world.machines:
            process = machine.up
            if process is None or process.log is None or machine.lost:
                continue
            if process.log.driver.core.cut is not None:
                machine.acknowledged = 0, 0
                self._world.loop.spawn(process.life, self._accept_cut(process))

    async def _accept_cut(self, process: Process) -> None:
        assert process.log is not None
        process.log.driver.feed(AcceptCut(("accept", 0)))

    def replace_disk(self, machine: Machine) -> None:
        """Have a node that refuses its directory formatted anew, to join as another replica."""
        machine.to_be_formatted = True
