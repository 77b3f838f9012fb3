"""Calls of real worker processes: results, errors, cancellation, and what they may hold."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import (
    CorruptData,
    InternalError,
    NotFound,
    RetryLater,
)
from rlm.data_plane.copy_job import CopyProgress
from rlm.data_plane.read_request import (
    IndexRequest,
    Isolation,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
)
from rlm.format.manifest import IndexType
from rlm.format.object_keys import segment_keys
from rlm.worker.messages import DATA_BYTES_MAX
from rlm.worker.pool import WorkerPool
from rsm_backends.filesystem import FilesystemStore
from tests.rlm.broker_files import ReplicaWriter
from tests.rlm.real_workers import (
    LIMITS,
    all_bytes,
    big_job,
    copied,
    pool_of,
)
from tests.rlm.tier import Pieces


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
    with pytest.raises(RetryLater, match="made no progress"):
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


async def test_an_answer_of_the_wrong_kind_is_our_bug(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    """A read of records without a resolver cannot be answered."""
    with pytest.raises(InternalError, match="PieceRequest"):
        await anext(pool._stream(RecordsRequest(0, 1)))
