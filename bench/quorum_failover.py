"""Time without an acknowledged change when the quorum's leader goes, in three ways.

`python -m bench.quorum_failover [--rounds N] [--way SIGNAL]`. A round ends the leader by SIGTERM
(it resigns), by SIGKILL, or by SIGSTOP (it falls silent). Both survivors are asked for a change
every 20 ms; the result is the longest time without an acknowledged one, from the signal until
changes are acknowledged under another leader. At the end every acknowledged change is looked for in
every node's log.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from dataclasses import dataclass
from itertools import count, pairwise
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
WAYS_BY_SIGNAL = {number.name: way for way, number in WAYS.items()}
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

    async def change(self, node: ProcessNode) -> Acknowledgement | None:
        """One change; None if it was not acknowledged."""
        topic = f"topic-{next(self._numbers)}"
        asked = perf_counter()
        try:
            done = await node.set(topic, 1, UNSET)
        except (RetryLater, OutcomeUnknown):
            return None
        assert isinstance(done, Done)
        assert done.version is not None
        self.acknowledged.append(Acknowledged(done.version, topic, 1, UNSET))
        return Acknowledgement(asked, perf_counter())

    async def until_led(self, nodes: list[ProcessNode], above_epoch: int) -> list[float]:
        """Ask until a change is acknowledged that was asked for after one of `nodes` led in a later
        epoch; return the times of all acknowledgements.
        """
        asking: set[asyncio.Task[Acknowledgement | None]] = set()
        times: list[float] = []
        led_at: float | None = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    asking |= {asyncio.create_task(self.change(node)) for node in nodes}
                    await asyncio.sleep(PERIOD_S)
                    if led_at is None and await led(nodes, above_epoch):
                        led_at = perf_counter()
                    done = {task for task in asking if task.done()}
                    asking -= done
                    heard = [each for each in (task.result() for task in done) if each is not None]
                    times += [each.at for each in heard]
                    if led_at is not None and any(each.asked > led_at for each in heard):
                        return times
        finally:
            await asyncio.gather(*asking)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Seconds when a change was asked for and when its answer came."""

    asked: float
    at: float


async def led(nodes: list[ProcessNode], above_epoch: int) -> bool:
    """True if one of these leads in a later epoch and has committed in it."""
    for node in nodes:
        known = await node.describe()
        if known["epoch"] > above_epoch and known["established"]:
            return True
    return False


async def lose(nodes: list[ProcessNode], prober: Prober, number: signal.Signals) -> float:
    """Milliseconds without an acknowledged change; then the old leader comes back."""
    old = await leader(nodes)
    epoch = (await old.describe())["epoch"]
    begun = perf_counter()
    old.send(number)
    times = await prober.until_led([node for node in nodes if node is not old], epoch)
    took_ms = 1000 * max(after - before for before, after in pairwise(sorted([begun, *times])))
    if number is signal.SIGSTOP:
        old.send(signal.SIGCONT)
    else:
        await asyncio.to_thread(old.reap)
        old.begin()
    await old.ready()
    await all_applied(nodes)
    return took_ms


async def measure(home: Path, rounds: int, ways: list[str]) -> dict[str, list[float]]:
    took_ms: dict[str, list[float]] = {way: [] for way in ways}
    prober = Prober()
    async with quorum(home) as nodes:
        for _ in range(rounds):
            for way in ways:
                took_ms[way].append(await lose(nodes, prober, WAYS[way]))
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
    parser.add_argument(
        "--way", action="append", choices=WAYS_BY_SIGNAL, help="one of the three; may be repeated"
    )
    chosen = parser.parse_args()
    ways = [WAYS_BY_SIGNAL[name] for name in chosen.way or WAYS_BY_SIGNAL]
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        took_ms = asyncio.run(measure(Path(home), chosen.rounds, ways))
    write_table(
        "Failover of the metadata quorum",
        table(took_ms),
        packages=("uvloop", "rocksdict"),
        notes=(
            f"fetch.timeout.ms {RaftSettings().fetch_timeout_ms}, election.timeout.ms "
            f"{RaftSettings().election_timeout_ms} (Kafka's defaults)",
            f"the longest time without an acknowledged change; both survivors are asked for one "
            f"every {PERIOD_S * 1000:g} ms",
            "no acknowledged change was lost on any node, and their states were equal",
        ),
    )


if __name__ == "__main__":
    main()
