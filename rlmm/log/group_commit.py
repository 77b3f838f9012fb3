"""Group commit with zero linger: whatever queues up while one flush runs goes into the next.

The queue gives offsets away at once, in order, so there is one writer and a failed flush ends it:
after that the offsets behind it mean nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest, OutcomeUnknown, RetryLater
from rlmm.log.committed import encode_proposals
from rlmm.log.limits import LogLimits
from rlmm.log.log_directory import EncodedBatch
from rlmm.metadata_log import CommittedRecord, Proposal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pending:
    """Neighbouring records queued together; `done` gets the first one's offset once durable."""

    first_offset: int
    epoch: int
    timestamp_ms: int
    proposals: tuple[Proposal, ...]
    batches: tuple[EncodedBatch, ...]
    size_bytes: int
    done: asyncio.Future[int]

    def records(self) -> list[CommittedRecord]:
        """All of them, those of the log itself included."""
        return [
            CommittedRecord(
                offset=self.first_offset + index,
                epoch=self.epoch,
                timestamp_ms=self.timestamp_ms,
                control_type=proposal.control_type,
                value=proposal.value,
            )
            for index, proposal in enumerate(self.proposals)
        ]

    def answer(self, error: Exception | None = None) -> None:
        """Tell the waiter, if it still waits."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(self.first_offset)
        else:
            self.done.set_exception(error)


class GroupCommit:
    """`flush` makes batches durable; `on_durable` hears of each group before its waiters do."""

    def __init__(
        self,
        flush: Callable[[Sequence[EncodedBatch]], Awaitable[None]],
        *,
        epoch: int,
        next_offset: int,
        now_ms: Callable[[], int],
        on_durable: Callable[[Sequence[Pending]], None],
        on_failure: Callable[[Exception], None],
        limits: LogLimits,
    ) -> None:
        self._flush = flush
        self._epoch = epoch
        self._next_offset = next_offset
        self._now_ms = now_ms
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._limits = limits
        self._queue: list[Pending] = []
        self._queue_bytes = 0
        self._work = asyncio.Event()
        self._closing = False

    def enqueue(self, proposals: tuple[Proposal, ...]) -> Pending:
        """Give the records their offsets. RetryLater: the queue is full, nothing was appended."""
        size = sum(len(proposal.value) for proposal in proposals)
        if size > self._limits.proposal_bytes_max:
            raise InvalidRequest(
                f"{size} bytes in one proposal, at most {self._limits.proposal_bytes_max}",
                field="proposals",
            )
        if self._queue and self._queue_bytes + size > self._limits.queue_bytes_max:
            raise RetryLater("the metadata log's queue is full", retry_after_ms=100)
        offset, timestamp_ms = self._next_offset, self._now_ms()
        batches = encode_proposals(
            proposals, base_offset=offset, epoch=self._epoch, timestamp_ms=timestamp_ms
        )
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # Nobody may be left to fetch the error: a caller that was cancelled, for one.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        size = sum(len(batch.data) for batch in batches)
        pending = Pending(offset, self._epoch, timestamp_ms, proposals, batches, size, done)
        self._next_offset += len(proposals)
        self._queue.append(pending)
        self._queue_bytes += size
        self._work.set()
        return pending

    async def run(self) -> None:
        """Flush until `stop`, then what is queued, then end. Ends at once after a failed flush."""
        while not self._closing or self._queue:
            await self._work.wait()
            self._work.clear()
            group = self._take()
            if not group:
                continue
            try:
                await self._flush([batch for pending in group for batch in pending.batches])
                self._on_durable(group)
            except Exception as error:
                log.error("the metadata log stopped", exc_info=error)
                for pending in group:
                    pending.answer(OutcomeUnknown(str(error)))
                self._on_failure(error)
                return
            for pending in group:
                pending.answer()

    def stop(self) -> None:
        """Let `run` end after what is queued; call `refuse_queued` when it has."""
        self._closing = True
        self._work.set()

    def refuse_queued(self, message: str) -> None:
        """Answer what was never handed to the disk: nothing of it was appended."""
        for pending in self._take():
            pending.answer(RetryLater(message))

    def _take(self) -> list[Pending]:
        queue, self._queue, self._queue_bytes = self._queue, [], 0
        return queue
