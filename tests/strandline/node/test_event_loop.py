"""One set-up of the event loop for everything that runs a node."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from unittest.mock import Mock

import aiohttp
import pytest
import uvloop

from strandline.node.event_loop import (
    SWITCH_INTERVAL_S,
    leave_out_of_collections,
    new_loop,
    node_runner,
)


def test_a_node_runs_on_uvloop_and_threads_give_way_soon() -> None:
    before = sys.getswitchinterval()
    try:
        with node_runner() as runner:
            assert isinstance(runner.get_loop(), uvloop.Loop)
            assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    finally:
        sys.setswitchinterval(before)


def test_what_is_built_is_left_out_of_collections_and_these_are_rarer() -> None:
    before, thresholds = gc.get_freeze_count(), gc.get_threshold()
    try:
        leave_out_of_collections()
        assert gc.get_freeze_count() > before
        assert gc.get_threshold()[0] > thresholds[0]
    finally:
        gc.set_threshold(*thresholds)  # what pytest keeps from the collector stays so, too


async def drop_task(task: asyncio.Task[None]) -> None:
    """Let it end, and nobody ask for its error."""
    await asyncio.wait([task])


async def write_to_a_closed_store() -> None:
    """As aiohttp does it: the store went before the head of a request could be sent."""
    request = Mock(_upload_tracker=None)
    writer = Mock()
    writer.send_headers.side_effect = aiohttp.ClientConnectionResetError("it is closing")
    write = aiohttp.ClientRequest.write_bytes(request, writer, Mock())
    await drop_task(asyncio.create_task(write))
    del write
    gc.collect()


async def fail_alone() -> None:
    async def fail() -> None:
        raise aiohttp.ClientConnectionResetError("of something else")

    await drop_task(asyncio.create_task(fail()))
    gc.collect()


def test_a_store_that_goes_while_a_request_is_sent_is_a_line_and_no_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.INFO),
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(write_to_a_closed_store())
    assert [record.getMessage() for record in caplog.records] == [
        "a store closed its connection while a request was being sent"
    ]


def test_any_other_task_that_fails_alone_is_told_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(fail_alone())
    (record,) = caplog.records
    assert "never retrieved" in record.getMessage()
    assert record.exc_info is not None
