"""Leadership changes, and no look at the log directories has seen that: the node is not ready, and
never says that an offset of a new epoch has no segment.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from rlm.copy.scanner import Scanner
from tests.rlm.delegated.delegating import broker_of
from tests.rlm.delegated.plugin_client import ToldError, files_of, of_disk, refused, segment
from tests.rlm.delegated.test_copies import beside
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.virtual_time import run_virtually


@pytest.mark.parametrize("began", ["long before", "just before"])
def test_a_leader_is_not_ready_by_a_look_from_before_its_announcement(
    tmp_path: Path, began: str
) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, end=12)

    async def main() -> None:
        broker = broker_of(log, 0, 12)
        async with beside(tmp_path, log, broker=broker) as (node, plugin):
            node.parts.asked_looks.look = AsyncMock()  # no look at it alone
            tip = log.partition
            await asyncio.sleep(30)
            assert await plugin.ready(tip) == (True, "")
            scanner = node.parts.table._scanner
            hung = asyncio.get_running_loop().create_future()
            if began == "long before":
                scanner._reading = hung
                await asyncio.sleep(200)
            else:  # it ends after the announcement, with words from before
                words = type(scanner)._words

                async def old_words(self: Scanner, *given: Any) -> Any:
                    found = await words(self, *given)
                    await hung
                    return found

                patched = pytest.MonkeyPatch()
                patched.setattr(type(scanner), "_words", old_words)
                await asyncio.sleep(60)
                patched.undo()
            plugin.seq += 1
            await plugin.announce(tip)
            await asyncio.sleep(5)
            ready, why = await plugin.ready(tip)
            assert not ready
            assert "since the broker announced it" in why
            with pytest.raises(ToldError, match="since the broker announced it"):
                await plugin.look_up(tip, 0, 5)
            with pytest.raises(ToldError, match="since the broker announced it"):
                await plugin.add(segment(tip, 1, 0, 11))
            hung.set_result(None)
            await asyncio.sleep(30)
            assert await plugin.ready(tip) == (True, "")

    run_virtually(main)


def test_a_copy_ends_whose_files_are_on_a_disk_that_hangs(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeats would keep a copy thread of the broker for as long as that hangs; and each
    attempt of the broker would take one more of the node's threads, all of them in the end.
    """
    in_thread, answers, looks = asyncio.to_thread, asyncio.Event(), 0

    async def hung(work: Any, *given: Any, **named: Any) -> Any:
        nonlocal looks
        if "_directory" in repr(work):
            looks += 1
            await answers.wait()
        return await in_thread(work, *given, **named)

    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            row = of_disk(orders, 1, 0, 9)
            await plugin.add(row)
            monkeypatch.setattr(asyncio, "to_thread", hung)
            async with asyncio.timeout(200):
                for _ in range(3):
                    told = await refused(plugin.copy(files_of(orders, row)))
                    assert told.kind == "retry_later"
                    assert "check whether a disk hangs" in told.detail
            assert looks == 1
            answers.set()
            await asyncio.sleep(1)
            monkeypatch.undo()
            assert await plugin.copy(files_of(orders, row))

    run_virtually(main)


def test_of_an_epoch_that_is_not_recorded_no_offset_is_told_absent(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, end=12)

    async def main() -> None:
        async with beside(tmp_path, log, broker=broker_of(log, 0, 12)) as (_, plugin):
            await asyncio.sleep(30)
            assert await plugin.look_up(log.partition, 0, 5) is None
            for with_txn_index in (False, True):
                with pytest.raises(ToldError, match="leader epoch 1 is not recorded yet"):
                    await plugin.look_up(log.partition, 1, 5, with_txn_index=with_txn_index)

    run_virtually(main)
