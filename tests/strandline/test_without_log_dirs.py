"""A node without a broker's directory keeps metadata and answers; it has nothing to look at."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


def test_a_node_that_has_no_log_directory_has_no_problem_with_that(tmp_path: Path) -> None:
    async def main() -> None:
        async with new_world(tmp_path, ()).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert node.parts.looks.error is None
            assert node.remote_log.node_problems() == ()
            assert node.remote_log.statuses() == ()
            await node.remote_log.close()

    run_virtually(main)
