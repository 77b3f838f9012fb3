"""A node that cannot be built after all leaves no worker behind that was coming up beside it."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rlm.control.log_levels import LogLevels
from rsm_backends.store_config import StoreConfig
from strandline.node.surroundings import flow_control
from strandline.node.workers import Shared, start_workers
from strandline.settings.settings import Settings
from tests.real.process_tree import descendants


@pytest.mark.parametrize("head_start_s", [0, 0.05, 5])
async def test_workers_that_come_up_end_with_what_was_built(
    tmp_path: Path, head_start_s: float
) -> None:
    settings, before = Settings(), descendants(os.getpid())
    configs = {"main": StoreConfig(name="main", kind="filesystem", path=tmp_path)}
    shared = Shared(1, flow_control(settings), LogLevels(), lambda *_: None)
    async with AsyncExitStack() as building:
        starting = start_workers(settings, configs, shared, building)
        await asyncio.wait((starting,), timeout=head_start_s)
    assert starting.done()
    assert set(descendants(os.getpid())) == set(before)
