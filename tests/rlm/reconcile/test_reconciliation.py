"""A comparison of the stores with the metadata says what it did not look at."""

from __future__ import annotations

from pathlib import Path

from rlm.reconcile.reconciliation import compare
from rlm.stores.tier_store import TierStore, TierStores
from tests.rlm.after_disaster import lower, nothing
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


def test_segments_of_a_store_that_the_settings_do_not_name_are_counted(tmp_path: Path) -> None:
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, 20, end=25)

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
