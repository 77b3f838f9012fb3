"""Copies one sealed segment into a store, and verifies it while reading. Runs in a worker.

The order: `.log` in parallel parts, the last of which is sent only after the whole file was found
right and the source unchanged; `.indexes`; one more check that the source is unchanged;
`.rsm-manifest` last, create-only. So a manifest proves a whole, verified segment. A failed attempt
cleans nothing up: its objects have an id of their own, by which the control plane deletes them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import Conflict, InternalError, RetryLater
from rlm.data_plane.copy_job import CopyJob, CopyProgress, CopyResult, OnProgress
from rlm.data_plane.part_buffers import PartBuffers
from rlm.data_plane.segment_indexes import SegmentIndexes, build_indexes
from rlm.data_plane.segment_source import CHANGED, SegmentSource
from rlm.data_plane.segment_verification import SegmentVerification, VerifiedLog
from rlm.data_plane.upload_deadline import DeadlineStore
from rlm.format.custom_metadata import check_store_name
from rlm.format.manifest import (
    CHUNK_BYTES,
    ChunkChecksums,
    Manifest,
    ObjectChecksums,
    custom_metadata_for,
)
from rlm.format.object_keys import SegmentKeys, segment_keys
from rsm_backends.multipart import (
    Part,
    PartLimits,
    UploadResult,
    upload_parts,
    upload_whole_parts,
)
from rsm_backends.store import ObjectStore


async def copy_segment(
    job: CopyJob,
    store: ObjectStore,
    *,
    now_ms: Callable[[], int],
    buffers: PartBuffers | None = None,
    on_progress: OnProgress = lambda _: None,
) -> CopyResult:
    """Verify and upload one segment. After it returns or raises, no more byte of it is sent.

    `buffers` may be shared with other copies of this event loop.

    Raises CorruptData(file, position) if the segment is damaged; Conflict(SOURCE_CHANGED) if it was
    truncated, removed, or has a different lineage by now, so the copy has to be planned again;
    RetryLater after the deadline; and the errors of the store.
    """
    check_store_name(job.store)
    source = await _open(job)
    try:
        deadline_store = DeadlineStore(store, job.upload_deadline_ms, now_ms)
        own = PartBuffers() if buffers is None else buffers
        with own.in_use():
            # `deadline_store` checks the wall clock, which may be set back during the upload.
            async with asyncio.timeout((job.upload_deadline_ms - now_ms()) / 1000):
                keys = segment_keys(job.prefix, job.segment_id, job.start_offset)
                copy = _Copy(job, deadline_store, source, own, on_progress, keys, source.size_bytes)
                return await copy.run()
    except TimeoutError:
        raise RetryLater("the upload did not end before its deadline and was cancelled") from None
    finally:
        await asyncio.to_thread(source.close)


async def _open(job: CopyJob) -> SegmentSource:
    """Open the files in a thread, and close them if the caller is cancelled before that is done."""
    opening = asyncio.ensure_future(asyncio.to_thread(SegmentSource, job))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_opened)
        raise


def _close_opened(opening: asyncio.Future[SegmentSource]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


@dataclass(slots=True)
class _Copy:
    """One copy and its progress."""

    job: CopyJob
    store: ObjectStore
    source: SegmentSource
    buffers: PartBuffers
    on_progress: OnProgress
    keys: SegmentKeys
    bytes_total: int
    done_before: int = 0

    async def run(self) -> CopyResult:
        verified = await self._upload_log()
        indexes = await asyncio.to_thread(build_indexes, self.job, self.source, verified)
        if indexes.txn_index_empty != self.job.txn_index_empty:
            raise Conflict(
                f"{self.source.log_path}: the transaction index changed after the copy was planned",
                reason=CHANGED,
            )
        self.bytes_total = self.source.size_bytes + len(indexes.data)
        index_checksums = await self._upload_indexes(indexes)
        manifest = self._manifest(verified, indexes, index_checksums).encode()
        await asyncio.to_thread(self.source.check_unchanged)
        crc = crc32c(manifest)
        await self.store.put(self.keys.manifest, manifest, crc32c=crc, create_only=True)
        log = verified.checksums
        return CopyResult(
            custom_metadata=custom_metadata_for(self.job.store, log, index_checksums, manifest),
            log_bytes=log.size_bytes,
            max_timestamp_ms=self._newest_ms(verified),
            txn_index_empty=indexes.txn_index_empty,
            producer_snapshot=indexes.producer_snapshot,
            cleaned=verified.cleaned,
        )

    async def _upload_log(self) -> VerifiedLog:
        verification = SegmentVerification(self.job, self.source)

        async def parts() -> AsyncIterator[Part]:
            # The last part is yielded, and so sent, only after the whole log was found right.
            part_bytes = min(self.job.limits.part_bytes, max(self.source.size_bytes, 1))
            while True:
                buffer = self.buffers.take(part_bytes)
                read = await asyncio.to_thread(verification.read_part, buffer)
                if read is None:
                    self.buffers.give_back(buffer)
                    return
                data = memoryview(buffer)[: read.size_bytes].toreadonly()
                yield Part(
                    data, read.crc32c, functools.partial(self.buffers.give_back, buffer, data)
                )
                del data, buffer

        result = await upload_whole_parts(
            self.store,
            self.keys.log,
            parts(),
            parallel=self.job.limits.parts_parallel,
            on_progress=self._tell,
        )
        self.done_before += result.size
        verified = verification.result()
        _check_sent(self.keys.log, result, verified.checksums)
        return verified

    async def _upload_indexes(self, indexes: SegmentIndexes) -> ChunkChecksums:
        async def chunks() -> AsyncIterator[bytes]:
            for at in range(0, len(indexes.data), CHUNK_BYTES):
                yield indexes.data[at : at + CHUNK_BYTES]

        result = await upload_parts(
            self.store,
            self.keys.indexes,
            chunks(),
            PartLimits(self.job.limits.part_bytes, self.job.limits.parts_parallel),
            on_progress=self._tell,
        )
        self.done_before += result.size
        checksums = indexes.checksums()
        _check_sent(self.keys.indexes, result, checksums)
        return checksums

    def _tell(self, sent_bytes: int) -> None:
        self.on_progress(CopyProgress(self.done_before + sent_bytes, self.bytes_total))

    def _newest_ms(self, verified: VerifiedLog) -> int:
        """The largest timestamp of all batches; without one, the file's modification time, as in
        Kafka (`LogSegment.largestTimestamp`). The time index is not used, since it may be wrong.
        """
        found_ms = verified.indexes.max_timestamp_ms
        return self.source.modified_ms if found_ms < 0 else found_ms

    def _manifest(
        self, verified: VerifiedLog, indexes: SegmentIndexes, index_checksums: ChunkChecksums
    ) -> Manifest:
        job = self.job
        return Manifest(
            segment_id=job.segment_id,
            start_offset=job.start_offset,
            end_offset=job.end_offset,
            max_timestamp_ms=self._newest_ms(verified),
            broker_id=job.broker_id,
            event_timestamp_ms=job.event_timestamp_ms,
            leader_epochs=job.leader_epochs,
            txn_index_empty=indexes.txn_index_empty,
            log_bytes=verified.checksums.size_bytes,
            indexes=indexes.ranges,
            checksums=ObjectChecksums(
                verified.checksums,
                index_checksums,
                indexes.producer_snapshot,
                verified.chunk_offset_index,
                verified.open_at_base,
            ),
        )


def _check_sent(key: str, sent: UploadResult, verified: ChunkChecksums) -> None:
    """Raise InternalError unless the bytes that the store accepted are the verified ones, by the
    checksums of the parts.
    """
    if (sent.size, sent.crc32c) != (verified.size_bytes, verified.crc32c):
        raise InternalError(
            f"{key}: {sent.size} bytes with CRC32C {sent.crc32c:08x} were sent, but "
            f"{verified.size_bytes} bytes with {verified.crc32c:08x} were verified"
        )
