"""Messages between supervisor and worker over their socket pair, and their frames.

A frame is a length (uint32, big-endian), a job id (uint64), and that many bytes: with id 0 a
pickled message, else the next bytes of that job's stream, which are not copied for the frame.
Pickle is safe here: the pair has no name, and only these two processes have its ends.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import InternalError, RetryLater, StrandlineError
from rlm.control.log_levels import LogArea, LogLevel
from rlm.data_plane.chunk_cache import ChunkCounts
from rlm.data_plane.copy_job import CopyJob, CopyProgress, CopyResult
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import (
    BatchesFound,
    BatchesRequest,
    IndexRequest,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
    SendRules,
    Sent,
)
from rlm.data_plane.repair_jobs import CheckJob, CheckResult, GatherJob, GatherResult
from rlm.data_plane.segment_survey import SurveyJob
from rlm.local_log.damage import Survey
from rlm.quota.flow_limits import Flow, Paces
from rsm_backends.measured_store import StoreCall
from rsm_backends.store_config import StoreConfig

FRAME_BYTES_MAX = 64 * 1024 * 1024
DATA_BYTES_MAX = 256 * 1024
"""Limit of a stream's bytes in one frame; with the window it bounds the queue of a slow reader."""

STREAM_LIMIT_BYTES = 2 * 1024 * 1024
NO_JOB = 0
_HEAD = struct.Struct(">IQ")

Request = (
    CopyJob
    | SurveyJob
    | CheckJob
    | GatherJob
    | LogRequest
    | BatchesRequest
    | IndexRequest
    | RecordsRequest
)
Result = CopyResult | Survey | CheckResult | GatherResult | RecordsEnd | Sent
"""The results of jobs; a stream ends without a result."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The first message to a new worker: its settings. Secrets are sent here, not as arguments."""

    stores: Mapping[str, StoreConfig]
    cache_bytes_max: int
    heartbeat_s: float
    window_frames: int
    chunk_cache_bytes_max: int = 0
    read_ahead_bytes_max: int = 0
    descriptors_fd: int | None = None


@dataclass(frozen=True, slots=True)
class SetPaces:
    """The node's rate limits, sent before the first job and at each change."""

    paces: Paces


@dataclass(frozen=True, slots=True)
class SetLogLevels:
    """The log level of each area, sent before the first job and at each change."""

    levels: Mapping[LogArea, LogLevel]


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer to the TakeBytes of this number: its bytes may move now."""

    number: int


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start a job. Job ids are never reused for one worker. With `waits`, a read waits for a
    SendToClient once its first bytes are verified.
    """

    job_id: int
    request: Request
    waits: bool = False


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Stop the job. The worker answers with End, Failed or Cancelled once it sends no more bytes
    of the job.
    """

    job_id: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The caller took one Data frame: one more may be sent."""

    job_id: int


@dataclass(frozen=True, slots=True)
class SendToClient:
    """The reply to ReadReady: send all to the client whose connection is in the descriptor channel.
    `further`: then answer its next requests, too.
    """

    job_id: int
    rules: SendRules
    further: FurtherRequests | None = None


@dataclass(frozen=True, slots=True)
class SendToSupervisor:
    """The reply to ReadReady: send all to the supervisor, as Data."""

    job_id: int


