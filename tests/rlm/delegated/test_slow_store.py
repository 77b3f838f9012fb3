"""A store that needs longer than a broker's call has: what the call read goes on, and a later call
finds it. Begun anew at each call, no consumer would ever get past that segment.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlm.delegated import segment_reads
from rlmm.segment import SegmentState
from tests.rlm.delegated.delegating import broker_of
from tests.rlm.delegated.plugin_client import files_of, of_disk, refused
from tests.rlm.delegated.test_copies import OFFSET_INDEX, TIME_INDEX, beside
from tests.rlm.delegated.test_diverged_tail import (
    copied_across,
    elected_unclean,
    log_of_two_epochs,
)
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
SLOW_S = 5.0


class SlowStore:
    """Takes `takes_s` for each read of an object of this kind, and remembers how often."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.takes_s = 0.0
        self.reads = 0

    async def __call__(self, name: str) -> None:
        if name.startswith("before get") and name.endswith(self.kind):
            self.reads += 1
            await asyncio.sleep(self.takes_s)


def test_an_index_that_takes_longer_than_a_call_is_had_by_a_later_one(
    tmp_path: Path, orders: KafkaLog
) -> None:
    store = SlowStore(".indexes")

    async def main() -> None:
        async with beside(tmp_path, orders, store) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            store.takes_s = SLOW_S
            for _ in range(2):
                assert (await refused(plugin.index(row, OFFSET_INDEX))).kind == "retry_later"
            assert store.reads == 1
            await asyncio.sleep(SLOW_S)
            index = (orders.directory / f"{0:020d}.index").read_bytes()
            assert await plugin.index(row, OFFSET_INDEX) == index
            assert store.reads == 1

    run_virtually(main)


def test_a_read_that_nobody_waits_for_ends_in_time_and_holds_up_no_other(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reads, "LATE_MAX", 1)
    store = SlowStore(".indexes")

    async def main() -> None:
        async with beside(tmp_path, orders, store) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            store.takes_s = 10 * segment_reads.LATE_S
            assert (await refused(plugin.index(row, OFFSET_INDEX))).kind == "retry_later"
            store.takes_s = 0.0
            assert await plugin.index(row, TIME_INDEX)
            await asyncio.sleep(segment_reads.LATE_S)
            assert await plugin.index(row, OFFSET_INDEX)

    run_virtually(main)


def test_the_place_where_a_later_history_cuts_a_segment_is_had_by_a_later_look_up(
    tmp_path: Path,
) -> None:
    orders = log_of_two_epochs(tmp_path)
    store = SlowStore(".indexes")

    async def main() -> None:
        tip, broker = orders.partition, broker_of(orders, epoch=1)
        async with beside(tmp_path, orders, store, broker) as (_, plugin):
            await copied_across(plugin, orders)
            elected_unclean(orders, broker)
            await asyncio.sleep(60)
            store.takes_s = SLOW_S
            for _ in range(2):
                assert (await refused(plugin.look_up(tip, 0, 12))).kind == "retry_later"
            await asyncio.sleep(SLOW_S)
            found = await plugin.look_up(tip, 0, 12)
            assert found is not None
            assert found.end_offset == 14

    run_virtually(main)
