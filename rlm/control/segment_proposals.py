"""Proposes segment records until their outcome is known.

Every segment record may be proposed again with the same content without effect. So an unknown
outcome is settled by a repetition and a look at the row by its id, never by a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_formats.errors import Conflict, OutcomeUnknown, RetryLater
from rlm.control.backoff import BackOffPolicy, jittered_s
from rlm.control.surroundings import CopyLimits, Surroundings
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState


@dataclass(frozen=True, slots=True)
class Proposals:
    """The protocol's writes, for `copier` and `clean_up`."""

    rows: RemoteLogMetadataManager
    around: Surroundings

    async def start_copy(self, row: RemoteLogSegmentMetadata) -> None:
        """COPY_SEGMENT_STARTED is applied on return.

        RetryLater: nothing was appended. OutcomeUnknown: the row may still appear, as a left-over
        of this incarnation without an uploaded byte.
        """
        unknown: OutcomeUnknown | None = None
        for attempt in range(1, self.around.limits.propose_attempts_max + 1):
            try:
                await self.rows.add_remote_log_segment_metadata(
                    row, deadline_s=self.around.limits.propose_deadline_s
                )
            except OutcomeUnknown as error:
                unknown = error
            except RetryLater:
                if unknown is None:
                    raise
            else:
                return
            if self._state(row) is SegmentState.COPY_SEGMENT_STARTED:
                return
            await self._pause(attempt)
        assert unknown is not None, "the loop ends early unless an outcome was unknown"
        raise unknown

    async def finish_copy(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """COPY_SEGMENT_FINISHED is applied on return. Waits for a quorum leader up to
        `finish_deadline_s`, since the upload is whole.
        """
        await self._update(update, deadline_s=self.around.limits.finish_deadline_s)

    async def mark_deleted(
        self, update: RemoteLogSegmentMetadataUpdate, held_back: Callable[[], str | None]
    ) -> bool:
        """Propose DELETE_SEGMENT_STARTED. True: the row is in that state; False: in another one.
        RetryLater also if `held_back` forbids it: a repetition may come long after the first
        attempt.

        False answers the race that matters: a COPY_SEGMENT_FINISHED whose response was lost was
        applied first, so nothing may be deleted.
        """
        deadline_s = self.around.limits.mark_deadline_s
        try:
            await self._update(update, deadline_s=deadline_s, held_back=held_back)
        except Conflict:
            row = self.rows.segment(update.segment_id.partition, update.segment_id.id)
            return row is not None and row.state is SegmentState.DELETE_SEGMENT_STARTED
        return True

    async def finish_delete(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Record DELETE_SEGMENT_FINISHED: the row is gone on return, whoever finished it."""
        deadline_s = self.around.limits.mark_deadline_s
        try:
            await self._update(update, deadline_s=deadline_s)
        except Conflict:
            if self.rows.segment(update.segment_id.partition, update.segment_id.id) is not None:
                raise

    async def _update(
        self,
        update: RemoteLogSegmentMetadataUpdate,
        *,
        deadline_s: float,
        held_back: Callable[[], str | None] = lambda: None,
    ) -> None:
        give_up_at = self.around.ambient.monotonic() + deadline_s
        attempt = 0
        while True:
            attempt += 1
            why_not = held_back()
            if why_not is not None:
                raise RetryLater(f"nothing is deleted now: {why_not}")
            try:
                await self.rows.update_remote_log_segment_metadata(
                    update, deadline_s=self.around.limits.propose_deadline_s
                )
            except (RetryLater, OutcomeUnknown):
                if self._reached(update):
                    return
                if self.around.ambient.monotonic() >= give_up_at:
                    raise
                await self._pause(attempt)
            else:
                return

    def _reached(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        row = self.rows.segment(update.segment_id.partition, update.segment_id.id)
        if row is None:
            return update.state is SegmentState.DELETE_SEGMENT_FINISHED
        return row.state is update.state

    def _state(self, row: RemoteLogSegmentMetadata) -> SegmentState | None:
        found = self.rows.segment(row.segment_id.partition, row.segment_id.id)
        return found.state if found is not None else None

    async def _pause(self, attempt: int) -> None:
        """Back off, but not for long: an upload that waits for a quorum leader is nearly done."""
        policy = back_off_policy(self.around.limits)
        pause_s = jittered_s(policy, attempt, self.around.ambient.random_fraction())
        await self.around.ambient.sleep(min(pause_s, self.around.limits.propose_deadline_s))


def back_off_policy(limits: CopyLimits) -> BackOffPolicy:
    return BackOffPolicy(
        base_s=limits.backoff_base_s,
        max_s=limits.backoff_max_s,
        source_changed_s=limits.source_changed_retry_s,
        corrupt_s=limits.corrupt_retry_s,
    )
