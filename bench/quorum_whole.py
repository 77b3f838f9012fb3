"""Three whole nodes: changes over HTTP, and a lone proposer while the leader's node copies.

`python -m bench.quorum_whole [--seconds S] [--rounds R]`. Each node is `strandline node`; node 1
leads, has the log directory and copies 16 segments of 128 MiB to a folder in memory, with nothing
between the copies. Every change over HTTP is a topic's policy; the connections are spread over the
nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import uvloop

from bench.copy_log_dirs import TOPIC, write_log_dir
from bench.http_lookups import ask
from bench.log_dir_files import CLUSTER_ID
from bench.metadata_node import CACHE
from bench.quorum_load import Quorum, Run, proposers_at
from bench.table import Measure, percentile, write_table
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import parse_meta_properties
from rlmm.data_directory.data_directory import META_PROPERTIES, metadata_topic_id
from tests.e2e.node_process import NodeProcess
from tests.e2e.node_quorum import COPIER_ID, NodeQuorum

BATCH_BYTES = 16 * 1024
CONNECTIONS = (1, 64)
CHANGES_A_CONNECTION = 200
P99_RATIO_MAX = 3
SETTLE_S = 3.0
_NUMBERS = count()


@contextmanager
def whole_quorum(home: Path, memory: Path) -> Iterator[NodeQuorum]:
    """Three nodes, node 1 leading; nothing is copied until `pause(..., False)`."""
    source = write_log_dir(memory / "kafka", batch_bytes=BATCH_BYTES)
    (memory / "store").mkdir()
    sections: dict[str, dict[str, object]] = {
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(memory / "store")},
        "http": {"anonymous_role": "admin"},
        "copier": {"interval_s": 0.2},
    }
    aside = source.path.with_name("kafka-aside")
    partitions = [each for each in source.path.iterdir() if each.is_dir()]
    aside.mkdir()
    for each in partitions:
        each.rename(aside / each.name)
    with NodeQuorum(home, CLUSTER_ID, sections, source.path) as quorum:
        if quorum.leader() != COPIER_ID:
            quorum.operate("transfer", COPIER_ID)
            quorum.wait_until(lambda: quorum.leader() == COPIER_ID, "node 1 to lead")
        pause(quorum.nodes[COPIER_ID], True)
        for each in partitions:
            (aside / each.name).rename(each)
        yield quorum


def pause(node: NodeProcess, paused: bool) -> None:
    body = policy(copy_paused=paused)
    httpx.put(f"{node.url}/v1/topics/{TOPIC}/policy", json=body).raise_for_status()


def policy(*, copy_paused: bool = False) -> dict[str, object]:
    return {
        "retention_ms": None,
        "retention_bytes": None,
        "copy_paused": copy_paused,
        "delete_paused": False,
    }


def finished(node: NodeProcess) -> int:
    """Segments copied so far."""
    cluster = httpx.get(f"{node.url}/v1/cluster").raise_for_status().json()
    return int(cluster["totals"]["copy_segment_finished"])


def listener(node: NodeProcess) -> tuple[int, Quorum]:
    """The port of the node's quorum, and what it asks for."""
    settings = tomllib.loads(node.config.read_text())
    properties = Path(settings["node"]["data_dir"]) / META_PROPERTIES
    cluster_id = parse_meta_properties(properties.read_bytes(), source=str(properties)).cluster_id
    topic_id = bytes(metadata_topic_id(Uuid.parse(cluster_id))).hex()
    secret = Path(settings["quorum"]["secret_file"]).read_text().strip()
    port = int(settings["quorum"]["listen"].rpartition(":")[2])
    return port, Quorum(cluster_id, topic_id, secret)


async def changes(nodes: list[NodeProcess], connections: int) -> tuple[list[float], float]:
    """(milliseconds of each change over HTTP, changes a second)."""
    body = json.dumps(policy()).encode()
    head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    asked = [
        f"PUT /v1/topics/t-{next(_NUMBERS)}/policy HTTP/1.1\r\n{head}\r\n\r\n".encode() + body
        for _ in range(connections * CHANGES_A_CONNECTION)
    ]
    ports = [int(urlsplit(node.url).port or 0) for node in nodes]
    lots = min(connections, len(ports))
    answers = await asyncio.gather(
        *(
            ask(ports[lot], asked[lot::lots], len(range(lot, connections, lots)))
            for lot in range(lots)
        )
    )
    took_ms = [each for took, _ in answers for each in took]
    return took_ms, len(asked) / max(seconds for _, seconds in answers)


async def lone(node: NodeProcess, seconds: float) -> Run:
    port, quorum = listener(node)
    return await proposers_at([port], 1, seconds, quorum=quorum)


async def measure(quorum: NodeQuorum, seconds: float, rounds: int) -> list[Measure]:
    nodes = [quorum.nodes[COPIER_ID]] + [
        node for node_id, node in quorum.nodes.items() if node_id != COPIER_ID
    ]
    measures = []
    for connections in CONNECTIONS:
        name = f"HTTP, {connections} connection{'s' * (connections > 1)}: a topic's policy"
        seen = [await changes(nodes, connections) for _ in range(rounds)]
        measures += [
            Measure(name, "1/s", [rate for _, rate in seen]),
            Measure(name, "ms", [percentile(took, 50) for took, _ in seen]),
        ]
    idle = [await lone(nodes[0], seconds) for _ in range(rounds)]
    pause(nodes[0], False)
    await asyncio.sleep(SETTLE_S)  # the first copies are under way
    copying = []
    copied = [finished(nodes[0])]
    for _ in range(rounds):
        copying.append(await lone(nodes[0], seconds))
        copied.append(finished(nodes[0]))
    print(f"segments copied before and after each round: {copied}")
    ratio = statistics.median(p99(copying)) / statistics.median(p99(idle))
    for name, runs in (("idle", idle), ("copying", copying)):
        p50 = [percentile(run.latencies_ms, 50) for run in runs]
        measures += [
            Measure(f"1 proposer at the leader, {name}: latency, median", "ms", p50),
            Measure(f"1 proposer at the leader, {name}: latency, p99", "ms", p99(runs)),
        ]
    held = ratio <= P99_RATIO_MAX
    target = f"<= {P99_RATIO_MAX}"
    return [*measures, Measure("p99 copying, of idle", "x", [ratio], target, held)]


def p99(runs: list[Run]) -> list[float]:
    return [percentile(run.latencies_ms, 99) for run in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each lone proposer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"))
    chosen = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=CACHE) as home,
        tempfile.TemporaryDirectory(dir=chosen.memory, prefix="bench-quorum-") as memory,
        whole_quorum(Path(home), Path(memory)) as quorum,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        measures = runner.run(measure(quorum, chosen.seconds, chosen.rounds))
    write_table(
        "Three whole nodes",
        measures,
        packages=("fastapi", "uvloop", "rocksdict"),
        notes=(
            f"{chosen.rounds} rounds; the lone proposer {chosen.seconds:g} s each, with records of "
            "400 bytes; the copy to a folder in memory, defaults: 1 worker, 4 copies at once",
        ),
    )


if __name__ == "__main__":
    main()
