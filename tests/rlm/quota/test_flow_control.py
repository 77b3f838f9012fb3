"""The node's limits on a virtual clock: the sum holds, for whoever moves bytes, at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from kafka_formats.errors import InvalidRequest
from rlm.quota.byte_rate import BURST_S
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import MIB, Flow, FlowLimits, Paces, Rates, paces
from rlm.quota.worker_pace import WorkerPace
from tests.rlm.virtual_time import run_virtually

PART_BYTES = 12 * MIB


def limits(
    copy: int | None = None, read: int | None = None, **topics: tuple[int | None, int | None]
) -> FlowLimits:
    return FlowLimits(Rates(copy, read), {name: Rates(*each) for name, each in topics.items()})


@dataclass
class Site:
    """Some workers under one node's limits; what moved, and when."""

    flow: FlowControl
    workers: list[WorkerPace]
    moved: list[tuple[float, str, int]] = field(default_factory=list)

    async def move(self, worker: int, topic: str, pieces: int, piece_bytes: int = MIB) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(pieces):
            await self.workers[worker].take(Flow.COPY, topic, piece_bytes)
            self.moved.append((loop.time(), topic, piece_bytes))

    def rate(self, topic: str | None = None) -> float:
        """Bytes a second until the last byte."""
        mine = [each for each in self.moved if topic in (None, each[1])]
        return sum(size for _, _, size in mine) / max(at for at, _, _ in mine)


def site(of: FlowLimits, workers: int = 3) -> Site:
    flow = FlowControl(
        of,
        part_bytes=PART_BYTES,
        workers=workers,
        monotonic=asyncio.get_running_loop().time,
    )
    built = Site(flow, [WorkerPace(flow.paces(), flow.take) for _ in range(workers)])
    for each in built.workers:
        flow.tell(each.change)
    return built


