"""The node's CPU for the lists of a broker's remote log manager, whole and by their changes.

`python -m bench.broker_lists [SEGMENTS [PARTITIONS]]` (100,000 in 50, then in 1). In an interval
(Kafka's default of 30 s) a copy ends in each partition every 10 s, and each partition is listed
twice, all of it and its newest leader epoch. Intervals follow one another without a pause, and only
the answers are counted: HTTP comes on top, with as much as any short request (`http_lookups`).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

import uvloop

from bench.metadata_node import MetadataNode, metadata_node, propose
from bench.metadata_set import MetadataSet, make_data_directory
from bench.table import Measure, write_table
from rlm.control.surroundings import Ambient
from rlm.delegated import wire
from rlm.delegated.segment_lists import SegmentLists
from rlmm.segment import RemoteLogSegmentMetadata
from strandline.node import ambient

INTERVAL_S = 30.0
COPIES = 3
"""The number of copies that end in a partition in an interval."""
INTERVALS = 6
"""The first one is not counted: both ways begin with whole lists."""
SHARE_MAX = 2.0
AMBIENT = Ambient(
    ambient.now_ms, ambient.monotonic, ambient.sleep, ambient.random_fraction, ambient.new_uuid
)


@dataclass(slots=True)
class Way:
    """A plug-in, that takes changes or does not; `shares` are per cent of a core."""

    takes_changes: bool
    tags: dict[tuple[int, int], bytes] = field(default_factory=dict)
    shares: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    mib: list[float] = field(default_factory=list)

    async def interval(self, lists: SegmentLists, metadata_set: MetadataSet) -> None:
        """List every partition twice."""
        began, requests, size = process_time(), 0, 0
        for number in range(metadata_set.partitions):
            for epoch in (wire.ALL_EPOCHS, metadata_set.lineage[-1].epoch):
                for body in await self._list(lists, metadata_set, number, epoch):
                    requests += 1
                    size += len(body)
        self.shares.append((process_time() - began) / INTERVAL_S * 100)
        self.requests.append(requests)
        self.mib.append(size / 2**20)

    async def _list(
        self, lists: SegmentLists, metadata_set: MetadataSet, number: int, epoch: int
    ) -> list[bytes]:
        tip, tag, cursor = metadata_set.partition(number), self.tags.get((number, epoch)), None
        bodies: list[bytes] = []
        while not bodies or cursor is not None:
            asked = wire.ListSegments(tip, epoch, tag, cursor)
            body = await lists.answer(asked, takes_changes=self.takes_changes)
            reader = wire.BodyReader(body, "a list")
            reader.int64()
            tag, form = reader.nullable_bytes(), reader.int8()
            if not bodies:
                self.tags[number, epoch] = tag or b""
            bodies.append(body)
            cursor = None
            if form == wire.LIST_PAGE and not body.endswith(b"\xff\xff\xff\xff"):
                cursor = body[-28:]
        return bodies


def _shown(_row: RemoteLogSegmentMetadata, _epoch: int | None) -> bool:
    return False


async def measure(node: MetadataNode, metadata_set: MetadataSet, copied: int) -> tuple[Way, Way]:
    """Whole lists, and lists by changes."""
    life = ambient.new_uuid()
    lists = SegmentLists(node.manager, AMBIENT, life, lambda _tip: (), _shown, lambda _tip: 0)
    ways = Way(takes_changes=False), Way(takes_changes=True)
    for interval in range(INTERVALS):
        for way in ways:
            await way.interval(lists, metadata_set)
        for index in range(copied + interval * COPIES, copied + (interval + 1) * COPIES):
            for number in range(metadata_set.partitions):
                await propose(node, [metadata_set.started(number, index)])
    return ways


async def run(path: Path, metadata_set: MetadataSet, copied: int) -> tuple[Way, Way]:
    """Measure a node over the directory."""
    async with metadata_node(path) as node:
        return await measure(node, metadata_set, copied)


def one_size(segments: int, partitions: int) -> None:
    """Write a table."""
    copied = segments // partitions
    metadata_set = MetadataSet(partitions, copied + INTERVALS * COPIES)
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "node"
        make_data_directory(path, metadata_set, count=copied)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            whole, changes = runner.run(run(path, metadata_set, copied))
    measures = []
    for name, way in (("whole", whole), ("changes", changes)):
        target, met = "", None
        if way is changes:
            target, met = f"< {SHARE_MAX:g}", max(way.shares[1:]) < SHARE_MAX
        measures += [
            Measure(f"{name}: CPU", "% of a core", way.shares[1:], target, met),
            Measure(f"{name}: requests in an interval", "", way.requests[1:]),
            Measure(f"{name}: bytes in an interval", "MiB", way.mib[1:]),
        ]
    write_table(
        f"Lists of {segments:,} segments in {partitions:,} partitions", measures,
        packages=("uvloop", "rocksdict"),
    )  # fmt: skip


def main() -> None:
    """Run with the sizes of the command line, or with both."""
    given = [int(each) for each in sys.argv[1:]]
    segments = given[0] if given else 100_000
    for partitions in given[1:] or (50, 1):
        one_size(segments, partitions)


if __name__ == "__main__":
    main()
