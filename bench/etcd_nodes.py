"""Three etcd nodes on this machine and the load of etcd's own `benchmark` tool."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.real.etcd import etcd_benchmark_program, etcd_program
from tests.real.ports import free_ports
from tests.real.server_process import ServerProcess

NODES = 3
START_DEADLINE_S = 60
LOAD_DEADLINE_S = 120
KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class EtcdNodes:
    """Client ports and process ids."""

    ports: tuple[int, ...]
    pids: tuple[int, ...]

    def leader_port(self) -> int:
        """Client port of the leader."""
        return next(port for port in self.ports if _leads(port))


@dataclass(frozen=True, slots=True)
class Load:
    """Figures of a run of the tool."""

    puts_per_s: float
    p50_ms: float
    p99_ms: float
    client_cpu_s: float


@contextmanager
def etcd_nodes(home: Path) -> Iterator[EtcdNodes]:
    """Three healthy nodes with default settings, stopped at the end."""
    program = etcd_program()
    free = free_ports(2 * NODES)
    clients, peers = free[:NODES], free[NODES:]
    cluster = ",".join(f"n{at}=http://127.0.0.1:{port}" for at, port in enumerate(peers))
    with ExitStack() as stack:
        processes = []
        for at in range(NODES):
            client, peer = f"http://127.0.0.1:{clients[at]}", f"http://127.0.0.1:{peers[at]}"
            folder = home / f"n{at}"
            folder.mkdir(parents=True)
            command = [
                str(program), "--name", f"n{at}", "--data-dir", str(folder / "data"),
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", cluster, "--logger", "zap", "--log-level", "error",
            ]  # fmt: skip
            process = ServerProcess(
                command, environment=dict(os.environ), cwd=folder, log_path=folder / "log"
            )
            stack.callback(process.kill)
            processes.append(process)
        for process, port in zip(processes, clients, strict=True):
            process.wait_until_healthy(
                f"http://127.0.0.1:{port}/health", deadline_s=START_DEADLINE_S
            )
        yield EtcdNodes(tuple(clients), tuple(each.pid for each in processes))


def put(
    ports: Sequence[int], *, clients: int, connections: int, total: int, value_bytes: int
) -> Load:
    """Put `total` new keys, one a request, over connections spread over the ports."""
    endpoints = ",".join(f"127.0.0.1:{port}" for port in ports)
    command = [
        str(etcd_benchmark_program()), "--endpoints", endpoints, "--precise",
        "--clients", str(clients), "--conns", str(connections),
        "put", "--total", str(total), "--val-size", str(value_bytes),
        "--key-size", str(KEY_BYTES), "--key-space-size", "1000000000", "--sequential-keys",
    ]  # fmt: skip
    before = os.times()
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=LOAD_DEADLINE_S
    )
    after = os.times()
    cpu_s = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    said = run.stdout
    if "Error distribution" in said:
        raise RuntimeError(f"etcd refused puts: {said[-1000:]}")
    return Load(
        _number(r"Requests/sec:\s+(\S+)", said),
        1000 * _number(r"50% in (\S+) secs", said),
        1000 * _number(r"99% in (\S+) secs", said),
        cpu_s,
    )


def _leads(port: int) -> bool:
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/v3/maintenance/status", data=b"{}", method="POST"
    )
    with urllib.request.urlopen(asked, timeout=START_DEADLINE_S) as answer:
        status = json.load(answer)
    return bool(status["leader"] == status["header"]["member_id"])


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"etcd's benchmark tool said no {pattern}: {text[-1000:]}")
    return float(found[1])
