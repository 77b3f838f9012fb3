"""Group commit: one flush for all that queued up, offsets in order, a bound, and an end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kafka_formats.errors import InvalidRequest, OutcomeUnknown, RetryLater
from rlmm.log.group_commit import GroupCommit, Pending
from rlmm.log.limits import LogLimits
from rlmm.log.log_directory import EncodedBatch
from rlmm.metadata_log import Proposal

LIMITS = LogLimits(queue_bytes_max=300, proposal_bytes_max=50)


class Flusher:
    """A disk whose flushes end when the test says so."""

    def __init__(self) -> None:
        self.flushed: list[list[int]] = []
        self.durable: list[int] = []
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.commit = GroupCommit(
            self.flush,
            epoch=1,
            next_offset=5,
            now_ms=lambda: 7,
            on_durable=self.on_durable,
            on_failure=self.failures.append,
            limits=LIMITS,
        )

    async def flush(self, batches: Sequence[EncodedBatch]) -> None:
        self.flushed.append([batch.base_offset for batch in batches])
        await self.gate.wait()
        if self.error is not None:
            raise self.error

    def on_durable(self, group: Sequence[Pending]) -> None:
        assert not any(pending.done.done() and not pending.done.cancelled() for pending in group)
        self.durable += [pending.first_offset for pending in group]

    def enqueue(self, count: int = 1, size: int = 10) -> Pending:
        return self.commit.enqueue((Proposal(None, bytes(size)),) * count)


async def test_offsets_are_given_in_order_and_answered_once_durable() -> None:
    flusher = Flusher()
    running = asyncio.create_task(flusher.commit.run())
    pending = [flusher.enqueue(), flusher.enqueue(count=2), flusher.enqueue()]
    assert [await one.done for one in pending] == [5, 6, 8]
    assert flusher.durable == [5, 6, 8]
    flusher.commit.stop()
    await running


async def test_what_queues_up_during_a_flush_shares_the_next_one() -> None:
    flusher = Flusher()
    flusher.gate.clear()
    running = asyncio.create_task(flusher.commit.run())
    first = flusher.enqueue()
    while not flusher.flushed:
        await asyncio.sleep(0)
    later = [flusher.enqueue() for _ in range(3)]
    flusher.gate.set()
    await asyncio.gather(first.done, *(one.done for one in later))
    assert flusher.flushed == [[5], [6, 7, 8]]
    flusher.commit.stop()
    await running


async def test_a_full_queue_says_retry_later_and_gives_no_offset_away() -> None:
    flusher = Flusher()
    for _ in range(6):
        try:
            flusher.enqueue(size=40)
        except RetryLater:
            break
    else:
        pytest.fail("the queue has no bound")
    running = asyncio.create_task(flusher.commit.run())
    flusher.commit.stop()
    await running
    assert flusher.enqueue().first_offset == len(flusher.durable) + 5


async def test_a_proposal_that_is_too_large_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="51 bytes"):
        Flusher().enqueue(size=51)


async def test_stop_still_flushes_what_is_queued() -> None:
    flusher = Flusher()
    pending = flusher.enqueue()
    flusher.commit.stop()
    await flusher.commit.run()
    assert await pending.done == 5


async def test_a_failed_flush_ends_everything() -> None:
    flusher = Flusher()
    flusher.gate.clear()
    running = asyncio.create_task(flusher.commit.run())
    in_flight = flusher.enqueue()
    while not flusher.flushed:
        await asyncio.sleep(0)
    behind = flusher.enqueue()
    flusher.error = RetryLater("the disk failed")
    flusher.gate.set()
    with pytest.raises(OutcomeUnknown, match="the disk failed"):
        await in_flight.done
    await running
    assert flusher.failures == [flusher.error]
    assert flusher.durable == []
    flusher.commit.refuse_queued("over")
    with pytest.raises(RetryLater, match="over"):
        await behind.done


async def test_a_waiter_that_left_does_not_disturb_the_others() -> None:
    flusher = Flusher()
    gone, stays = flusher.enqueue(), flusher.enqueue()
    gone.done.cancel()
    flusher.commit.stop()
    await flusher.commit.run()
    assert await stays.done == 6
