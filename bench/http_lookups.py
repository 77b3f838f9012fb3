"""HTTP look-ups on loopback against a whole node: time of one, and how many a second.

`python -m bench.http_lookups [SEGMENTS]` (1,000,000): keep-alive connections written by hand, each
with one request under way. The client runs on the same cores; its own CPU seconds are shown.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import cast

import uvloop

from bench.lookups import Question, Questions
from bench.metadata_node import CACHE, data_directory
from bench.node_process import node_process
from bench.table import Measure, percentile, write_table

ALONE = 5_000
ROUNDS = 5
A_ROUND = 10_000
CONNECTIONS = 8
P50_MAX_MS = 1.0
RATE_MIN = 3_000


def request(question: Question) -> bytes:
    """One look-up."""
    partition, epoch, offset = question
    path = f"/v1/topics/{partition.topic}/partitions/{partition.partition}/segments/lookup"
    return f"GET {path}?epoch={epoch}&offset={offset} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


class Connection(asyncio.Protocol):
    """Sends the next request once the last answer is whole. Answers carry their length."""

    def __init__(self, requests: Iterator[bytes], took_ms: list[float]) -> None:
        self._requests = requests
        self._took_ms = took_ms
        self._data = b""
        self._begun = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def _next(self) -> None:
        wanted = next(self._requests, None)
        if wanted is None:
            self._transport.close()
            return
        self._begun = perf_counter()
        self._transport.write(wanted)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, separator, body = self._data.partition(b"\r\n\r\n")
        if not separator:
            return
        lowered = head.lower()
        at = lowered.index(b"content-length:") + 15
        if len(body) < int(lowered[at:].partition(b"\r\n")[0]):
            return
        self._took_ms.append((perf_counter() - self._begun) * 1e3)
        if not head.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(self._data.decode()))
            self._transport.close()
            return
        self._data = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None) if exc is None else self.done.set_exception(exc)


async def ask(port: int, requests: list[bytes], connections: int) -> tuple[list[float], float]:
    """(milliseconds of each, seconds for all)."""
    loop = asyncio.get_running_loop()
    took_ms: list[float] = []
    waiting = iter(requests)
    begun = perf_counter()
    opened = [
        await loop.create_connection(lambda: Connection(waiting, took_ms), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(protocol.done for _, protocol in opened))
    return took_ms, perf_counter() - begun


async def measure(port: int, questions: Questions) -> tuple[list[float], list[float], float]:
    """(milliseconds of each alone, requests a second of each round, client CPU us a request)."""
    await ask(port, [request(each) for each in questions.some(1_000)], 1)
    alone, _ = await ask(port, [request(each) for each in questions.some(ALONE)], 1)
    rates = []
    cpu = process_time()
    for _ in range(ROUNDS):
        asked = [request(each) for each in questions.some(A_ROUND)]
        _, seconds = await ask(port, asked, CONNECTIONS)
        rates.append(A_ROUND / seconds)
    return alone, rates, (process_time() - cpu) / (ROUNDS * A_ROUND) * 1e6


def main() -> None:
    kept, metadata_set = data_directory(int((sys.argv[1:] or ["1000000"])[0]))
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        data = Path(shutil.copytree(kept, Path(home) / "node"))
        with (
            node_process(Path(home), data) as node,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            before = node.cpu_s()
            alone, rates, client_us = runner.run(measure(node.port, Questions(metadata_set)))
            node_us = (node.cpu_s() - before) / (1_000 + ALONE + ROUNDS * A_ROUND) * 1e6
            memory = node.resident_mib()
    write_table(
        "HTTP look-ups on loopback",
        [
            Measure(
                "one after the other", "ms", alone, f"median < {P50_MAX_MS:g}",
                median(alone) < P50_MAX_MS,
            ),
            Measure("one after the other, p99", "ms", [percentile(alone, 99)]),
            Measure(
                f"{CONNECTIONS} connections", "1/s", rates, ">= 3,000", median(rates) >= RATE_MIN
            ),
            Measure("node's CPU a request", "us", [node_us]),
            Measure("client's CPU a request", "us", [client_us]),
            Measure("supervisor's memory afterwards", "MiB", [memory]),
        ],
        packages=("fastapi", "pydantic", "httptools", "uvloop", "rocksdict"),
        notes=(f"{metadata_set.segments:,} segments in {metadata_set.partitions:,} partitions",),
    )  # fmt: skip


if __name__ == "__main__":
    main()
