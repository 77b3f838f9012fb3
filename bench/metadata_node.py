"""A metadata node over a data directory of `bench.metadata_set`, as the composition root builds it.

`python -m bench.metadata_node SEGMENTS` makes such a directory (1,000 partitions) and names it.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import uvloop

from bench.metadata_set import MetadataSet, finished, make_data_directory
from bench.table import Measure, write_table
from rlmm.data_directory.data_directory import DataDirectory, open_data_directory
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.records.records import encode
from rlmm.segment import RemoteLogSegmentMetadata
from rlmm.view.view import View
from strandline.node import ambient
from strandline.node.quorum import open_quorum_log
from strandline.settings.settings import QuorumSettings

PARTITIONS = 1_000
PARTITIONS_A_PROPOSAL = 100
PROPOSE_DEADLINE_S = 60.0
CACHE = Path.home() / ".cache" / "strandline-bench"


@dataclass(frozen=True, slots=True)
class MetadataNode:
    """An open node, and the seconds that opening each part took."""

    directory: DataDirectory
    view: View
    log: QuorumLog
    manager: RemoteLogMetadataManager
    took_s: dict[str, float]


def data_directory(segments: int) -> tuple[Path, MetadataSet]:
    """A directory with so many segments; made once, then kept under ~/.cache/strandline-bench.

    Nine tenths of each partition are written directly, the rest goes through the log and apply, as
    in life: recent rows lie in newer files of the view, and the log keeps its retained bytes.
    Who changes the directory works on a copy.
    """
    partitions = min(PARTITIONS, segments)
    metadata_set = MetadataSet(partitions, segments // partitions)
    path = CACHE / f"metadata-{metadata_set.segments}"
    if not path.exists():
        making = path.with_name(path.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        direct = metadata_set.segments_each * 9 // 10
        make_data_directory(making, metadata_set, count=direct)
        asyncio.run(_live(making, metadata_set, direct))
        making.rename(path)
    return path, metadata_set


async def _live(path: Path, metadata_set: MetadataSet, first: int) -> None:
    async with metadata_node(path) as node:
        for index in range(first, metadata_set.segments_each):
            for numbers in batched(range(metadata_set.partitions), PARTITIONS_A_PROPOSAL):
                started = [metadata_set.started(number, index) for number in numbers]
                await propose(node, started)
        totals = node.manager.totals()
        assert totals.copy_finished == metadata_set.segments, totals


async def propose(node: MetadataNode, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    """Add and finish segments in one proposal; applied on return."""
    records = [record for each in segments for record in (each, finished(each))]
    offset = await node.log.propose(tuple(map(encode, records)), deadline_s=PROPOSE_DEADLINE_S)
    await node.manager.wait_for_offset(offset + len(records) - 1, deadline_s=PROPOSE_DEADLINE_S)


def batched(numbers: range, size: int) -> Iterator[range]:
    """Neighbouring parts of `numbers`."""
    return (numbers[at : at + size] for at in range(0, len(numbers), size))


@asynccontextmanager
async def metadata_node(
    path: Path, *, limits: MetadataLimits | None = None
) -> AsyncIterator[MetadataNode]:
    """Open log, view and manager; close them in order."""
    took: dict[str, float] = {}
    with open_data_directory(path) as directory:
        begun = perf_counter()
        view = await asyncio.to_thread(View.open, directory.view_path)
        took["view"] = perf_counter() - begun
        try:
            async with AsyncExitStack() as closing:
                log = await open_quorum_log(
                    QuorumSettings(),
                    directory,
                    closing,
                    view_flushed_end=view.flushed_offset + 1,
                    on_failure=_stop,
                )
                took["log"] = perf_counter() - begun - took["view"]
                manager = await RemoteLogMetadataManager.start(
                    log,
                    view,
                    incarnation=directory.incarnation,
                    now_ms=ambient.now_ms,
                    limits=limits,
                    on_failure=_stop,
                )
                closing.push_async_callback(manager.close)
                took["all"] = perf_counter() - begun
                yield MetadataNode(directory, view, log, manager, took)
        finally:
            view.close()


def measured_on_a_copy(
    title: str, measure: Callable[[Path, MetadataSet], Coroutine[None, None, list[Measure]]]
) -> None:
    """Write the table of `measure` on a copy of a directory with as many segments as the command
    line says (1,000,000), on the loop and in the way of `strandline node`.
    """
    sys.setswitchinterval(0.0005)
    kept, metadata_set = data_directory(int((sys.argv[1:] or ["1000000"])[0]))
    with (
        tempfile.TemporaryDirectory(dir=CACHE) as home,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        path = Path(shutil.copytree(kept, Path(home) / "node"))
        measures = runner.run(measure(path, metadata_set))
    write_table(
        title,
        measures,
        packages=("rocksdict", "uvloop"),
        notes=(f"{metadata_set.segments:,} segments in {metadata_set.partitions:,} partitions",),
    )


def _stop(reason: str) -> None:
    raise SystemExit(reason)


if __name__ == "__main__":
    made, _ = data_directory(int(sys.argv[1]))
    print(made)
