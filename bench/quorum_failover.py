"""How long the metadata quorum is without a leader that commits: three ways of losing one.

`python -m bench.quorum_failover [--rounds N]`. A round ends the leader by SIGTERM (it resigns), by
SIGKILL, or by SIGSTOP (it falls silent), and takes the time from the signal to the first change
that a survivor acknowledges, asked for after the signal. Both survivors are asked every 20 ms. At
the end every acknowledged change is looked for in every node's log.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.metadata_node import CACHE
from bench.quorum_nodes import all_applied, leader, quorum
from bench.table import Measure, percentile, write_table
from kafka_formats.errors import OutcomeUnknown, RetryLater
from rlmm.raft.timers import RaftSettings
from tests.linearizability.clients import Acknowledged
from tests.linearizability.policy_register import UNSET, Done
from tests.linearizability.processes import ProcessNode

WAYS = {
    "clean stop": signal.SIGTERM,
    "SIGKILL": signal.SIGKILL,
    "silence (SIGSTOP)": signal.SIGSTOP,
}
PERIOD_S = 0.02
DEADLINE_S = 60.0
CLEAN_STOP_MS = 300
AFTER_FETCH_TIMEOUT_MS = 500
P99_MS = 4_000


class Prober:
    """Each change is of a topic of its own."""

    def __init__(self) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._numbers = count()

    async def change(self, node: ProcessNode) -> bool:
        """Whether one change was acknowledged."""
        topic = f"topic-{next(self._numbers)}"
        try:
            done = await node.set(topic, 1, UNSET)
        except (RetryLater, OutcomeUnknown):
            return False
        assert isinstance(done, Done)
        assert done.version is not None
        self.acknowledged.append(Acknowledged(done.version, topic, 1, UNSET))
        return True

    async def first(self, nodes: list[ProcessNode]) -> float:
        """Ask again and again; the time at which the first one was acknowledged."""
        asking: set[asyncio.Task[bool]] = set()
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    asking |= {asyncio.create_task(self.change(node)) for node in nodes}
                    await asyncio.sleep(PERIOD_S)
                    done = {task for task in asking if task.done()}
                    asking -= done
                    if any(task.result() for task in done):
                        return perf_counter()
        finally:
            await asyncio.gather(*asking)


async def lose(nodes: list[ProcessNode], prober: Prober, number: signal.Signals) -> float:
    """Milliseconds from the signal to the first change; then the old leader comes back."""
    old = await leader(nodes)
    await prober.first([old])
    begun = perf_counter()
    old.send(number)
    took_ms = (await prober.first([node for node in nodes if node is not old]) - begun) * 1000
    if number is signal.SIGSTOP:
        old.send(signal.SIGCONT)
    else:
        await asyncio.to_thread(old.reap)
        old.begin()
    await old.ready()
    await all_applied(nodes)
    return took_ms


async def measure(home: Path, rounds: int) -> dict[str, list[float]]:
    took_ms: dict[str, list[float]] = {way: [] for way in WAYS}
    prober = Prober()
    async with quorum(home) as nodes:
        for _ in range(rounds):
            for way, number in WAYS.items():
                took_ms[way].append(await lose(nodes, prober, number))
        for node in nodes:
            lost = await node.lost(prober.acknowledged)
            if lost:
                raise RuntimeError(f"node {node.node_id} lost acknowledged changes: {lost[:10]}")
        if len(digests := {(await node.describe())["digest"] for node in nodes}) != 1:
            raise RuntimeError(f"the nodes' states differ: {digests}")
    return took_ms


def table(took_ms: dict[str, list[float]]) -> list[Measure]:
    lines = []
    for way, samples in took_ms.items():
        allowed = CLEAN_STOP_MS
        if WAYS[way] is not signal.SIGTERM:
            allowed = RaftSettings().fetch_timeout_ms + AFTER_FETCH_TIMEOUT_MS
            p99 = percentile(samples, 99)
            lines.append(Measure(f"{way}, p99", "ms", [p99], f"< {P99_MS}", p99 < P99_MS))
        middle = median(samples)
        target = f"median < {allowed}"
        lines.append(Measure(way, "ms", samples, target, middle < allowed))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="of each way")
    chosen = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        took_ms = asyncio.run(measure(Path(home), chosen.rounds))
    write_table(
        "Failover of the metadata quorum",
        table(took_ms),
        packages=("uvloop", "rocksdict"),
        notes=(
            f"fetch.timeout.ms {RaftSettings().fetch_timeout_ms}, election.timeout.ms "
            f"{RaftSettings().election_timeout_ms} (Kafka's defaults)",
            f"from the signal to the first change acknowledged by a survivor, asked every "
            f"{PERIOD_S * 1000:g} ms",
            "no acknowledged change was lost on any node, and their states were equal",
        ),
    )


if __name__ == "__main__":
    main()
