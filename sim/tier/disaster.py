"""A disaster: the metadata of all nodes is lost, and a new cluster takes the tier over with an
older snapshot of it, as `strandline format --from-snapshot` does; then an operator compares, as
`strandline reconcile` does, before or after the nodes begin to record what the store has.

Brokers go on all the time. Draws from a generator of its own, so that seeds without it run as
before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import Conflict, StrandlineError
from rlm.control.audit import AuditLine
from rlm.control.surroundings import CopyLimits
from rlm.format.object_keys import parse_segment_key
from rlm.reconcile.reconciliation import compare
from rlm.stores.cluster_marker import check_settled, read_marker, take_over
from rlm.stores.tier_store import TierStore
from rlmm.apply.apply import apply
from rlmm.rows import queries
from rlmm.rows.restart_rows import restarted
from rlmm.rows.rows import MemoryRows
from rlmm.segment import SegmentState
from sim.nodes.loop import Life
from sim.tier.disaster_audit import DisasterAudit
from sim.tier.faults import LATE_MS_MAX, VERY_LATE_MS_MAX
from strandline.node import reconciling

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

SEEDS_PER_STRUCK_ONE = 2
"""A strike is left out where others are on, so that fewer seeds have one."""
BEGINS_MS = (20_000, 120_000)
FEW, MANY = 12, 200
"""The most records that the snapshot lacks."""
SETTLE_S = 40.0
"""Longer than a request is given up and arrives all the same."""
LOOKS_MS = 8_000
DEADLINE_S = 20.0


class Disaster:
    """The disaster of a seed. `is_on` None: in some seeds. `is_dark` while no node runs but perhaps
    one of the lost cluster that nobody stopped, a machine's `twin` from then on.
    """

    def __init__(self, world: World, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"disaster {world.seed}")
        self._life = Life("operator")
        drawn = not random.randrange(SEEDS_PER_STRUCK_ONE)
        self.is_on = drawn if is_on is None else is_on
        self.audit = DisasterAudit(world)
        self.is_dark = self.is_over = False
        self._accepted = 0
        self._taken_over_ms = 0

    def limits(self, limits: CopyLimits) -> CopyLimits:
        """Limits of the nodes, which wait less behind a takeover."""
        return replace(limits, takeover_settle_s=SETTLE_S) if self.is_on else limits

    def begin(self) -> None:
        """Let it happen once."""
        world = self._world
        # What is told of a log that an unclean leader cut is judged by claims, some of which are
        # lost here; others have deeds of their own about what the metadata says.
        others = (world.delegated, world.damage, world.building, world.trash, world.cuts)
        more = (world.following, world.settings, world.clocks, world.transacting)
        others_on = any(each.is_on for each in (*others, *more))
        self.is_on &= "unclean" not in world.brokers.kinds and not others_on
        if self.is_on:
            world.schedule.after(self._random.randrange(*BEGINS_MS), self._strike)

    # ---- the disaster

    def _strike(self) -> None:
        """End all nodes, and wait until nothing of theirs is under way any more."""
        world = self._world
        if not world.log.end:  # there is no snapshot of nothing
            world.schedule.after(BEGINS_MS[0], self._strike)
            return
        world.note("the metadata of all nodes is lost")
        self.is_dark = True
        spared = None
        if not world.holds and not world.faults.breaks_timing and self._random.randrange(2):
            spared = self._random.choice(world.machines)
        for machine in world.machines:
            if machine.twin is not None:
                machine.end(machine.twin)
            if machine is spared and machine.up is not None:
                world.note(f"{machine.name} goes on alone")
                machine.twin, machine.process = machine.process, None
            elif machine.process is not None:
                machine.end(machine.process)
            machine.wipe()
        late_ms = VERY_LATE_MS_MAX if world.faults.breaks_timing else LATE_MS_MAX
        world.schedule.after(2 * late_ms, self._restart)

    def _restart(self) -> None:
        world, random = self._world, self._random
        for machine in world.machines:
            machine.wipe()
        lacks = random.randrange(random.choice((1, FEW, MANY)))
        end = max(1, world.log.end - lacks)
        world.note(f"a new cluster begins with the snapshot at {end}, the log ended {lacks} later")
        self._lose_objects()
        self.audit.strike(end)
        rows = MemoryRows()
        for record in world.log.records[:end]:
            rows.write(apply(rows, record).writes)
        world.log.restart(end, tuple(restarted(rows.items(), end_offset=end)))
        world.auditor.restart(end)
        world.loop.spawn(self._life, self._take_over())

    def _lose_objects(self) -> None:
        """Perhaps lose a segment of the store, too."""
        rows = self._world.auditor.reference.rows
        finished = [
            row
            for tip in queries.partitions(rows)
            for row in queries.list_segments(rows, tip)
            if row.state is SegmentState.COPY_SEGMENT_FINISHED
        ]
        if finished and not self._random.randrange(3):
            row = self._random.choice(finished)
            self._world.note(f"{row.start_offset} to {row.end_offset} is lost with it")
            for key in self._world.auditor.keys(row):
                self._world.auditor.went_behind_our_back(key)
                self._world.bucket.lose(key)

    async def _take_over(self) -> None:
        world = self._world
        tier = TierStore("main", world.bucket, world.prefix)
        before = await read_marker(tier)
        if before is not None:  # else no node has written one yet
            after = replace(
                before,
                cluster_id=world.log.cluster,
                predecessors=(before.cluster_id, *before.predecessors),
                began_with=f"snapshot at {world.log.start}",
            )
            await take_over(tier, before, after, deadline_s=DEADLINE_S)
        self.is_dark, self.is_over = False, True
        self._taken_over_ms = world.schedule.now_ms
        for machine in world.machines:
            machine.start()
        self._look()

    # ---- the operator

    def _look(self) -> None:
        """Compare, until the result is recorded."""
        world = self._world
        if self.audit.is_reconciled():
            return
        ups = [machine.up for machine in world.machines if machine.up is not None]
        if ups:
            process = self._random.choice(ups)
            world.loop.spawn(process.life, self._compare(process))
        world.schedule.after(1 + self._random.randrange(2 * LOOKS_MS), self._look)

    async def _compare(self, process: Process) -> None:
        """`strandline reconcile --apply`, with the number of missing segments of the last time."""
        manager, parts, world = process.manager, process.parts, self._world
        assert manager is not None
        assert parts is not None
        stores = parts.given.stores

        async def keep(line: AuditLine) -> None:
            process.audit.append(line)

        try:
            await manager.catch_up(deadline_s=DEADLINE_S)
            restart = manager.restart()
            if restart is None or restart.is_reconciled:
                return
            for tier in stores.by_name.values():
                await check_settled(
                    tier, settle_s=SETTLE_S, now_ms=process.machine.now_ms, deadline_s=DEADLINE_S
                )
            found = await compare(manager, stores, breathe=partial(asyncio.sleep, 0))
            world.note(
                f"the operator finds {found.whole} whole, {len(found.missing)} missing, "
                f"{found.unknown_count} unknown"
            )
            accepted, self._accepted = self._accepted, len(found.missing)
            reconciling._check_all_listed(found)
            reconciling._check_accepted(found, accepted)
            await reconciling._record(manager, restart, found, keep, "an operator")
        except Conflict:
            return
        except StrandlineError as error:
            world.note(f"the operator is told {type(error).__name__}")

    @property
    def settles(self) -> bool:
        """True while requests of the lost cluster may arrive."""
        passed_ms = self._world.schedule.now_ms - self._taken_over_ms
        return self.is_over and passed_ms < 1000 * SETTLE_S

    # ---- when all is quiet

    def is_unknown(self, key: str) -> bool:
        """True for what nobody deletes since its record is lost."""
        parsed = parse_segment_key(self._world.prefix, key)
        return parsed is not None and parsed.segment_id.id in self.audit.unknown

    def left_to_do(self) -> Iterator[str]:
        """A disaster that is not over, and what the store has and nobody serves."""
        if self.is_dark:
            yield "no node runs since the disaster"
        if self.is_over:
            yield from self.audit.left_to_do()
