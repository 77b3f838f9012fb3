"""Two nodes: one stands still at a step, the other takes the partition over, the first wakes up."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from rlm.leadership.leadership import Leads
from rlmm.records.control_records import PartitionClaim
from rlmm.segment import Incarnation, RemoteLogSegmentMetadataUpdate, SegmentState
from tests.rlm.crash_world import CRASH_LIMITS, LIVES_MAX, Source, check_all_is_well, new_source
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.one_node import LIMITS, Hook, Node, World, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import run_virtually

ORDERS = ("orders", 0)
OTHER = Incarnation(2, uuid(22), 1)


class Pause:
    """Stands still at one step, by number, until it is told to go on."""

    def __init__(self, number: int) -> None:
        self.names: list[str] = []
        self.reached = asyncio.Event()
        self.goes_on = asyncio.Event()
        self._number = number

    async def __call__(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self._number:
            self.reached.set()
            await self.goes_on.wait()


def overtaken_at(path: Path, number: int, hook: Callable[[Hook], Hook]) -> list[str]:
    """The first node stands still at step `number`; the names of its steps. Checks everything."""
    path.mkdir()
    source = new_source(path)

    async def main() -> list[str]:
        world = new_world(path, (source.log.log_dir,))
        pause = Pause(number)
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        async with world.boot(
            hook=hook(pause), data_plane=True, broker=broker, limits=CRASH_LIMITS
        ) as first:
            run = asyncio.create_task(first.remote_log.run_once(), name="drive run_once")
            reached = asyncio.create_task(pause.reached.wait())
            await asyncio.wait({run, reached}, return_when=asyncio.FIRST_COMPLETED)
            second = await _take_over(world, source, first)
            pause.goes_on.set()
            await run
            await first.remote_log.close()
            reached.cancel()
            await _until_quiet(second)
            await check_all_is_well(second, source)
            _check_fence(first, second)
            await second.remote_log.close()
        return pause.names

    names = run_virtually(main)
    shutil.rmtree(path)
    return names


async def _take_over(world: World, source: Source, first: Node) -> Node:
    source.log.set_epochs((0, 0), (1, 25))
    second, _ = world.node(
        first.metadata,
        OTHER,
        data_plane=True,
        broker=FakeBroker({ORDERS: Leads(1, 25)}),
        limits=CRASH_LIMITS,
    )
    await second.remote_log.run_once()
    return second


async def _until_quiet(node: Node) -> None:
    for _ in range(LIVES_MAX):
        await asyncio.sleep(LIMITS.upload_deadline_s + LIMITS.upload_margin_s)
        report = await node.remote_log.run_once()
        if not report.pending_clean_ups:
            assert report.complete, report
            return
    raise AssertionError(f"never quiet: {report}")


def _check_fence(first: Node, second: Node) -> None:
    """fenced_has_no_effect: of the first node, nothing that takes the token counts any more.

    DELETE_SEGMENT_FINISHED takes none, and a repeated DELETE_SEGMENT_STARTED changes nothing.
    """
    token = min(at for at, record in second.accepted if isinstance(record, PartitionClaim))
    marked = {
        record.segment_id
        for _, record in second.accepted
        if isinstance(record, RemoteLogSegmentMetadataUpdate)
    }
    for at, record in first.accepted:
        harmless = isinstance(record, RemoteLogSegmentMetadataUpdate) and (
            record.state is SegmentState.DELETE_SEGMENT_FINISHED
            or (record.state is SegmentState.DELETE_SEGMENT_STARTED and record.segment_id in marked)
        )
        assert at < token or harmless, f"accepted at {at}, after the claim {token}: {record}"
