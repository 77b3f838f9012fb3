"""Deletes a segment, finished or not.

    DELETE_SEGMENT_STARTED applied (expecting COPY_SEGMENT_STARTED or COPY_SEGMENT_FINISHED)
      -> wait for running readers, if the copy had finished
      -> delete objects, abort uploads
      -> wait until no late request of the attempt can become visible any more
      -> delete and abort again
      -> DELETE_SEGMENT_FINISHED applied

Invariant (delete_order): no object is deleted before DELETE_SEGMENT_STARTED is applied, no row
before its objects. Any node may repeat every step, so the next run finishes a deletion that a crash
interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from kafka_formats.errors import RetryLater
from rlm.control.audit import Audit, AuditAction, AuditLine, KeepAudit, keep_no_audit, no_audit
from rlm.control.run_events import OnEvent, SegmentDeleted
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import Surroundings
from rlm.delete.delete_due import delete_due_ms, objects_due_ms
from rlm.format.aiven_metadata import object_prefix_of
from rlm.format.custom_metadata import custom_of
from rlm.format.object_keys import segment_keys
from rlm.stores.object_deletion import delete_objects
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState

UNFINISHED = "a copy that did not finish"


def ends_here(_row: RemoteLogSegmentMetadata) -> str | None:
    """Return None: this node can delete the objects of every row."""
    return None


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The steps for one row; `clean_up_tasks` runs them.

    `held_back` returns the reason why nothing of a topic may be deleted now (a doubtful clock, a
    kill switch). `confirm_prefix` raises Refused once the store's prefix is a different cluster's.
    `why_by_broker` returns the reason why only a row's broker can delete its objects.
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
    why_by_broker: Callable[[RemoteLogSegmentMetadata], str | None] = ends_here

    async def mark(
        self,
        row: RemoteLogSegmentMetadata,
        token: int,
        *,
        expected: SegmentState = SegmentState.COPY_SEGMENT_STARTED,
        why: str = UNFINISHED,
        policy_offset: int | None = None,
    ) -> bool:
        """Move a row from the expected state (compare and set) to DELETE_SEGMENT_STARTED.

        `policy_offset`: the offset of the topic policy that decided, if any. False if there is
        nothing to delete: the row changed or is gone, or it is the only one that serves offsets
        from the log start on, or the policy changed, or deleting is paused. Fenced: a newer claim
        of the partition decides.
        """
        marked = await self.proposals.mark_deleted(
            replace(
                self._update(row, SegmentState.DELETE_SEGMENT_STARTED),
                token=token,
                expected_state=expected,
                policy_offset=policy_offset,
            ),
            # An unfinished copy is marked even during a pause; its objects wait.
            lambda: None if expected is SegmentState.COPY_SEGMENT_STARTED else self._why_not(row),
        )
        if marked:
            self.audit(self._line(AuditAction.SEGMENT_MARKED, row, why))
        return marked

    def _update(
        self, row: RemoteLogSegmentMetadata, state: SegmentState
    ) -> RemoteLogSegmentMetadataUpdate:
        node = self.around.identity.incarnation
        return RemoteLogSegmentMetadataUpdate(
            row.segment_id, node.node_id, self.around.ambient.now_ms(), None, state, writer=node
        )

    def _line(self, action: AuditAction, row: RemoteLogSegmentMetadata, why: str) -> AuditLine:
        by = f"node {self.around.identity.incarnation.node_id}"
        return AuditLine.of_segment(self.around.ambient.now_ms(), action, row, why, by)

    def due_ms(self, row: RemoteLogSegmentMetadata, *, uploader_stopped: bool) -> int:
        """The time of the second, final delete (Unix time in ms).

        A PUT that the store accepted but does not show yet may appear after the first delete. A
        worker of a different incarnation may still send (a paused machine, a network partition)
        until the deadline in the row, so its attempt waits for that plus a margin for the clocks.
        This process's own attempts have ended and send nothing more; a process about to end
        (`uploader_stopped`) waits only for the store's own delay.
        """
        due_ms = delete_due_ms(row, self.around.limits)
        if not uploader_stopped:
            return due_ms
        settled_ms = self.around.ambient.now_ms() + round(
            self.around.limits.stopped_margin_s * 1000
        )
        return min(due_ms, max(objects_due_ms(row, self.around.limits), settled_ms))

    async def remove(self, row: RemoteLogSegmentMetadata, due_ms: int, why: str) -> None:
        """Delete from DELETE_SEGMENT_STARTED to the end; safe to repeat. Sleeps until `due_ms` by
        the present clock: changing the clock meanwhile has no effect.

        Raises RetryLater or Refused of the store; a later run finds the row again.
        """
        monotonic = self.around.ambient.monotonic
        now_s, now_ms = monotonic(), self.around.ambient.now_ms()
        due_s = now_s + (due_ms - now_ms) / 1000
        await self._sleep_until(now_s + (objects_due_ms(row, self.around.limits) - now_ms) / 1000)
        is_early = monotonic() < due_s  # at the start: a late object may appear before the end
        await self.remove_objects(row, why)
        if is_early:
            await self._sleep_until(due_s)
            # Checked again, after a wait that may have been long.
            self._check_allowed(row)
            await self.delete_objects(row)
        gone = self._update(row, SegmentState.DELETE_SEGMENT_FINISHED)
        await self.proposals.finish_delete(gone)
        self.on_event(SegmentDeleted(row.segment_id, row.start_offset, why))

    async def remove_objects(self, row: RemoteLogSegmentMetadata, why: str) -> None:
        """Delete the objects of a row in DELETE_SEGMENT_STARTED once, now. `remove` finishes it."""
        self._check_allowed(row)
        self._stores_of(row)  # raises before the audit: such a row is retried, and would fill it
        await self.keep_audit(self._line(AuditAction.OBJECTS_DELETED, row, why))
        await self.delete_objects(row)

    async def _sleep_until(self, at_s: float) -> None:
        """Sleep until a monotonic time."""
        wait_s = at_s - self.around.ambient.monotonic()
        if wait_s > 0:
            await self.around.ambient.sleep(wait_s)

    def _check_allowed(self, row: RemoteLogSegmentMetadata) -> None:
        why_not = self.why_by_broker(row) or self._why_not(row)
        if why_not is not None:
            raise RetryLater(f"nothing is deleted now: {why_not}")

    def _why_not(self, row: RemoteLogSegmentMetadata) -> str | None:
        return self.held_back(row.segment_id.partition.topic)

    async def delete_objects(self, row: RemoteLogSegmentMetadata) -> None:
        """Delete the objects of this row's segment in every store that may have them."""
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
        """The store that the row names, else all stores with its key prefix. A row names none if
        its copy is unfinished (the default store may have changed since) or Aiven's plug-in wrote
        it (its objects have the same keys). Refused: this node has no such store; the row must
        remain, as the only record of the objects.
        """
        custom = custom_of(row.custom_metadata)
        if custom is not None:
            return (self.stores.named(custom.store),)
        return self.stores.with_prefix(row.segment_id, object_prefix_of(row.custom_metadata))
