"""[LOSS-3] What counts as copied is in the tier: a broker deletes it from its disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlm.delegated.copied_offsets import CopiedOffsets
from rlmm.partition_state import LostOffsets, PartitionState
from rlmm.rows.values import Covered
from tests.rlm.delegated.delegating import broker_of
from tests.rlm.delegated.plugin_client import PluginClient, segment
from tests.rlm.delegated.test_older_history import DELETING, FINISHED, listed, switched
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.planner_facts import PARTITION, claim, epochs, state, uuid
from tests.rlm.virtual_time import run_virtually


async def copy(plugin: PluginClient, orders: KafkaLog, number: int, base: int) -> None:
    row = segment(orders.partition, number, base, base + 9)
    await plugin.add(row)
    await plugin.update(row, FINISHED, b"custom")


def test_the_highest_copied_offset_lies_below_what_was_deleted_of_the_brokers_disk(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        entries = ((0, 0), (1, 25))
        async with switched(tmp_path, orders, broker, entries=entries) as (_, plugin):
            await copy(plugin, orders, 1, 0)
            await copy(plugin, orders, 2, 10)
            for row in await listed(plugin, orders):
                await plugin.update(row, DELETING)
            assert await plugin.highest(tip, 1) is None
            assert await plugin.highest(tip, 0) is None
            await copy(plugin, orders, 3, 0)
            await copy(plugin, orders, 4, 10)
            assert await plugin.highest(tip, 0) == 19

    run_virtually(main)


class Tier:
    """Coverage of two epochs, 0 from 0 on and 1 from 30 on; asked for by range."""

    def __init__(self) -> None:
        self.ranges = {0: [(0, 9), (10, 19), (20, 29)], 1: [(30, 39), (40, 49)]}
        self.state: PartitionState = replace(
            state(lineage=epochs((0, 0), (1, 30))), claim=claim(100, 1)
        )
        self.asked = 0

    def partition_state(self, _tip: object) -> PartitionState:
        return self.state

    def highest_offset_for_epoch(self, _tip: object, epoch: int) -> int | None:
        return {0: 29, 1: 49}.get(epoch)

    def coverage(self, _tip: object, epoch: int, start: int, end: int) -> list[Covered]:
        self.asked += 1
        return [
            Covered(low, high, high, 1, uuid(low + 1))
            for low, high in self.ranges[epoch]
            if high >= start and low <= end
        ]

    def restart(self) -> None:
        return None


async def highest(copied: CopiedOffsets, *starts: int | None) -> list[tuple[int | None, ...]]:
    """(of epoch 1, of epoch 0) for each start of the broker's disk."""
    return [
        tuple([await copied.highest(PARTITION, epoch, start) for epoch in (1, 0)])
        for start in starts
    ]


async def no_pause() -> None:
    """Nobody waits."""


@pytest.mark.parametrize("at_once", [1, 2, 200])
def test_what_a_broker_may_take_for_copied(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr("rlm.delegated.copied_offsets.RANGES_AT_ONCE", at_once)

    async def main() -> None:
        tier = Tier()

        def anew() -> CopiedOffsets:
            return CopiedOffsets(tier, no_pause)  # type: ignore[arg-type]

        whole = (49, 29)
        assert await highest(anew(), 0, 5, 45, 60, None) == [whole] * 5
        tier.ranges[0].remove((10, 19))
        assert await highest(anew(), 0, 9, 10, 20) == [(None, 9), (None, 9), whole, whole]
        assert await highest(anew(), None) == [(None, 9)], "no claim told where a disk begins"
        tier.state = replace(tier.state, local_log_start_offset=10)
        assert await highest(anew(), None) == [whole]
        tier.ranges[0].remove((0, 9))
        assert await highest(anew(), 0) == [whole], "a gap at the low end was retention"
        tier.ranges[1].remove((40, 49))
        assert await highest(anew(), 0, 40, 41) == [(39, 29), (39, 29), (40, 29)]
        tier.state = replace(tier.state, lost_ranges=(LostOffsets(40, 44, "gone"),))
        assert await highest(anew(), 0) == [(44, 29)]
        tier.ranges = {0: [], 1: []}
        assert await highest(anew(), 0, 35) == [(None, None), (34, 29)]

    run_virtually(main)


def test_what_was_there_under_a_claim_is_not_looked_for_again() -> None:
    async def main() -> None:
        tier = Tier()
        copied = CopiedOffsets(tier, no_pause)  # type: ignore[arg-type]
        await highest(copied, 0)
        before = tier.asked
        assert await highest(copied, 0, 20) == [(49, 29)] * 2
        assert tier.asked == before
        tier.ranges[1].remove((30, 39))
        tier.state = replace(tier.state, claim=claim(101, 2))
        assert await highest(copied, 0) == [(None, 29)]
        tier.ranges[1].insert(0, (30, 39))
        assert await highest(copied, 0) == [(49, 29)], "it was copied again"

    run_virtually(main)


def test_a_call_that_ran_out_of_time_helps_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm.delegated.copied_offsets.RANGES_AT_ONCE", 1)

    async def main() -> None:
        tier, calls = Tier(), 0
        tier.ranges[1] = [(at, at) for at in range(30, 50)]

        async def late() -> None:
            nonlocal calls
            calls += 1
            if calls % 9 == 0:
                raise TimeoutError

        copied = CopiedOffsets(tier, late)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await highest(copied, 0)
        assert await highest(copied, 0) == [(49, 29)]

    run_virtually(main)