@dataclass(frozen=True, slots=True)
class PieceReply:
    """The reply to a PieceRequest."""

    job_id: int
    piece: SegmentPiece | None


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has opened its stores."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign that the worker's loop is alive, with the counts of its chunk cache since the start,
    and its size. `hanging`: its calls that hang in a store's file system, by the store's folder.
    """

    chunks: ChunkCounts = field(default_factory=ChunkCounts)
    chunk_bytes_held: int = 0
    hanging: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreCalls:
    """Finished calls to stores, each with the store's name: for the supervisor's metrics."""

    calls: tuple[tuple[str, StoreCall], ...]


@dataclass(frozen=True, slots=True)
class TakeBytes:
    """Rate-limited bytes are about to move; the worker waits for the Granted of this number."""

    number: int
    flow: Flow
    topic: str | None
    size: int


@dataclass(frozen=True, slots=True)
class TakeNoBytes:
    """The worker no longer waits for the Granted of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a copy."""

    job_id: int
    progress: CopyProgress


@dataclass(frozen=True, slots=True)
class StillReading:
    """A job with a single result has read more bytes: sent from time to time, to show that it does
    not hang.
    """

    job_id: int


@dataclass(frozen=True, slots=True)
class ReadReady:
    """The first bytes of a waiting read are verified, and none was sent yet. `found`: for a read of
    batches, a description of all of them.
    """

    job_id: int
    found: BatchesFound | None = None


@dataclass(frozen=True, slots=True)
class SentSoFar:
    """The bytes of a waiting read that its client has taken so far; sent from time to time."""

    job_id: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Data:
    """The next bytes of a stream; not pickled."""

    job_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class PieceAt:
    """The argument of `SegmentResolver.piece_at`: the piece at this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class PieceRequest:
    """A read of records needs a look-up in the metadata; it continues with the PieceReply."""

    job_id: int
    question: PieceAt


@dataclass(frozen=True, slots=True)
class End:
    """The job has succeeded."""

    job_id: int
    result: Result | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ended in an error. With NO_JOB: the worker cannot start."""

    job_id: int
    error: StrandlineError


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job ended because it was cancelled."""

    job_id: int


ToWorker = (
    Welcome
    | SetPaces
    | SetLogLevels
    | Granted
    | StartJob
    | CancelJob
    | Credit
    | SendToClient
    | SendToSupervisor
    | PieceReply
)
FromWorker = (
    Ready
    | Heartbeat
    | StoreCalls
    | TakeBytes
    | TakeNoBytes
    | Progress
    | StillReading
    | ReadReady
    | SentSoFar
    | Data
    | PieceRequest
    | End
    | Failed
    | Cancelled
)


def frame(message: ToWorker | FromWorker) -> bytes:
    if isinstance(message, Data):
        return b"".join(data_frame(message.job_id, (message.data,)))
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    if len(body) > FRAME_BYTES_MAX:
        raise InternalError(f"a {type(message).__name__} of {len(body)} bytes exceeds a frame")
    return _HEAD.pack(len(body), NO_JOB) + body


def data_frame(job_id: int, parts: Sequence[Buffer]) -> list[Buffer]:
    """The frame of one Data with the bytes of all parts, which are not joined."""
    size = sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise InternalError(f"a Data of {size} bytes exceeds a frame")
    return [_HEAD.pack(size, job_id), *parts]


def in_frames(parts: Sequence[Buffer]) -> Iterator[Sequence[Buffer]]:
    """Group the bytes so that at most DATA_BYTES_MAX are in one frame."""
    if sum(map(len, parts)) <= DATA_BYTES_MAX:
        yield parts
        return
    taken: list[Buffer] = []
    left = DATA_BYTES_MAX
    for part in parts:
        rest = memoryview(part)
        while rest:
            taken.append(rest[:left])
            rest = rest[left:]
            left -= len(taken[-1])
            if left == 0:
                yield taken
                taken, left = [], DATA_BYTES_MAX
    if taken:
        yield taken


async def receive(reader: asyncio.StreamReader) -> object | None:
    """The next message; None if the other end is gone."""
    try:
        length, job_id = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if length > FRAME_BYTES_MAX:
            raise InternalError(f"a frame of {length} bytes was announced")
        body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    if job_id != NO_JOB:
        return Data(job_id, body)
    message: object = pickle.loads(body)  # noqa: S301 - both ends are ours (module docstring)
    return message


def call_error(message: object) -> StrandlineError:
    """The error to raise in the caller for a message that ends a call without a result."""
    if isinstance(message, Failed):
        return message.error
    if isinstance(
        message, End | PieceRequest | ReadReady | Data | Progress | StillReading | SentSoFar
    ):
        return InternalError(f"{type(message).__name__} was not expected from the worker")
    return RetryLater("the worker stopped the work because the node is closing")
