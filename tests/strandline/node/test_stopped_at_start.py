"""A node that is told to stop before it has started does not finish that first."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_formats.errors import InternalError, Refused
from strandline.node.node import Failure
from strandline.node.running import _started
from tests.rlm.virtual_time import run_virtually


class Starting:
    """A remote log manager that starts for a minute, as beside a store that hangs."""

    def __init__(self, error: Exception | None = None) -> None:
        self.was_cancelled = False
        self._error = error

    async def start(self) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self._error is not None:
            raise self._error


def a_node(starting: Starting) -> Any:
    return SimpleNamespace(remote_log=starting, failure=Failure())


def test_a_stop_ends_a_start_that_hangs() -> None:
    async def main() -> None:
        starting, stop = Starting(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_later(1, stop.set)
        assert await _started(a_node(starting), stop) is False
        assert starting.was_cancelled
        assert loop.time() == 1

    run_virtually(main)


def test_a_part_that_fails_ends_it_too_and_is_told() -> None:
    async def main() -> None:
        starting = Starting()
        node = a_node(starting)
        asyncio.get_running_loop().call_later(1, node.failure.report, "the disk is full")
        with pytest.raises(InternalError, match="the disk is full"):
            await _started(node, asyncio.Event())
        assert starting.was_cancelled

    run_virtually(main)


def test_a_start_that_is_left_alone_ends_as_it_does() -> None:
    async def main() -> None:
        assert await _started(a_node(Starting()), asyncio.Event()) is True
        with pytest.raises(Refused, match="another cluster"):
            await _started(a_node(Starting(Refused("another cluster"))), asyncio.Event())
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == 1

    run_virtually(main)
