"""Ranges of segments read over HTTP by many at once, beside bare ranged GETs from the same store.

`python -m bench.reads_http`. A node's supervisor and worker, MinIO and the clients share one
machine, so what is read over HTTP passes four processes on its cores, a bare GET two. Eight readers
with keep-alive connections take 4 MiB ranges, by turns from the node and, by our S3 client, from
MinIO.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import uvloop

from bench.copy_log_dirs import TOPIC, write_log_dir
from bench.node_process import NodeProcess, node_process, peak_mib
from bench.reads_ranged import drain_bare, opened
from bench.table import Measure, write_table
from rsm_backends.store_config import StoreConfig
from tests.real.minio import MINIO_VERSION, MinioServer

MIB = 1 << 20
READERS = 8
RANGE_BYTES = 4 * MIB
RANGES_PER_READER = 32
ROUNDS = 5
SEGMENTS = 2
RESIDENT_MIB_MAX = 400
BUFFER_BYTES = 256 * 1024
STRANDLINE = str(Path(sys.executable).with_name("strandline"))
SEGMENTS_PATH = f"/v1/topics/{TOPIC}/partitions/0/segments"

Read = Callable[[int, int], Awaitable[int]]
"""Reader and position; how many bytes came."""


class Client:
    """One keep-alive connection that takes ranges and keeps nothing."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self._buffer = bytearray(BUFFER_BYTES)

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=2 * BUFFER_BYTES
        )

    async def read(self, start: int) -> int:
        """One range, to its last byte."""
        self._writer.write(
            f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Range: bytes={start}-{start + RANGE_BYTES - 1}\r\n\r\n".encode()
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 206 "):
            raise RuntimeError(f"the node answered {head[:200]!r}")
        left = RANGE_BYTES
        while left:
            piece = await self._reader.read(min(left, BUFFER_BYTES))
            if not piece:
                raise RuntimeError(f"{left} bytes did not come")
            left -= len(piece)
        return RANGE_BYTES

    def close(self) -> None:
        self._writer.close()


async def speed(read: Read, size: int) -> float:
    """MiB/s of all readers together; each begins elsewhere."""

    async def reader(number: int) -> int:
        return sum(
            [
                await read(number, (number * 7 + step * 3) * RANGE_BYTES % (size - RANGE_BYTES))
                for step in range(RANGES_PER_READER)
            ]
        )

    began_at = time.perf_counter()
    total = sum(await asyncio.gather(*(reader(number) for number in range(READERS))))
    return total / MIB / (time.perf_counter() - began_at)


async def compare(node: NodeProcess, config: StoreConfig, key: str) -> list[Measure]:
    """Read by turns from the node and bare."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{node.port}") as http:
        segment = (await http.get(SEGMENTS_PATH)).raise_for_status().json()["segments"][0]
    size, path = segment["size_bytes"], f"{SEGMENTS_PATH}/{segment['segment_id']}/log"
    store = await opened(config)
    clients = [Client(node.port, path) for _ in range(READERS)]
    for client in clients:
        await client.open()

    def bare(_: int, at: int) -> Awaitable[int]:
        return drain_bare(store.get(key, start=at, end=at + RANGE_BYTES))

    def over_http(reader: int, at: int) -> Awaitable[int]:
        return clients[reader].read(at)

    await speed(over_http, size)
    ours, theirs, cpu = [], [], []
    gib = READERS * RANGES_PER_READER * RANGE_BYTES / 2**30
    for _ in range(ROUNDS):
        theirs.append(await speed(bare, size))
        before = node.cpu_s()
        ours.append(await speed(over_http, size))
        cpu.append((node.cpu_s() - before) / gib)
    for client in clients:
        client.close()
    await store.close()
    peak = sum(map(peak_mib, node.processes()))
    return [
        Measure(f"ranges of {RANGE_BYTES // MIB} MiB over HTTP, {READERS} readers", "MiB/s", ours),
        Measure("bare ranged GETs by our S3 client", "MiB/s", theirs),
        Measure("over HTTP", "x bare", [m / t for m, t in zip(ours, theirs, strict=True)]),
        Measure("CPU of supervisor and worker", "s/GiB", cpu),
        Measure(
            "resident, supervisor and worker, peak", "MiB", [peak],
            f"< {RESIDENT_MIB_MAX}", peak < RESIDENT_MIB_MAX,
        ),
    ]  # fmt: skip


def main() -> None:
    """Copy, start a node, measure and print."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bench-http-") as folder,
        ExitStack() as up,
    ):
        home = Path(folder)
        source = write_log_dir(
            home / "log-dir", batch_bytes=16 * 1024, partitions=1, segments=SEGMENTS
        )
        (home / "minio").mkdir()
        config = up.enter_context(MinioServer(home / "minio")).store_config
        credentials = home / "credentials"
        credentials.write_text(
            f"[default]\naws_access_key_id = {config.access_key_id}\n"
            f"aws_secret_access_key = {config.secret_access_key}\n"
        )
        main_store = (
            f'kind = "s3"\nbucket = "{config.bucket}"\nprefix = "tier/"\n'
            f'endpoint_url = "{config.endpoint_url}"\ncredentials_file = "{credentials}"'
        )
        subprocess.run(
            [
                *(STRANDLINE, "copy", "--once", "--log-dir", str(source.path)),
                *("--data-dir", str(home / "data")),
                *("--store", f"s3://{config.bucket}/tier/"),
                *("--endpoint-url", str(config.endpoint_url)),
                *("--credentials-file", str(credentials)),
            ],
            check=True,
        )
        node = up.enter_context(node_process(home, home / "data", main_store=main_store))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(compare(node, config, first_log(home / "minio")))
    write_table(
        "Reads over HTTP: segments of 128 MiB, 16 KiB batches",
        found,
        packages=("aiobotocore", "aiohttp", "uvicorn", "uvloop"),
        notes=(f"MinIO {MINIO_VERSION} over plain HTTP on the same machine, data on tmpfs",),
    )


def first_log(minio_home: Path) -> str:
    """The key of a segment's `.log` in MinIO's only bucket."""
    found = sorted((minio_home / "data").glob("strandline-test/**/*.log"))
    return found[0].relative_to(minio_home / "data" / "strandline-test").as_posix()


if __name__ == "__main__":
    main()
