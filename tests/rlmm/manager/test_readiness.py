"""A partition is ready once a barrier taken after its last change of leadership is applied here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.manager import readiness
from rlmm.manager.readiness import Readiness
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.metadata_node import until

ONE, TWO = (TopicIdPartition("orders", Uuid(b"topic-id-orders."), number) for number in (1, 2))


class Log:
    """Barriers that are answered when the test says so; `applied` is how far the view is."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[int]] = []
        self.applied = -1
        self.ended = False

    async def barrier(self, *, deadline_s: float) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.asked.append(answer)
        return await answer

    async def wait_for(self, offset: int) -> bool:
        await until(lambda: self.ended or self.applied >= offset)
        return not self.ended


@asynccontextmanager
async def running(log: Log) -> AsyncIterator[Readiness]:
    ready = Readiness(log, log.wait_for)
    task = asyncio.create_task(ready.run())
    await until(lambda: bool(log.asked))
    yield ready
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def answered(log: Log, offset: int) -> None:
    """The barrier asked for last is `offset`, and everything below it is applied."""
    log.asked[-1].set_result(offset)
    log.applied = offset - 1
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nothing_is_ready_before_the_first_barrier_is_applied() -> None:
    log = Log()
    async with running(log) as ready:
        assert not ready.is_ready(ONE)
        log.asked[0].set_result(8)
        log.applied = 6
        for _ in range(5):
            await asyncio.sleep(0)
        assert not ready.is_ready(ONE)
        log.applied = 7
        await until(lambda: ready.is_ready(ONE))
        assert len(log.asked) == 1


async def test_a_change_makes_that_partition_wait_and_no_other() -> None:
    log = Log()
    async with running(log) as ready:
        await answered(log, 8)
        ready.changed([ONE])
        assert (ready.is_ready(ONE), ready.is_ready(TWO)) == (False, True)
        await until(lambda: len(log.asked) == 2)
        await answered(log, 9)
        assert ready.is_ready(ONE)


async def test_a_barrier_asked_for_before_the_change_proves_nothing_about_it() -> None:
    log = Log()
    async with running(log) as ready:
        await answered(log, 8)
        ready.changed([ONE])
        await until(lambda: len(log.asked) == 2)
        ready.changed([TWO, ONE])
        await answered(log, 9)
        assert (ready.is_ready(ONE), ready.is_ready(TWO)) == (False, False)
        await until(lambda: len(log.asked) == 3)
        await answered(log, 10)
        assert (ready.is_ready(ONE), ready.is_ready(TWO)) == (True, True)


def test_without_a_quorum_leader_it_is_asked_again_until_there_is_one() -> None:
    async def main() -> None:
        log = Log()
        async with running(log) as ready:
            for attempt in range(3):
                log.asked[attempt].set_exception(RetryLater("no leader"))
                await asyncio.sleep(readiness.BARRIER_RETRY_S * 1.5)
                assert len(log.asked) == attempt + 2
                assert not ready.is_ready(ONE)
            await answered(log, 4)
            assert ready.is_ready(ONE)

    run_virtually(main)


async def test_a_view_that_applies_no_more_never_becomes_ready() -> None:
    log = Log()
    async with running(log) as ready:
        log.asked[0].set_result(4)
        log.ended = True
        for _ in range(5):
            await asyncio.sleep(0)
        assert not ready.is_ready(ONE)


async def test_too_many_changes_to_remember_count_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "CHANGED_MAX", 3)
    many = [TopicIdPartition("many", ONE.topic_id, number) for number in range(4)]
    log = Log()
    async with running(log) as ready:
        await answered(log, 8)
        ready.changed(many)
        assert not any(ready.is_ready(each) for each in (*many, TWO))
        await until(lambda: len(log.asked) == 2)
        await answered(log, 9)
        assert all(ready.is_ready(each) for each in (*many, TWO))
