"""One job of a worker: its work, and the delivery of its bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol

from kafka_formats.errors import InternalError, RetryLater
from rlm.data_plane.copy_job import CopyJob, CopyProgress
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import (
    BatchesFound,
    BatchesRequest,
    LogRequest,
    RecordsEnd,
    SegmentPiece,
    SendRules,
    Sent,
)
from rlm.data_plane.repair_jobs import CheckJob, GatherJob, OnRead
from rlm.data_plane.segment_survey import SurveyJob
from rlm.data_plane.verified_chunks import Parts
from rlm.worker.client_send import ClientSend
from rlm.worker.further_answers import FurtherAnswers, NoSupervisor
from rlm.worker.messages import (
    DATA_BYTES_MAX,
    FromWorker,
    PieceAt,
    PieceRequest,
    Progress,
    ReadReady,
    Request,
    Result,
    SentSoFar,
    StillReading,
    in_frames,
)
from rsm_backends.streams import closing_stream

FURTHER_JOBS_MAX = 16
"""Limit of the jobs up to which a client's further requests are answered at once; with more jobs
they wait for their turn among those of other clients.
"""


class JobsWorker(Protocol):
    """The worker, as its jobs see it."""

    @property
    def job_count(self) -> int: ...

    def tell(self, message: FromWorker) -> None: ...

    async def stream(self, job_id: int, parts: Parts) -> None: ...


class Lent(NamedTuple):
    """A client's connection. `further` None: only the job's own answer is sent."""

    client: socket.socket
    rules: SendRules
    further: FurtherRequests | None


class Job:
    """One request being worked on; also the resolver of a read of records, which sends its
    requests to the supervisor.
    """

    def __init__(
        self, job_id: int, worker: JobsWorker, plane: DataPlane, window_frames: int
    ) -> None:
        self.job_id = job_id
        self.credit = asyncio.Semaphore(window_frames)
        self._worker = worker
        self._plane = plane
        self._waiting: asyncio.Future[SegmentPiece | None] | None = None
        self._lent: asyncio.Future[Lent | None] = asyncio.get_running_loop().create_future()

    async def perform(self, request: Request, monotonic: Callable[[], float]) -> Result | None:
        if isinstance(request, CopyJob):
            return await self._plane.copy(request, self._progress(request, monotonic))
        if isinstance(request, CheckJob):
            return await self._plane.check(request, self._read_on())
        if isinstance(request, GatherJob):
            return await self._plane.gather(request, self._read_on())
        if isinstance(request, SurveyJob):
            return await self._plane.survey(request, self._read_on())
        if isinstance(request, BatchesRequest):
            raise InternalError("batches are held until they are sent, and this job does not wait")
        ends: list[RecordsEnd] = []
        await self._send_all(self._plane.parts(request, self, ends.append))
        return ends[0] if ends else None

    async def perform_waiting(
        self, request: Request, monotonic: Callable[[], float]
    ) -> Result | None:
        """Perform a read that sends its bytes to the client itself, once the first are verified."""
        if isinstance(request, BatchesRequest):
            found, data = await self._plane.batches(request, self)
            self._worker.tell(ReadReady(self.job_id, found))
            lent = await self._lent
            after = (lent.further.after,) if lent is not None and lent.further is not None else ()
            sent = await self._deliver((data, *after), _one_after_another(()), monotonic)
            return await self._answer_further(request, found, sent, monotonic)
        if not isinstance(request, LogRequest):
            raise InternalError(f"a {type(request).__name__} does not wait for a client")
        stream = self._plane.parts(request, self, _no_end)
        async with closing_stream(stream) as read:
            first = await anext(read, None)
            self._worker.tell(ReadReady(self.job_id))
            return await self._deliver(first, read, monotonic)

    async def _answer_further(
        self,
        request: BatchesRequest,
        found: BatchesFound,
        sent: Sent | None,
        monotonic: Callable[[], float],
    ) -> Sent | None:
        """Answer the client's next requests, too, if the supervisor allowed it."""
        lent = await self._lent
        if lent is None or lent.further is None or sent is None:
            return sent
        return await FurtherAnswers(
            lent.client,
            lent.further,
            lambda next_one: self._plane.batches(next_one, NoSupervisor()),
            lambda parts: self._send_to(lent, parts, _one_after_another(()), monotonic),
            lent.rules.store_deadline_s,
            lambda: self._worker.job_count > FURTHER_JOBS_MAX,
            monotonic,
        ).after_first(request, found, sent)

    async def _deliver(
        self, first: Parts | None, rest: AsyncIterator[Parts], monotonic: Callable[[], float]
    ) -> Sent | None:
        """Send all to the client's connection if the supervisor lent it, else to the supervisor."""
        lent = await self._lent
        if lent is None:
            await self._send_all(_one_after_another(() if first is None else (first,), rest))
            return None
        return await self._send_to(lent, first, rest, monotonic)

    async def _send_to(
        self,
        lent: Lent,
        first: Parts | None,
        rest: AsyncIterator[Parts],
        monotonic: Callable[[], float],
    ) -> Sent:
        def tell(sent_bytes: int) -> None:
            self._worker.tell(SentSoFar(self.job_id, sent_bytes))

        return await ClientSend(lent.client, lent.rules, monotonic, tell).send_all(first, rest)

    def lend(
        self, client: socket.socket, rules: SendRules, further: FurtherRequests | None
    ) -> bool:
        """Pass the connection to a waiting read; False if the read has one already, or ended."""
        if self._lent.done():
            return False
        client.setblocking(False)
        self._lent.set_result(Lent(client, rules, further))
        return True

    def send_here(self) -> None:
        """Have a waiting read send to the supervisor."""
        if not self._lent.done():
            self._lent.set_result(None)

    def lend_nothing(self, error: RetryLater) -> None:
        """End a waiting read whose connection could not be received."""
        if not self._lent.done():
            self._lent.set_exception(error)

    def close(self) -> None:
        """Close the client's connection before the job's end is reported."""
        if not self._lent.done():
            self._lent.cancel()
        elif not self._lent.cancelled() and self._lent.exception() is None:
            lent = self._lent.result()
            if lent is not None:
                lent.client.close()

    async def _send_all(self, stream: AsyncIterator[Parts]) -> None:
        async with closing_stream(stream) as read:
            async for parts in read:
                for some in in_frames(parts):
                    await self.credit.acquire()
                    await self._worker.stream(self.job_id, some)

    def _progress(
        self, job: CopyJob, monotonic: Callable[[], float]
    ) -> Callable[[CopyProgress], None]:
        interval_s = job.limits.progress_interval_ms / 1000
        told_at = -interval_s

        def tell(progress: CopyProgress) -> None:
            nonlocal told_at
            now = monotonic()
            if now - told_at >= interval_s or progress.bytes_done == progress.bytes_total:
                told_at = now
                self._worker.tell(Progress(self.job_id, progress))

        return tell

    def _read_on(self) -> OnRead:
        """Report bytes read, as often as a stream would send them."""
        untold = 0

        def tell(size: int) -> None:
            nonlocal untold
            untold += size
            if untold >= DATA_BYTES_MAX:
                untold = 0
                self._worker.tell(StillReading(self.job_id))

        return tell

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        self._waiting = asyncio.get_running_loop().create_future()
        self._worker.tell(PieceRequest(self.job_id, PieceAt(offset)))
        return await self._waiting

    def answered(self, piece: SegmentPiece | None) -> None:
        """Take the supervisor's reply to the open PieceRequest."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(piece)


def _no_end(_: RecordsEnd) -> None:
    """Ignore the end: reads of a log report none."""


async def _one_after_another(
    pieces: Sequence[Parts], rest: AsyncIterator[Parts] | None = None
) -> AsyncIterator[Parts]:
    for parts in pieces:
        yield parts
    if rest is not None:
        async for parts in rest:
            yield parts
