"""Time that work on a large table keeps the event loop: snapshot, lists, statuses, digest.

`python -m bench.loop_slices [SEGMENTS]` (1,000,000): while each kind of work is done, another task
takes every turn that it gets. A slice is the CPU time of the loop's own thread between two of these
turns, so that other programs and threads do not count.
"""

from __future__ import annotations

import asyncio
import gc
from array import array
from collections.abc import Awaitable
from itertools import islice
from pathlib import Path
from time import perf_counter, thread_time

from api.http.listing import first_after
from bench.metadata_node import MetadataNode, measured_on_a_copy, metadata_node
from bench.metadata_set import MetadataSet
from bench.table import Measure
from rlmm.rows.queries import list_position
from strandline.node import ambient

SLICE_MAX_MS = 2.0
WORK_S_MIN = 10e-6
PAGE = 100
PAGES = 200


class Slices:
    """CPU milliseconds between turns of a task that always wants one, without idle turns."""

    def __init__(self) -> None:
        # An array: the garbage collector would go through a list of millions at each pass.
        self.took_ms = array("d")

    async def during(self, work: Awaitable[object]) -> float:
        """Seconds that the work took."""
        begun = perf_counter()
        doing = asyncio.ensure_future(work)
        last = thread_time()
        while not doing.done():
            await asyncio.sleep(0)
            now = thread_time()
            if now - last > WORK_S_MIN:
                self.took_ms.append((now - last) * 1e3)
            last = now
        doing.result()
        return perf_counter() - begun

    def measures(self, what: str) -> list[Measure]:
        over = sum(each > SLICE_MAX_MS for each in self.took_ms)
        return [
            Measure(f"{what}: slice", "ms", self.took_ms or [0.0]),
            Measure(f"{what}: slices over {SLICE_MAX_MS:g} ms", "", [over], "0", over == 0),
        ]


async def pages(node: MetadataNode, metadata_set: MetadataSet) -> None:
    """The first pages of many partitions, and all pages of one."""
    for number in range(min(PAGES, metadata_set.partitions)):
        segments = node.manager.list_remote_log_segments(metadata_set.partition(number))
        await first_after(segments, list_position, None, PAGE, ambient.sleep)
    after = None
    while True:
        listed = node.manager.list_remote_log_segments(metadata_set.partition(0), after=after)
        page, more = await first_after(listed, list_position, None, PAGE, ambient.sleep)
        if not more:
            return
        after = list_position(page[-1])


async def states(node: MetadataNode) -> None:
    """The state of every partition, eight at a time."""
    partitions = node.manager.partitions()
    while part := list(islice(partitions, 8)):
        for partition in part:
            assert node.manager.partition_state(partition) is not None
        await asyncio.sleep(0)


async def digests(node: MetadataNode) -> None:
    for _ in range(1_000):
        node.manager.digest()
        await asyncio.sleep(0)


async def measure(path: Path, metadata_set: MetadataSet) -> list[Measure]:
    measures: list[Measure] = []
    async with metadata_node(path) as node:
        gc.collect()
        gc.freeze()  # as `strandline node` does
        for what, work in (
            ("segment pages", pages(node, metadata_set)),
            ("partition states", states(node)),
            ("digest", digests(node)),
            ("snapshot", node.manager.take_snapshot()),
        ):
            slices = Slices()
            seconds = await slices.during(work)
            measures += [*slices.measures(what), Measure(f"{what}: whole", "s", [seconds])]
    return measures


if __name__ == "__main__":
    measured_on_a_copy("Slices of the event loop", measure)
