"""Readers of the tier, who read records through the shipped read path of some node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from kafka_formats.record_batch import parse_header
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.read_request import RecordsRequest
from sim.tier.named_readers import NamedReaders
from sim.tier.replica import Batch

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

PERIOD_MS = 4_000


class Readers:
    """Readers who read now and then while `on`, also by `named`; `done`, `failed` count reads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.on = True
        self.done = self.failed = 0
        self.named = NamedReaders(world)

    def begin(self) -> None:
        if not self.on:
            return
        world, random = self._world, self._world.random
        ups = [machine.up for machine in world.machines if machine.up is not None]
        if ups:
            process = random.choice(ups)
            tip = random.choice(world.brokers.partitions).tip
            truth_end = world.brokers.partition(tip).replicas
            end = max(replica.end for replica in truth_end.values())
            self.ask(process, tip, random.randrange(end + 1), random.choice((1, 500, 1 << 20)))
        world.schedule.after(1 + random.randrange(2 * PERIOD_MS), self.begin)

    def ask(self, process: Process, tip: TopicIdPartition, offset: int, max_bytes: int) -> None:
        request = RecordsRequest(offset, max_bytes=max_bytes)
        self._world.loop.spawn(process.life, self._read(process, tip, request))

    async def _read(self, process: Process, tip: TopicIdPartition, request: RecordsRequest) -> None:
        assert process.parts is not None
        assert process.view is not None
        first = process.view.applied_offset
        self.named.ask(process)
        data = bytearray()
        try:
            async for piece in process.parts.reads.records(tip, request):
                data += piece
        except StrandlineError:
            # Told as an error. What came before it counts: whole batches are handed out.
            self.failed += 1
        else:
            self.done += 1
        span = (first, process.view.applied_offset)
        self._world.auditor.read(tip, batches_of(bytes(data)), request.offset, span)


def batches_of(data: bytes) -> list[Batch]:
    """Batches in the bytes that a reader got."""
    found, at = [], 0
    while at < len(data):
        header = parse_header(data, at, source="reader", position=at)
        end = at + header.size_bytes
        found.append(
            Batch(
                header.base_offset, header.last_offset, header.partition_leader_epoch,
                header.max_timestamp, data[at:end],
            )
        )  # fmt: skip
        at = end
    return found
