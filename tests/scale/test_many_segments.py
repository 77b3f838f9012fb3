"""A large table: every answer right, work and memory bounded. 20,000 segments; with `make soak` one
million and ten in 1,000 partitions (an hour), or as many as SCALE_SEGMENTS says.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from bench.lookups import Questions
from bench.metadata_node import metadata_node, propose
from bench.metadata_set import MetadataSet, fill, make_data_directory
from bench.node_process import resident_mib
from rlmm.manager.manager import MetadataLimits
from rlmm.metadata_log import SnapshotId
from rlmm.rows import queries
from rlmm.rows.rows import RowReader
from rlmm.view.view import View, digest_of

ASKED = 10_000
GROWTH_MIB_MAX = 200
SOAK_SEGMENTS = tuple(map(int, os.environ.get("SCALE_SEGMENTS", "1000000,10000000").split(",")))
ROWS_CHECKED_MAX = 5_000_000
SEEKS_MAX = 100

SIZES = [
    pytest.param(20_000, id="20k"),
    *(
        pytest.param(segments, marks=(pytest.mark.soak, pytest.mark.timeout(segments // 200)))
        for segments in SOAK_SEGMENTS
    ),
]


def large_set(segments: int) -> MetadataSet:
    """1,000 partitions, or fewer where that would leave them too short for a list."""
    partitions = min(1_000, segments // 200)
    return MetadataSet(partitions, segments // partitions)


class CountedRows:
    """Counts the rows that a query takes."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows
        self.taken = 0

    def get(self, key: bytes) -> bytes | None:
        self.taken += 1
        return self._rows.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for row in self._rows.scan(start, end, reverse=reverse):
            self.taken += 1
            yield row


@pytest.mark.parametrize("segments", SIZES)
async def test_a_large_table_answers_restarts_and_makes_snapshots(
    segments: int, tmp_path: Path
) -> None:
    large = large_set(segments)
    path = tmp_path / "node"
    make_data_directory(path, large, count=large.segments_each)
    async with metadata_node(path) as node:
        before_mib = resident_mib()
        totals = node.manager.totals()
        assert (totals.copy_finished, totals.partitions) == (segments, large.partitions)
        for partition, epoch, offset in Questions(large).some(ASKED):
            answer = node.manager.remote_log_segment_metadata(partition, epoch, offset)
            assert answer is not None
            assert answer.metadata.segment_id.partition == partition
            assert answer.metadata.start_offset <= offset <= answer.valid_until
        new = large.started(7, large.segments_each)
        await propose(node, [new])
        newest = node.manager.remote_log_segment_metadata(large.partition(7), 7, new.start_offset)
        assert newest is not None
        assert newest.metadata.segment_id == new.segment_id
        assert resident_mib() - before_mib < GROWTH_MIB_MAX
        digest, offset = node.manager.digest(), node.manager.applied_offset
        if 3 * large.segments <= ROWS_CHECKED_MAX:
            assert digest_of(node.view.rows_in_key_order()) == digest
    async with metadata_node(path) as node:
        assert node.manager.applied_offset == offset + 1  # the new epoch's leader change
        assert node.manager.digest() == digest
        assert len(list(node.manager.partitions())) == large.partitions
        turns = Turns()
        snapshot = await turns.during(node.manager.take_snapshot())
        assert snapshot.end_offset == offset + 2
        # Everybody else gets a turn after each slice.
        assert turns.count >= 3 * large.segments // MetadataLimits().snapshot_slice_rows


class Turns:
    """Counts the turns of the event loop that others get while something is done."""

    def __init__(self) -> None:
        self.count = 0

    async def during(self, work: Awaitable[SnapshotId]) -> SnapshotId:
        doing = asyncio.ensure_future(work)
        while not doing.done():
            self.count += 1
            await asyncio.sleep(0)
        return doing.result()


@pytest.mark.parametrize("segments", SIZES)
async def test_pages_of_a_large_list_cost_a_page_wherever_they_begin(
    segments: int, tmp_path: Path
) -> None:
    large = large_set(segments)
    page, chosen = 50, random.Random(3)
    view = View.open(tmp_path / "view")
    try:
        fill(view, large, large.segments_each)
        for index in (0, *chosen.sample(range(large.segments_each - page - 1), 10)):
            rows = CountedRows(view)
            after = queries.list_position(large.started(1, index))
            listed = queries.list_segments(rows, large.partition(1), after=after)
            starts = [each.start_offset for each in islice(listed, page)]
            assert starts == [large.started(1, index + 1 + n).start_offset for n in range(page)]
            # Each segment is two rows; the rest is a seek for each epoch and span class.
            assert rows.taken <= 2 * page + SEEKS_MAX
    finally:
        view.close()
