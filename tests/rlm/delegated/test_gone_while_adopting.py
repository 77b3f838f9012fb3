"""After a restart from a snapshot a replica leaves its node while the store's segments wait behind
what its broker was to copy first.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rlm.leadership.leadership import NotLeading
from sim.tier import plugin_bodies
from tests.rlm.after_disaster import ANEW, after_the_disaster, of_base
from tests.rlm.delegated.delegating import announcement, broker_of
from tests.rlm.delegated.plugin_client import client_of, refused
from tests.rlm.delegated.test_restarted import copied_by_the_broker, led_on
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


async def ends_late() -> None:
    """A drive that a slow store holds up."""
    writing = asyncio.create_task(asyncio.sleep(100))
    while not writing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(writing)


def test_nothing_is_told_to_be_gone_that_the_store_has(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        tip, broker = orders.partition, broker_of(orders)
        snapshot = await copied_by_the_broker(world, orders, broker)
        await world.store.delete_many(await of_base(world, 20, ""))
        for base in (0, 10):
            orders.delete_segment(base)
        led_on(orders, broker)
        anew = await after_the_disaster(world, snapshot)
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            plugin = client_of(node)
            await node.remote_log.start()
            async with plugin.http:
                await plugin.announce(tip)
                await asyncio.sleep(60)
                assert await plugin.ready(tip) == (True, "")
                assert node.finished(tip) == [(0, 9), (10, 19)]
                work = node.remote_log.table.work(tip)
                assert work is not None
                work.task = asyncio.create_task(ends_late())
                broker.words[(tip.topic, tip.partition)] = NotLeading()
                shutil.move(orders.directory, tmp_path / "moved")
                plugin.seq += 1
                said = replace(announcement(seq=plugin.seq), followers=(tip,))
                await plugin.call("announce", plugin_bodies.announce(said))
                await asyncio.sleep(20)
                assert node.remote_log.table.work(tip) is work
                assert work.local is None
                told = await refused(plugin.look_up(tip, 0, 35))
                assert "not recorded yet" in told.detail
            await node.remote_log.close()

    run_virtually(main)
