"""Segments that are damaged twice: a repair's new copy is harmed as soon as it is finished, and its
node ends before it retires the old one, whose offsets then have no whole segment.

in_its_place_is_whole  a damaged segment that serves nothing is deleted only while all that serve
                       its offsets are whole

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.kafka_uuid import Uuid
from rlm.format.object_keys import segment_keys
from rlm.repair.repair_plan import readable_range
from rlmm.lineage import within_lineage
from rlmm.partition_state import Mode
from rlmm.rows import queries
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

if TYPE_CHECKING:
    from sim.tier.world import World

REPAIRS_PER_HARM = 3
LONG_MS = 300_000
"""Longer than a repair's pass takes."""
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


class DamagedTwice:
    """The second damage; `harmed` counts it, `judged` deletions of damaged segments."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"{world.seed} damaged twice")
        self._harmed_ms: dict[Uuid, int] = {}
        self.harmed = self.judged = 0

    def note_harmed(self, row: RemoteLogSegmentMetadata) -> None:
        """Note when a segment was harmed first."""
        self._harmed_ms.setdefault(row.segment_id.id, self._world.schedule.now_ms)

    def repaired(self, row: RemoteLogSegmentMetadata) -> None:
        """Harm some of the new copies right after their COPY_SEGMENT_FINISHED."""
        if self._world.damage.goes_on and not self._random.randrange(REPAIRS_PER_HARM):
            self._world.schedule.after(0, partial(self._harm, row))

    def _harm(self, row: RemoteLogSegmentMetadata) -> None:
        machine = self._world.machine(row.broker_id)
        self._world.note(f"{machine.name} ends as its repair is finished")
        machine.kill()
        keys = segment_keys(self._world.prefix, row.segment_id, row.start_offset).all()
        self.harmed += 1
        self._world.damage.harm(row, self._random.choice(keys), lost=False)

    def deleting(
        self, update: RemoteLogSegmentMetadataUpdate, row: RemoteLogSegmentMetadata
    ) -> None:
        """Check an accepted mark of a damaged segment that serves nothing."""
        world, damage = self._world, self._world.damage
        if row.state is not FINISHED or row.segment_id.id not in damage.damaged:
            return
        rows = world.auditor.reference.rows
        state = queries.partition_state(rows, row.segment_id.partition)
        if state is None or state.delete_state is not None or state.mode is not Mode.SIDECAR:
            return
        inside = within_lineage(
            row.start_offset, row.end_offset, row.leader_epochs, state.lineage, None
        )
        if row.end_offset < state.log_start_offset or not inside or damage.is_whole(row):
            return
        self.judged += 1
        first, last = readable_range(row, state)
        process = world.machine(update.broker_id).process
        began_ms = 0 if process is None else process.began_ms
        known_ms = max(began_ms, world.schedule.now_ms - LONG_MS)
        for _, by in queries.served_segments(rows, state, first, last):
            was_harmed = self._harmed_ms.get(by.segment_id.id, known_ms) < known_ms
            world.auditor.check(
                not was_harmed or damage.is_whole(by),
                "in_its_place_is_whole",
                f"{row.segment_id} is deleted as damaged, and so is {by.segment_id} in its place",
            )
