"""Notices that a store of another node is not the same as this node's store of that name: a
different bucket, prefix or endpoint, or a folder that is not one shared mount.

The markers do not show it: each store that was empty when its node started got one of this cluster.
But the segments that other nodes copied last are in this node's store too, unless those nodes write
to a different one. Then their copies would be read, expired and deleted in the wrong place, and a
folder on one machine would hold the only copy of records that brokers have deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_formats.errors import StrandlineError
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.surroundings import Surroundings
from rlm.format.custom_metadata import custom_of
from rlm.stores.store_history import is_there
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 120.0
LOOKS_MIN = 2
"""The number of looks in a row that must find nothing before it is reported: a file system that is
mounted on several machines may show a new folder late.
"""
SEGMENTS_A_LOOK = 3
"""The most segments looked for in a store; a single object of one proves that it is shared."""
PARTITIONS_A_LOOK = 1_000
PARTITIONS_PER_BREATH = 32


@dataclass(slots=True)
class SharedStores:
    """The task that looks for other nodes' segments, one per node. It only reports: segments that
    an operator deleted from the right store would look the same.
    """

    metadata: RemoteLogMetadataManager
    stores: TierStores
    around: Surroundings
    _looked_to: int = field(default=0, init=False)
    _absent: dict[str, int] = field(default_factory=dict, init=False)
    _told: dict[str, str] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Look at intervals, for as long as the node runs."""
        while True:
            await self.around.ambient.sleep(LOOK_INTERVAL_S)
            try:
                await self.look()
            except Exception:
                logger.exception("looking for other nodes' segments failed, it will be repeated")

    def problems(self) -> tuple[NodeProblem, ...]:
        """The stores that lack segments which other nodes copied to them."""
        return tuple(
            NodeProblem(ProblemArea.STORE, name, text) for name, text in sorted(self._told.items())
        )

    async def look(self) -> None:
        """Look once, in each store, for the last segments that other nodes copied."""
        found, is_all = await self._of_others()
        for name, tier in self.stores.by_name.items():
            if not found[name] and not is_all:
                continue  # this look covers a part of the partitions, and none has such a segment
            try:
                absent = await self._absent_of(tier, found[name])
            except (StrandlineError, TimeoutError):
                continue  # a store or quorum that does not answer is reported elsewhere
            if not absent:
                self._absent.pop(name, None)
                self._told.pop(name, None)
                continue
            self._absent[name] = self._absent.get(name, 0) + 1
            if self._absent[name] >= LOOKS_MIN:
                self._told[name] = _text(tier, absent)

    async def _of_others(self) -> tuple[Mapping[str, list[RemoteLogSegmentMetadata]], bool]:
        """The segments that other nodes copied, by store, at most the last of each partition; and
        True if the look covered all partitions. Each look goes on where the one before ended.
        """
        found: dict[str, list[RemoteLogSegmentMetadata]] = {
            name: [] for name in self.stores.by_name
        }
        tips = list(self.metadata.partitions())
        start = self._looked_to if self._looked_to < len(tips) else 0
        turn = (*tips[start:], *tips[:start])[:PARTITIONS_A_LOOK]
        for number, tip in enumerate(turn, 1):
            self._looked_to = (start + number) % len(tips)
            if number % PARTITIONS_PER_BREATH == 0:
                await self.around.ambient.sleep(0)
            state = self.metadata.partition_state(tip)
            if state is None or state.highest_copied is None:
                continue
            last = state.highest_copied[0]
            for _, row in self.metadata.served_segments(state, last, last):
                custom = custom_of(row.custom_metadata)
                if custom is None or row.broker_id == self.around.identity.incarnation.node_id:
                    continue
                if custom.store in found and len(found[custom.store]) < SEGMENTS_A_LOOK:
                    found[custom.store].append(row)
            if all(len(each) >= SEGMENTS_A_LOOK for each in found.values()):
                break
        return found, len(turn) == len(tips)

    async def _absent_of(
        self, tier: TierStore, rows: Iterable[RemoteLogSegmentMetadata]
    ) -> Sequence[RemoteLogSegmentMetadata]:
        """The segments without any object in the store; empty if one segment has an object."""
        absent = []
        for row in rows:
            async with asyncio.timeout(self.around.limits.store_deadline_s):
                if await is_there(tier, row):
                    return ()
            # A view that lags may name segments that were deleted since.
            await self.metadata.catch_up(deadline_s=self.around.limits.propose_deadline_s)
            now = self.metadata.find_segment(row.segment_id.id)
            if now is not None and now.state is SegmentState.COPY_SEGMENT_FINISHED:
                absent.append(row)
        return absent


def _text(tier: TierStore, absent: Sequence[RemoteLogSegmentMetadata]) -> str:
    first, more = absent[0], len(absent) - 1
    others = f" (and none of {more} more of other nodes)" if more else ""
    return (
        f"no object of the segment {first.segment_id}, which node {first.broker_id} copied to the "
        f"store {tier.name!r}, is in this node's{others}: unless they were deleted by hand, the "
        "nodes write to different places. Compare bucket, prefix, endpoint_url and path of "
        f"[stores.{tier.name}] on all nodes: a folder has to be one mount that all of them share. "
        "Correct them, then copy the objects in the wrong place to the right one"
    )
