"""One call of the supervisor into a worker: the messages that come back, and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kafka_formats.errors import InternalError, StrandlineError
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import SegmentPiece, SendRules
from rlm.worker.messages import (
    CancelJob,
    Cancelled,
    Credit,
    Data,
    End,
    Failed,
    PieceReply,
    PieceRequest,
    Progress,
    ReadReady,
    SendToSupervisor,
    SentSoFar,
    StillReading,
    ToWorker,
)

CallMessage = (
    Progress | StillReading | ReadReady | SentSoFar | Data | PieceRequest | End | Failed | Cancelled
)


class Call:
    """Queues a worker's messages for the caller. The window bounds the data; other messages are
    small. `finished` is set once the worker does no more work for this call.
    """

    def __init__(
        self,
        job_id: int,
        send: Callable[[ToWorker], None],
        monotonic: Callable[[], float],
        lend: Callable[[int, int, SendRules, FurtherRequests | None], None] | None = None,
    ) -> None:
        """`lend` gives the worker a descriptor for this job, with the rules of its use."""
        self._lend = lend
        self.job_id = job_id
        self.finished = asyncio.Event()
        self.cancelled_at: float | None = None
        self.waiting_since: float | None = None
        self._send = send
        self._monotonic = monotonic
        self._messages: deque[CallMessage] = deque()
        self._arrived = asyncio.Event()

    async def next(self) -> CallMessage:
        """The next message; the last one is End, Failed or Cancelled."""
        self.waiting_since = self._monotonic()
        try:
            while not self._messages:
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self.waiting_since = None
        message = self._messages.popleft()
        if isinstance(message, Data):
            self._send(Credit(self.job_id))
        return message

    def deliver(self, message: CallMessage) -> None:
        """Queue a message of the worker. Messages after the one that ended the call are dropped."""
        if self.finished.is_set():
            return
        if isinstance(message, End | Failed | Cancelled):
            self.finished.set()
        if self.cancelled_at is None:
            self._messages.append(message)
        self._arrived.set()

    def fail(self, error: StrandlineError) -> None:
        """End the call from this side; the worker must have forgotten it, or be dead."""
        self.deliver(Failed(self.job_id, error))

    def give_up(self, error: StrandlineError) -> None:
        """Raise an error in the caller now, and cancel the work."""
        self._messages.append(Failed(self.job_id, error))
        self._arrived.set()
        self.cancel()

    def answer(self, piece: SegmentPiece | None) -> None:
        """Reply to the worker's PieceRequest with the next segment piece; None: there is none."""
        self._send(PieceReply(self.job_id, piece))

    def lend(
        self, descriptor: int, rules: SendRules, further: FurtherRequests | None = None
    ) -> None:
        """Reply to ReadReady with the client's socket. RetryLater if it cannot be sent now."""
        if self._lend is None:
            raise InternalError("this worker takes no descriptors")
        self._lend(self.job_id, descriptor, rules, further)

    def send_here(self) -> None:
        """Reply to ReadReady: send the bytes to this process, as Data."""
        self._send(SendToSupervisor(self.job_id))

    def cancel(self) -> None:
        """Ask the worker to stop; `finished` is set when it has. Idempotent."""
        if self.cancelled_at is None and not self.finished.is_set():
            self.cancelled_at = self._monotonic()
            self._send(CancelJob(self.job_id))
