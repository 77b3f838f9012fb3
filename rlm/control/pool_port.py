"""The port to the worker processes, met by `rlm.worker.pool.WorkerPool`.

The metadata needs none: `rlmm.manager.manager.RemoteLogMetadataManager` itself is the interface,
and doubles in tests are derived from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from rlm.data_plane.copy_job import CopyJob, CopyResult, OnProgress
from rlm.data_plane.read_request import (
    BatchesRequest,
    HeldBatches,
    IndexRequest,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentResolver,
    WaitingRead,
)
from rlm.data_plane.repair_jobs import CheckJob, CheckResult, GatherJob, GatherResult
from rlm.data_plane.segment_survey import SurveyJob
from rlm.local_log.damage import Survey


class PoolPort(Protocol):
    """The worker processes. Cancelling a call, or closing an iterator, ends its work there."""

    async def copy(self, job: CopyJob, on_progress: OnProgress | None = None) -> CopyResult:
        """Verify and upload one segment. Once it returned, raised or was cancelled, no byte
        follows.
        """

    async def check(self, job: CheckJob) -> CheckResult:
        """Compare objects with the metadata, byte by byte."""

    async def gather(self, job: GatherJob) -> GatherResult:
        """Look for a whole copy of a segment, and put its files together."""

    async def survey(self, job: SurveyJob) -> Survey:
        """Find the good batches of a damaged segment."""

    def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        """Verified bytes of a `.log`."""

    def waiting_log(self, request: LogRequest) -> AbstractAsyncContextManager[WaitingRead]:
        """Verified bytes of a `.log`, to be sent on a client's own connection. The block is entered
        once the first bytes are there.
        """

    def waiting_batches(
        self, request: BatchesRequest, resolver: SegmentResolver
    ) -> AbstractAsyncContextManager[HeldBatches]:
        """Batches of one piece, held by a worker; leaving the block lets them go."""

    def read_index(self, request: IndexRequest) -> AsyncIterator[bytes]:
        """Verified bytes of one index."""

    def read_records(
        self,
        request: RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Whole batches, or whole JSON lines."""
