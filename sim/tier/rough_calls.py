"""Calls of brokers at awkward moments: they come again, much later and as they were, or out of
their order; tasks stand still or end between any two steps; records and answers come late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from kafka_formats.kafka_uuid import Uuid
from rlm.delegated.calls import BrokerCalls
from rlmm.metadata_log import Proposal
from rlmm.records.control_records import PartitionClaim
from rlmm.records.records import decode
from rlmm.rows import queries
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from sim.tier.partition import Partition
from sim.tier.plugin import serving_call
from sim.tier.tier_consumers import THROWN, short

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.tiering import TieringBroker
    from sim.tier.world import World

LATE_PROPOSAL_MS_MAX = 20_000
LATE_ANSWER_MS_MAX = 3_000
STAND_STILL_MS_MAX = 8_000
COPY_AGAIN_MS_MAX = 3_000
AGAIN_MS = (1_000, 15_000, 60_000)
ECHOED = frozenset({"add", "update", "delete", "copy"})

Make = Callable[[BrokerCalls], Awaitable[Any]]


class RoughCalls:
    """The calls of a seed, while `goes_on`."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._again_percent = random.choice((0, 5, 20))
        self._still_percent = random.choice((0, 3, 10))
        self._slow_until_ms = 0
        self._copies: dict[Uuid, Make] = {}
        self.goes_on = False

    def elected(self) -> None:
        """Let brokers answer slowly for a while, perhaps."""
        if not self._random.randrange(3):
            self._slow_until_ms = self._world.schedule.now_ms + LATE_ANSWER_MS_MAX

    def marked(self, broker: TieringBroker, row: RemoteLogSegmentMetadata) -> None:
        """A reader has looked a segment up before it was marked; its copy's request comes again."""
        if self.goes_on and not self._random.randrange(3):
            self._world.loop.spawn(broker.life, self._fetch(broker, row))
        make = self._copies.get(row.segment_id.id)
        if self.goes_on and make is not None and not self._random.randrange(3):
            machine, delay_ms = self._world.machine(broker.node_id), self._random.randrange(40_000)
            self._world.schedule.after(delay_ms, partial(self._come_again, machine, "copy", make))

    async def _fetch(self, broker: TieringBroker, row: RemoteLogSegmentMetadata) -> None:
        await asyncio.sleep(self._random.randrange(500) / 1000)
        try:
            await broker.plugin.fetch(row)
        except THROWN as error:
            self._world.note(f"broker {broker.node_id} is told {short(error)}")

    def answer_ms(self) -> int:
        """The time by which a broker answers a look later, right behind an election."""
        is_slow = self.goes_on and self._world.schedule.now_ms < self._slow_until_ms
        is_late = is_slow and self._random.randrange(2)
        return self._random.randrange(LATE_ANSWER_MS_MAX) if is_late else 0

    def proposal_ms(self, proposals: Sequence[Proposal]) -> int:
        """The time by which a record of a segment, or a claim, comes later to the log."""
        if not self.goes_on or self._random.randrange(100) >= self._still_percent:
            return 0
        record = decode(proposals[0].control_type, proposals[0].value)
        is_late = isinstance(
            record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | PartitionClaim
        )
        return self._random.randrange(LATE_PROPOSAL_MS_MAX) if is_late else 0

    async def between_reads(self) -> None:
        """Let time pass between a look-up and the fetch of what it found."""
        if self.goes_on and not self._random.randrange(4):
            await asyncio.sleep(self._random.randrange(3_000) / 1000)

    async def stray(self, broker: TieringBroker, partition: Partition) -> None:
        """Send what no broker sends then; what its node accepts has to do no harm."""
        tip, random = partition.tip, self._random
        rows = list(queries.list_segments(self._world.auditor.reference.rows, tip))
        if not rows or tip not in broker.known:
            return
        row = random.choice(rows)
        what = random.choice(("delete", "gone", "finish", "add"))
        self._world.note(f"broker {broker.node_id} sends a stray {what} of {row.segment_id.id}")
        try:
            await self._send(broker, row, what)
        except THROWN as error:
            self._world.note(f"broker {broker.node_id} is told {short(error)}")

    async def _send(self, broker: TieringBroker, row: RemoteLogSegmentMetadata, what: str) -> None:
        is_copied = row.state is not SegmentState.COPY_SEGMENT_STARTED
        if what == "delete":
            await broker.plugin.delete(row)
        elif what == "gone":
            await broker.plugin.update(row, SegmentState.DELETE_SEGMENT_FINISHED)
        elif what == "finish" and is_copied:
            await broker.plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, b"other")
        elif what == "add" and is_copied:
            started = replace(row, state=SegmentState.COPY_SEGMENT_STARTED, custom_metadata=None)
            await asyncio.sleep(self._random.choice((0.0, 20.0, 60.0)))  # it may be gone by then
            await broker.plugin.add(started)

    def copies(self, id_: Uuid, make: Make) -> None:
        """Note the request of a copy."""
        if self.goes_on:
            self._copies[id_] = make

    def sent(self, machine: Machine, name: str, make: Make) -> None:
        """Let a write that is sent come again later, as it is, to whatever runs there then."""
        if not self.goes_on or name not in ECHOED:
            return
        if self._random.randrange(100) < self._again_percent:
            delay_ms = self._random.randrange(self._random.choice(AGAIN_MS))
            self._world.schedule.after(delay_ms, partial(self._come_again, machine, name, make))

    def _come_again(self, machine: Machine, name: str, make: Make) -> None:
        process = machine.up
        if process is None or not self.goes_on:
            return
        self._world.note(f"{machine.name} hears a call {name} again")
        unheard = serving_call(process, name, make, None, partial(self._world.schedule.after, 1))
        task = self._world.loop.spawn(process.life, unheard)
        if name == "copy":  # its client has left
            left_ms = self._random.randrange(COPY_AGAIN_MS_MAX)
            self._world.schedule.after(left_ms, partial(_cancel, task))

    async def breaks_off(self) -> bool:
        """Stand still for a while, as any broker may; True if the task is cancelled."""
        if not self.goes_on:
            return False
        if self._random.randrange(100) < self._still_percent:
            await asyncio.sleep(self._random.randrange(STAND_STILL_MS_MAX) / 1000)
        return self._random.randrange(100) < self._still_percent


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
