"""Downloads through a real worker process: slow readers cost a bounded window each, and whoever
goes away leaves nothing behind, here or in the worker.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from api.http.api_limits import ApiLimits
from api.server import ApiServer, TlsFiles, serve
from kafka_formats.kafka_uuid import Uuid
from rlm.data_plane.read_request import LogRequest, ReadableSegment, WaitingRead
from rlm.worker.messages import DATA_BYTES_MAX
from rlm.worker.pool import WorkerPool
from tests.api.fakes import BASE, FakeRemoteLog, make_node, segment_uuid
from tests.api.test_pressure import deaf_connection, until
from tests.api.test_server import get
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.real_workers import LIMITS, copied, pool_of

MIB = 1 << 20
LOG = f"{BASE}/segments/{segment_uuid(0)}/log"
READERS = 12
WINDOW_BYTES = LIMITS.window_frames * DATA_BYTES_MAX
READER_BYTES_MAX = 2 * WINDOW_BYTES + 8 * MIB
"""Frames that wait and those on their way, and in the worker the chunk being read and checked."""

API_LIMITS = ApiLimits(shutdown_deadline_s=2)


@dataclass
class WorkersLog(FakeRemoteLog):
    """A remote log whose bytes come from a worker."""

    pool: WorkerPool | None = None
    segment: ReadableSegment | None = None
    opened: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)

    def open_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None, /
    ) -> AsyncIterator[bytes]:
        assert self.pool is not None
        assert self.segment is not None
        self.opened.append(start)
        return self.pool.read_log(LogRequest(self.segment, start, end))

    def waiting_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None, /
    ) -> AbstractAsyncContextManager[WaitingRead]:
        assert self.pool is not None
        assert self.segment is not None
        self.held.append(start)
        return self.pool.waiting_log(LogRequest(self.segment, start, end))


@dataclass
class Served:
    """A server over one worker, and the segment's bytes."""

    server: ApiServer
    pool: WorkerPool
    log: bytes
    remote_log: WorkersLog

    @property
    def jobs(self) -> int:
        """Work that the worker has not ended yet."""
        return sum(worker.jobs for worker in self.pool._workers.values())

    @property
    def processes(self) -> tuple[int, ...]:
        """This process and the worker's."""
        return os.getpid(), *self.pool.pids

    def open_files(self) -> int:
        """In both processes."""
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.processes)

    def resident_bytes(self) -> int:
        """In both processes."""
        pages = (Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in self.processes)
        return sum(map(int, pages)) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def served(
    tmp_path: Path, limits: ApiLimits = API_LIMITS, tls: TlsFiles | None = None
) -> AsyncIterator[Served]:
    """A segment of about 40 MB behind HTTP."""
    (tmp_path / "tier").mkdir()
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(40):
        replica.append(10, value_bytes=100_000)
    replica.roll()
    replica.append(1)
    log = replica.path(0, ".log").read_bytes()
    pool = pool_of(tmp_path / "tier")
    await pool.start()
    node = make_node(limits=limits)
    node.manager.segments[0] = replace(node.manager.segments[0], size_bytes=len(log))
    segment = (await copied(pool, replica)).pieces[0].segment
    remote_log: Any = WorkersLog(pool=pool, segment=segment)
    app = replace(node, context=replace(node.context, reads=remote_log)).app()
    server = await serve(app, "127.0.0.1", 0, tls=tls, limits=limits)
    try:
        yield Served(server, pool, log, remote_log)
    finally:
        await server.close()
        await pool.close()


async def settled(served: Served, open_files: int, holds: Callable[[], bool]) -> None:
    """Wait until nothing of a client is left."""
    await until(lambda: not served.server.connections and not served.jobs)
    await until(lambda: served.open_files() <= open_files)
    await until(holds)


async def test_slow_readers_cost_a_window_each_and_leave_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{node.server.port}") as client:
            assert (await client.get(LOG)).content == node.log  # caches fill
        await until(lambda: not node.server.connections)
        files, tasks, before = node.open_files(), asyncio.all_tasks(), node.resident_bytes()
        async with AsyncExitStack() as readers:
            for number in range(READERS):
                raw = await readers.enter_async_context(deaf_connection(node.server))
                await raw.send(get(LOG))
                await until(lambda wanted=number + 1: node.jobs == wanted)  # type: ignore[misc]  # a default
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{node.server.port}") as client:
                answer = await client.get(LOG, headers={"Range": "bytes=1000-2999999"})
                assert answer.content == node.log[1_000:3_000_000]  # others are served
            assert node.resident_bytes() - before < READERS * READER_BYTES_MAX + 16 * MIB
        await settled(node, files, lambda: asyncio.all_tasks() <= tasks)


async def test_aborted_downloads_free_everything(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{node.server.port}") as client:
            await client.get(LOG)
        await until(lambda: not node.server.connections)
        files, tasks = node.open_files(), asyncio.all_tasks()
        for number in range(40):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.server.port)
            writer.write(get(LOG))
            await reader.read(1 + number * 5_000)
            writer.transport.abort()
        await settled(node, files, lambda: asyncio.all_tasks() <= tasks)
        assert len(node.remote_log.held) == 41, "every one of them was begun"
        assert node.jobs == node.server.connections == 0
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{node.server.port}") as client:
            assert (await client.get(LOG)).content == node.log


async def test_ranges_in_parallel_are_each_right(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        size = len(node.log)
        ranges = [(at, min(at + 3_000_001, size)) for at in range(0, size, 2_000_003)]
        url = f"http://127.0.0.1:{node.server.port}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:

            async def right(start: int, end: int) -> bool:
                answer = await client.get(LOG, headers={"Range": f"bytes={start}-{end - 1}"})
                return answer.status_code == 206 and answer.content == node.log[start:end]

            assert all(await asyncio.gather(*(right(start, end) for start, end in ranges)))
