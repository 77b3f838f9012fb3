"""Damage to objects in the store, and repairs while brokers, retention and faults go on.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.data_plane.repair_jobs import expected_objects
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import parse_segment_key, segment_keys
from rlm.repair.repair_plan import readable_range
from rlm.repair.repair_run import RepairRequest
from rlmm.lineage import within_lineage
from rlmm.rows import queries
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from sim.tier.damaged_twice import DamagedTwice
from sim.tier.replica import batches_within

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

PERIOD_MS = 15_000
SEEDS_PER_DAMAGED_ONE = 4
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


class Damage:
    """Damage and repairs. `is_on` None: in some seeds. `damaged` are finished segments of which an
    object was harmed; `born_rotten` are keys of replacements that rotted as they were written.
    """

    def __init__(self, world: World, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"damage {world.seed}")
        self.is_on = not random.randrange(SEEDS_PER_DAMAGED_ONE) if is_on is None else is_on
        self.goes_on = self.is_on
        self.twice = DamagedTwice(world)
        self._written: set[str] = set()
        self._repairs: set[Uuid] = set()
        self.damaged: set[Uuid] = set()
        self.born_rotten: set[str] = set()
        self.repaired = 0

    def begin(self) -> None:
        """Harm something now and then, and ask for a repair."""
        if not self.goes_on:
            return
        rows = list(self._finished())
        if rows:
            row = self._random.choice(rows)
            key = self._random.choice(self._keys(row))
            self.harm(row, key, lost=not self._random.randrange(2))
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if ups:
            self.ask(self._random.choice(ups))
        self._world.schedule.after(1 + self._random.randrange(2 * PERIOD_MS), self.begin)

    def stop(self) -> None:
        """Nothing more is harmed."""
        self.goes_on = False

    def harm(self, row: RemoteLogSegmentMetadata, key: str, *, lost: bool) -> None:
        """Harm an object of a finished segment."""
        self._world.note(f"{self._world.short(key)} is {'lost' if lost else 'damaged'}")
        self.damaged.add(row.segment_id.id)
        self.twice.note_harmed(row)
        self._world.auditor.went_behind_our_back(key)
        if lost:
            self._world.bucket.lose(key)
        else:
            self._world.bucket.rot(key)

    def written(self, key: str) -> None:
        """Note an object in the bucket; one that replaces a damaged one may rot at once."""
        if key in self._written:
            self.born_rotten.discard(key)
            return
        self._written.add(key)
        if self.goes_on and self._replaces_damage(key) and not self._random.randrange(6):
            self._world.note(f"{self._world.short(key)} rots as it is written")
            self._world.bucket.rot(key)
            self.born_rotten.add(key)

    def repairing(self, copy: Uuid) -> None:
        """Note a segment that a repair uploads; only such are read back."""
        self._repairs.add(copy)

    def _replaces_damage(self, key: str) -> bool:
        parsed = parse_segment_key(self._world.prefix, key)
        return parsed is not None and parsed.segment_id.id in self._repairs

    def finished(self, row: RemoteLogSegmentMetadata) -> None:
        """Check a committed COPY_SEGMENT_FINISHED."""
        rotten = self.born_rotten.intersection(self._keys(row))
        self._world.auditor.check(
            not rotten, "repair_is_read_back", f"{rotten} is damaged, and its copy is finished"
        )
        before = [
            each
            for each in queries.list_segments(
                self._world.auditor.reference.rows, row.segment_id.partition
            )
            if each.segment_id.id in self.damaged
            and (each.start_offset, each.end_offset) == (row.start_offset, row.end_offset)
        ]
        self.repaired += bool(before)
        if before:
            self.twice.repaired(row)

    def ask(self, process: Process) -> None:
        """Ask for a repair of what the node leads of a topic."""
        partitions = self._world.brokers.partitions
        topic = self._random.choice(partitions).tip.topic

        async def start() -> None:
            assert process.repairs is not None
            try:
                process.repairs.start(RepairRequest(topic, apply=True), "an admin")
            except StrandlineError as error:
                self._world.note(f"a repair is refused: {type(error).__name__}")

        self._world.loop.spawn(process.life, start())

    def heal(self) -> None:
        """Ask all nodes for repairs."""
        if self.is_on:
            for machine in self._world.machines:
                if machine.up is not None:
                    self._world.schedule.after(0, partial(self.ask, machine.up))

    def left_to_do(self) -> Iterator[str]:
        """Damaged segments that still serve though their leader's disk has the same bytes."""
        rows = self._world.auditor.reference.rows
        for row in self._finished():
            state = queries.partition_state(rows, row.segment_id.partition)
            if row.segment_id.id not in self.damaged or state is None or self.is_whole(row):
                continue
            first, last = readable_range(row, state)
            served = queries.served_segments(rows, state, first, last)
            serves = any(by.segment_id == row.segment_id for _, by in served)
            inside = within_lineage(
                row.start_offset, row.end_offset, row.leader_epochs, state.lineage, None
            )
            if serves and inside and self._leader_has(row):
                yield f"{row.segment_id} is damaged and serves, and its leader has it whole"

    def is_whole(self, row: RemoteLogSegmentMetadata) -> bool:
        """True if all objects are whole, also when a late request wrote them again."""
        assert row.custom_metadata is not None
        custom = CustomMetadata.decode(row.custom_metadata)
        expected = expected_objects(self._world.prefix, row.segment_id, row.start_offset, custom)
        found = ((each, self._world.bucket.content(each.key)) for each in expected)
        return all(
            data is not None and (len(data), crc32c(data)) == (each.size_bytes, each.crc32c)
            for each, data in found
        )

    def _leader_has(self, row: RemoteLogSegmentMetadata) -> bool:
        leader = self._world.brokers.partition(row.segment_id.partition).leading
        if leader is None or leader.bases[0] > row.start_offset or row.custom_metadata is None:
            return False
        batches = batches_within(leader.batches, row.start_offset, row.end_offset + 1)
        data = b"".join(batch.data for batch in batches if batch not in leader.lost)
        return crc32c(data) == CustomMetadata.decode(row.custom_metadata).log_crc32c

    def _finished(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Finished segments of living partitions."""
        rows = self._world.auditor.reference.rows
        for partition in self._world.brokers.partitions:
            for row in queries.list_segments(rows, partition.tip):
                if row.state is FINISHED:
                    yield row

    def _keys(self, row: RemoteLogSegmentMetadata) -> tuple[str, str, str]:
        return segment_keys(self._world.prefix, row.segment_id, row.start_offset).all()
