"""Answers the metadata calls of the broker's plug-in (docs/BROKER_PROTOCOL.md).

The broker's remote log manager decides; this node adds the token of its own claim, and never
answers "no segment" unless that is certain: a broker that believes a wrong empty answer moves its
log start and deletes the tier.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial

from kafka_formats.errors import (
    Conflict,
    Fenced,
    InvalidRequest,
    NotFound,
    RetryLater,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.cluster_settings.move_hold import MoveHold
from rlm.control.surroundings import Surroundings
from rlm.control.why_not import WhyNot
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.partition_work import PartitionWork
from rlm.copy.work_table import WorkTable
from rlm.delegated import wire
from rlm.delegated.asked_looks import WAIT_S
from rlm.delegated.copied_offsets import CopiedOffsets
from rlm.delegated.copies import BrokerCopies
from rlm.delegated.deletions import CATCH_UP_DEADLINE_S, WRITE_DEADLINE_S, BrokerDeletions
from rlm.delegated.expirations import Expirations
from rlm.delegated.older_history import OlderHistory
from rlm.delegated.phase_calls import PhaseCalls
from rlm.delegated.plugin import Plugin
from rlm.delegated.segment_lists import SegmentLists
from rlm.delegated.segment_reads import SegmentReads
from rlm.delegated.sent_files import SentBody
from rlm.delegated.sessions import Made
from rlm.leadership.leadership import Lead, StandBy
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.migration_phase import TOPIC_PHASES
from rlmm.partition_state import Claim, Mode, PartitionState
from rlmm.rows.queries import SegmentAnswer
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

DELETED_LOOK_S = 0.2
CLAIMED_LOOK_S = 0.01
UNTOLD = frozenset({WhyNot.BROKER_UNAVAILABLE, WhyNot.EPOCH_NOT_ON_DISK})
"""Reasons to stand by that show why a look did not find out enough."""
NOT_FOUND = "this node has not found its replica in the broker's log directories yet"


class GoneError(NotFound):
    """The partition's tiered data is deleted for good."""

    reason = "GONE"


