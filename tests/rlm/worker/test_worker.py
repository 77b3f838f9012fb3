"""A worker's loop, in this process: only its socket pair is real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, InternalError, NotFound
from kafka_formats.kafka_uuid import Uuid
from rlm.control.surroundings import Ambient
from rlm.data_plane.copy_job import CopyResult
from rlm.data_plane.read_request import (
    IndexRequest,
    Isolation,
    LogRequest,
    RecordsRequest,
    SegmentPiece,
)
from rlm.format.manifest import IndexType
from rlm.quota.copy_turns import CopyTurns
from rlm.worker import worker
from rlm.worker.messages import (
    DATA_BYTES_MAX,
    NO_JOB,
    CancelJob,
    Cancelled,
    Credit,
    Data,
    End,
    Failed,
    FromWorker,
    Heartbeat,
    PieceAt,
    PieceReply,
    PieceRequest,
    Progress,
    Ready,
    StartJob,
    StoreCalls,
    ToWorker,
    Welcome,
    frame,
    receive,
)
from rsm_backends.measured_store import StoreCall
from rsm_backends.store_config import StoreConfig
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import NOW_MS, STORE, first_job, now_ms, small_parts, tiered

WINDOW = 2


class Ticks:
    """A sleep that ends only when told."""

    def __init__(self) -> None:
        self.tick = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.tick.wait()
        self.tick.clear()


class Supervisor:
    """The other end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.store_calls: list[tuple[str, StoreCall]] = []

    def send(self, message: ToWorker) -> None:
        self.writer.write(frame(message))

    async def next(self) -> object:
        """The next message but for those that only tell of calls to stores."""
        while isinstance(message := await receive(self._reader), StoreCalls):
            self.store_calls += message.calls
        return message

    async def until(self, kind: type) -> object:
        while not isinstance(message := await self.next(), kind):
            assert message is not None
        return message


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
async def connection(
    ticks: Ticks,
) -> AsyncIterator[tuple[Supervisor, asyncio.Task[None]]]:
    """A worker that waits for its welcome, and its supervisor."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    ambient = Ambient(now_ms, lambda: 0.0, ticks.sleep, lambda: 0.5, lambda: Uuid(bytes(16)))
    task = asyncio.create_task(worker._connect_and_serve(theirs.detach(), ambient))
    yield Supervisor(reader, writer), task
    writer.close()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def supervisor(
    connection: tuple[Supervisor, asyncio.Task[None]], tmp_path: Path
) -> Supervisor:
    """A ready worker with one filesystem store."""
    (tmp_path / "tier").mkdir()
    config = StoreConfig(name=STORE, kind="filesystem", path=tmp_path / "tier")
    connection[0].send(Welcome({STORE: config}, 1 << 20, 1.0, WINDOW))
    assert await connection[0].next() == Ready()
    return connection[0]


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(8):
        replica.append(10, value_bytes=20_000)
    replica.roll()
    return replica


async def test_a_job_whose_result_cannot_be_sent_ends_all_the_same(
    supervisor: Supervisor, replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_small_frames(message: FromWorker) -> bytes:
        if isinstance(message, End):
            raise InternalError("an End of 67108865 bytes is exceeds a frame")
        return frame(message)

    monkeypatch.setattr(worker, "frame", of_small_frames)
    supervisor.send(StartJob(1, first_job(replica.log_dir)))
    failed = await supervisor.until(Failed)
    assert isinstance(failed, Failed)
    assert failed.job_id == 1
    assert "exceeds a frame" in str(failed.error)


async def copied(supervisor: Supervisor, replica: ReplicaWriter) -> SegmentPiece:
    job = first_job(replica.log_dir)
    supervisor.send(StartJob(1, job))
    end = await supervisor.until(End)
    assert isinstance(end, End)
    assert isinstance(end.result, CopyResult)
    return SegmentPiece(tiered(job, end.result), job.start_offset, job.end_offset)


async def test_a_copy_tells_its_progress_and_its_result(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    supervisor.send(StartJob(1, small_parts(first_job(replica.log_dir), 100_000)))
    first = await supervisor.next()
    assert isinstance(first, Progress)
    end = await supervisor.until(End)
    assert isinstance(end, End)
    assert isinstance(end.result, CopyResult)


async def test_the_calls_of_a_copy_to_the_store_are_told_before_its_end(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    await copied(supervisor, replica)
    told = {(store, call.operation, call.error) for store, call in supervisor.store_calls}
    assert (STORE, "put", None) in told
    sent = sum(call.bytes_sent for _, call in supervisor.store_calls)
    assert sent > replica.path(0, ".log").stat().st_size


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What passed the turns of a worker that starts after this."""
    passed: list[tuple[str, int]] = []

    class Told(CopyTurns):
        async def before(self, size: int) -> None:
            passed.append(("sent", size))
            await super().before(size)

        @contextmanager
        def read(self, size: int) -> Iterator[None]:
            passed.append(("read", size))
            with super().read(size):
                yield

    monkeypatch.setattr(worker, "CopyTurns", Told)
    return passed


