"""Topics that no broker knows for a time, as when a listing is filtered: nodes mark their data for
deletion, an admin takes that back, and nothing is marked again though they stay unknown.

The nodes' loop is the shipped one, with a time that passes faster. Deleted topics are left to the
admins, whose grace a world outlives. Draws from a generator of its own, so that seeds without it
run as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Surroundings
from rlm.control.task_watch import Loop
from rlm.leadership.leadership import NoAnswer
from rlm.retention.topic_absence import TopicAbsence
from rlm.retention.topic_absence_plan import ABSENT_FOR_S
from rlmm.partition_state import DELETE_GRACE_DEFAULT_MS, PartitionState
from rlmm.records.control_records import PartitionDeleteUndo
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

SEEDS_PER_ABSENCE = 3
"""One in four has it in the end, since seeds with a disaster have none."""
FASTER = 60.0
"""The looks' time against the world's: an absence of ten minutes lasts ten seconds."""
ABSENT_MS_MIN = round(ABSENT_FOR_S * 1000 / FASTER)
HIDDEN_MS = (5_000, 90_000)
PERIOD_MS = 30_000
TAKEN_BACK_MS_MAX = 10_000
BESIDE = (8, 9)
"""Brokers that have no node and are up: an absence takes the answers of two at least."""
OWN_TOPIC = "seldom-known"
MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
DEADLINE_S = 10.0


@dataclass(slots=True)
class _Hidden:
    """The time for which no broker knew a topic; `until_ms` None: it lasts."""

    since_ms: int
    until_ms: int | None = None


class Absences:
    """Topics that brokers do not know. `is_on` None: in some seeds. `marked` counts marks,
    `taken_back` those that an admin took back, `asked_again` answers that a topic taken back is
    unknown.
    """

    def __init__(self, world: World, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"{world.seed} absence")
        drawn = not random.randrange(SEEDS_PER_ABSENCE)
        self.is_on = drawn if is_on is None else is_on
        # A disaster forgets what was taken back.
        self.is_on = self._goes_on = self.is_on and not world.disaster.is_on
        self._hidden: dict[TopicIdPartition, _Hidden] = {}
        self._taken_back: set[TopicIdPartition] = set()
        self.marked = self.taken_back = self.asked_again = 0

    def begin(self) -> None:
        """Create a topic beside the others, since one alone is never marked; begin to hide one."""
        if self.is_on:
            self._world.brokers.create(OWN_TOPIC)
            self._act()

    def stop(self) -> None:
        """All topics are known again."""
        self._goes_on = False
        for tip in list(self._hidden):
            self._know(tip)

    def heal(self, process: Process) -> None:
        """Take all marks of nodes back; what was deleted meanwhile is marked by an admin."""
        for tip in self._marked_by_nodes():
            self._spawn(process, tip)

    def left_to_do(self) -> Iterator[str]:
        """Topics that are to be deleted by a mark of nodes, after the longest grace."""
        for tip in self._marked_by_nodes():
            yield f"the nodes marked {tip} for deletion, and it was not taken back"

    def loops(self, process: Process, around: Surroundings) -> Iterator[Loop]:
        """The loop of a node that looks for deleted topics."""
        if not self.is_on:
            return
        assert process.manager is not None
        assert process.parts is not None
        ambient = around.ambient
        fast = replace(ambient, monotonic=lambda: ambient.monotonic() * FASTER, sleep=_fast_sleep)
        absence = TopicAbsence(
            process.manager, _Brokers(self, process), replace(around, ambient=fast),
            process.parts.held_back.deleting, process.audit.append,
        )  # fmt: skip
        yield Loop("look for deleted topics", absence.run, absence.problems)

    # ---- what brokers know

    def _act(self) -> None:
        if not self._goes_on:
            return
        world, random = self._world, self._random
        hidden = {tip for tip, each in self._hidden.items() if each.until_ms is None}
        partitions = [each.tip for each in world.brokers.partitions]
        if partitions and not hidden:
            tip = random.choice(partitions)
            world.note(f"no broker knows {tip.topic}")
            self._hidden[tip] = _Hidden(world.schedule.now_ms)
            world.schedule.after(random.randrange(*HIDDEN_MS), partial(self._know, tip))
        world.schedule.after(1 + random.randrange(2 * PERIOD_MS), self._act)

    def _know(self, tip: TopicIdPartition) -> None:
        hidden = self._hidden[tip]
        if hidden.until_ms is None:
            hidden.until_ms = self._world.schedule.now_ms
            self._world.note(f"the brokers know {tip.topic} again")

    def unknown(self, ids: Sequence[Uuid]) -> Mapping[int, frozenset[Uuid]] | NoAnswer:
        """The ids that each live broker does not know."""
        unknown = {tip for tip, each in self._hidden.items() if each.until_ms is None}
        self.asked_again += bool(unknown & self._taken_back)
        if not self._random.randrange(10):
            return NoAnswer("a broker is being replaced")
        found = frozenset(tip.topic_id for tip in unknown) & frozenset(ids)
        ups = [each.node_id for each in self._world.machines if each.broker_up]
        return dict.fromkeys((*ups, *BESIDE), found)

    # ---- marks

    def committed(self, record: MetadataRecord) -> None:
        """Check an accepted mark of nodes, and let an admin take it back."""
        if not self.is_on:
            return
        if isinstance(record, PartitionDeleteUndo):
            self._taken_back.add(record.partition)
            self.taken_back += 1
        if not isinstance(record, RemotePartitionDeleteMetadata) or record.state is not MARKED:
            return
        if record.grace_ms != DELETE_GRACE_DEFAULT_MS:
            return
        tip, world = record.partition, self._world
        self.marked += 1
        world.auditor.check(
            tip not in self._taken_back, "what_an_admin_took_back_is_not_marked_again",
            f"{record} is accepted, and an admin took an earlier mark back",
        )  # fmt: skip
        hidden = self._hidden.get(tip)
        until_ms = world.schedule.now_ms
        if hidden is not None and hidden.until_ms is not None:
            until_ms = hidden.until_ms
        world.auditor.check(
            hidden is not None and until_ms - hidden.since_ms >= ABSENT_MS_MIN,
            "only_what_no_broker_knew_for_long_is_marked",
            f"{record} is accepted, and its topic was unknown {hidden}, {until_ms} is now",
        )
        after_ms = 1 + self._random.randrange(TAKEN_BACK_MS_MAX)
        world.schedule.after(after_ms, partial(self._take_back, tip))

    def _marked_by_nodes(self) -> Iterator[TopicIdPartition]:
        rows = self._world.auditor.reference.rows
        both = (*self._world.brokers.partitions, *self._world.brokers.deleted)
        for partition in both if self.is_on else ():
            state = queries.partition_state(rows, partition.tip)
            if state is not None and state.delete_state is MARKED and _is_of_nodes(state):
                yield partition.tip

    def _take_back(self, tip: TopicIdPartition) -> None:
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if tip not in self._marked_by_nodes():
            return
        if ups:
            self._spawn(self._random.choice(ups), tip)
        self._world.schedule.after(TAKEN_BACK_MS_MAX, partial(self._take_back, tip))

    def _spawn(self, process: Process, tip: TopicIdPartition) -> None:
        self._world.loop.spawn(process.life, self._undo(process, tip))

    async def _undo(self, process: Process, tip: TopicIdPartition) -> None:
        manager = process.manager
        assert manager is not None
        state = manager.partition_state(tip)
        if state is None or state.delete_state is not MARKED or not _is_of_nodes(state):
            return
        self._world.note(f"an admin takes the mark of {tip.topic} back")
        try:
            undo = PartitionDeleteUndo(tip, state.delete_offset)
            await manager.undo_partition_delete(undo, deadline_s=DEADLINE_S)
        except StrandlineError as error:
            self._world.note(f"an admin is told {type(error).__name__}")


class _Brokers:
    """The port `TopicIdPort` of a node."""

    def __init__(self, absences: Absences, process: Process) -> None:
        self._absences = absences
        self._process = process

    async def unknown_topic_ids(
        self, ids: Sequence[Uuid]
    ) -> Mapping[int, frozenset[Uuid]] | NoAnswer:
        faults, machine = self._process.machine.world.faults, self._process.machine
        await asyncio.sleep(faults.answer_ms(machine, "topic_ids") / 1000)
        return self._absences.unknown(ids)


def _is_of_nodes(state: PartitionState) -> bool:
    """True for a mark that only time would end, long after the world."""
    return state.delete_grace_ms == DELETE_GRACE_DEFAULT_MS


async def _fast_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds / FASTER)
