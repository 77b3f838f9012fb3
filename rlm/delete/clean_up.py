"""Deleting a segment, finished or not: the end of design 6.2, and 6.3's left-overs.

    DELETE_SEGMENT_STARTED applied (expecting COPY_SEGMENT_STARTED or COPY_SEGMENT_FINISHED)
      -> wait for running readers, if the copy had finished
      -> delete objects, abort uploads
      -> wait until no late request of the attempt can become visible any more
      -> delete and abort again
      -> DELETE_SEGMENT_FINISHED applied

Invariant (delete_order): no object goes before DELETE_SEGMENT_STARTED is applied, no row before its
objects. Every step may be repeated by anybody, so a crash anywhere is finished by the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kafka_formats.errors import RetryLater
from rlm.control.audit import Audit, AuditAction, AuditLine, KeepAudit, keep_no_audit, no_audit
from rlm.control.run_events import OnEvent, SegmentDeleted
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import Surroundings
from rlm.delete.delete_due import delete_due_ms, objects_due_ms
from rlm.format.custom_metadata import custom_of
from rlm.format.object_keys import segment_keys
from rlm.stores.object_deletion import delete_objects
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

UNFINISHED = "a copy that did not finish"


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The steps for one row; who runs them when is `clean_up_tasks`' business.

    `held_back` says why nothing of a topic may be deleted now (a doubtful clock, a kill switch).
    `confirm_prefix` raises Refused once the store's prefix is another cluster's.
    """

    proposals: Proposals
    stores: TierStores
    around: Surroundings
    on_event: OnEvent
    slots: asyncio.Semaphore
    held_back: Callable[[str], str | None]
    confirm_prefix: Callable[[TierStore], Awaitable[None]]
    audit: Audit = no_audit
    keep_audit: KeepAudit = keep_no_audit

    async def mark(
        self,
        row: RemoteLogSegmentMetadata,
        token: int,
        *,
        expected: SegmentState = SegmentState.COPY_SEGMENT_STARTED,
        why: str = UNFINISHED,
        policy_offset: int | None = None,
    ) -> bool:
        """Bring a row from the expected state (compare and set) to DELETE_SEGMENT_STARTED.

        `policy_offset`: the topic's policy that decided, None for none. False: the row is in
        another state, is gone, or alone serves offsets from log start on, the policy is another
        one, or deleting is paused; nothing is to be deleted. Fenced: somebody newer claimed the
        partition and decides.
        """
        marked = await self.proposals.mark_deleted(
            RemoteLogSegmentMetadataUpdate(
                segment_id=row.segment_id,
                broker_id=self.around.identity.incarnation.node_id,
                event_timestamp_ms=self.around.ambient.now_ms(),
                custom_metadata=None,
                state=SegmentState.DELETE_SEGMENT_STARTED,
                token=token,
                writer=self.around.identity.incarnation,
                expected_state=expected,
                policy_offset=policy_offset,
            ),
            # A copy that did not finish is taken back whatever is paused; its objects wait.
            lambda: None if expected is SegmentState.COPY_SEGMENT_STARTED else self._why_not(row),
        )
        if marked:
            self.audit(self._line(AuditAction.SEGMENT_MARKED, row, why))
        return marked

    def marked_row(self, row: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata | None:
        """The row as it stands now; None once it is gone."""
        return self.proposals.rows.segment(row.segment_id.partition, row.segment_id.id)

    def _line(self, action: AuditAction, row: RemoteLogSegmentMetadata, why: str) -> AuditLine:
        return AuditLine(
            at_ms=self.around.ambient.now_ms(),
            action=action,
            partition=row.segment_id.partition,
            segment_id=row.segment_id.id,
            start_offset=row.start_offset,
            end_offset=row.end_offset,
            size_bytes=row.size_bytes,
            why=why,
            by=f"node {self.around.identity.incarnation.node_id}",
        )

    def due_ms(self, row: RemoteLogSegmentMetadata, *, uploader_stopped: bool) -> int:
        """When the second, final delete may happen (ms since the epoch).

        A PUT that the store accepted but has not shown yet may appear after we looked. Another
        incarnation's worker may even be sending still (a paused machine, a split network), and
        stops by itself only at the deadline written in the row; so its attempt waits for that
        deadline plus a margin for the difference of the clocks. An attempt of this very
        incarnation whose pool call has ended sends no byte any more; what is left is the store's
        own delay. A process that lives on waits for the deadline all the same, it costs nothing;
        one that is about to end (`uploader_stopped`) takes a short margin.
        """
        due_ms = delete_due_ms(row, self.around.limits)
        if not uploader_stopped:
            return due_ms
        settled_ms = self.around.ambient.now_ms() + round(
            self.around.limits.stopped_margin_s * 1000
        )
        return min(due_ms, max(objects_due_ms(row, self.around.limits), settled_ms))

    async def remove(self, row: RemoteLogSegmentMetadata, due_ms: int, why: str) -> None:
        """From DELETE_SEGMENT_STARTED to the end; safe to repeat. Sleeps until `due_ms` by what the
        clock says now: one that is set meanwhile changes nothing.

        Raises RetryLater or Refused of the store; the row stays as it is and is found again.
        """
        now_s, now_ms = self.around.ambient.monotonic(), self.around.ambient.now_ms()
        await self._sleep_until(now_s + (objects_due_ms(row, self.around.limits) - now_ms) / 1000)
        self._check_allowed(row)
        await self.keep_audit(self._line(AuditAction.OBJECTS_DELETED, row, why))
        await self.delete_objects(row)
        if await self._sleep_until(now_s + (due_ms - now_ms) / 1000):
            # Asked anew: the wait may have been long.
            self._check_allowed(row)
            await self.delete_objects(row)
        await self.proposals.finish_delete(
            RemoteLogSegmentMetadataUpdate(
                segment_id=row.segment_id,
                broker_id=self.around.identity.incarnation.node_id,
                event_timestamp_ms=self.around.ambient.now_ms(),
                custom_metadata=None,
                state=SegmentState.DELETE_SEGMENT_FINISHED,
                writer=self.around.identity.incarnation,
            )
        )
        self.on_event(SegmentDeleted(row.segment_id, row.start_offset, why))

    async def _sleep_until(self, at_s: float) -> bool:
        """Whether there was anything to wait for; monotonic seconds."""
        wait_s = at_s - self.around.ambient.monotonic()
        if wait_s > 0:
            await self.around.ambient.sleep(wait_s)
        return wait_s > 0

    def _check_allowed(self, row: RemoteLogSegmentMetadata) -> None:
        why_not = self._why_not(row)
        if why_not is not None:
            raise RetryLater(f"nothing is deleted now: {why_not}")

    def _why_not(self, row: RemoteLogSegmentMetadata) -> str | None:
        return self.held_back(row.segment_id.partition.topic)

    async def delete_objects(self, row: RemoteLogSegmentMetadata) -> None:
        """Of this row's segment, wherever they may be; see `rlm/stores/object_deletion.py`."""
        for tier in self._stores_of(row):
            async with self.slots:
                await delete_objects(
                    tier,
                    segment_keys(tier.prefix, row.segment_id, row.start_offset).all(),
                    confirm_prefix=self.confirm_prefix,
                    held_back=lambda: self._why_not(row),
                    deadline_s=self.around.limits.store_deadline_s,
                    what=f"the objects of {row.segment_id}",
                )

    def _stores_of(self, row: RemoteLogSegmentMetadata) -> tuple[TierStore, ...]:
        """The store that the row names, else all: an unfinished row names none, and the default
        may have been another one when it was written. Keys hold the segment id, so that looking
        in a store that never had it does no harm. The default one, which most likely has it, comes
        first: another one may be missing.
        """
        custom = custom_of(row.custom_metadata)
        if custom is not None:
            return (self.stores.named(custom.store),)
        default = self.stores.default
        others = (each for each in self.stores.by_name.values() if each is not default)
        return (default, *others)
