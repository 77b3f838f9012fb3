"""Changes of one node's own manager, with no wire in front of it, in a quorum of three.

`python -m bench.quorum_in_process [--seconds S] [--rounds R]`: node 1 runs in this process, with a
short election time-out so that it leads; the others are processes. Each proposer sets the policy of
one topic after the other, and each is applied here when the next begins.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import perf_counter

import uvloop

from bench.metadata_node import CACHE
from bench.quorum_nodes import LEADER_DEADLINE_S, NODES, POLL_S, node_configs
from bench.table import Measure, percentile, write_table
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.segment import Incarnation
from rlmm.view.view import View
from strandline.node import ambient
from tests.linearizability.node_process import (
    directory_id,
    failed,
    policy_change,
    running_log,
)
from tests.linearizability.processes import ProcessNode

PROPOSERS = (1, 64, 256)
ME = NODES[0]
ELECTION_TIMEOUT_MS = 100
DEADLINE_S = 30.0
_NUMBERS = count()


@asynccontextmanager
async def leading(home: Path) -> AsyncIterator[RemoteLogMetadataManager]:
    """Node 1's manager, once it leads."""
    mine, *others = node_configs(home)
    mine = replace(mine, raft={"election_timeout_ms": ELECTION_TIMEOUT_MS})
    processes = [ProcessNode(each) for each in others]
    view = View.open(home / f"node-{ME}" / "view")
    try:
        for process in processes:
            process.begin()
        async with running_log(mine, 0) as log:
            manager = await RemoteLogMetadataManager.start(
                log,
                view,
                incarnation=Incarnation(ME, directory_id(ME), 1),
                now_ms=ambient.now_ms,
                on_failure=failed,
            )
            await leads(log)
            yield manager
            await manager.close()
    finally:
        view.close()
        for process in processes:
            process.kill()


async def leads(log: QuorumLog) -> None:
    async with asyncio.timeout(LEADER_DEADLINE_S):
        while True:
            if log.driver.core.established:
                return
            await asyncio.sleep(POLL_S)


async def changes(
    manager: RemoteLogMetadataManager, proposers: int, seconds: float
) -> tuple[float, list[float]]:
    """(changes a second, milliseconds of each)."""
    took_ms: list[float] = []
    begun = perf_counter()

    async def propose() -> None:
        while (asked := perf_counter()) < begun + seconds:
            change = policy_change(f"t-{next(_NUMBERS)}", 1, -1)
            await manager.set_topic_policy(change, deadline_s=DEADLINE_S)
            took_ms.append((perf_counter() - asked) * 1000)

    await asyncio.gather(*(propose() for _ in range(proposers)))
    return len(took_ms) / (perf_counter() - begun), took_ms


async def measure(home: Path, seconds: float, rounds: int) -> list[Measure]:
    measures = []
    async with leading(home) as manager:
        for proposers in PROPOSERS:
            seen = [await changes(manager, proposers, seconds) for _ in range(rounds)]
            name = f"{proposers} proposer{'s' * (proposers > 1)} in the leader's process"
            measures += [
                Measure(f"{name}: changes applied there", "1/s", [rate for rate, _ in seen]),
                Measure(f"{name}: median", "ms", [percentile(took, 50) for _, took in seen]),
            ]
    return measures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    sys.setswitchinterval(0.0005)  # as `strandline node` does
    CACHE.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=CACHE) as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        home = Path(folder)
        (home / f"node-{ME}").mkdir()
        measures = runner.run(measure(home, chosen.seconds, chosen.rounds))
    write_table(
        "Changes of a manager in its own process",
        measures,
        packages=("uvloop", "rocksdict"),
        notes=("three nodes on this machine; one topic's policy a change",),
    )


if __name__ == "__main__":
    main()
