"""Adopts the segments of a partition by `rlm/reconcile/adoption_plan.py`: lists the stores and
reads manifests before the claim, and records segments under the claim.

It may be repeated: the next claim finds segments that are not finished or not recorded again. It
changes no objects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import Conflict, CorruptData, NotFound, RetryLater
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Surroundings
from rlm.control.why_not import Wait, WhyNot
from rlm.data_plane.read_request import TieredSegment
from rlm.data_plane.segment_reader import SegmentReader
from rlm.format.custom_metadata import custom_of
from rlm.format.manifest import MANIFEST_BYTES_MAX, IndexType
from rlm.format.object_keys import ObjectSuffix, parse_segment_key, partition_prefix, segment_keys
from rlm.reconcile.adoption_plan import (
    WHY_GONE,
    WHY_LOST,
    Adopt,
    CopyFirst,
    Done,
    FoundInStores,
    Lose,
    OnMachine,
    StartAt,
    StoredSegment,
    WholeSegment,
    add_listed,
    in_order,
    next_step,
    whole_segment,
)
from rlm.reconcile.lost_claims import authority, merge_told
from rlm.stores.cluster_marker import check_settled
from rlm.stores.tier_store import TierStore, TierStores, listed_pages
from rlmm.lineage import filtered
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.records.control_records import LogStart, LostRange, PartitionAdopted
from rlmm.rows.feature_level import DELEGATED_LOSS_LEVEL
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from rsm_backends.streams import read_all

logger = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

LISTED_AT_ONCE = 200
"""Number of objects in a page: few enough not to block the event loop."""

ROWS_PER_BREATH = 64

PAGES_MAX = 100_000
"""Limit of the pages of a partition's list: twenty million objects."""

INDEX_CACHE_BYTES_MAX = 1024 * 1024
"""Size of the cache for the one index of a partition that is read."""

NOT_LISTED = "not all of its objects are listed"


