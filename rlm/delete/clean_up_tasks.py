"""Clean-ups under way: at most one per segment, beside the copies, bounded in number."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kafka_formats.errors import Conflict, Fenced, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.control.backoff import NO_BACK_OFF, BackOff, FailureKind, after_failure, error_kind
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.segment_proposals import back_off_policy
from rlm.delete.clean_up import UNFINISHED, CleanUp
from rlm.delete.delete_due import measured, not_ahead, was_finished
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

PENDING_MAX = 1_000
"""The most clean-ups remembered, running or failed; a later scan finds the other left-overs."""

TRIED_FOR_S = 2.0
"""The time that a delete for a broker is tried: a broker deletes one segment after the other, and
waits for each.
"""

OnTrouble = Callable[[RemoteLogSegmentMetadata, str, str], None]
"""Takes the (row, kind, text) of a failed clean-up, which is tried again after a later scan."""


@dataclass(frozen=True, slots=True)
class PendingCleanUp:
    """Left-over objects that a later run removes for good at `due_ms` (Unix time)."""

    segment_id: RemoteLogSegmentId
    due_ms: int
    why: str


@dataclass(slots=True)
class _Running:
    row: RemoteLogSegmentMetadata
    due_ms: int
    why: str
    task: asyncio.Task[None]


class CleanUpTasks:
    def __init__(self, clean_up: CleanUp, on_trouble: OnTrouble) -> None:
        self._clean_up = clean_up
        self._on_trouble = on_trouble
        self._running: dict[Uuid, _Running] = {}
        self._failed: dict[Uuid, BackOff] = {}
        self._trouble: dict[Uuid, tuple[RemoteLogSegmentId, str]] = {}
        self._seen_s: dict[Uuid, float] = {}
        self._hurried = False

    def hurry(self) -> None:
        """The process is about to end: its own attempts are now removed after a short margin."""
        self._hurried = True

    def is_running(self, segment_uuid: Uuid) -> bool:
        """True while a clean-up of the segment is under way."""
        return segment_uuid in self._running

    @property
    def is_full(self) -> bool:
        """True while no further clean-up fits: marking more rows would only slow down each scan of
        their partitions.
        """
        return len(self._running) >= PENDING_MAX

    async def begin(
        self,
        row: RemoteLogSegmentMetadata,
        token: int,
        why: str,
        *,
        policy_offset: int | None = None,
    ) -> bool:
        """Mark the row deleted and start to remove its objects in the background.

        The mark expects the row's present state: COPY_SEGMENT_STARTED for a clean-up,
        COPY_SEGMENT_FINISHED for retention, which names its policy. True once
        DELETE_SEGMENT_STARTED is applied (a new attempt may begin), False if there is nothing to
        delete. A row of this incarnation must not be uploading any more. Fenced, RetryLater and
        OutcomeUnknown as `CleanUp.mark` raises them.
        """
        id_ = row.segment_id
        if id_.id in self._running:
            return True
        if row.state is not SegmentState.DELETE_SEGMENT_STARTED:
            if not await self._clean_up.mark(
                row, token, expected=row.state, why=why, policy_offset=policy_offset
            ):
                return False
            if was_finished(row):
                # The delay for running readers counts from the mark's time in the row.
                marked = self._clean_up.proposals.rows.segment(id_.partition, id_.id)
                if marked is None:
                    return True  # another node has removed it meanwhile
                row = marked
        self._remove(row, why)
        return True

    async def try_to_remove(self, row: RemoteLogSegmentMetadata, why: str) -> None:
        """Try to delete the objects now, for at most TRIED_FOR_S. The clean-up begun before
        finishes the deletion, repeats what failed here, and reports failures.
        """
        with suppress(StrandlineError, TimeoutError):
            async with asyncio.timeout(TRIED_FOR_S):
                await self._clean_up.remove_objects(row, why)

    def _remove(self, row: RemoteLogSegmentMetadata, why: str) -> None:
        id_ = row.segment_id.id
        if id_ in self._running or self.is_full:
            return
        failed = self._failed.get(id_, NO_BACK_OFF)
        if failed.waits_at(self._clean_up.around.ambient.now_ms()):
            return
        row = self._timed(row)
        stopped = self._hurried and row.writer == self._clean_up.around.identity.incarnation
        due_ms = self._clean_up.due_ms(row, uploader_stopped=stopped)
        task = asyncio.get_running_loop().create_task(
            self._run(row, due_ms, why), name=f"clean up {id_}"
        )
        self._running[id_] = _Running(row, due_ms, why, task)
        task.add_done_callback(lambda _: self._running.pop(id_, None))

    def _timed(self, row: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        """The row, with times measured from when this process first saw it. A process about to end
        has no time to measure and uses the row's times, reduced where they are in the future.
        """
        clean_up, id_ = self._clean_up, row.segment_id.id
        now_s, now_ms = clean_up.around.ambient.monotonic(), clean_up.around.ambient.now_ms()
        if self._hurried:
            return not_ahead(row, clean_up.around.limits, now_ms)
        if len(self._seen_s) >= 2 * PENDING_MAX and id_ not in self._seen_s:
            del self._seen_s[next(iter(self._seen_s))]
        passed_s = now_s - self._seen_s.setdefault(id_, now_s)
        return measured(row, clean_up.around.limits, now_ms - round(passed_s * 1000))

    async def _run(self, row: RemoteLogSegmentMetadata, due_ms: int, why: str) -> None:
        try:
            await self._clean_up.remove(row, due_ms, why)
            self._failed.pop(row.segment_id.id, None)
            self._trouble.pop(row.segment_id.id, None)
            self._seen_s.pop(row.segment_id.id, None)
        except (Fenced, Conflict) as error:
            self._back_off(row, error)
            self._trouble.pop(row.segment_id.id, None)
            logger.info("clean-up of %s left to other nodes: %s", row.segment_id, error)
        except Exception as error:
            self._back_off(row, error)
            expected = isinstance(error, StrandlineError)
            if expected and self._clean_up.held_back(row.segment_id.partition.topic) is not None:
                # The reason for held-back deletes is reported once for all of them.
                self._trouble.pop(row.segment_id.id, None)
            else:
                self._trouble[row.segment_id.id] = row.segment_id, str(error)
                logger.warning(
                    "clean-up of %s failed, it will be repeated: %s", row.segment_id, error,
                    exc_info=None if expected else error,
                )  # fmt: skip
            self._on_trouble(row, error_kind(error), str(error))

    def _back_off(self, row: RemoteLogSegmentMetadata, error: Exception) -> None:
        id_, ambient = row.segment_id.id, self._clean_up.around.ambient
        before = self._failed.pop(id_, NO_BACK_OFF)
        if len(self._failed) >= PENDING_MAX:
            oldest = next(iter(self._failed))
            del self._failed[oldest]
            self._trouble.pop(oldest, None)
        self._failed[id_] = after_failure(
            before, FailureKind.TRANSIENT, str(error),
            policy=back_off_policy(self._clean_up.around.limits), now_ms=ambient.now_ms(),
            fraction=ambient.random_fraction(),
        )  # fmt: skip

    def problems(self) -> tuple[NodeProblem, ...]:
        """Failed clean-ups, which will be repeated: their number and the last error."""
        self._forget_what_went()
        if not self._trouble:
            return ()
        count, (last, error) = len(self._trouble), next(reversed(self._trouble.values()))
        text = f"{count} segments could not be removed yet, the last of them {last}: {error}"
        return (NodeProblem(ProblemArea.DELETION, "segments", text),)

    def _forget_what_went(self) -> None:
        """Forget segments that another node has removed: they are not tried here again."""
        now_ms, rows = self._clean_up.around.ambient.now_ms(), self._clean_up.proposals.rows
        for id_, (segment_id, _) in tuple(self._trouble.items()):
            due = id_ not in self._running and not self._failed[id_].waits_at(now_ms)
            if due and rows.segment(segment_id.partition, id_) is None:
                del self._trouble[id_], self._failed[id_]

    async def settle(self, until_ms: int) -> tuple[PendingCleanUp, ...]:
        """Wait for the clean-ups due by `until_ms`; return the later ones, which go on."""
        while True:
            due = [each.task for each in self._running.values() if each.due_ms <= until_ms]
            if not due:
                break
            await asyncio.wait(due)
            # Done callbacks, which forget finished tasks, run one step later.
            await asyncio.gather(*due, return_exceptions=True)
        return self.pending()

    def pending(self) -> tuple[PendingCleanUp, ...]:
        """Clean-ups still to come, with their times."""
        return tuple(
            PendingCleanUp(each.row.segment_id, each.due_ms, each.why)
            for each in self._running.values()
        )

    def left_over(self, row: RemoteLogSegmentMetadata) -> PendingCleanUp:
        """A row without a running clean-up: the time of the next try, and why it waits."""
        failed = self._failed.get(row.segment_id.id, NO_BACK_OFF)
        why = why_left_over(row)
        due_ms = max(
            failed.until_ms, self._clean_up.due_ms(self._timed(row), uploader_stopped=False)
        )
        return PendingCleanUp(
            row.segment_id, due_ms, f"{why}; {failed.text}" if failed.text else why
        )

    async def close(self) -> None:
        """Cancel the clean-ups; the rows stay in DELETE_SEGMENT_STARTED for the next run."""
        tasks = [each.task for each in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def why_left_over(row: RemoteLogSegmentMetadata) -> str:
    if was_finished(row):
        return "marked deleted"
    return UNFINISHED


def may_be_the_last_copy(row: RemoteLogSegmentMetadata, metadata: MetadataReads) -> bool:
    """True for an unfinished copy from before a restart from a snapshot, of offsets that are
    recorded as lost: it may have finished after the snapshot, and only its manifest be damaged.
    """
    restart, state = metadata.restart(), metadata.partition_state(row.segment_id.partition)
    return (
        restart is not None
        and row.state is SegmentState.COPY_SEGMENT_STARTED
        and row.token < restart.offset
        and state is not None
        and any(
            lost.start <= row.end_offset and row.start_offset <= lost.end
            for lost in state.lost_ranges
        )
    )
