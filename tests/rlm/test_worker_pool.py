"""Real worker processes: calls, deaths, hangs, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import (
    CorruptData,
    InternalError,
    NotFound,
    RetryLater,
)
from rlm.copy_job import CopyJob, CopyProgress
from rlm.object_keys import segment_keys
from rlm.read_request import (
    IndexRequest,
    IndexType,
    Isolation,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
)
from rlm.worker_messages import DATA_BYTES_MAX
from rlm.worker_pool import WorkerLimits, WorkerPool
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.store_config import StoreConfig
from strandline import ambient
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import STORE, Pieces, copy_job, only_partition, small_parts, tiered

COMMAND = (sys.executable, "-m", "strandline.worker_process")
SECRET = "a-secret-access-key-nobody-should-see"
LIMITS = WorkerLimits(restart_backoff_base_s=0.01)
FAR_FUTURE_MS = 10**15


def pool_of(
    tier: Path,
    *,
    command: Sequence[str] = COMMAND,
    limits: WorkerLimits = LIMITS,
    size: int = 1,
) -> WorkerPool:
    config = StoreConfig(name=STORE, kind="filesystem", path=tier, secret_access_key=SECRET)
    return WorkerPool(
        command,
        {STORE: config},
        size=size,
        limits=limits,
        monotonic=ambient.monotonic,
        sleep=ambient.sleep,
    )


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    (tmp_path / "tier").mkdir()
    return tmp_path / "tier"


@pytest.fixture
async def pool(tier: Path) -> AsyncIterator[WorkerPool]:
    pool = pool_of(tier)
    await pool.start()
    yield pool
    await pool.close()


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    """Two segments: about 1.5 MB, and a small one with an aborted transaction."""
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(15):
        replica.append(10, value_bytes=10_000)
    replica.roll()
    replica.append(3, producer_id=1, transactional=True)
    replica.append(2)
    replica.end_transaction(1, commit=False)
    replica.roll()
    return replica


async def copied(pool: WorkerPool, replica: ReplicaWriter, *, attempt: int = 0) -> Pieces:
    pieces = Pieces()
    partition = only_partition(replica.log_dir)
    for segment in partition.segments[:-1]:
        job = copy_job(partition, segment, attempt=attempt)
        job = replace(job, upload_deadline_ms=FAR_FUTURE_MS)
        result = await pool.copy(job)
        pieces.pieces.append(SegmentPiece(tiered(job, result), job.end_offset))
        if result.txn_index_empty:
            pieces.without_aborts.add(job.start_offset)
    return pieces


def big_job(replica: ReplicaWriter, *, part_bytes: int = 400_000, attempt: int = 0) -> CopyJob:
    """The first segment, in parts; 2000 bytes each make hundreds of requests."""
    partition = only_partition(replica.log_dir)
    job = copy_job(partition, partition.segments[0], attempt=attempt)
    return small_parts(replace(job, upload_deadline_ms=FAR_FUTURE_MS), part_bytes)


def all_bytes(replica: ReplicaWriter) -> bytes:
    return b"".join(replica.path(offset, ".log").read_bytes() for offset in (0, 150))


async def restarted(pool: WorkerPool, pid: int) -> None:
    while not pool.pids or pool.pids[0] == pid:
        await asyncio.sleep(0.01)


async def test_what_is_copied_is_read_back(pool: WorkerPool, replica: ReplicaWriter) -> None:
    pieces = await copied(pool, replica)
    ends: list[RecordsEnd] = []
    stream = pool.read_records(RecordsRequest(0, 10**9), pieces, ends.append)
    assert b"".join([part async for part in stream]) == all_bytes(replica)
    assert [end.next_offset for end in ends] == [156]
    segment = pieces.pieces[0].segment
    log = b"".join([part async for part in pool.read_log(LogRequest(segment, 100, 900_000))])
    assert log == all_bytes(replica)[100:900_000]
    index = [part async for part in pool.read_index(IndexRequest(segment, IndexType.LEADER_EPOCH))]
    assert index == [b"0\n1\n0 0\n"]
    committed = RecordsRequest(150, 10**9, Isolation.READ_COMMITTED)
    only = b"".join([part async for part in pool.read_records(committed, pieces)])
    assert 0 < len(only) < len(replica.path(150, ".log").read_bytes())


async def test_progress_ends_complete(pool: WorkerPool, replica: ReplicaWriter) -> None:
    told: list[CopyProgress] = []
    await pool.copy(big_job(replica), told.append)
    assert told[-1].bytes_done == told[-1].bytes_total


async def test_errors_of_the_work_are_raised_here(
    pool: WorkerPool, replica: ReplicaWriter, tier: Path
) -> None:
    pieces = await copied(pool, replica)
    segment = pieces.pieces[0].segment
    with pytest.raises(NotFound, match="transaction"):
        await anext(pool.read_index(IndexRequest(segment, IndexType.TRANSACTION)))
    (log,) = [path for path in tier.rglob("*.log") if "000150" not in path.name]
    data = bytearray(log.read_bytes())
    data[1_200_000] ^= 1
    log.write_bytes(data)
    stream = pool.read_log(LogRequest(segment))
    good = b"".join([await anext(stream) for _ in range((1 << 20) // DATA_BYTES_MAX)])
    with pytest.raises(CorruptData) as caught:
        await anext(stream)
    assert caught.value.position == 1 << 20
    assert good == all_bytes(replica)[: 1 << 20]


async def test_secrets_are_neither_arguments_nor_environment(pool: WorkerPool) -> None:
    (pid,) = pool.pids
    for name in ("cmdline", "environ"):
        assert SECRET.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


async def test_signals_of_the_terminal_are_the_supervisors_business(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    (pid,) = pool.pids
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    await copied(pool, replica)
    assert pool.pids == (pid,)


async def test_a_killed_worker_is_a_retry_and_is_replaced(
    pool: WorkerPool, replica: ReplicaWriter, tier: Path
) -> None:
    (pid,) = pool.pids
    killed: list[CopyProgress] = []

    def kill(progress: CopyProgress) -> None:
        if not killed:
            os.kill(pid, signal.SIGKILL)
        killed.append(progress)

    with pytest.raises(RetryLater, match="signal 9"):
        await pool.copy(big_job(replica, part_bytes=2_000), kill)
    assert killed[0].bytes_done < killed[0].bytes_total
    assert not list(tier.rglob("*.rsm-manifest"))
    await pool.copy(big_job(replica, attempt=1))
    assert pool.pids != (pid,)
    (log,) = tier.rglob("*.log")
    assert log.read_bytes() == replica.path(0, ".log").read_bytes()


async def to_the_end(stream: AsyncIterator[bytes]) -> None:
    async for _ in stream:
        continue


async def test_a_killed_worker_ends_its_reads(pool: WorkerPool, replica: ReplicaWriter) -> None:
    pieces = await copied(pool, replica)
    stream = pool.read_log(LogRequest(pieces.pieces[0].segment))
    await anext(stream)
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RetryLater):
        await to_the_end(stream)
    await restarted(pool, pid)
    stream = pool.read_records(RecordsRequest(0, 10**9), pieces)
    assert b"".join([part async for part in stream]) == all_bytes(replica)


async def test_a_silent_worker_is_killed_and_replaced(tier: Path, replica: ReplicaWriter) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, silence_deadline_s=1.0))
    await pool.start()
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RetryLater, match="silent"):
        await pool.copy(big_job(replica))
    await pool.copy(big_job(replica, attempt=1))
    assert pool.pids != (pid,)
    await pool.close()


async def test_a_worker_that_does_not_confirm_a_cancellation_is_killed(
    tier: Path, replica: ReplicaWriter
) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, cancel_deadline_s=0.3))
    await pool.start()
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    task = asyncio.create_task(pool.copy(big_job(replica)))
    while not pool._workers[0].jobs:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pid}").exists()
    await pool.close()


async def test_a_cancelled_copy_has_stopped_when_the_caller_goes_on(
    pool: WorkerPool, replica: ReplicaWriter, tier: Path
) -> None:
    began = asyncio.Event()
    job = big_job(replica, part_bytes=2_000)
    task = asyncio.create_task(pool.copy(job, lambda _: began.set()))
    await began.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # an impatient caller: the promise holds all the same
    with pytest.raises(asyncio.CancelledError):
        await task
    left = sorted(tier.rglob("*"))
    assert not [path for path in left if path.suffix in (".log", ".rsm-manifest")]
    store = FilesystemStore(tier)
    assert await store.list_uploads(segment_keys(job.prefix, job.segment_id, 0).log) == ()
    assert await pool.copy(big_job(replica, attempt=1))
    assert len(pool.pids) == 1


async def test_a_closed_stream_frees_the_worker(pool: WorkerPool, replica: ReplicaWriter) -> None:
    pieces = await copied(pool, replica)
    for _ in range(LIMITS.jobs_max + 5):
        stream = pool.read_log(LogRequest(pieces.pieces[0].segment))
        await anext(stream)
        await closed(stream)
    assert [part async for part in pool.read_records(RecordsRequest(150, 1), pieces)]


async def closed(stream: AsyncIterator[bytes]) -> None:
    close = getattr(stream, "aclose", None)
    assert close is not None
    await close()


async def test_a_slow_reader_holds_no_more_than_its_window_and_nobody_else(
    tier: Path, replica: ReplicaWriter
) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, window_frames=2))  # of about six
    await pool.start()
    pieces = await copied(pool, replica)
    slow = pool.read_log(LogRequest(pieces.pieces[0].segment))
    await anext(slow)
    for _ in range(3):
        stream = pool.read_records(RecordsRequest(0, 10**9), pieces)
        assert b"".join([part async for part in stream]) == all_bytes(replica)
    (handle,) = pool._workers.values()
    (waiting,) = [call for call, _ in handle._calls.values()]
    assert len(waiting._messages) <= 2
    rest = b"".join([part async for part in slow])
    assert len(rest) > 2 * DATA_BYTES_MAX
    await pool.close()


async def test_a_read_that_brings_nothing_fails_and_is_cancelled(
    tier: Path, replica: ReplicaWriter
) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, stream_stall_s=0.3))
    await pool.start()
    pieces = await copied(pool, replica)
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RetryLater, match="brought nothing"):
        await anext(pool.read_log(LogRequest(pieces.pieces[0].segment)))
    os.kill(pid, signal.SIGCONT)
    await copied(pool, replica, attempt=1)
    assert pool.pids == (pid,)
    await pool.close()


async def test_an_error_of_the_resolver_is_the_readers(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    class Failing(Pieces):
        async def piece_at(self, offset: int) -> SegmentPiece | None:
            raise NotFound("no such partition")

    with pytest.raises(NotFound, match="no such partition"):
        await anext(pool.read_records(RecordsRequest(0, 1), Failing()))
    await copied(pool, replica)


async def test_too_many_jobs_are_a_retry(tier: Path, replica: ReplicaWriter) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, jobs_max=1))
    await pool.start()
    pieces = await copied(pool, replica)
    stream = pool.read_log(LogRequest(pieces.pieces[0].segment))
    await anext(stream)
    with pytest.raises(RetryLater, match="1 jobs already"):
        await pool.copy(big_job(replica, attempt=1))
    await closed(stream)
    await pool.close()


async def test_several_workers_share_the_work(tier: Path, replica: ReplicaWriter) -> None:
    pool = pool_of(tier, size=2)
    await pool.start()
    first, second = pool.pids
    assert first != second
    os.kill(first, signal.SIGKILL)
    jobs = [pool.copy(big_job(replica, attempt=number)) for number in range(4)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert any(not isinstance(result, BaseException) for result in results)
    assert all(isinstance(r, RetryLater) for r in results if isinstance(r, BaseException))
    await pool.close()


async def test_closing_ends_the_workers_and_their_calls(tier: Path, replica: ReplicaWriter) -> None:
    pool = pool_of(tier)
    await pool.start()
    (pid,) = pool.pids
    began = asyncio.Event()
    job = big_job(replica, part_bytes=2_000)
    task = asyncio.create_task(pool.copy(job, lambda _: began.set()))
    await began.wait()
    await pool.close()
    await pool.close()
    with pytest.raises(RetryLater):
        await task
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(RetryLater, match="ending with the node"):
        await pool.copy(job)


async def test_a_store_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="missing"):
        await pool_of(tmp_path / "missing").start()


SCRIPTS = {
    # 255 is what asyncio's own loop (used by tests only) makes of an exit that the kill collected.
    "ends at once": ("import sys; sys.exit(3)", RetryLater, "exit status (3|255)|signal 9"),
    "never gets ready": ("import time; time.sleep(600)", RetryLater, "not ready within"),
    "says nonsense": (
        "import pickle, socket, struct, sys\n"
        "body = pickle.dumps('hello')\n"
        "s = socket.socket(fileno=int(sys.argv[1]))\n"
        "s.sendall(struct.pack('>IQ', len(body), 0) + body)\n"
        "s.recv(1 << 20)\n",
        RetryLater,
        "while it started",
    ),
}


@pytest.mark.parametrize("name", list(SCRIPTS))
async def test_a_worker_that_does_not_start_is_told(tier: Path, name: str) -> None:
    script, kind, text = SCRIPTS[name]
    pool = pool_of(
        tier,
        command=(sys.executable, "-c", script),
        limits=replace(LIMITS, start_deadline_s=2.0),
    )
    with pytest.raises(kind, match=text):
        await pool.start()


async def test_a_command_that_is_not_there_is_told(tier: Path) -> None:
    with pytest.raises(RetryLater, match="cannot be started"):
        await pool_of(tier, command=("/nonexistent/python",)).start()


async def test_a_worker_that_sends_nonsense_later_is_replaced(
    tier: Path, replica: ReplicaWriter, tmp_path: Path
) -> None:
    """The first start answers with rubbish after it was ready, the next one is a real worker."""
    mark = tmp_path / "started-once"
    script = textwrap.dedent(
        f"""
        import pathlib, runpy, socket, struct, sys
        mark = pathlib.Path({str(mark)!r})
        if mark.exists():
            runpy.run_module("strandline.worker_process", run_name="__main__", alter_sys=True)
        mark.touch()
        from rlm.worker_messages import Ready, frame
        s = socket.socket(fileno=int(sys.argv[1]))
        s.sendall(frame(Ready()))
        s.recv(1 << 20)
        s.recv(1 << 20)
        s.sendall(struct.pack(">IQ", 3, 0) + b"xyz")
        s.recv(1 << 20)
        """
    )
    pool = pool_of(tier, command=(sys.executable, "-c", script))
    await pool.start()
    with pytest.raises(RetryLater):
        await pool.copy(big_job(replica))
    await pool.copy(big_job(replica, attempt=1))
    await pool.close()


async def test_without_any_worker_calls_wait_and_then_fail(
    tier: Path, replica: ReplicaWriter
) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, start_deadline_s=3.0))
    await pool.start()
    job = big_job(replica)
    tier.rename(tier.with_name("unmounted"))
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    while pool.pids:
        await asyncio.sleep(0.01)
    with pytest.raises(RetryLater, match="no worker process was up"):
        await pool.copy(job)
    tier.with_name("unmounted").rename(tier)
    await restarted(pool, pid)
    await pool.copy(job)
    await pool.close()


async def test_a_worker_dies_with_its_supervisor(tier: Path) -> None:
    script = textwrap.dedent(
        f"""
        import asyncio, sys
        from pathlib import Path
        from tests.rlm.test_worker_pool import pool_of
        async def main():
            pool = pool_of(Path({str(tier)!r}))
            await pool.start()
            print(pool.pids[0], flush=True)
            await asyncio.Event().wait()
        asyncio.run(main())
        """
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with supervisor:
        assert supervisor.stdout is not None
        pid = int(await asyncio.to_thread(supervisor.stdout.readline))
        supervisor.kill()
        while _alive(pid):
            await asyncio.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def test_the_entry_is_for_nodes_only() -> None:
    ended = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "strandline node" in ended.stderr


async def test_an_answer_of_the_wrong_kind_is_our_bug(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    """A read of records without a resolver cannot be answered."""
    with pytest.raises(InternalError, match="Ask"):
        await anext(pool._stream(RecordsRequest(0, 1)))
