"""A metadata manager in phase QUORUM whose partition is delegated, and its shadow's task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rlm.control.surroundings import Ambient, CopyLimits, Identity, Surroundings
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode
from rlmm.records.control_records import MigrationPhaseChange
from rlmm.segment import RemoteLogSegmentMetadata
from tests.rlm.planner_facts import uuid
from tests.rlmm.metadata_node import (
    NODE_ID,
    claim,
    finished,
    incarnation,
    running_node,
    started,
)

CLUSTER_ID = "uQ3nwGfCRBaWmpNKO5XJXg"


@dataclass(slots=True)
class Moved:
    """The manager, the token of its claim, and a clock that only the test moves."""

    manager: RemoteLogMetadataManager
    token: int = -1
    now: float = 0.0
    copied: int = 0

    async def phase(self, *phases: MigrationPhase) -> None:
        for phase in phases:
            since = self.manager.migration().since
            change = MigrationPhaseChange(phase, since, CLUSTER_ID, "ann", "the move")
            await self.manager.record_move(change)

    async def copy(self, count: int) -> list[RemoteLogSegmentMetadata]:
        """Two changes each."""
        segments = []
        for number in range(self.copied, self.copied + count):
            segment = started(number, self.token)
            await self.manager.add_remote_log_segment_metadata(segment)
            await self.manager.update_remote_log_segment_metadata(finished(segment))
            segments.append(segment)
        self.copied += count
        return segments

    def around(self, node_id: int = NODE_ID) -> Surroundings:
        async def sleep(_: float) -> None:
            await asyncio.sleep(0)

        ambient = Ambient(lambda: 0, lambda: self.now, sleep, lambda: 0.5, lambda: uuid(1))
        return Surroundings(
            Identity("cluster", None, replace(incarnation(), node_id=node_id)),
            CopyLimits(),
            ambient,
        )


@asynccontextmanager
async def moved(home: Path, *, delegated: bool = True) -> AsyncIterator[Moved]:
    """At level 2, in QUORUM."""
    async with running_node(home) as node:
        found = Moved(node.manager)
        await node.manager.finalise_feature_level(2)
        phases = (MigrationPhase.KAFKA, MigrationPhase.SWITCHING, MigrationPhase.QUORUM)
        await found.phase(*phases)
        if delegated:
            answer = await node.manager.claim_partition(replace(claim(), mode=Mode.DELEGATED))
            found.token = answer.token
        yield found