@dataclass(frozen=True, slots=True)
class BrokerCalls:
    """The answers of a node to its broker. `_adding`: rows that are being written to the metadata
    log, also for calls that the broker gave up. `_unheard_of`: number of such writes that failed,
    by partition; their rows may have been accepted.
    """

    plugin: Plugin
    metadata: RemoteLogMetadataManager
    table: WorkTable
    driver: PartitionDriver
    around: Surroundings
    copies: BrokerCopies
    reads: SegmentReads
    lists: SegmentLists
    older: OlderHistory
    copied: CopiedOffsets
    phases: PhaseCalls
    expirations: Expirations
    deletions: BrokerDeletions
    _adding: dict[asyncio.Task[object], TopicIdPartition] = field(default_factory=dict)
    _unheard_of: Counter[TopicIdPartition] = field(default_factory=Counter)

    def announce(self, body: bytes) -> bytes:
        """Take an announcement."""
        self.plugin.announce(wire.decode_announcement(body))
        mine = self.around.identity.incarnation
        return wire.encode_announced(self.metadata.applied_offset, mine.node_id, mine.boot_counter)

    def ready(self, body: bytes) -> bytes:
        """Answer if the broker's tasks of a partition may run."""
        tip = wire.decode_ready(body)
        why = self.why_not_writable(tip)
        return wire.encode_ready(self.metadata.applied_offset, why is None, why or "")

    async def look_up(self, body: bytes) -> bytes:
        """The segment that serves an offset, cut where the partition's history leaves it."""
        asked = wire.decode_look_up(body)
        tip = asked.partition
        has_waited = self.plugin.why_not_read(tip) is not None
        if has_waited:
            await self._until_looked(tip)
        if not asked.with_txn_index:
            await self.reads.check_build(tip, asked.offset)
        self._check_readable(tip)
        found = self._find(asked)
        if found is None and not has_waited and self.plugin.why_unlooked(tip) is not None:
            await self._until_looked(tip)
            self._check_readable(tip)
            found = self._find(asked)
        if found is None:
            # Until a new leader is claimed, the recorded leader epochs may be those of the leader
            # before.
            self._check_writable(tip)
            self._check_recorded(tip, asked.leader_epoch)
            return wire.encode_found(self.metadata.applied_offset, None)
        row = await self.reads.as_readable(found.metadata)
        return wire.encode_found(self.metadata.applied_offset, row)

    async def _until_looked(self, tip: TopicIdPartition) -> None:
        """Wait up to WAIT_S for a look at a new leader's log, and for what follows it: the claim,
        and a barrier that shows that this view lacks no earlier record.
        """
        now_s = self.around.ambient.monotonic
        give_up_s = now_s() + WAIT_S
        await self.reads.until_looked(tip)
        while self.plugin.why_unlooked(tip) is None and now_s() < give_up_s:
            if self.why_not_writable(tip) is None:
                break
            await self.around.ambient.sleep(CLAIMED_LOOK_S)

    def _find(self, asked: wire.LookUp) -> SegmentAnswer | None:
        find = (
            self.metadata.next_segment_with_txn_index
            if asked.with_txn_index
            else self.metadata.remote_log_segment_metadata
        )
        return find(asked.partition, asked.leader_epoch, asked.offset)

    async def highest(self, body: bytes) -> bytes:
        """The highest copied offset of an epoch, below gaps within the broker's disk."""
        asked = wire.decode_highest(body)
        tip = asked.partition
        self._check_writable(tip)
        work = self.table.work(tip)
        local = None if work is None else work.local
        start = None if local is None else local.local_log_start_offset
        offset = await self.copied.highest(tip, asked.leader_epoch, start)
        self._check_writable(tip)
        return wire.encode_highest(self.metadata.applied_offset, offset)

    async def list_segments(self, body: bytes, *, takes_changes: bool = False) -> bytes:
        """A page of segments or, if the caller accepts them, the changes since its last list."""
        asked = wire.decode_list(body)
        tip = asked.partition
        self._check_readable(tip)
        why = self.why_not_writable(tip)
        if why is None and asked.epoch is None:
            await self.expirations.before_list(tip)
            why = self.why_not_writable(tip)
        if why is None:
            await self.older.before_list(tip)
            if asked.epoch is None and asked.cursor is None:
                await self.deletions.before_list(tip)
            why = self.why_not_writable(tip)
        # By the reason found before: if it has ended since, the steps above were still left out.
        if why is not None and not await self.deletions.is_listed_once(tip):
            raise _not_ready(tip, why)
        await self._until_added(tip)
        self._check_readable(tip)  # again: the state may have changed during the waits
        return await self.lists.answer(asked, takes_changes=takes_changes)

    async def add(self, body: bytes, made: Made) -> bytes:
        """COPY_SEGMENT_STARTED, under this node's claim."""
        row = wire.decode_row(body)
        tip, id_ = row.segment_id.partition, row.segment_id.id
        self._check_writable(tip)
        self.copies.check_may_begin(row)
        await self.copies.check_room(row)
        # Checked again: from here to the proposal, which lists wait for, no other task runs.
        self._check_writable(tip)
        self._check_leadership(tip, made)
        token = self._token(tip, made)
        me = self.around.identity.incarnation
        known = self.metadata.segment(tip, id_)
        if known is not None and known.writer == me:  # a repeated call keeps the first deadline
            deadline_ms = known.upload_deadline_ms
        else:
            deadline_ms = self.copies.deadline_ms(row)
        added = replace(row, token=token, writer=me, upload_deadline_ms=deadline_ms)
        self.plugin.added(id_)
        write = self.metadata.add_remote_log_segment_metadata(added, deadline_s=WRITE_DEADLINE_S)
        adding = asyncio.ensure_future(write)
        self._adding[adding] = tip
        adding.add_done_callback(self._added)
        await asyncio.shield(adding)
        return self._applied()

    def _added(self, adding: asyncio.Task[object]) -> None:
        tip = self._adding.pop(adding)
        if adding.cancelled() or adding.exception() is not None:
            self._unheard_of[tip] += 1

    async def _until_added(self, tip: TopicIdPartition) -> None:
        """Wait for rows that are being added. A broker that deletes a topic gives up its copies and
        lists once: a row accepted after that list would stay for ever. The call's deadline bounds
        the wait. No other row can be missing: this node's claim is applied here, and under it only
        this node adds.
        """
        if adding := [task for task, of in self._adding.items() if of == tip]:
            await asyncio.wait(adding)
        if failed := self._unheard_of[tip]:
            await self._catch_up()
            if self._unheard_of[tip] == failed:  # else one more failed meanwhile
                del self._unheard_of[tip]

    async def update(self, body: bytes, made: Made) -> bytes:
        """A later state of a segment."""
        update = wire.decode_update(body)
        self._check_not_held()
        tip, id_ = update.segment_id.partition, update.segment_id.id
        self._check_known(tip)
        self._check_delegated(tip)
        self._check_leadership(tip, made)
        match update.state:
            case SegmentState.COPY_SEGMENT_FINISHED:
                await self._finish_copy(update, made)
            case SegmentState.DELETE_SEGMENT_STARTED:
                await self.deletions.start(update, self._token(tip, made))
            case SegmentState.DELETE_SEGMENT_FINISHED:
                await self.deletions.finish(update, partial(self._token, tip, made))
            case _:
                raise InvalidRequest("COPY_SEGMENT_STARTED is an add", field="state")
        self.plugin.finished(id_)
        return self._applied()

    async def _finish_copy(self, update: RemoteLogSegmentMetadataUpdate, made: Made) -> None:
        """Finish the row under the claim that the copy began under: the log may have been cut at a
        later one.
        """
        tip = update.segment_id.partition
        row, token = self.metadata.segment(tip, update.segment_id.id), self._token(tip, made)
        unfinished = row is not None and row.state is SegmentState.COPY_SEGMENT_STARTED
        if row is not None and unfinished and row.token != token:
            raise Fenced(f"{row.segment_id} was begun under the claim {row.token}, before {token}")
        writer = self.around.identity.incarnation
        await self._propose(replace(update, token=token, writer=writer))

    async def delete_partition(self, body: bytes) -> bytes:
        """A step in the deletion of the whole partition."""
        put = wire.decode_delete_partition(body)
        self._check_not_held()
        if put.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            await self._until_deleted(put.partition)
            return self._applied()
        self._check_known(put.partition)
        if not self.metadata.is_ready(put.partition):
            raise RetryLater(f"this node may not have all that is recorded of {put.partition} yet")
        self._check_delegated(put.partition)
        state = self.metadata.partition_state(put.partition)
        if state is None:  # a late mark would delete what this node copied meanwhile
            return self._applied()
        if put.state is not state.delete_state:  # when repeated, the claim has ended already
            self._own_claim(put.partition)
        await self.metadata.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(
                put.partition, put.broker_id, put.event_timestamp_ms, put.state,
                replaces_offset=state.delete_offset, grace_ms=0,
            ),
            deadline_s=WRITE_DEADLINE_S,
        )  # fmt: skip
        return self._applied()

    async def _until_deleted(self, tip: TopicIdPartition) -> None:
        """Wait for the node's own deletion of the partition, which ends with all its objects."""
        if self.metadata.partition_state(tip) is None:
            await self._catch_up()
        state = self.metadata.partition_state(tip)
        if state is not None and state.delete_state is None:
            raise Conflict(f"{tip} is not marked as deleted")
        give_up_s = self.around.ambient.monotonic() + WRITE_DEADLINE_S
        while self.metadata.partition_state(tip) is not None:
            if self.around.ambient.monotonic() >= give_up_s:
                raise RetryLater(f"segments of {tip} are still being removed")
            await self.around.ambient.sleep(DELETED_LOOK_S)

    async def delete_objects(self, body: bytes) -> bytes:
        """Return once the segment's objects are gone, or will be."""
        asked = wire.decode_row(body)
        self._check_not_held()
        self.plugin.serves_storage = True
        await self.deletions.remove_objects(asked.segment_id.id)
        return self._applied()

    async def copy(self, files: wire.CopyFiles) -> bytes:
        """The custom metadata of a segment, once it is copied."""
        self.plugin.serves_storage = True
        return await self.copies.copy(files)

    async def receive(self, body: SentBody, go: asyncio.Event) -> bytes:
        """Copy as `copy` does, files that the broker sends once `go` is set."""
        self.plugin.serves_storage = True
        return await self.copies.receive(body, go)

    def segment_to_read(self, asked: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        """The row of a segment whose bytes are asked for; a broker's copy of it may be old."""
        tip, id_ = asked.segment_id.partition, asked.segment_id.id
        self._check_known(tip)
        row = self.metadata.segment(tip, id_)
        if row is None:
            raise RetryLater(f"{asked.segment_id} is not known on this node, or deleted")
        if row.state is not SegmentState.COPY_SEGMENT_FINISHED:
            raise RetryLater(f"{asked.segment_id} is {row.state.name}")
        self.reads.reads.tiered(row)  # refuses segments of a different remote log manager
        return row

    def why_not_writable(self, tip: TopicIdPartition) -> str | None:
        """The reason why the broker's tasks of a partition may not run now; None: they may."""
        why = self._why_not_readable(tip)
        if why is not None:
            return why
        state = self.metadata.partition_state(tip)
        if state is not None and state.mode is not Mode.DELEGATED:
            return f"its mode is {state.mode.name.lower()}: {self._stand_by(tip)}"
        session = self.plugin.session
        assert session is not None, "readable partitions are announced"
        if tip not in session.leaders:
            return None
        work, why = self.table.work(tip), self.plugin.why_unlooked(tip)
        if why is not None and not self.table.sees_no_disk:
            return self._why_untold(work) or why
        if work is None or work.mode is not Mode.DELEGATED:
            return (
                "the broker has not reported its leader epochs and log start to this node yet"
                if self.table.sees_no_disk
                else NOT_FOUND
            )
        if why is not None:
            return why
        kept_away = work.left_out or work.unusable
        if kept_away is not None:
            return kept_away.text
        if not isinstance(self.driver.decision(work), Lead):
            return self._stand_by(tip)
        return None

    def _why_untold(self, work: PartitionWork | None) -> str | None:
        """The reason why a look did not find out enough: the replica's directory is missing or
        unreadable, or the led epoch is not known, or not in the checkpoint yet; else None.
        """
        if work is None:
            return NOT_FOUND
        if work.unusable is not None:
            return work.unusable.text
        decision = self.driver.decision(work)
        if isinstance(decision, StandBy) and decision.why in UNTOLD:
            return decision.text
        return None

    def _stand_by(self, tip: TopicIdPartition) -> str:
        work = self.table.work(tip)
        if work is None:
            return "this node has not scanned its log directory yet"
        decision = self.driver.decision(work)
        return decision.text if isinstance(decision, StandBy) else "its claim is not recorded yet"

    def _check_not_held(self) -> None:
        held = MoveHold(self.metadata).all_delegated()
        if held is not None:
            raise RetryLater(held)

    def _why_not_readable(self, tip: TopicIdPartition) -> str | None:
        if self.metadata.migration().phase in TOPIC_PHASES:
            return MoveHold(self.metadata).all_delegated()
        if not self.plugin.has(tip):
            return "the broker's plug-in did not announce it"
        if not self.metadata.is_ready(tip):
            return "this node has not applied all metadata records about it yet"
        if self._is_adopting(tip):
            return "its segments in the store are not recorded yet, after a restart from a snapshot"
        state = self.metadata.partition_state(tip)
        if state is None:
            return None
        if state.mode is Mode.SIDECAR:
            return f"its mode is sidecar: {self._stand_by(tip)}"
        if _has_rows(state) and not state.lineage:
            return "it has segments, but no claim has recorded its leader epochs yet"
        return None

    def _is_adopting(self, tip: TopicIdPartition) -> bool:
        """True while the stores' segments are not recorded up to the first one that the broker is
        to copy. A replica that has left this node, whose row a last drive keeps, does not count.
        """
        work = self.table.work(tip)
        is_here = work is not None and work.local is not None and work.found is not None
        waits = work is not None and is_here and not self.driver.adopts(work)
        return self.driver.adoption.is_due(tip) and not waits

    def _check_known(self, tip: TopicIdPartition) -> None:
        if self.metadata.is_deleted(tip):
            raise GoneError(f"{tip} is deleted")

    def _check_delegated(self, tip: TopicIdPartition) -> None:
        """Raise RetryLater unless the partition is delegated: else the broker may not change it."""
        state = self.metadata.partition_state(tip)
        if state is not None and state.mode is not Mode.DELEGATED:
            raise RetryLater(
                f"{tip} has the mode {state.mode.name.lower()}: its segments are not this broker's "
                "to change or delete; an admin sets the mode to delegated first"
            )

    def _check_readable(self, tip: TopicIdPartition) -> None:
        self._check_known(tip)
        why = self._why_not_readable(tip)
        if why is not None:
            raise _not_ready(tip, why)

    def _check_writable(self, tip: TopicIdPartition) -> None:
        self._check_known(tip)
        why = self.why_not_writable(tip)
        if why is not None:
            raise _not_ready(tip, why)

    def _check_leadership(self, tip: TopicIdPartition, made: Made) -> None:
        """Raise RetryLater for a call from before the present leadership: it would get the present
        claim's token, although an unclean election may have replaced the log. `_token` refuses
        calls from before a claim whose leadership was not announced.
        """
        session = self.plugin.session
        if session is not None and session.led_before(tip, made.seq):
            raise RetryLater(
                f"{tip}: this call is from before announcement {session.leaders[tip]} of the "
                "present leadership: the broker decides anew"
            )

    def _check_recorded(self, tip: TopicIdPartition, leader_epoch: int) -> None:
        """Raise RetryLater for an epoch above the recorded ones: its segments may be finished but
        not served yet, and a broker that asks before it announces does not ask again.
        """
        state = self.metadata.partition_state(tip)
        if state is not None and state.lineage and leader_epoch > state.lineage[-1].epoch:
            raise RetryLater(
                f"{tip}: leader epoch {leader_epoch} is not recorded yet, the last one is "
                f"{state.lineage[-1].epoch}"
            )

    def _token(self, tip: TopicIdPartition, made: Made) -> int:
        """The token of this process's claim, for a call made after the claim. It outlives the
        replica's directory, which the broker removes before the segments of a deleted topic.
        RetryLater: the claim is missing, or is later than the call.
        """
        claim = self._own_claim(tip)
        if claim.incarnation != self.around.identity.incarnation:
            raise RetryLater(f"{tip} is not claimed again since this node started")
        if made.before(claim.token):
            raise RetryLater(
                f"{tip}: the broker made this call before it knew of the claim at leader epoch "
                f"{claim.leader_epoch}: it decides anew"
            )
        return claim.token

    def _own_claim(self, tip: TopicIdPartition) -> Claim:
        """The claim of this node, perhaps from before its start. RetryLater: there is none. Fenced:
        it is a different node's.
        """
        state = self.metadata.partition_state(tip)
        if state is None or state.claim is None:
            raise RetryLater(f"{tip} is not claimed yet")
        if state.claim.incarnation.node_id != self.around.identity.incarnation.node_id:
            raise Fenced(
                f"node {state.claim.incarnation.node_id} holds the claim of {tip} at leader epoch "
                f"{state.claim.leader_epoch}: this broker does not lead it any more"
            )
        return state.claim

    async def _catch_up(self) -> None:
        """Catch up before a row counts as deleted: a view that lags may lack it."""
        await self.metadata.catch_up(deadline_s=CATCH_UP_DEADLINE_S)

    async def _propose(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        await self.metadata.update_remote_log_segment_metadata(update, deadline_s=WRITE_DEADLINE_S)

    def _applied(self) -> bytes:
        return wire.encode_applied(self.metadata.applied_offset)


def _not_ready(tip: TopicIdPartition, why: str) -> RetryLater:
    return RetryLater(f"{tip} is not ready on this node: {why}")


def _has_rows(state: PartitionState) -> bool:
    return state.segment_count > 0 or state.highest_copied is not None
