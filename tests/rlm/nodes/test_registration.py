"""Two living processes with one node id: each hears of the other, stops, and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.errors import Fenced
from kafka_formats.kafka_uuid import Uuid
from rlm.control.surroundings import Identity, Surroundings
from rlm.nodes.registration import NodeRegistrar
from rlmm.segment import Incarnation
from tests.rlm.one_node import LIMITS
from tests.rlm.virtual_time import run_virtually, virtual_ambient
from tests.rlmm.metadata_node import Node, running_node

FIRST = Incarnation(1, Uuid(b"the first disk.."), 1)
ANEW = Incarnation(1, Uuid(b"formatted anew.."), 1)
AGAIN = Incarnation(1, ANEW.directory_id, 2)


class Process:
    """One that registers; `told` is why it has to stop."""

    def __init__(self, node: Node, incarnation: Incarnation) -> None:
        self.told: list[str] = []
        around = Surroundings(Identity("cluster", None, incarnation), LIMITS, virtual_ambient())
        self._registrar = NodeRegistrar(node.manager, around, self.told.append)

    async def register(self) -> None:
        await self._registrar.ensure()
        await self.look()

    async def look(self) -> None:
        await self._registrar.look()


def test_both_stop_and_say_which_they_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            first, anew = Process(node, FIRST), Process(node, ANEW)
            await first.register()
            await anew.register()
            assert (first.told, anew.told) == ([], []), "the first one may be dead"
            for process in (first, anew, first):
                await process.look()
            for process, other in ((first, ANEW), (anew, FIRST)):
                (told,) = process.told
                assert told.startswith("another process has node id 1: ")
                assert str(other.directory_id) in told
                assert "End one of them for good" in told
            again = Process(node, AGAIN)
            await again.register()
            await again.look()
            assert again.told == []

    run_virtually(main)


def test_an_earlier_life_of_a_directory_stops_as_soon_as_it_registers(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            await Process(node, AGAIN).register()
            earlier = Process(node, ANEW)
            with pytest.raises(Fenced):
                await earlier.register()
            assert len(earlier.told) == 1

    run_virtually(main)