def virtually(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    run_virtually(main)


def test_all_workers_together_get_the_rate_and_not_a_tenth_less() -> None:
    async def run() -> None:
        here = site(limits(copy=10 * MIB))
        await asyncio.gather(
            *(here.move(worker, f"t{number}", 20) for worker in range(3) for number in range(2))
        )
        assert 0.95 * 10 * MIB <= here.rate() <= 10 * MIB * 1.001
        spans = [(at, sum(s for when, _, s in here.moved if at <= when < at + 1))
                 for at in range(11)]  # fmt: skip
        assert all(moved <= 10 * MIB * (1 + BURST_S) for _, moved in spans)

    virtually(run)


def test_one_busy_worker_gets_all_that_the_idle_ones_leave() -> None:
    async def run() -> None:
        here = site(limits(copy=10 * MIB))
        await here.move(0, "t", 100)
        assert here.rate() >= 0.95 * 10 * MIB

    virtually(run)


def test_a_topics_limit_holds_it_back_and_nobody_else() -> None:
    async def run() -> None:
        here = site(limits(copy=20 * MIB, slow=(2 * MIB, None)))
        await asyncio.gather(here.move(0, "slow", 20), here.move(0, "fast", 180))
        assert 0.95 * 2 * MIB <= here.rate("slow") <= 2 * MIB * 1.001
        assert here.rate("fast") >= 17 * MIB

    virtually(run)


def test_streams_side_by_side_share_evenly_whatever_they_ask_for_at_once() -> None:
    async def run() -> None:
        here = site(limits(copy=10 * MIB))
        big = asyncio.ensure_future(here.move(0, "big", 50, 8 * MIB))
        small = asyncio.ensure_future(here.move(1, "small", 500, MIB))
        await asyncio.sleep(20)
        assert here.flow.waiting(Flow.COPY) == 2
        for task in (big, small):
            task.cancel()
        await asyncio.gather(big, small, return_exceptions=True)
        assert here.flow.waiting(Flow.COPY) == 0
        shares = [sum(s for _, topic, s in here.moved if topic == name)
                  for name in ("big", "small")]  # fmt: skip
        assert min(shares) >= 0.9 * 10 * MIB * 20 / 2 - 8 * MIB

    virtually(run)


def test_a_change_holds_at_once_for_who_waits_already() -> None:
    async def run() -> None:
        here = site(limits(copy=2 * MIB))
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(here.move(0, "t", 1, 100 * MIB))
        await asyncio.sleep(1)
        here.flow.change(limits(copy=50 * MIB))
        await waiting
        assert loop.time() < 4
        waiting = asyncio.ensure_future(here.move(0, "t", 1, 5_000 * MIB))
        await asyncio.sleep(1)
        here.flow.change(limits())
        now = loop.time()
        await waiting
        assert loop.time() == now

    virtually(run)


def test_who_gives_up_holds_nobody_up() -> None:
    async def run() -> None:
        here = site(limits(copy=MIB * 2))
        first = asyncio.ensure_future(here.move(0, "t", 1, 600 * MIB))
        second = asyncio.ensure_future(here.move(1, "t", 1, MIB))
        await asyncio.sleep(0.01)
        first.cancel()
        await second
        assert asyncio.get_running_loop().time() < 1

    virtually(run)


def test_copies_and_reads_have_a_bucket_each_and_what_is_not_limited_never_waits() -> None:
    async def run() -> None:
        here = site(limits(read=MIB))
        loop = asyncio.get_running_loop()
        await here.move(0, "t", 10_000)
        assert loop.time() == 0
        await here.workers[0].take(Flow.READ, "t", 3 * MIB)
        assert loop.time() == pytest.approx(3, rel=0.01)
        assert here.flow.waited_s(Flow.READ) == pytest.approx(3, rel=0.01)

    virtually(run)


def test_no_more_bodies_are_on_their_way_than_can_be_fed_in_time() -> None:
    async def run() -> None:
        here = site(limits(copy=4 * MIB), workers=2)
        inside = most = 0

        async def send() -> None:
            nonlocal inside, most
            async with here.workers[0].sending("t"):
                inside += 1
                most = max(most, inside)
                await here.workers[0].take(Flow.COPY, "t", PART_BYTES)
                inside -= 1

        sends = [asyncio.ensure_future(send()) for _ in range(30)]
        await asyncio.sleep(1)
        assert most == 5  # each is fed within 30 s beside those of the other worker
        here.flow.change(limits())
        await asyncio.gather(*sends)
        assert inside == 0

    virtually(run)


@pytest.mark.parametrize(
    ("wrong", "field_name"),
    [
        (limits(copy=MIB - 1), "copy_bytes_per_s"),
        (limits(read=0), "read_bytes_per_s"),
        (limits(orders=(5, None)), "copy_bytes_per_s"),
        (FlowLimits(topics={"no topic": Rates()}), "topic"),
        (FlowLimits(topics={f"t{number}": Rates() for number in range(1_001)}), "topics"),
    ],
)
def test_limits_that_cannot_be_held_are_refused_and_nothing_changes(
    wrong: FlowLimits, field_name: str
) -> None:
    flow = FlowControl(limits(copy=MIB), part_bytes=MIB, workers=1, monotonic=lambda: 0.0)
    with pytest.raises(InvalidRequest) as caught:
        flow.change(wrong)
    assert caught.value.field == field_name
    assert flow.limits == limits(copy=MIB)


def test_the_paces_of_many_workers_are_as_wide_together_as_one_workers() -> None:
    alone = paces(limits(copy=100 * MIB), part_bytes=PART_BYTES, workers=1)
    each = paces(limits(copy=100 * MIB), part_bytes=PART_BYTES, workers=5)
    assert alone.node[Flow.COPY].sends_max == 5 * each.node[Flow.COPY].sends_max
    assert paces(limits(), part_bytes=PART_BYTES, workers=1) == Paces()
