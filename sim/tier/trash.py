"""Retention with a trash: policies that fill it, admins who restore, release and empty, also at the
turn and at the same time, by an old look and any node; topics marked for deletion and brought back;
and elections that cut a log below or across a mark. In a part of the seeds without a plan, too.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import CopyLimits
from rlm.retention.mark_times import last_mark
from rlmm.partition_state import NOTHING_EXPIRES, Expiry, TopicPolicy
from rlmm.records.control_records import ExpiryMark, ExpiryTakenBack, PartitionDeleteUndo
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.rows.expiry import find_expiry
from rlmm.rows.reads import read_policy
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
)
from sim.tier.cut_off_audit import CutOffAudit
from sim.tier.long_deletions import LongDeletions
from sim.tier.trash_audit import TrashAudit
from sim.tier.trash_look_ups import LookUps

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.partition import Partition
    from sim.tier.world import World

SEEDS_PER_TRASH = 4
"""One in so many seeds without a plan has a trash."""
PERIODS_MS = (4_000, 20_000)
LOOK_UP_MS = 2_000
DEADLINE_S = 10.0
TURN_MS = 12_000
"""Longest time from a due mark to the pass that follows it."""
OLD_LOOK_S = (0.0, 0.0, 0.5, 6.0)
MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
UNDO_MS_MAX = 30_000
FOREVER_MS = 1_000 * 3_600_000
DEEDS = ("policy", "policy", "restore", "empty", "both", "cut", "cut", "delete")
POLICIES = (
    TopicPolicy(retention_ms=5_000),
    TopicPolicy(retention_ms=20_000),
    TopicPolicy(retention_bytes=300),
    TopicPolicy(retention_bytes=1_500),
)


class Trash:
    """The trash of a world. `is_on` None: in some seeds."""

    def __init__(self, world: World, is_on: bool | None) -> None:
        self._world = world
        self._random = Random(f"trash {world.seed}")
        if is_on is None:
            is_on = not Random(f"{world.seed} plain trash").randrange(SEEDS_PER_TRASH)
        self.is_on = self._goes_on = is_on
        self._period_ms = Random(f"often {world.seed}").choice(PERIODS_MS)
        self.audit = TrashAudit(world)
        self._cut_off = CutOffAudit(world)
        self.look_ups = LookUps(world, self.audit, self._random)
        self.long_deletions = LongDeletions(world, is_on=is_on, mark=self._mark_deleted)

    def limits(self, limits: CopyLimits) -> CopyLimits:
        """Limits of the nodes, with a trash."""
        if not self.is_on:
            return limits
        return replace(limits, retention_trash_s=self._random.choice((15.0, 40.0, 120.0)))

    def begin(self) -> None:
        """Fill the trash, and look into it now and then."""
        if self.is_on:
            self._act()
            self._look()

    def stop(self) -> None:
        """Nothing more is done to it."""
        self._goes_on = False

    def heal(self, process: Process) -> None:
        """Bring back the topics whose deletion is marked, some of them long after."""
        if self.long_deletions.last(process):
            return
        brokers = self._world.brokers
        for partition in (*brokers.partitions, *brokers.deleted) if self.is_on else ():
            self._spawn(process, partial(self._undo, process, partition.tip))

    def committed(
        self,
        offset: int,
        tip: TopicIdPartition,
        record: MetadataRecord,
        before: RemoteLogSegmentMetadata | None,
    ) -> None:
        """Check an accepted record of a partition; `before` is the row that it updates."""
        if self.is_on:
            self.audit.committed(offset, tip)
            self._cut_off.committed(record, before)

    def marked(self, record: ExpiryMark) -> None:
        """Check a mark, some of which are taken back right when the log start is to follow."""
        self.audit.marked(record)
        if self._goes_on and not self._random.randrange(3):
            due_ms = record.trash_ms + self._random.randrange(TURN_MS)
            self._world.schedule.after(due_ms, partial(self._at_the_turn, record.partition))

    def left_to_do(self) -> Iterator[str]:
        """Marks whose time passes, once nobody takes them back, and what lies below log starts."""
        rows = self._world.auditor.reference.rows
        for partition in self._world.brokers.partitions if self.is_on else ():
            state = queries.partition_state(rows, partition.tip)
            if state is None:
                continue
            if state.expiry.marks:
                yield f"{partition.tip} has {state.expiry.marks} in the trash"
            if state.delete_state is not None:
                yield f"the deletion of {partition.tip} is marked"
            for row in queries.list_segments(rows, partition.tip):
                if row.end_offset < state.log_start_offset:
                    yield f"{row.segment_id} ends below log start {state.log_start_offset}"

    # ---- now and then

    def _up(self) -> Process | None:
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        return self._random.choice(ups) if ups else None

    def _look(self) -> None:
        if not self._goes_on:
            return
        process = self._up()
        if process is not None:
            tips = [each.tip for each in self._world.brokers.partitions]
            marked = [tip for tip in tips if self.audit.of(tip).marks]
            self.look_ups.ask(process, self._random.choice(marked or tips))
        self._world.schedule.after(1 + self._random.randrange(2 * LOOK_UP_MS), self._look)

    def _act(self) -> None:
        if not self._goes_on:
            return
        process = self._up()
        if process is not None:
            new = [each for each in self._world.brokers.partitions if not self._has_policy(each)]
            partition = self._random.choice(new or self._world.brokers.partitions)
            self._do(process, partition, "policy" if new else self._random.choice(DEEDS))
        self._world.schedule.after(1 + self._random.randrange(2 * self._period_ms), self._act)

    def _has_policy(self, partition: Partition) -> bool:
        rows = self._world.auditor.reference.rows
        return read_policy(rows, partition.tip.topic).offset >= 0

    def _do(self, process: Process, partition: Partition, deed: str) -> None:
        world, random = self._world, self._random
        match deed:
            case "policy":
                world.admins.set_policy(process, partition.tip.topic, random.choice(POLICIES))
            case "restore" | "empty" | "both":
                self._restore_or_empty(process, deed)
            case "cut":
                marked = [
                    each for each in world.brokers.partitions if self.audit.of(each.tip).marks
                ]
                if marked:
                    self._cut(random.choice(marked))
            case _:
                self._mark_deleted(process, partition.tip)
                after_ms = random.randrange(UNDO_MS_MAX)
                world.schedule.after(after_ms, partial(self._bring_back, partition.tip))

    def _mark_deleted(self, process: Process, tip: TopicIdPartition) -> None:
        self._spawn(process, partial(self._delete, process, tip))

    def _bring_back(self, tip: TopicIdPartition) -> None:
        process = self._up()
        if process is not None:
            self._spawn(process, partial(self._undo, process, tip))

    def _spawn(self, process: Process, deed: Callable[[], Awaitable[None]]) -> None:
        async def quietly() -> None:
            try:
                await deed()
            except StrandlineError as error:
                self._world.note(f"an admin is told {type(error).__name__}")

        self._world.loop.spawn(process.life, quietly())

    # ---- admins

    def _restore_or_empty(self, process: Process, deed: str) -> None:
        """Restore, release or empty what some node's view has; `both`: at the same time."""
        view = process.view
        if view is None:
            return
        read = {tip: find_expiry(view, tip) for tip in sorted(queries.partitions(view), key=str)}
        found = [each for each in read.items() if each[1] != NOTHING_EXPIRES]
        if not found:
            return
        tip, expiry = self._random.choice(found)
        if deed != "restore":
            self._empty_somewhere(tip)
        if deed != "empty":
            self._spawn(process, partial(self._take_back, process, tip, expiry))

    def _at_the_turn(self, tip: TopicIdPartition) -> None:
        process = self._up()
        if process is None or process.manager is None or not self._goes_on:
            return
        state = process.manager.partition_state(tip)
        if state is not None and state.expiry.marks:
            self._spawn(process, partial(self._take_back, process, tip, state.expiry))
            if not self._random.randrange(4):
                self._empty_somewhere(tip)

    def _empty_somewhere(self, tip: TopicIdPartition) -> None:
        """The node beside the leader has the claim, if any has."""
        partition = self._world.brokers.partition(tip)
        asked = self._world.machine(partition.leader).up or self._up()
        if asked is not None:
            self._spawn(asked, partial(self._empty, asked, tip))

    async def _take_back(self, process: Process, tip: TopicIdPartition, expiry: Expiry) -> None:
        """Take back what an admin saw, perhaps some time ago."""
        manager = process.manager
        assert manager is not None
        seen = self.audit.of(tip).starts[-1].log_start
        before = manager.partition_state(tip)
        record = ExpiryTakenBack(tip, expiry.offset, not self._random.randrange(3), "an admin", "")
        await asyncio.sleep(self._random.choice(OLD_LOOK_S))
        self._world.note(f"an admin takes back {tip}, by {process.machine.name}")
        offset = await manager.take_expiry_back(record, deadline_s=DEADLINE_S)
        if expiry.marks and before is not None:
            start = self.audit.starts_within(tip, (offset, offset))[-1]
            self._world.auditor.check(
                start.log_start <= max(before.log_start_offset, seen),
                "what_an_admin_was_told_is_back_is_there",
                f"an admin took {expiry.marks} of {tip} back, and its log starts at {start}",
            )
            self._read_back(tip, start.log_start, expiry.below)

    def _read_back(self, tip: TopicIdPartition, start: int, end: int) -> None:
        """Read what was taken back, at any node."""
        process = self._up()
        if process is not None and start < end:
            self.look_ups.read(process, tip, max(0, start))
            self.look_ups.read(process, tip, max(0, self._random.randrange(start, end)))

    async def _empty(self, process: Process, tip: TopicIdPartition) -> None:
        """Empty the trash as `POST …/trash/empty` does."""
        manager, parts = process.manager, process.parts
        assert manager is not None
        assert parts is not None
        await manager.catch_up()
        state = manager.partition_state(tip)
        last = None if state is None else last_mark(state.expiry)
        if last is None:
            return
        await asyncio.sleep(self._random.choice(OLD_LOOK_S))
        self._world.note(f"an admin empties the trash of {tip}, by {process.machine.name}")
        before, here = last.mark.offset, self.audit.of(tip)
        here.emptied.add((last.mark.marked_at, last.seen_ms))
        began = self._world.log.end
        planned = await parts.expirer.delete_records(
            tip, before, apply=True, why="an admin", emptied=last
        )
        if planned.move is not None:
            highest = max(each.log_start for each in here.starts if each.since >= began - 1)
            self._world.auditor.check(
                highest >= before,
                "what_was_emptied_is_gone",
                f"an admin emptied {tip} below {before}, its log starts at {here.starts[-3:]}",
            )

    async def _delete(self, process: Process, tip: TopicIdPartition) -> None:
        """Mark the deletion of a topic, which somebody brings back."""
        manager = process.manager
        assert manager is not None
        state = manager.partition_state(tip)
        if state is None or state.delete_state is not None:
            return
        self._world.note(f"an admin marks {tip} for deletion")
        step = RemotePartitionDeleteMetadata(
            tip, process.machine.node_id, process.machine.now_ms(), MARKED,
            replaces_offset=state.delete_offset, grace_ms=FOREVER_MS,
        )  # fmt: skip
        await manager.put_remote_partition_delete_metadata(step, deadline_s=DEADLINE_S)

    async def _undo(self, process: Process, tip: TopicIdPartition) -> None:
        manager = process.manager
        assert manager is not None
        state = manager.partition_state(tip)
        ours = state is not None and state.delete_grace_ms == FOREVER_MS
        if state is not None and state.delete_state is MARKED and ours:
            undo = PartitionDeleteUndo(tip, state.delete_offset)
            await manager.undo_partition_delete(undo, deadline_s=DEADLINE_S)

    # ---- brokers

    def _cut(self, partition: Partition) -> None:
        """Elect a replica that lacks the end of the log, from below a mark on, or behind it."""
        random = self._random
        alive = [each for each in partition.replicas if self._world.machine(each).broker_up]
        others = [each for each in sorted(alive) if each != partition.leader]
        if not others:
            return
        broker = random.choice(others)
        replica = partition.replicas[broker]
        mark = random.choice(self.audit.of(partition.tip).marks)
        borders = [b.base for b in replica.batches if b.base >= max(replica.bases[0], 1)]
        near = sorted(borders, key=lambda each: abs(each - mark.offset))[:5]
        if not near:
            return
        end = random.choice(near)
        self._world.note(f"{partition.tip.topic}: n{broker} loses its log from {end} on")
        partition.drop_from_in_sync(broker)
        replica.truncate(end)
        self._world.brokers.elect(partition, broker, unclean=True)