@dataclass(frozen=True, slots=True)
class Adoption:
    """Adopts segments for all partitions of a node. `confirm_prefix` raises unless the store
    belongs to this cluster, since an empty or foreign store does not show which segments exist.
    `clock_trouble` returns the trouble with the clocks now, or None. `slots` limits the partitions
    in work at once.
    """

    metadata: RemoteLogMetadataManager
    stores: TierStores
    around: Surroundings
    confirm_prefix: Callable[[TierStore], Awaitable[None]]
    clock_trouble: Callable[[], str | None]
    slots: asyncio.Semaphore

    def is_due(self, partition: TopicIdPartition) -> bool:
        """True while the partition has still to be adopted after a restart from a snapshot."""
        if self.metadata.restart() is None:
            return False
        state = self.metadata.partition_state(partition)
        return state is None or state.adopting

    async def look(self, partition: TopicIdPartition) -> FoundInStores | Wait:
        """List the stores and read the partition's manifests; nothing is recorded. This comes
        before the claim, which contains the lineage. Raises the errors of the stores.
        """
        trouble = self.clock_trouble()
        if trouble is not None:
            return Wait(WhyNot.CLOCK, f"segments in the stores are not adopted now: {trouble}")
        async with self.slots:
            await self._check_all_named(partition)
            whole = await self._whole_segments(partition)
            told = await self._told(whole)
        state = self.metadata.partition_state(partition)
        recorded = () if state is None else state.lineage
        lineage = await asyncio.to_thread(merge_told, recorded, told) if told else ()
        return FoundInStores(tuple(whole), lineage)

    def waits(self, partition: TopicIdPartition, found: FoundInStores, machine: OnMachine) -> bool:
        """True while the remaining segments are above offsets that have to be copied first."""
        state = self.metadata.partition_state(partition)
        if state is None:
            return False
        step = next_step(state, found.whole, machine, found.given_up)
        return isinstance(step, CopyFirst)

    async def run(
        self,
        partition: TopicIdPartition,
        token: int,
        found: FoundInStores,
        machine: OnMachine,
    ) -> FoundInStores:
        """Record the segments that were found for a claimed partition, up to offsets that have to
        be copied first; at the end, record that the partition is adopted.

        Returns the segments that are left. Raises the errors of proposals, and Fenced if there is a
        newer claim.
        """
        async with self.slots:
            return await self._record(partition, token, found, machine)

    async def _record(
        self, partition: TopicIdPartition, token: int, found: FoundInStores, machine: OnMachine
    ) -> FoundInStores:
        whole = in_order(found.whole)
        adopted = 0
        while True:
            state = self.metadata.partition_state(partition)
            assert state is not None, "the caller has claimed the partition"
            step = next_step(state, whole, machine, found.given_up)
            deadline_s = self.around.limits.propose_deadline_s
            match step:
                case Done():
                    break
                case CopyFirst():
                    logger.info(
                        "adopted %d segments of %s from the store; those from offset %d on wait "
                        "until this machine's segments below it are copied",
                        adopted, partition, step.until,
                    )  # fmt: skip
                    return replace(found, whole=tuple(whole))
                case StartAt():
                    start = LogStart(partition, token, step.leader_epoch, step.offset)
                    await self.metadata.record_log_start(start, deadline_s=deadline_s)
                case Lose(why=why) if why == WHY_GONE:
                    found = await self._give_up(partition, token, step, found)
                case Lose():
                    lost = LostRange(partition, token, step.start, step.end, step.why)
                    await self.metadata.record_lost_range(lost, deadline_s=deadline_s)
                    if step.why == WHY_LOST:
                        logger.error("LOST: %s", _told(step, partition))
                case Adopt():
                    whole.remove(step.segment)
                    adopted += await self._adopt(step.segment, token)
        for left in whole:
            logger.warning(
                "%s is not adopted: it is not in the lineage, or below the log start", left.row
            )
        await self.metadata.record_restart(
            PartitionAdopted(partition, token), deadline_s=self.around.limits.propose_deadline_s
        )
        logger.info("adopted %d segments of %s from the store", adopted, partition)
        return replace(found, whole=tuple(whole))

    async def _give_up(
        self, partition: TopicIdPartition, token: int, step: Lose, found: FoundInStores
    ) -> FoundInStores:
        """Log offsets that a broker which tiers by itself does not have either, and record them as
        lost, which the metadata log allows from the feature level `DELEGATED_LOSS_LEVEL` on.
        """
        text = _told(step, partition)
        if self.metadata.feature_level() < DELEGATED_LOSS_LEVEL:
            text += f". Not recorded, since that needs feature level {DELEGATED_LOSS_LEVEL}"
        else:
            lost = LostRange(partition, token, step.start, step.end, step.why)
            deadline_s = self.around.limits.propose_deadline_s
            await self.metadata.record_lost_range(lost, deadline_s=deadline_s)
        logger.error("LOST: %s", text)
        return replace(found, given_up=step.end + 1, lost=text)

    async def _adopt(self, segment: WholeSegment, token: int) -> bool:
        """Record a segment that the store has. False if the metadata log refuses it (it was
        deleted, or has a different lineage); its objects stay.
        """
        deadline_s = self.around.limits.propose_deadline_s
        row = replace(segment.row, token=token, writer=self.around.identity.incarnation)
        known = self.metadata.find_segment(row.segment_id.id)
        try:
            if known is None:
                await self.metadata.add_remote_log_segment_metadata(row, deadline_s=deadline_s)
            await self.metadata.update_remote_log_segment_metadata(
                RemoteLogSegmentMetadataUpdate(
                    segment_id=row.segment_id,
                    broker_id=row.broker_id,
                    event_timestamp_ms=self.around.ambient.now_ms(),
                    custom_metadata=segment.custom_metadata.encode(),
                    max_timestamp_ms=row.max_timestamp_ms,
                    state=SegmentState.COPY_SEGMENT_FINISHED,
                    token=token,
                    writer=self.around.identity.incarnation,
                ),
                deadline_s=deadline_s,
            )
        except Conflict as error:
            logger.warning("%s was not adopted: %s", row.segment_id, error)
            return False
        return True

    async def _check_all_named(self, partition: TopicIdPartition) -> None:
        """Raise Refused if a segment of the partition is in a store that is not in the settings:
        segments copied there since the snapshot would be recorded as lost.
        """
        for number, row in enumerate(self.metadata.list_remote_log_segments(partition), 1):
            custom = custom_of(row.custom_metadata)
            if custom is not None:
                self.stores.named(custom.store)
            if number % ROWS_PER_BREATH == 0:
                await self.around.ambient.sleep(0)

    async def _whole_segments(self, partition: TopicIdPartition) -> list[WholeSegment]:
        whole = []
        for tier in self.stores.by_name.values():
            await self.confirm_prefix(tier)
            await check_settled(
                tier,
                settle_s=self.around.limits.takeover_settle_s,
                now_ms=self.around.ambient.now_ms,
                deadline_s=self.around.limits.store_deadline_s,
            )
            for stored in (await self._candidates(tier, partition)).values():
                found = await self._read(tier, stored) if stored.is_complete else NOT_LISTED
                if not isinstance(found, WholeSegment):
                    # A segment that is not adopted may be recorded as lost, and the objects of an
                    # unfinished copy are deleted: so confirm this by a second read.
                    found = await self._read_anew(tier, stored)
                if isinstance(found, WholeSegment):
                    whole.append(found)
                else:
                    logger.warning("%s is not adopted: %s", stored.segment_id, found)
            # Missing objects count, too, so the store must still be the right one.
            await self.confirm_prefix(tier)
        return whole

    async def _told(self, whole: list[WholeSegment]) -> list[Epochs]:
        """The lineages by the segments, that with the highest authority last. A copy's index has
        the whole lineage up to its end, a manifest only the epochs of its segment.
        """
        by_authority = sorted(whole, key=lambda each: authority(each.row))
        told: list[Epochs] = []
        index: Epochs | None = None
        for segment in reversed(by_authority):
            if index is None and (index := await self._lineage_of(segment)) is not None:
                told.append(index)
            told.append(filtered(segment.row.leader_epochs))
        return told[::-1]

    async def _lineage_of(self, segment: WholeSegment) -> Epochs | None:
        """The LEADER_EPOCH index of a copy; None if it is damaged or missing."""
        tier = self.stores.by_name[segment.custom_metadata.store]
        row = segment.row
        reader = SegmentReader({tier.name: tier.store}, cache_bytes_max=INDEX_CACHE_BYTES_MAX)
        tiered = TieredSegment(
            row.segment_id, row.start_offset, row.end_offset, tier.prefix, segment.custom_metadata
        )
        try:
            data = await self._in_time(tier, reader.index(tiered, IndexType.LEADER_EPOCH))
            return leader_epoch_checkpoint.parse(data, source=str(row.segment_id))
        except (NotFound, CorruptData) as error:
            logger.warning("the lineage of %s can't be read: %s", row.segment_id, error)
            return None

    async def _candidates(
        self, tier: TierStore, partition: TopicIdPartition
    ) -> dict[RemoteLogSegmentId, StoredSegment]:
        """The segments that may be adopted: those that are listed, perhaps in part, without a
        finished row, and those of unfinished copies, listed or not.
        """
        found = {
            row.segment_id: StoredSegment(row.segment_id, row.start_offset, tier.name, {})
            for row in self.metadata.left_overs(partition)
            if row.state is SegmentState.COPY_SEGMENT_STARTED
        }
        pages = listed_pages(
            tier,
            partition_prefix(tier.prefix, partition),
            limit=LISTED_AT_ONCE,
            pages_max=PAGES_MAX,
            deadline_s=self.around.limits.store_deadline_s,
        )
        async with aclosing(pages):
            async for page in pages:
                for info in page:
                    key = parse_segment_key(tier.prefix, info.key)
                    if key is not None and self._may_be_adopted(key.segment_id):
                        add_listed(found, key, info.size, tier.name)
        return found

    def _may_be_adopted(self, segment_id: RemoteLogSegmentId) -> bool:
        row = self.metadata.find_segment(segment_id.id)
        return row is None or row.state is SegmentState.COPY_SEGMENT_STARTED

    async def _read(self, tier: TierStore, stored: StoredSegment) -> WholeSegment | str:
        keys = segment_keys(tier.prefix, stored.segment_id, stored.start_offset)
        known: RemoteLogSegmentMetadata | None = self.metadata.find_segment(stored.segment_id.id)
        try:
            data = await self._in_time(
                tier, read_all(tier.store, keys.manifest, end=MANIFEST_BYTES_MAX + 1)
            )
        except (NotFound, CorruptData) as error:
            return str(error)
        return await asyncio.to_thread(whole_segment, stored, data, known)

    async def _read_anew(self, tier: TierStore, stored: StoredSegment) -> WholeSegment | str:
        keys = segment_keys(tier.prefix, stored.segment_id, stored.start_offset)
        try:
            log = await self._in_time(tier, tier.store.head(keys.log))
            indexes = await self._in_time(tier, tier.store.head(keys.indexes))
        except NotFound as error:
            return str(error)
        sizes = {ObjectSuffix.LOG: log.size, ObjectSuffix.INDEXES: indexes.size}
        return await self._read(tier, replace(stored, sizes={**stored.sizes, **sizes}))

    async def _in_time(self, tier: TierStore, call: Coroutine[Any, Any, _Answer]) -> _Answer:
        try:
            async with asyncio.timeout(self.around.limits.store_deadline_s):
                return await call
        except TimeoutError:
            raise RetryLater(
                f"the store {tier.name!r} did not answer within "
                f"{self.around.limits.store_deadline_s:g} s, so its segments are not known: check "
                "its endpoint and the network"
            ) from None


def _told(step: Lose, partition: TopicIdPartition) -> str:
    return f"offsets {step.start} to {step.end} of {partition}: {step.why}"
