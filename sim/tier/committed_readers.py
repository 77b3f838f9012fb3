"""Readers that ask nodes for committed records alone, by both ways of reading: records, of which
the node drops what is aborted, and batches with a list of aborted transactions, of which a consumer
drops it as Kafka's does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from kafka_formats.record_batch import (
    ControlType,
    control_record_type,
    iter_records,
    parse_header,
)
from rlm.data_plane.read_request import (
    BatchesRequest,
    Isolation,
    RecordsEnd,
    RecordsRequest,
)
from rlm.fetch.resolved_reads import check_readable
from sim.tier.committed_audit import Shown, Span
from sim.tier.readers import batches_of
from sim.tier.replica import Batch

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.partition import Partition
    from sim.tier.transacting import Transacting
    from sim.tier.world import World

PERIOD_MS = 5_000
NEAR = 12
READS_OF_HEALING = 60
COMMITTED = Isolation.READ_COMMITTED


class CommittedReaders:
    """The readers; `done` and `failed` count reads."""

    def __init__(self, world: World, transacting: Transacting, random: Random) -> None:
        self._world = world
        self._transacting = transacting
        self._random = random
        self._left = READS_OF_HEALING
        self.done = self.failed = 0

    def begin(self) -> None:
        """Read now and then, and for a while when all heals."""
        if not self._world.brokers.on:
            self._left -= 1
        if self._left:
            partition = self._random.choice(self._transacting.partitions())
            ends = [replica.end for replica in partition.replicas.values()]
            self._ask(partition, self._random.randrange(max(ends) + 1))
            self._world.schedule.after(1 + self._random.randrange(2 * PERIOD_MS), self.begin)

    def read_near(self, partition: Partition, offset: int) -> None:
        """Read right below an offset."""
        if not partition.deleted:
            self._ask(partition, max(0, offset - 1 - self._random.randrange(NEAR)))

    def _ask(self, partition: Partition, offset: int) -> None:
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if not ups:
            return
        process, bytes_max = self._random.choice(ups), self._random.choice((1, 500, 1 << 20))
        read = self._records if self._random.randrange(2) else self._batches
        task = self._read(process, partition, partial(read, process, partition, offset, bytes_max))
        self._world.loop.spawn(process.life, task)

    async def _read(
        self, process: Process, partition: Partition, read: Callable[[], object]
    ) -> None:
        span = Span(process, partition)
        try:
            shown = await read()  # type: ignore[misc]
        except StrandlineError:
            self.failed += 1
            return
        self.done += 1
        if shown is not None:
            span.ends()
            self._transacting.audit.shown(span, shown)

    async def _records(
        self, process: Process, partition: Partition, offset: int, bytes_max: int
    ) -> Shown | None:
        assert process.parts is not None
        request = RecordsRequest(offset, max_bytes=bytes_max, isolation=COMMITTED)
        data, ends = bytearray(), list[RecordsEnd]()
        async for piece in process.parts.reads.records(partition.tip, request, ends.append):
            data += piece
        (end,) = ends
        got = batches_of(bytes(data))
        return Shown(offset, end.next_offset, got, end.lost, end.undecided_records, end.at_end)

    async def _batches(
        self, process: Process, partition: Partition, offset: int, bytes_max: int
    ) -> Shown | None:
        assert process.parts is not None
        reads, tip = process.parts.reads, partition.tip
        check_readable(reads.state_of(tip), offset)
        served = reads.served_from(tip, offset)
        if served is None:
            return None
        piece = reads.piece(served)
        request = BatchesRequest(piece, offset, piece.valid_until + 1, bytes_max, COMMITTED)
        async with reads.waiting_batches(tip, request) as held:
            found, data = held.found, await held.read()
        got = consumed(batches_of(data), found.aborted, found.decided_until)
        lost = ((offset, piece.first_offset - 1),) if piece.first_offset > offset else ()
        return Shown(offset, min(found.next_offset, found.decided_until), got, lost, None, False)


def consumed(
    batches: Sequence[Batch], aborted: Iterable[tuple[int, int]], until: int
) -> list[Batch]:
    """The batches below `until` that Kafka's consumer shows (CompletedFetch)."""
    left = sorted(aborted, key=lambda each: each[1], reverse=True)
    dropped: set[int] = set()
    shown = []
    for batch in batches:
        if batch.last >= until:
            break
        header = parse_header(batch.data, 0, source="reader", position=0)
        while left and left[-1][1] <= batch.last:
            dropped.add(left.pop()[0])
        if header.is_control:
            if _is_abort(batch.data):
                dropped.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in dropped:
            shown.append(batch)
    return shown


def _is_abort(data: bytes) -> bool:
    (record,) = iter_records(data, source="reader", position=0)
    return control_record_type(record, source="reader", position=0) == ControlType.ABORT
