"""Deletes segments as a broker's remote log manager requests, and those below its log start.

A broker's expiration moves its log start first, then deletes one segment after the other. Segments
that an interrupted run did not reach are COPY_SEGMENT_FINISHED below the log start. The next run
counts them for `retention.bytes` and so deletes as many readable bytes again. A segment in
DELETE_SEGMENT_STARTED is not counted (Kafka's RemoteLogManager, buildRetentionSizeData), and this
node finishes its deletion. So the segments below the log start are marked before the broker gets
its list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile

from kafka_formats.errors import Conflict, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Surroundings
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.scanner import BrokerPort
from rlm.copy.work_table import WorkTable
from rlm.delegated.expirations import Expirations
from rlm.delegated.older_history import OlderHistory, is_kept
from rlm.delegated.plugin import Plugin
from rlm.delegated.segment_lists import ROWS_PER_BREATH
from rlm.leadership.leadership import TopicConfig
from rlm.leadership.unseen_disk import EpochAt
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import UNLIMITED, Claim, Mode, PartitionState
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState

WRITE_DEADLINE_S = 14.0
CATCH_UP_DEADLINE_S = 3.0
GIVEN_UP_WITHIN_S, GIVEN_UP_LOOK_S = 8.0, 0.1
"""The time within which a copy ends after its broker has closed the connection, and the pause
between two checks.
"""
MARKED_AT_ONCE = 32
MARKED_BY_CALL = 512
"""The most segments that one call marks: reading the list and marking take event loop time from the
whole node.
"""
EARLIER_LOOKED_AT = 4096
"""The most segments of epochs before the log's first one that a call reads: those that stay are
read again by each call.
"""
BY_BROKER = "its broker's remote log manager deletes it"
PASSED = "the log start of its broker passed it"


@dataclass(frozen=True, slots=True)
class BrokerDeletions:
    """The deletions of a node's broker. The node owns each from DELETE_SEGMENT_STARTED on."""

    metadata: RemoteLogMetadataManager
    table: WorkTable
    driver: PartitionDriver
    plugin: Plugin
    older: OlderHistory
    expirations: Expirations
    around: Surroundings

    async def start(
        self, update: RemoteLogSegmentMetadataUpdate, token: int, why: str = BY_BROKER
    ) -> None:
        """Record DELETE_SEGMENT_STARTED under the claim `token`; from then on this node finishes
        the deletion, whatever the broker does. RetryLater: the segment must not be deleted now.
        """
        tip = update.segment_id.partition
        row = self.metadata.segment(tip, update.segment_id.id)
        if row is not None:
            await self._until_given_up(row)
            row = self.metadata.segment(tip, update.segment_id.id)
        if row is not None and row.state is SegmentState.COPY_SEGMENT_FINISHED:
            state = self.metadata.partition_state(tip)
            if state and is_kept(row, state) and not await self.is_topic_deleted(tip):
                await self.older.check(row, token)
            self.expirations.check(tip)
        if row is None or row.state is not SegmentState.DELETE_SEGMENT_STARTED:  # no repetition
            await self._propose(
                replace(
                    update,
                    token=token,
                    writer=self.around.identity.incarnation,
                    expected_state=None if row is None else row.state,
                )
            )
        marked = self.metadata.segment(tip, update.segment_id.id)
        if marked is not None and self.plugin.why_by_broker(marked) is None:
            await self.driver.clean_ups.begin(marked, token, why)

    async def _until_given_up(self, row: RemoteLogSegmentMetadata) -> None:
        """Wait for the end of a copy that its broker has just given up. A broker that disables a
        tier does so, and deletes nothing of the partition if one deletion is refused. RetryLater:
        the copy still runs.
        """
        give_up_s = self.around.ambient.monotonic() + GIVEN_UP_WITHIN_S
        while self.driver.copier.is_under_way(row.segment_id.id):
            if self.around.ambient.monotonic() >= give_up_s:
                raise RetryLater(f"{row.segment_id} is still being copied")
            await self.around.ambient.sleep(GIVEN_UP_LOOK_S)

    async def before_list(self, tip: TopicIdPartition) -> None:
        """Make sure that a leader that lists all epochs will count right. A node without a broker
        can't check that. RetryLater: the leader would count too much.
        """
        state, session = self.metadata.partition_state(tip), self.plugin.session
        if state is None or session is None or tip not in session.leaders:
            return
        claim, broker = self._own_claim(state), self.older.broker
        if claim is None or broker is None or state.segment_count == 0:
            return
        await self.hold_fresh(tip, broker, session.kafka_version)
        await self.start_passed(tip, broker, claim.token)

    async def hold_fresh(
        self, tip: TopicIdPartition, broker: BrokerPort, kafka_version: str
    ) -> None:
        """Raise RetryLater while the leader does not know the highest copied offset, and would
        count too much. The topic's configs are not checked: the broker may already use a newer
        `retention.bytes`.
        """
        why = await self.expirations.fresh.why_not_expire(tip, broker, kafka_version)
        if why is not None and not await self.is_listed_once(tip):
            raise RetryLater(why)

    async def start_passed(self, tip: TopicIdPartition, broker: BrokerPort, token: int) -> None:
        """Start to delete the finished segments that the log start of a leading broker passed, as
        its expiration would (isSegmentBreachByLogStartOffset).

        RetryLater: the log start is not known, or a segment could not be marked.
        """
        try:
            start = await self.older.log_start(tip)
        except RetryLater:
            if await self.is_topic_deleted(tip):
                return  # all of it is deleted: the broker no longer answers for it, and lists once
            raise
        async with aclosing(self._passed(tip, start)) as passed:
            if await anext(passed, None) is None:
                return
        config = await _config(broker, tip.topic)
        if config is not None and not config.remote_storage_enable:
            return  # all of it is deleted, and listed once; very many may be passed
        async with aclosing(self._passed(tip, start)) as passed:
            going, some_stay = await self._without_kept(passed, token)
        if not some_stay and not _is_counted(config):
            return  # the broker deletes them itself
        # Else the broker's run ends at the first one that stays, and never reaches the later ones.
        if self.driver.clean_ups.is_full:
            raise RetryLater(f"{tip}: too many segments wait for their removal to mark more")
        for at in range(0, len(going), MARKED_AT_ONCE):
            some = going[at : at + MARKED_AT_ONCE]
            await asyncio.gather(*(self._start_passed(row, token) for row in some))
        if len(going) == MARKED_BY_CALL:
            raise RetryLater(
                f"{tip}: {MARKED_BY_CALL} segments that its log start passed are marked, and more "
                "may be left: the next list sees to those"
            )

    async def _passed(
        self, tip: TopicIdPartition, start: EpochAt
    ) -> AsyncGenerator[RemoteLogSegmentMetadata]:
        """The finished segments below a log start. Segments of epochs before the log's first one
        are outside the broker's lineage; brokers from 4.3 on count them nevertheless, once all
        listed segments counted (RLMExpirationTask, isAllSegmentsValid).
        """
        epoch = start.leader_epoch
        oldest = islice(self.metadata.list_remote_log_segments(tip), EARLIER_LOOKED_AT)
        earlier = takewhile(lambda row: row.leader_epochs[0][0] < epoch, oldest)
        of_epoch = self.metadata.list_remote_log_segments(tip, epoch)
        below = takewhile(lambda row: row.start_offset < start.offset, of_epoch)
        rows = chain(
            (row for row in earlier if row.leader_epochs[-1][0] < epoch),
            (row for row in below if row.leader_epochs[-1][0] == epoch),
        )
        for number, row in enumerate(rows, 1):
            if number % ROWS_PER_BREATH == 0:
                await self.around.ambient.sleep(0)
            is_finished = row.state is SegmentState.COPY_SEGMENT_FINISHED
            if is_finished and row.end_offset < start.offset:
                yield row

    async def _without_kept(
        self, passed: AsyncIterable[RemoteLogSegmentMetadata], token: int
    ) -> tuple[list[RemoteLogSegmentMetadata], bool]:
        """(the segments to mark, at most MARKED_BY_CALL; True if some must stay). Segments stay
        that the log start did not pass while the broker led.
        """
        going: list[RemoteLogSegmentMetadata] = []
        stay: bool | None = None
        async for row in passed:
            state = self.metadata.partition_state(row.segment_id.partition)
            if stay is not False and state is not None and is_kept(row, state):
                if stay is None:  # the result for one applies to all
                    stay = await self._stays(row, token)
                if stay:
                    continue
            going.append(row)
            if len(going) == MARKED_BY_CALL:
                break
        return going, bool(stay)

    async def _stays(self, row: RemoteLogSegmentMetadata, token: int) -> bool:
        try:
            await self.older.check(row, token)
        except RetryLater:
            return True
        return False

    async def _start_passed(self, row: RemoteLogSegmentMetadata, token: int) -> None:
        node_id, now_ms = self.around.identity.incarnation.node_id, self.around.ambient.now_ms()
        mark = RemoteLogSegmentMetadataUpdate(
            row.segment_id, node_id, now_ms, None, SegmentState.DELETE_SEGMENT_STARTED
        )
        await self.start(mark, token, PASSED)

    async def finish(
        self, update: RemoteLogSegmentMetadataUpdate, token: Callable[[], int]
    ) -> None:
        """Handle DELETE_SEGMENT_FINISHED. Only the node's clean-up finishes a deletion, since a
        late request of the upload may still arrive; so it is recorded at once only for objects of a
        different RemoteStorageManager, whose deletion the broker reports. Conflict: the segment is
        not marked.
        """
        tip = update.segment_id.partition
        row = self.metadata.segment(tip, update.segment_id.id)
        if row is None or row.state is not SegmentState.DELETE_SEGMENT_STARTED:
            await self._catch_up()
            row = self.metadata.segment(tip, update.segment_id.id)
        if row is not None and row.state is not SegmentState.DELETE_SEGMENT_STARTED:
            # Not left to apply: there the mark may come first, and only the row would go.
            raise Conflict(
                f"{row.segment_id} is {row.state.name}: its deletion has to begin with "
                "DELETE_SEGMENT_STARTED"
            )
        if row is not None and self.plugin.why_by_broker(row) is None:
            await self.driver.clean_ups.begin(row, token(), BY_BROKER)
        else:
            await self._propose(replace(update, writer=self.around.identity.incarnation))

    async def remove_objects(self, id_: Uuid) -> None:
        """Try to delete the segment's objects; the clean-up finishes what fails here. An error
        would end an expiration by size, whose next run counts the remaining segments again.
        Conflict: the segment is not marked, or its broker has to delete the objects.
        """
        row = self.metadata.find_segment(id_)
        if row is None:
            await self._catch_up()
            row = self.metadata.find_segment(id_)
        if row is None:
            return
        if row.state is not SegmentState.DELETE_SEGMENT_STARTED:
            raise Conflict(
                f"{row.segment_id} is {row.state.name}, and objects go after DELETE_SEGMENT_STARTED"
            )
        why = self.plugin.why_by_broker(row)
        if why is not None:
            raise Conflict(f"{row.segment_id}: {why}")
        await self.driver.clean_ups.begin(row, row.token, BY_BROKER)
        await self.driver.clean_ups.try_to_remove(row, BY_BROKER)

    async def is_listed_once(self, tip: TopicIdPartition) -> bool:
        """True if the broker lists a partition that this process has claimed once, to delete all of
        it: its topic is deleted, or its tier disabled (remote.log.delete.on.disable). A broker
        takes the partitions of such a topic one after the other, and scans may see it disabled
        meanwhile.
        """
        return await self.is_topic_deleted(tip) or await self._is_disabled(tip)

    async def is_topic_deleted(self, tip: TopicIdPartition) -> bool:
        """True if the partition's topic is deleted, and the claim is this process's. A broker that
        deletes a topic renames the directory first, then lists the segments only once. So the disk
        is read (this node's last scan may be older), and the broker's metadata, which drops the
        topic earlier. For a replica that moves away only the directory is gone.
        """
        if self._own_claim(self.metadata.partition_state(tip)) is None:
            return False
        return await self.table.is_topic_deleted(tip)

    async def _is_disabled(self, tip: TopicIdPartition) -> bool:
        state, broker = self.metadata.partition_state(tip), self.older.broker
        if state is None or broker is None or state.mode is not Mode.DELEGATED:
            return False
        if self._own_claim(state) is None:
            return False
        config = await _config(broker, tip.topic)
        return config is not None and not config.remote_storage_enable

    def _own_claim(self, state: PartitionState | None) -> Claim | None:
        """The claim, if it is this process's; else None."""
        claim = None if state is None else state.claim
        mine = self.around.identity.incarnation
        return claim if claim is not None and claim.incarnation == mine else None

    async def _catch_up(self) -> None:
        """Catch up before a row counts as deleted: a view that lags may lack it."""
        await self.metadata.catch_up(deadline_s=CATCH_UP_DEADLINE_S)

    async def _propose(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        await self.metadata.update_remote_log_segment_metadata(update, deadline_s=WRITE_DEADLINE_S)


async def _config(broker: BrokerPort, topic: str) -> TopicConfig | None:
    """The topic's configs; None: the broker did not answer."""
    config = (await broker.topic_configs([topic])).get(topic)
    return config if isinstance(config, TopicConfig) else None


def _is_counted(config: TopicConfig | None) -> bool:
    """True unless the topic has no `retention.bytes`, so that the broker counts no segment."""
    return config is None or config.retention_bytes != UNLIMITED
