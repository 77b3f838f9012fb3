"""A comparison of the stores with the metadata says what it did not look at, and gives up no
segment whose records are there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlm.reconcile.reconciliation import compare
from rlm.repair.repair_run import Outcome
from rlm.stores.tier_store import TierStore, TierStores
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ListPage, ObjectInfo
from tests.rlm.after_disaster import (
    ANEW,
    after_the_disaster,
    lower,
    nothing,
    of_base,
    record_reconciled,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.repairing import GONE_AFTER_S, everything, only
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def test_segments_of_a_store_that_the_settings_do_not_name_are_counted(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            assert (await node.remote_log.run_once()).complete
            other = TierStores({"other": TierStore("other", node.store, "elsewhere/")}, "other")
            found = await compare(node.metadata, other, breathe=nothing)
            assert (found.whole, found.missing, found.unlisted) == (0, [], {"main": 2})
            found = await compare(node.metadata, lower(node), breathe=nothing)
            assert (found.whole, found.missing, found.unlisted) == (2, [], {})

    run_virtually(main)


@pytest.mark.parametrize("gone", [(".indexes",), (".rsm-manifest",), (".indexes", ".rsm-manifest")])
def test_a_segment_whose_log_is_there_is_damaged_not_missing_and_repaired_after_it(
    tmp_path: Path, orders: KafkaLog, gone: tuple[str, ...]
) -> None:
    """To give it up would delete its records, which nobody else may have."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            assert (await node.remote_log.run_once()).complete
            before = await everything(node, orders)
            snapshot = await node.metadata.take_snapshot()
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 0, *gone))
        for each in (0, 10):
            orders.delete_segment(each)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            found = await compare(node.metadata, lower(node), breathe=nothing)
            assert (found.whole, found.missing) == (1, [])
            assert [(each.row.start_offset, each.why) for each in found.damaged] == [
                (0, ", ".join(f"{suffix} is gone" for suffix in gone))
            ]
            await record_reconciled(node)
            await node.remote_log.run_once()
            await asyncio.sleep(GONE_AFTER_S)
            assert len(await of_base(world, 0, ".log")) == 1
            assert (await only(node)).outcome is Outcome.REPAIRED
            assert await everything(node, orders) == before

    run_virtually(main)


def test_a_segment_that_was_copied_behind_the_listing_is_not_missing(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Reconcile runs beside nodes that copy: to record it as missing would lose its offsets."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            assert (await node.remote_log.run_once()).complete

            class Earlier(MemoryStore):
                """Lists what was there before these copies."""

                async def list_page(self, prefix: str, **_: object) -> ListPage:
                    return await MemoryStore(lambda: 0).list_page(prefix)

                async def head(self, key: str) -> ObjectInfo:
                    return await node.store.head(key)

            here = TierStore("main", Earlier(lambda: 0), lower(node).default.prefix)
            found = await compare(
                node.metadata, TierStores({"main": here}, "main"), breathe=nothing
            )
            assert (found.whole, found.missing, found.damaged) == (2, [], [])

    run_virtually(main)
