"""A node's parts of a move, with a broker and without one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kafka_formats.errors import RetryLater
from rlm.leadership.broker_view import BrokerView
from rlm.migration.no_broker import NO_BROKER
from rlmm.quorum.quorum_log import QuorumLog
from strandline.node.moving import move_loops, new_moving
from strandline.settings.settings import Settings
from tests.rlm.kafka_logs import new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually

ACKNOWLEDGES = "acknowledge the phases of a move"
CARRIES_OUT = "carry a move out"
KEEPS_UP = "keep Kafka's metadata topic up"


@pytest.mark.parametrize(
    ("broker", "names"),
    [
        (None, [CARRIES_OUT, KEEPS_UP]),
        (cast("BrokerView", SimpleNamespace()), [ACKNOWLEDGES, CARRIES_OUT, KEEPS_UP]),
    ],
)
def test_a_node_without_a_broker_takes_part_but_acknowledges_nothing(
    tmp_path: Path, broker: BrokerView | None, names: list[str]
) -> None:
    """Others take whoever acknowledged for one that can carry a move out."""

    async def main() -> None:
        world = new_world(tmp_path, (new_log_dir(tmp_path / "kafka"),))
        async with world.boot() as node:
            log = cast("QuorumLog", SimpleNamespace(driver=None))
            moving = new_moving(Settings(), node.parts, broker, log)
            assert [each.name for each in move_loops(moving, node.parts, broker)] == names
            assert moving.has_broker is (broker is not None)
            if broker is None:
                with pytest.raises(RetryLater) as refused:
                    await moving.brokers.live()
                assert str(refused.value) == NO_BROKER

    run_virtually(main)
