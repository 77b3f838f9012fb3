"""All work of a worker with segment bytes; it has the calls that the worker pool offers.

Worker processes use it; tests and simulations also use it directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from kafka_formats.errors import InternalError, Refused
from rlm.data_plane.aiven_reader import KeyFiles
from rlm.data_plane.batches_read import BatchesHere, read_batches
from rlm.data_plane.chunk_cache import ChunkCache, ChunkCounts
from rlm.data_plane.copy_job import CopyJob, CopyResult, OnProgress
from rlm.data_plane.json_lines import JsonLines
from rlm.data_plane.object_check import check_objects
from rlm.data_plane.part_buffers import PartBuffers
from rlm.data_plane.read_ahead import RangesAhead
from rlm.data_plane.read_request import (
    BatchesFound,
    BatchesRequest,
    HeldBatches,
    IndexRequest,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentResolver,
    WaitingRead,
)
from rlm.data_plane.repair_jobs import (
    CheckJob,
    CheckResult,
    GatherJob,
    GatherResult,
    OnRead,
    tell_nobody,
)
from rlm.data_plane.segment_copy import copy_segment
from rlm.data_plane.segment_gathering import from_threads, gather
from rlm.data_plane.segment_reader import SegmentReader
from rlm.data_plane.segment_survey import SurveyJob, survey
from rlm.data_plane.tiered_read import RecordsRead, read_index, read_log
from rlm.data_plane.verified_chunks import Parts
from rlm.local_log.damage import Survey
from rsm_backends.store import ObjectStore
from rsm_backends.streams import closing_stream

CACHE_BYTES_MAX = 64 * 1024 * 1024


class DataPlane:
    """Copies segments into `stores` and reads them; the caller closes the stores."""

    def __init__(
        self,
        stores: Mapping[str, ObjectStore],
        *,
        now_ms: Callable[[], int],
        cache_bytes_max: int = CACHE_BYTES_MAX,
        chunk_cache_bytes_max: int = 0,
        read_ahead_bytes_max: int = 0,
        aiven_keys: KeyFiles | None = None,
    ) -> None:
        """`cache_bytes_max` limits the memory for manifests and indexes (and again as much for
        those of Aiven's plug-in), `chunk_cache_bytes_max` that for chunks, including those fetched
        ahead.
        """
        self._stores = stores
        self._now_ms = now_ms
        self._buffers = PartBuffers()
        self._json = JsonLines()
        ahead_bytes_max = min(read_ahead_bytes_max, chunk_cache_bytes_max)
        self._chunks = ChunkCache(chunk_cache_bytes_max, ahead_bytes_max)
        self._reader = SegmentReader(
            stores, cache_bytes_max=cache_bytes_max, chunks=self._chunks, aiven_keys=aiven_keys
        )
        self._ahead = RangesAhead(self._reader, ahead_bytes_max, now_ms)

    @property
    def chunk_counts(self) -> ChunkCounts:
        """The counts of the chunk cache."""
        return self._chunks.counts

    @property
    def chunk_bytes_held(self) -> int:
        return self._chunks.bytes_held

    async def copy(self, job: CopyJob, on_progress: OnProgress | None = None) -> CopyResult:
        """See `rlm/data_plane/segment_copy.py`."""
        store = self._store(job.store)
        tell = on_progress if on_progress is not None else _tell_nobody
        return await copy_segment(
            job, store, now_ms=self._now_ms, buffers=self._buffers, on_progress=tell
        )

    async def check(self, job: CheckJob, on_read: OnRead = tell_nobody) -> CheckResult:
        """See `rlm/data_plane/object_check.py`."""
        return await check_objects(job, self._store(job.store), on_read)

    async def gather(self, job: GatherJob, on_read: OnRead = tell_nobody) -> GatherResult:
        """See `rlm/data_plane/segment_gathering.py`."""
        return await gather(job, self._store(job.store), on_read)

    async def survey(self, job: SurveyJob, on_read: OnRead = tell_nobody) -> Survey:
        """See `rlm/data_plane/segment_survey.py`."""
        return await asyncio.to_thread(survey, job, from_threads(on_read))

    def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        return _joined(read_log(self._reader, request, self._ahead))

    def waiting_log(self, request: LogRequest) -> AbstractAsyncContextManager[WaitingRead]:
        """Raise InternalError: connections are lent to worker processes only."""
        raise InternalError(f"connections are lent to worker processes only: {request.segment}")

    async def batches(
        self, request: BatchesRequest, resolver: SegmentResolver
    ) -> tuple[BatchesFound, bytes]:
        """See `rlm/data_plane/batches_read.py`."""
        return await read_batches(self._reader, resolver, request, self._ahead)

    @asynccontextmanager
    async def waiting_batches(
        self, request: BatchesRequest, resolver: SegmentResolver
    ) -> AsyncIterator[HeldBatches]:
        """The batches; they can only be read, not sent to a client."""
        yield BatchesHere(*await self.batches(request, resolver))

    def read_index(self, request: IndexRequest) -> AsyncIterator[bytes]:
        """The verified bytes of one index. The first step raises NotFound if the segment has none
        of this type.
        """
        return _joined(read_index(self._reader, request))

    def read_records(
        self,
        request: RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Whole batches, or whole JSON lines. `on_end` gets the read's end before the iterator
        ends.
        """
        end = on_end if on_end is not None else _tell_nobody
        return _joined(self.parts(request, resolver, end))

    def parts(
        self,
        request: LogRequest | IndexRequest | RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None],
    ) -> AsyncIterator[Parts]:
        """The data of a read in the parts in which it is in memory, not joined."""
        if isinstance(request, LogRequest):
            return read_log(self._reader, request, self._ahead)
        if isinstance(request, IndexRequest):
            return read_index(self._reader, request)
        return RecordsRead(self._reader, self._json, request, resolver, on_end).pieces()

    async def close(self) -> None:
        """Cancel all fetches ahead."""
        await self._ahead.close()

    def _store(self, name: str) -> ObjectStore:
        store = self._stores.get(name)
        if store is None:
            raise Refused(f"the store {name!r} is not in this node's settings: add it to [stores]")
        return store


async def _joined(stream: AsyncIterator[Parts]) -> AsyncIterator[bytes]:
    async with closing_stream(stream):
        async for parts in stream:
            yield b"".join(parts)


def _tell_nobody(_: object) -> None:
    """A callback for callers that need none."""
