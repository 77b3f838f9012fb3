"""One call into a worker, seen from the supervisor."""

from __future__ import annotations

import asyncio

import pytest

from kafka_formats.errors import RetryLater
from rlm.worker.call import Call
from rlm.worker.messages import (
    CancelJob,
    Cancelled,
    Credit,
    Data,
    End,
    Failed,
    PieceReply,
    ToWorker,
)


class Clock:
    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def sent() -> list[ToWorker]:
    return []


@pytest.fixture
def call(sent: list[ToWorker]) -> Call:
    return Call(7, sent.append, Clock())


async def test_taking_data_gives_credit_for_more(call: Call, sent: list[ToWorker]) -> None:
    call.deliver(Data(7, b"a"))
    call.deliver(Data(7, b"b"))
    assert sent == []
    assert await call.next() == Data(7, b"a")
    assert sent == [Credit(7)]


async def test_a_caller_waits_until_something_arrives(call: Call) -> None:
    task = asyncio.create_task(call.next())
    await asyncio.sleep(0)
    since = call.waiting_since
    assert since == 10.0
    call.deliver(End(7, None))
    assert await task == End(7, None)
    since = call.waiting_since
    assert since is None
    assert call.finished.is_set()


async def test_nothing_follows_the_end(call: Call) -> None:
    call.deliver(End(7, None))
    call.deliver(Data(7, b"late"))
    call.fail(RetryLater("late"))
    assert await call.next() == End(7, None)


async def test_a_cancellation_is_sent_once_and_confirmed(call: Call, sent: list[ToWorker]) -> None:
    call.cancel()
    call.cancel()
    assert sent == [CancelJob(7)]
    assert not call.finished.is_set()
    call.deliver(Data(7, b"on its way"))
    call.deliver(Cancelled(7))
    assert call.finished.is_set()


async def test_an_ended_call_is_not_cancelled(call: Call, sent: list[ToWorker]) -> None:
    call.deliver(End(7, None))
    call.cancel()
    assert sent == []


async def test_giving_up_fails_the_caller_and_cancels_the_work(
    call: Call, sent: list[ToWorker]
) -> None:
    error = RetryLater("stalled")
    call.give_up(error)
    assert await call.next() == Failed(7, error)
    assert sent == [CancelJob(7)]


async def test_answers_go_to_the_job(call: Call, sent: list[ToWorker]) -> None:
    call.answer(None)
    assert sent == [PieceReply(7, None)]
