"""A broker's own remote log manager as stock brokers run it, over the plug-in.

It believes what it is told: an empty list moves its log start to its first local offset, what lies
below that is deleted from the tier, what counts as copied is deleted locally, and a look-up without
a segment resets the consumer. Sources: Kafka's RemoteLogManager, TierStateMachine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import (
    Epochs,
    end_offset_for,
    entries_in_range,
    epoch_for_offset,
    truncate_from_end,
)
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.wire import CopyFiles
from rlmm.lineage import filtered, within_lineage
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from sim.nodes.loop import Life
from sim.tier.plugin import FailedError, Plugin
from sim.tier.tier_consumers import THROWN, TierConsumers, short

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.partition import Partition
    from sim.tier.replica import Replica
    from sim.tier.rough_calls import RoughCalls
    from sim.tier.world import World

LOCAL_SEGMENTS = 1
"""Sealed segments that local retention keeps."""
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
PRODUCER_SNAPSHOT, LEADER_EPOCHS = 2, 4


@dataclass(eq=False)
class Tiered:
    """A partition on a broker, in one leadership. `copied` is the highest copied offset, None: to
    be asked. `all_count`: once all that was listed counted by size. `copying`: where copies end
    whose end it may not have heard.
    """

    partition: Partition
    leads: bool
    epoch: int
    copied: int | None = None
    knows_log_start: bool = False
    all_count: bool = False
    copying: set[int] = field(default_factory=set)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class TieringBroker:
    """One life of a broker. Brokers of 3.9 have no isReady, never say that a transaction index is
    empty, and count what is being deleted as kept.
    """

    def __init__(
        self, world: World, machine: Machine, life: Life, session: Uuid, *, is_old: bool
    ) -> None:
        self._world = world
        self._machine = machine
        self.node_id = machine.node_id
        self._random = world.delegated.random
        self._is_old = is_old
        self.life = life
        self.plugin = Plugin(world, machine, session, "3.9.2" if is_old else "4.3.0")
        self.known: dict[TopicIdPartition, Tiered] = {}
        self._knew: set[TopicIdPartition] = set()
        self.consumers = TierConsumers(world, self.node_id, self.plugin)
        world.loop.spawn(life, self.plugin.announce_on())

    # ---- what the controller says

    def hear(self, partition: Partition) -> None:
        """Take the leadership that the broker believes in."""
        tip, replica = partition.tip, partition.replicas[self.node_id]
        before = self.known.get(tip)
        if before is not None and (before.leads, before.epoch) == (replica.leads, replica.epoch):
            return
        if before is not None and before.leads and replica.leads:  # its tasks go on
            before.epoch = replica.epoch
            self.plugin.lead(tip, leads=True)
            return
        self._end_tasks(tip)
        if tip not in self._knew:  # nothing that an earlier life found is remembered
            self._knew.add(tip)
            replica.highest_copied = -1
        tiered = self.known[tip] = Tiered(partition, replica.leads, replica.epoch)
        self.plugin.lead(tip, leads=replica.leads)
        tasks = (self.copy, self.expire) if replica.leads else (self.follow,)
        for task in tasks:
            tiered.tasks.append(self._world.loop.spawn(self.life, self._repeat(tiered, task)))

    def _end_tasks(self, tip: TopicIdPartition) -> None:
        tiered = self.known.pop(tip, None)
        for task in () if tiered is None else tiered.tasks:
            task.cancel()

    def stop(self, partition: Partition) -> None:
        """The replica moved away: onStopPartitions, as after a deletion."""
        self._end_tasks(partition.tip)
        self.plugin.stop(partition.tip)

    def delete_topic(self, partition: Partition) -> None:
        """Delete the segments of a deleted topic: asked once, never again. Directories are gone."""
        tip = partition.tip
        leads = tip in self.known and self.known[tip].leads
        self._end_tasks(tip)
        if leads:
            self._world.loop.spawn(self.life, self._delete_all(partition))
        else:
            self.plugin.stop(tip)

    async def _delete_all(self, partition: Partition) -> None:
        tip, audit = partition.tip, self._world.delegated.audit
        try:
            rows = await self.plugin.rows(tip)
            audit.asks_to_delete(self.node_id, rows)
            for row in rows:
                await self.plugin.update(row, SegmentState.DELETE_SEGMENT_STARTED)
            if self._world.departed.marked(self.node_id, tip):
                return
            for row in rows:
                await self.plugin.delete(row)
            for row in rows:
                await self.plugin.update(row, SegmentState.DELETE_SEGMENT_FINISHED)
        except THROWN as error:
            self._note(f"gives the deletion of {tip.topic} up: {short(error)}")
        else:
            audit.deleted_by_broker.add(tip)
            self._note(f"deleted all {len(rows)} segments of {tip.topic}")
        self.plugin.stop(tip)

    # ---- RLM's tasks

    async def _repeat(self, tiered: Tiered, task: Callable[[Tiered], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.2, 2 * self._world.delegated.period_s))
            if not self._world.delegated.repeats:
                continue
            try:
                await task(tiered)
            except THROWN as error:
                self._note(f"{task.__name__} of {tiered.partition.tip.topic} ends: {short(error)}")

    async def _is_ready(self, tip: TopicIdPartition) -> bool:
        is_ready = self._is_old or await self.plugin.ready(tip)
        if not is_ready and not self._world.delegated.repeats:
            self._note(f"{tip.topic} is not ready")
        return is_ready

    async def copy(self, tiered: Tiered) -> None:
        """RLMCopyTask."""
        tip, replica = tiered.partition.tip, self._replica(tiered)
        if not await self._is_ready(tip):
            return
        if not tiered.knows_log_start:
            start = await self._find_log_start(tip, replica)
            if replica.log_start < start <= replica.high_watermark:
                self._note(f"the log start of {tip.topic} moves to {start}")
                self._world.delegated.audit.log_start_moves(tiered.partition, replica, start)
                replica.cut(start)
            tiered.knows_log_start = True
        if tiered.copied is None:
            tiered.copied = replica.highest_copied = await self._highest_remote(tip, replica)
        following, stable = max(tiered.copied + 1, replica.log_start), replica.last_stable
        sealed = zip(tuple(replica.bases), tuple(replica.bases[1:]), strict=False)
        for base, end in [each for each in sealed if following < each[1] <= stable]:
            if base not in replica.bases or end not in replica.bases:
                return
            if not await self._copy_segment(tiered, replica, base, end):
                return

    async def _find_log_start(self, tip: TopicIdPartition, replica: Replica) -> int:
        for epoch, _ in replica.epochs:
            rows = await self.plugin.rows(tip, epoch)
            if rows:
                return rows[0].start_offset
        return replica.bases[0]

    async def _highest_remote(self, tip: TopicIdPartition, replica: Replica) -> int:
        for entry in reversed(replica.epochs):
            highest = await self.highest(tip, replica, entry.epoch)
            if highest is not None:
                return highest
        return -1

    async def highest(self, tip: TopicIdPartition, replica: Replica, epoch: int) -> int | None:
        """highestOffsetForEpoch, within the log."""
        highest = await self.plugin.highest(tip, epoch)
        if highest is None:
            return None
        _, end = end_offset_for(replica.epochs, epoch, replica.end)
        told = min(highest, end - 1)
        self._world.delegated.audit.told.copied(self.node_id, tip, replica, told)
        return told

    async def _copy_segment(self, tiered: Tiered, replica: Replica, base: int, end: int) -> bool:
        """Copy a segment; False if the task is cancelled, and its next run begins anew."""
        tip = tiered.partition.tip
        row, files = self.attempt(tip, replica, base, end)
        self._world.delegated.audit.adds(row)
        tiered.copying.add(end - 1)
        await self.plugin.add(row)
        if self._leaves_off() or await self._rough_calls.breaks_off():
            return False
        try:
            custom = await self.plugin.copy(files)
        except FailedError:
            if not self._is_old:
                await self._delete(row)
            raise
        if await self._rough_calls.breaks_off():
            return False
        await self.plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, custom)
        tiered.copied = end - 1
        tiered.copying.clear()
        if self.known.get(tip) is tiered:
            replica.highest_copied = end - 1
        return True

    def attempt(
        self, tip: TopicIdPartition, replica: Replica, base: int, end: int
    ) -> tuple[RemoteLogSegmentMetadata, CopyFiles]:
        """An attempt to copy a segment: its row, and its files."""
        row = self._row(tip, replica, base, end)
        return row, self._files(row, replica)

    def _row(
        self, tip: TopicIdPartition, replica: Replica, base: int, end: int
    ) -> RemoteLogSegmentMetadata:
        within = replica.within(base, end)
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(tip, self._world.delegated.new_segment()),
            start_offset=base,
            end_offset=end - 1,
            broker_id=self.node_id,
            max_timestamp_ms=max(each.timestamp_ms for each in within),
            event_timestamp_ms=self._machine.now_ms(),
            leader_epochs=tuple(entries_in_range(replica.epochs, base, end)),
            size_bytes=sum(len(each.data) for each in within),
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=not self._is_old and not replica.aborted(base, end),
        )

    def _files(self, row: RemoteLogSegmentMetadata, replica: Replica) -> CopyFiles:
        def path(offset: int, suffix: str) -> str:
            return str(replica.directory / segment_file_name(offset, suffix))

        start, end = row.start_offset, row.end_offset + 1
        aborts = path(start, TRANSACTION_INDEX_SUFFIX)
        epochs = truncate_from_end(replica.epochs, end)
        return CopyFiles(
            row, path(start, LOG_SUFFIX), path(start, INDEX_SUFFIX),
            path(start, TIME_INDEX_SUFFIX), aborts, path(end, SNAPSHOT_SUFFIX),
            leader_epoch_checkpoint.encode(epochs),
        )  # fmt: skip

    async def expire(self, tiered: Tiered) -> None:
        """Delete as RLMExpirationTask does: breach of log start, then retention."""
        tip, replica = tiered.partition.tip, self._replica(tiered)
        if not await self._is_ready(tip):
            return
        began, audit = replica.log_start, self._world.delegated.audit
        finished = audit.finished(tip)
        rows = await self.plugin.rows(tip)
        if not rows:
            return
        listed = {each.segment_id.id for each in rows if self._counts(each)}
        counted, breached = await self._breached_size(tiered, replica, rows)
        # A copy that ends beside that list counts for this run (`docs/BROKER_PROTOCOL.md`).
        of_then = [row for row in counted if row.segment_id.id in listed & finished]
        cache = filtered(replica.epochs)
        # Others are the first that expire by size.
        audit.counts_as_kept([each for each in of_then if _begins_log(each, cache)], began)
        heard = [row for row in of_then if row.end_offset not in tiered.copying]
        audit.counts_the_disk(tiered.partition, replica, heard)
        going, log_start = await self._breaching(tiered, replica, breached)
        if replica.log_start < log_start <= replica.high_watermark:
            self._world.delegated.audit.takes(tiered.partition, replica, log_start)
            replica.cut(log_start)
        for row in going:
            if self._leaves_off() or not await self._delete(row):
                return  # the task is cancelled
        if not replica.epochs:
            return
        first = replica.epochs[0].epoch
        for old in sorted({epoch for row in rows for epoch, _ in row.leader_epochs}):
            if old < first:
                await self._delete_before(tip, old, first)

    async def _delete_before(self, tip: TopicIdPartition, old: int, first: int) -> None:
        """The segments of an epoch that the log has no more, if all of theirs are below `first`."""
        for row in await self.plugin.rows(tip, old):
            if all(epoch < first for epoch, _ in row.leader_epochs):
                await self._delete(row)

    async def _breached_size(
        self, tiered: Tiered, replica: Replica, listed: list[RemoteLogSegmentMetadata]
    ) -> tuple[Iterable[RemoteLogSegmentMetadata], int]:
        """buildRetentionSizeData, in offsets: the segments counted, and what is too much. From 4.3
        on (seen in 4.3.0 and 4.4.0) it goes by the list of all epochs where that is not too much,
        and for good once all of it counted.
        """
        kept = self._world.delegated.retained
        if kept is None:
            return (), 0
        cache, end = filtered(replica.epochs), replica.end
        local = sum(
            last - base
            for base, last in zip(replica.bases, (*replica.bases[1:], end), strict=True)
            if base > replica.highest_copied
        )
        whole = [row for row in listed if self._counts(row)]
        too_much = local + sum(map(_size, whole)) - kept
        if not self._is_old and (too_much <= 0 or tiered.all_count):
            return whole if too_much > 0 else (), too_much
        counted: dict[Uuid, RemoteLogSegmentMetadata] = {}
        others = 0
        for epoch, _ in cache:
            for row in filter(self._counts, await self.plugin.rows(tiered.partition.tip, epoch)):
                span = row.start_offset, row.end_offset, row.leader_epochs
                if within_lineage(*span, cache, end):
                    counted[row.segment_id.id] = row
                else:
                    others += 1
        size = sum(map(_size, counted.values()))
        tiered.all_count = not others and size == sum(map(_size, whole))
        return counted.values(), local + size - kept

    def _counts(self, row: RemoteLogSegmentMetadata) -> bool:
        return row.state is FINISHED or (
            self._is_old and row.state is SegmentState.DELETE_SEGMENT_STARTED
        )

    async def _breaching(
        self, tiered: Tiered, replica: Replica, breached: int
    ) -> tuple[list[RemoteLogSegmentMetadata], int]:
        """Segments to delete, and the log start behind those of retention."""
        cache = filtered(replica.epochs)
        start, end = replica.log_start, replica.end
        going: list[RemoteLogSegmentMetadata] = []
        log_start = -1
        for epoch, _ in cache:
            for row in await self.plugin.rows(tiered.partition.tip, epoch):
                if row in going:
                    continue
                if row.state is SegmentState.DELETE_SEGMENT_STARTED:
                    going.append(row)
                    continue
                breaches = row.end_offset < start and _begins_log(row, cache)
                valid = False
                if not breaches:
                    valid = within_lineage(
                        row.start_offset, row.end_offset, row.leader_epochs, cache, end
                    )
                    if valid and breached > 0 and _size(row) <= breached:
                        breached -= _size(row)
                        breaches, log_start = True, max(log_start, row.end_offset + 1)
                if breaches:
                    going.append(row)
                elif valid:
                    return going, log_start
        return going, log_start

    async def _delete(self, row: RemoteLogSegmentMetadata) -> bool:
        """Delete a segment; False if the task is cancelled meanwhile."""
        if await self._rough_calls.breaks_off():
            return False
        self._world.delegated.audit.asks_to_delete(self.node_id, [row])
        await self.plugin.update(row, SegmentState.DELETE_SEGMENT_STARTED)
        self._rough_calls.marked(self, row)
        if await self._rough_calls.breaks_off():
            return False
        await self.plugin.delete(row)
        if await self._rough_calls.breaks_off():
            return False
        await self.plugin.update(row, SegmentState.DELETE_SEGMENT_FINISHED)
        return True

    def _leaves_off(self) -> bool:
        return self._random.random() < self._world.delegated.leaves_off

    @property
    def _rough_calls(self) -> RoughCalls:
        return self._world.delegated.rough.calls

    async def follow(self, tiered: Tiered) -> None:
        """RLMFollowerTask."""
        tip, replica = tiered.partition.tip, self._replica(tiered)
        if await self._is_ready(tip):
            highest = await self._highest_remote(tip, replica)
            if self.known.get(tip) is tiered:
                replica.highest_copied = min(highest, replica.end - 1)

    def _replica(self, tiered: Tiered) -> Replica:
        return tiered.partition.replicas[self.node_id]

    # ---- local retention, followers without a head

    def retain_locally(self, partition: Partition) -> None:
        """Remove sealed segments that count as copied."""
        replica = partition.replicas[self.node_id]
        replica.tidy()
        if (partition, self.node_id) in self._world.scenes.brokers.keeping:
            return
        sealed, safe = replica.bases[1:], min(replica.highest_copied + 1, replica.high_watermark)
        over = [base for base in sealed[: len(sealed) - LOCAL_SEGMENTS] if base <= safe]
        if over:
            self._world.delegated.audit.drops(partition, replica, over[-1])
            self._note(f"{partition.tip.topic} is local from {over[-1]} on")
            replica.drop_local(over[-1])

    def rebuild(self, partition: Partition) -> None:
        """Build a follower's log on what the tier has."""
        self._world.loop.spawn(self.life, self._rebuild(partition))

    async def _rebuild(self, partition: Partition) -> None:
        """Rebuild the state as TierStateMachine does: the leader's log begins above this log's
        end.
        """
        leader, epoch = partition.leading, partition.epoch
        follower = partition.replicas.get(self.node_id)
        if leader is None or follower is None:
            return
        start, tip = leader.bases[0], partition.tip
        of = epoch_for_offset(leader.epochs, start - 1)
        if of is None:
            return
        try:
            row = await self.plugin.look_up(tip, of, start - 1)
            if row is None:  # buildRemoteLogAuxState throws, and the fetcher tries again
                return
            told = await self.plugin.index(row, LEADER_EPOCHS)
            await self.plugin.index(row, PRODUCER_SNAPSHOT)
        except THROWN as error:
            self._note(f"{tip.topic} is not rebuilt: {short(error)}")
            return
        if partition.epoch != epoch or follower.epoch != epoch or partition.deleted:
            return
        if partition.replicas.get(self.node_id) is not follower:
            return
        epochs, end = leader_epoch_checkpoint.parse(told, source="the tier"), row.end_offset + 1
        self._world.delegated.audit.rebuilds(partition, leader, epochs, end)
        self._note(f"{tip.topic} is rebuilt from {end} on")
        before = [each for each in leader.batches if each.last < end]
        follower.rebuild(before, end, leader.log_start, epochs)
        follower.highest_copied = -1

    def _note(self, what: str) -> None:
        self._world.note(f"broker {self.node_id}: {what}")


def _size(row: RemoteLogSegmentMetadata) -> int:
    """The size of a segment, in offsets; 0 where it is listed with no bytes."""
    return row.end_offset + 1 - row.start_offset if row.size_bytes else 0


def _begins_log(row: RemoteLogSegmentMetadata, cache: Epochs) -> bool:
    """True if a segment has no epoch above the log's first one, so that it counts as passed by the
    log start if it ends below that.
    """
    return bool(cache) and all(epoch <= cache[0].epoch for epoch, _ in row.leader_epochs)
