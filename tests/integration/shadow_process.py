"""A process that writes the shadow of a metadata log and is killed in the middle of its first
transaction: the records are acknowledged, the transaction is not ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from random import Random
from typing import Any

import pytest

from kafka_client import transactional_producer
from rlm.leadership.broker_view import BrokerConnectionSettings
from rlm.migration.shadow_topic import KafkaTopic
from rlm.migration.shadow_writer import ShadowWriter
from tests.integration.test_broker_view import view_of
from tests.rlm.migration.shadow_world import Node, World, partition_of


async def _die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(seed: int, changes: int, settings: dict[str, Any], id_: str) -> None:
    """Accept the changes of that seed's world and write them."""
    world = World(Random(seed), calm=True)
    for _ in range(changes):
        world.accept()
    node = Node(world, 0)
    node.apply(changes)
    pytest.MonkeyPatch().setattr(transactional_producer, "end_transaction", _die)
    async with view_of(BrokerConnectionSettings(**settings)) as view:
        topic = KafkaTopic(view, id_, asyncio.sleep, lambda: 1_760_000_000_000)
        await ShadowWriter(topic, node, partition_of, lambda: 0.0).step()


if __name__ == "__main__":
    seed, changes, settings, id_ = json.loads(sys.argv[1])
    asyncio.run(main(seed, changes, settings, id_))
