"""Commits of the metadata quorum, beside three etcd nodes on the same machine in the same run.

`python -m bench.quorum [--seconds S] [--rounds R]`. Proposers are processes of their own and send
one record of 400 bytes a request; etcd's are its own `benchmark` tool with values of 400 bytes. By
turns, so that both meet the same machine. Connections are spread over the nodes, which forward to
the leader, and as many proposers share one in both; the lone proposer is measured at the leader and
at another node.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.etcd_nodes import EtcdNodes, etcd_nodes, put
from bench.metadata_node import CACHE
from bench.node_process import cpu_s
from bench.quorum_load import PROPOSERS_A_CONNECTION, RECORD_BYTES, proposers_at
from bench.quorum_nodes import all_applied, leader, listener_port, quorum
from bench.table import Measure, percentile, write_table
from tests.linearizability.processes import ProcessNode

FIRST_PUTS = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """A number of proposers, and where their connections go."""

    name: str
    proposers: int
    at_leader: bool = True
    at_others: bool = True

    def ports(self, leader_port: int, ports: list[int]) -> list[int]:
        """The ports that this case uses of all `ports`."""
        others = [port for port in ports if port != leader_port]
        return [leader_port] * self.at_leader + others * self.at_others


CASES = (
    Case("1 proposer at the leader", 1, at_others=False),
    Case("1 proposer at another node", 1, at_leader=False),
    Case("64 proposers", 64),
    Case("256 proposers", 256),
)


@dataclass(slots=True)
class Samples:
    """The samples of one system at one number of proposers: one a round."""

    per_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    nodes_us: list[float] = field(default_factory=list)
    clients_us: list[float] = field(default_factory=list)

    def add(
        self, per_s: float, p50_ms: float, p99_ms: float, records: float, nodes: float, load: float
    ) -> None:
        """`nodes` and `load` are CPU seconds of all nodes and of the clients."""
        self.per_s.append(per_s)
        self.p50_ms.append(p50_ms)
        self.p99_ms.append(p99_ms)
        self.nodes_us.append(nodes / records * 1e6)
        self.clients_us.append(load / records * 1e6)


async def ours(nodes: list[ProcessNode], case: Case, seconds: float, seen: Samples) -> None:
    ports = case.ports(listener_port(await leader(nodes)), [listener_port(node) for node in nodes])
    before = sum(cpu_s(node.pid) for node in nodes)
    run = await proposers_at(ports, case.proposers, seconds)
    await all_applied(nodes)
    cpu = sum(cpu_s(node.pid) for node in nodes) - before
    p50_ms, p99_ms = (percentile(run.latencies_ms, share) for share in (50, 99))
    # CPU is of the whole run, the warm-up included, and until all of it is applied everywhere.
    seen.add(run.records / run.seconds, p50_ms, p99_ms, run.all_records, cpu, run.cpu_s)


async def etcds(nodes: EtcdNodes, case: Case, seconds: float, seen: Samples) -> None:
    ports = case.ports(nodes.leader_port(), list(nodes.ports))
    connections = -(-case.proposers // PROPOSERS_A_CONNECTION)

    async def run(total: int) -> tuple[float, float, float, float, float]:
        before = sum(map(cpu_s, nodes.pids))
        load = await asyncio.to_thread(
            put,
            ports,
            clients=case.proposers,
            connections=connections,
            total=total,
            value_bytes=RECORD_BYTES,
        )
        cpu = sum(map(cpu_s, nodes.pids)) - before
        return load.puts_per_s, load.p50_ms, load.p99_ms, cpu, load.client_cpu_s

    warm = await run(FIRST_PUTS)
    total = int(warm[0] * seconds) + 1
    per_s, p50_ms, p99_ms, cpu, client_cpu = await run(total)
    seen.add(per_s, p50_ms, p99_ms, total, cpu, client_cpu)


async def measure(home: Path, seconds: float, rounds: int) -> dict[tuple[str, Case], Samples]:
    seen: dict[tuple[str, Case], Samples] = {}
    with etcd_nodes(home / "etcd") as etcd:
        async with (
            quorum(home / "log", applies=False) as bare,
            quorum(home / "whole") as whole,
        ):
            for _ in range(rounds):
                for case in CASES:
                    for system in ("etcd", "log alone", "with apply"):
                        samples = seen.setdefault((system, case), Samples())
                        if system == "etcd":
                            await etcds(etcd, case, seconds, samples)
                        else:
                            nodes = bare if system == "log alone" else whole
                            await ours(nodes, case, seconds, samples)
    return seen


def table(seen: dict[tuple[str, Case], Samples]) -> list[Measure]:
    lines = []
    for (system, case), samples in seen.items():
        name = f"{system}, {case.name}"
        per_s = Measure(f"{name}: commits", "1/s", samples.per_s)
        p50 = Measure(f"{name}: latency, median", "ms", samples.p50_ms)
        if system != "etcd":
            etcd = seen["etcd", case]
            rates = [a / b for a, b in zip(samples.per_s, etcd.per_s, strict=True)]
            waits = [a / b for a, b in zip(samples.p50_ms, etcd.p50_ms, strict=True)]
            if case.proposers > 1:
                held = median(rates) >= 1
                lines.append(Measure(f"{name}: commits, of etcd's", "x", rates, ">= 1", held))
            else:
                held = median(waits) <= 1.5
                lines.append(Measure(f"{name}: latency, of etcd's", "x", waits, "<= 1.5", held))
        lines += [
            per_s,
            p50,
            Measure(f"{name}: latency, p99", "ms", samples.p99_ms),
            Measure(f"{name}: CPU of three nodes, a commit", "us", samples.nodes_us),
            Measure(f"{name}: CPU of the clients, a commit", "us", samples.clients_us),
        ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each system, a round")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        seen = asyncio.run(measure(Path(home), chosen.seconds, chosen.rounds))
    write_table(
        "Commits of three nodes, beside etcd",
        table(seen),
        packages=("uvloop", "rocksdict"),
        notes=(
            "etcd 3.4.23 (Debian) with default settings, its own `benchmark put`",
            f"{RECORD_BYTES} bytes a record, {PROPOSERS_A_CONNECTION} proposers a connection, "
            f"{chosen.rounds} rounds of {chosen.seconds:g} s each, by turns",
            "64 and 256 proposers are spread over the three nodes; `with apply`: all three nodes "
            "decide each record and write it to their views meanwhile",
        ),
    )


if __name__ == "__main__":
    main()