async def test_all_that_is_sent_and_all_that_is_read_take_turns(
    turns: list[tuple[str, int]], supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    piece = await copied(supervisor, replica)
    assert {what for what, _ in turns} == {"sent"}
    log_bytes = replica.path(0, ".log").stat().st_size
    assert sum(size for _, size in turns) > log_bytes
    turns.clear()
    supervisor.send(StartJob(2, LogRequest(piece.segment)))
    while not isinstance(await _credited(supervisor), End):
        pass
    assert {what for what, _ in turns} == {"read"}
    assert sum(size for _, size in turns) == log_bytes


async def test_no_more_data_is_sent_than_there_is_credit(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    piece = await copied(supervisor, replica)
    supervisor.send(StartJob(2, LogRequest(piece.segment)))
    log = b""
    for _ in range(WINDOW):
        data = await supervisor.next()
        assert isinstance(data, Data)
        assert len(data.data) <= DATA_BYTES_MAX
        log += data.data
    # Another job's whole answer overtakes the stream that waits for credit.
    supervisor.send(StartJob(3, IndexRequest(piece.segment, IndexType.LEADER_EPOCH)))
    assert await supervisor.next() == Data(3, b"0\n1\n0 0\n")
    assert await supervisor.next() == End(3, None)
    while not isinstance(message := (await _credited(supervisor)), End):
        assert isinstance(message, Data)
        log += message.data
    assert log == replica.path(0, ".log").read_bytes()


async def _credited(supervisor: Supervisor) -> object:
    supervisor.send(Credit(2))
    return await supervisor.next()


async def test_records_are_resolved_by_asking(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    piece = await copied(supervisor, replica)
    supervisor.send(StartJob(2, RecordsRequest(5, 1)))
    assert await supervisor.next() == PieceRequest(2, PieceAt(5))
    supervisor.send(PieceReply(2, piece))
    assert isinstance(await supervisor.next(), Data)
    end = await supervisor.next()
    assert isinstance(end, End)
    assert end.result is not None


async def test_committed_records_need_no_other_segment_where_none_is_open(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    piece = await copied(supervisor, replica)
    supervisor.send(StartJob(2, RecordsRequest(5, 1, Isolation.READ_COMMITTED)))
    assert await supervisor.next() == PieceRequest(2, PieceAt(5))
    supervisor.send(PieceReply(2, piece))
    assert isinstance(await supervisor.next(), Data)
    assert isinstance(await supervisor.until(End), End)


async def test_errors_come_back_as_they_are(supervisor: Supervisor, replica: ReplicaWriter) -> None:
    path = replica.path(0, ".log")
    job = first_job(replica.log_dir)
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    supervisor.send(StartJob(1, job))
    failed = await supervisor.until(Failed)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, CorruptData)
    assert failed.error.source == str(path)


async def test_a_bug_is_an_internal_error_of_that_job_alone(
    supervisor: Supervisor, replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    piece = await copied(supervisor, replica)
    monkeypatch.setattr("rlm.data_plane.data_plane.read_log", broken)
    supervisor.send(StartJob(2, LogRequest(piece.segment)))
    failed = await supervisor.next()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, InternalError)
    assert "ZeroDivisionError: oops" in str(failed.error)
    supervisor.send(StartJob(3, IndexRequest(piece.segment, IndexType.LEADER_EPOCH)))
    await supervisor.until(End)


async def test_a_job_cancelled_before_its_first_step_is_confirmed(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    supervisor.writer.write(frame(StartJob(1, first_job(replica.log_dir))) + frame(CancelJob(1)))
    assert await supervisor.next() == Cancelled(1)


async def test_a_waiting_stream_is_cancelled(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    piece = await copied(supervisor, replica)
    supervisor.send(StartJob(2, LogRequest(piece.segment)))
    await supervisor.next()
    supervisor.send(CancelJob(2))
    assert await supervisor.until(Cancelled) == Cancelled(2)


async def test_messages_for_ended_jobs_are_nothing(supervisor: Supervisor, ticks: Ticks) -> None:
    for message in (CancelJob(9), Credit(9), PieceReply(9, None)):
        supervisor.send(message)
    ticks.tick.set()
    assert await supervisor.next() == Heartbeat()


async def test_heartbeats_go_on(supervisor: Supervisor, ticks: Ticks) -> None:
    for _ in range(3):
        ticks.tick.set()
        assert await supervisor.next() == Heartbeat()


async def test_a_heartbeat_tells_of_calls_that_hang_in_a_store(
    supervisor: Supervisor, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "hanging_calls", lambda: {"/mnt/tier": 1})
    ticks.tick.set()
    assert await supervisor.next() == Heartbeat(hanging={"/mnt/tier": 1})


async def test_an_answer_nobody_waits_for_is_nothing(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    piece = await copied(supervisor, replica)
    supervisor.send(StartJob(2, LogRequest(piece.segment)))
    supervisor.send(PieceReply(2, piece))
    assert isinstance(await supervisor.next(), Data)


async def test_the_worker_ends_with_its_supervisor(
    supervisor: Supervisor,
    connection: tuple[Supervisor, asyncio.Task[None]],
    replica: ReplicaWriter,
) -> None:
    piece = await copied(supervisor, replica)
    supervisor.send(StartJob(2, LogRequest(piece.segment)))
    await supervisor.next()
    supervisor.writer.write_eof()
    await connection[1]


async def test_an_unknown_message_ends_the_worker(
    supervisor: Supervisor, connection: tuple[Supervisor, asyncio.Task[None]]
) -> None:
    supervisor.writer.write(frame(Heartbeat()))
    with pytest.raises(InternalError, match="Heartbeat"):
        await connection[1]


async def test_without_a_welcome_there_is_no_work(
    connection: tuple[Supervisor, asyncio.Task[None]],
) -> None:
    supervisor, task = connection
    supervisor.send(CancelJob(1))
    await task
    assert await supervisor.next() is None, "it says nothing and goes"


async def test_a_store_that_cannot_be_opened_is_told(
    connection: tuple[Supervisor, asyncio.Task[None]], tmp_path: Path
) -> None:
    supervisor, task = connection
    config = StoreConfig(name=STORE, kind="filesystem", path=tmp_path / "missing")
    supervisor.send(Welcome({STORE: config}, 1 << 20, 1.0, WINDOW))
    failed = await supervisor.next()
    assert isinstance(failed, Failed)
    assert failed.job_id == NO_JOB
    assert isinstance(failed.error, NotFound)
    await task


async def test_progress_is_told_no_more_often_than_asked(
    supervisor: Supervisor, replica: ReplicaWriter
) -> None:
    """The clock of this worker stands still: the first news and the ends are all."""
    job = small_parts(first_job(replica.log_dir), 50_000)
    supervisor.send(StartJob(1, replace(job, upload_deadline_ms=NOW_MS + 60_000)))
    told = 0
    while isinstance(await supervisor.next(), Progress):
        told += 1
    assert 1 <= told <= 3
