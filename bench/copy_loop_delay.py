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

import uvloop

from strandline.formatting import format_for
from strandline.node import Node
from strandline.running import SWITCH_INTERVAL_S
from strandline.settings_loading import load_settings

TICK_S = 0.002


async def _probe(delays: list[float]) -> None:
    while True:
        due = time.perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        delays.append(max(0.0, time.perf_counter() - due))


async def _run(config: Path) -> dict[str, object]:
    settings = load_settings(config, {}).settings
    format_for(settings, only_if_absent=True)
    node = await Node.open(settings)
    delays: list[float] = []
    try:
        probe = asyncio.create_task(_probe(delays))
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
    }


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(_run(Path(sys.argv[1])))))
