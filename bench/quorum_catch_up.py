"""Time and memory of a fresh node until it has everything that the quorum has.

`python -m bench.quorum_catch_up [SEGMENTS]` (1,000,000). A whole node leads a quorum of its own
with so many finished segments. A freshly formatted node joins it, fetches the snapshot and what
follows, and counts as caught up once it has applied the leader's high watermark of its start.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import urllib.request
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from bench.metadata_node import CACHE, data_directory
from bench.metadata_set import CLUSTER_ID, KAFKA_CLUSTER_ID, NODE_ID
from bench.node_process import node_process, peak_mib
from bench.table import Measure, write_table
from rlmm.data_directory.data_directory import NewDirectory, format_data_directory
from strandline.node.ambient import new_uuid
from tests.real.ports import free_ports

HOST = "127.0.0.1"
FRESH_NODE_ID = 2
ROUNDS = 3
POLL_S = 0.05
DEADLINE_S = 300.0
ALLOWED_S = 60.0
ALLOWED_MIB = 400.0


def asked(port: int, path: str) -> dict[str, Any]:
    """A node's answer."""
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def settings(port: int, secret: Path, bootstrap: str = "") -> str:
    """The section of a node's settings file."""
    return (
        f'[quorum]\nlisten = "{HOST}:{port}"\nsecret_file = "{secret}"\n'
        f"bootstrap = {[bootstrap] if bootstrap else []}\n"
    )


def caught_up(home: Path, leader_port: int, listen: int, join: str, secret: Path) -> list[float]:
    """(seconds until a fresh node has everything, its peak MiB)."""
    data = home / "data"
    format_data_directory(
        data,
        NewDirectory(CLUSTER_ID, KAFKA_CLUSTER_ID, FRESH_NODE_ID, new_uuid(), ()),
    )
    wanted = asked(leader_port, "/v1/quorum")["high_watermark"] - 1
    begun = perf_counter()
    with node_process(home, data, more_settings=settings(listen, secret, join)) as node:
        while asked(node.port, "/v1/quorum")["applied_offset"] < wanted:
            if perf_counter() - begun > DEADLINE_S:
                raise RuntimeError(f"not caught up within {DEADLINE_S:g} s")
            sleep(POLL_S)
        return [perf_counter() - begun, peak_mib(node.process.pid)]


def measure(home: Path, segments: int) -> list[list[float]]:
    kept, _ = data_directory(segments)
    data = Path(shutil.copytree(kept, home / "leader-data"))
    secret = home / "secret"
    secret.touch(mode=0o600)
    secret.write_text("benchmark" * 8)
    found = []
    leads, listens = free_ports(2)
    with node_process(home, data, more_settings=settings(leads, secret)) as leader:
        for number in range(ROUNDS):
            fresh = home / f"fresh-{number}"
            fresh.mkdir()
            join = f"{NODE_ID}@{HOST}:{leads}"
            found.append(caught_up(fresh, leader.port, listens, join, secret))
            shutil.rmtree(fresh)
    return found


def main() -> None:
    segments = int((sys.argv[1:] or ["1000000"])[0])
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        took_s, mib = zip(*measure(Path(home), segments), strict=True)
    write_table(
        "A fresh node catches up",
        [
            Measure(
                "process started to caught up", "s", took_s, f"< {ALLOWED_S:g}",
                max(took_s) < ALLOWED_S,
            ),
            Measure(
                "resident, largest", "MiB", mib, f"< {ALLOWED_MIB:g}", max(mib) < ALLOWED_MIB
            ),
        ],
        packages=("uvloop", "rocksdict"),
        notes=(f"{segments:,} finished segments in the leader's snapshot and log",),
    )  # fmt: skip


if __name__ == "__main__":
    main()
