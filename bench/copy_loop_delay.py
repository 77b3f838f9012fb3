"""One pass of a whole node with this process as its supervisor, whose event loop is watched.

Started by `bench.copy_segments` as `python -m bench.copy_loop_delay CONFIG.toml`; prints JSON. The
loop is set up as `strandline node` sets it up.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from strandline.node.event_loop import leave_out_of_collections, node_runner
from strandline.node.formatting import format_for
from strandline.node.node import Node
from strandline.settings.loading import load_settings

TICK_S = 0.002


async def _probe(delays: list[float], own: list[float]) -> None:
    """`own` is the part of each delay in which the loop's thread worked and did not wait."""
    while True:
        due, worked = time.perf_counter() + TICK_S, time.thread_time()
        await asyncio.sleep(TICK_S)
        delay = max(0.0, time.perf_counter() - due)
        delays.append(delay)
        own.append(min(delay, time.thread_time() - worked))


async def _run(config: Path) -> dict[str, object]:
    settings = load_settings(config, {}).settings
    format_for(settings, only_if_absent=True)
    node = await Node.open(settings)
    leave_out_of_collections()
    delays: list[float] = []
    own: list[float] = []
    try:
        probe = asyncio.create_task(_probe(delays, own))
        began_at = time.perf_counter()
        report = await node.remote_log.run_once()
        took_s = time.perf_counter() - began_at
        probe.cancel()
    finally:
        await node.close()
    return {
        "complete": report.complete,
        "segments": len(report.copied),
        "took_s": took_s,
        "delays_ms": sorted(1000 * delay for delay in delays),
        "own_delays_ms": sorted(1000 * delay for delay in own),
    }


if __name__ == "__main__":
    with node_runner() as runner:
        print(json.dumps(runner.run(_run(Path(sys.argv[1])))))
