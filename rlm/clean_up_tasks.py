"""Clean-ups under way: at most one a segment, run beside the copies, bounded in number."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from kafka_formats.errors import Conflict, Fenced, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.backoff import error_kind
from rlm.clean_up import CleanUp, was_finished
from rlm.run_report import PendingCleanUp
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

PENDING_MAX = 1_000
"""Clean-ups remembered at once; more left-overs wait for a later scan."""

OnTrouble = Callable[[RemoteLogSegmentMetadata, str, str], None]
"""(row, kind, text) of a clean-up that failed; it is tried again after a later scan."""


@dataclass(slots=True)
class _Running:
    row: RemoteLogSegmentMetadata
    due_ms: int
    why: str
    task: asyncio.Task[None]


class CleanUpTasks:
    """Starts, limits and ends clean-ups."""

    def __init__(self, clean_up: CleanUp, on_trouble: OnTrouble) -> None:
        self._clean_up = clean_up
        self._on_trouble = on_trouble
        self._running: dict[Uuid, _Running] = {}

    def is_running(self, segment_uuid: Uuid) -> bool:
        """True while a clean-up of the segment is under way."""
        return segment_uuid in self._running

    async def begin(self, row: RemoteLogSegmentMetadata, token: int, why: str) -> bool:
        """Mark the row deleted and start removing its objects beside everything else.

        True once DELETE_SEGMENT_STARTED is applied (a new attempt may begin), False when there is
        nothing to clean up. The row's writer must not be uploading any more if it is this
        incarnation. Fenced, RetryLater and OutcomeUnknown as `CleanUp.mark` raises them.
        """
        if row.segment_id.id in self._running:
            return True
        unmarked = row.state is SegmentState.COPY_SEGMENT_STARTED
        if unmarked and not await self._clean_up.mark(row, token):
            return False
        self._remove(row, why)
        return True

    def _remove(self, row: RemoteLogSegmentMetadata, why: str) -> None:
        id_ = row.segment_id.id
        if id_ in self._running or len(self._running) >= PENDING_MAX:
            return
        stopped = row.writer == self._clean_up.identity.incarnation
        due_ms = self._clean_up.due_ms(row, uploader_stopped=stopped)
        task = asyncio.get_running_loop().create_task(
            self._run(row, due_ms, why), name=f"clean up {id_}"
        )
        self._running[id_] = _Running(row, due_ms, why, task)
        task.add_done_callback(lambda _: self._running.pop(id_, None))

    async def _run(self, row: RemoteLogSegmentMetadata, due_ms: int, why: str) -> None:
        try:
            await self._clean_up.remove(row, due_ms, why)
        except (Fenced, Conflict) as error:
            logger.info("clean-up of %s left to others: %s", row.segment_id, error)
        except Exception as error:
            expected = isinstance(error, StrandlineError)
            logger.warning(
                "clean-up of %s failed, to be repeated: %s",
                row.segment_id,
                error,
                exc_info=None if expected else error,
            )
            self._on_trouble(row, error_kind(error), str(error))

    async def settle(self, until_ms: int) -> tuple[PendingCleanUp, ...]:
        """Wait for the clean-ups due by `until_ms`; the others are told and left running."""
        while True:
            due = [each.task for each in self._running.values() if each.due_ms <= until_ms]
            if not due:
                break
            await asyncio.wait(due)
            # The done callbacks that forget finished tasks run one step later.
            await asyncio.gather(*due, return_exceptions=True)
        return self.pending()

    def pending(self) -> tuple[PendingCleanUp, ...]:
        """What is still to be removed for good, and when."""
        return tuple(
            PendingCleanUp(each.row.segment_id, each.due_ms, each.why)
            for each in self._running.values()
        )

    async def close(self) -> None:
        """Cancel what is left; the rows stay in DELETE_SEGMENT_STARTED for the next run."""
        tasks = [each.task for each in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def why_left_over(row: RemoteLogSegmentMetadata) -> str:
    """A sentence for the audit log."""
    if was_finished(row):
        return "marked deleted"
    return "a copy that did not finish"
