"""Copies of segments that the broker's remote log manager began (RemoteStorageManager's copy).

The broker names the files; this node verifies and uploads them as its own, so that a delegated
segment is as good as one of sidecar mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import Conflict, CorruptData, Fenced, InvalidRequest, RetryLater
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.backoff import NO_BACK_OFF, BackOff, after_failure, failure_kind
from rlm.control.segment_proposals import back_off_policy
from rlm.control.surroundings import Surroundings
from rlm.copy.copier import CLEANED, Copier
from rlm.copy.copy_slots import Backlog, CopySlots
from rlm.data_plane.copy_job import CopyJob, CopyResult, UploadLimits
from rlm.delegated.wire import CopyFiles
from rlm.format.manifest import ProducerSnapshotOrigin
from rlm.stores.tier_store import TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

FAILED_MAX = 1_000
"""Partitions whose failed copies are remembered."""


@dataclass(slots=True)
class BrokerCopies:
    """One per node. A segment that fails is not begun again before its back-off is over: each
    attempt of the broker would leave a row and a tombstone.
    """

    metadata: RemoteLogMetadataManager
    copier: Copier
    stores: TierStores
    slots: CopySlots
    around: Surroundings
    log_dirs: Sequence[Path]
    why_not_copy: Callable[[str], str | None]
    _failed: dict[TopicIdPartition, tuple[int, BackOff]] = field(default_factory=dict)

    def check_may_begin(self, row: RemoteLogSegmentMetadata) -> None:
        """RetryLater: copying is paused, or this segment failed a moment ago."""
        tip = row.segment_id.partition
        paused = self.why_not_copy(tip.topic)
        if paused is not None:
            raise RetryLater(f"nothing of {tip} is copied now: {paused}")
        start, failed = self._failed.get(tip, (-1, NO_BACK_OFF))
        if start == row.start_offset and failed.waits_at(self._now_ms()):
            raise RetryLater(
                f"the segment at {start} of {tip} failed and is tried later: {failed.text}"
            )

    async def copy(self, files: CopyFiles) -> bytes:
        """Copy, and return the custom metadata. Once it returned, raised or was cancelled, no byte
        of the segment is sent any more.
        """
        row = self._row(files)
        tip = row.segment_id.partition
        directory = await asyncio.to_thread(self._directory, files)
        job = self._job(row, files, directory, await asyncio.to_thread(_is_empty, files.txn_index))
        if row.txn_index_empty and not job.txn_index_empty:
            raise Conflict(
                f"{row.segment_id} was added as without aborted transactions, and has some"
            )
        try:
            async with self.slots.slot(Backlog(row.size_bytes, 0.0), directory.parent):
                await self.copier.confirm_prefix(self.stores.default)
                result = await self.copier.upload(job)
            _check_whole(row, result)
            if result.cleaned and not job.gaps_allowed:
                await self.copier.record_cleaned(tip, CLEANED)
        except Exception as error:
            self._after_failure(tip, row.start_offset, error)
            raise
        self._failed.pop(tip, None)
        return result.custom_metadata.encode()

    def _row(self, files: CopyFiles) -> RemoteLogSegmentMetadata:
        """The row that was added for this copy."""
        id_ = files.row.segment_id
        row = self.metadata.segment(id_.partition, id_.id)
        if row is None:
            raise RetryLater(f"{id_} is not added yet, as far as this node knows")
        if row.state is not SegmentState.COPY_SEGMENT_STARTED:
            raise Conflict(f"{id_} is {row.state.name}: only what was just added is copied")
        if row.writer != self.around.identity.incarnation:
            raise Fenced(f"{id_} was added before this node started, or by another one")
        if self.copier.is_under_way(id_.id):
            raise Conflict(f"{id_} is being copied already")
        return row

    def _directory(self, files: CopyFiles) -> Path:
        """The replica's directory. Blocks. InvalidRequest: the files are not where this node reads
        the broker's partitions.
        """
        tip, start = files.row.segment_id.partition, files.row.start_offset
        directory = Path(files.log).resolve().parent
        log_dirs = [each.resolve() for each in self.log_dirs]
        if directory.parent not in log_dirs or directory.name != f"{tip.topic}-{tip.partition}":
            raise InvalidRequest(
                f"{files.log[:300]} is no segment of {tip} in this node's kafka.log_dirs: node and "
                "broker have to see the same disks",
                field="log",
            )
        following = files.row.end_offset + 1
        names = (
            (files.log, start, LOG_SUFFIX),
            (files.offset_index, start, INDEX_SUFFIX),
            (files.time_index, start, TIME_INDEX_SUFFIX),
            (files.txn_index, start, TRANSACTION_INDEX_SUFFIX),
            (files.producer_snapshot, following, SNAPSHOT_SUFFIX),
        )
        for path, offset, suffix in names:
            if path and Path(path).name != segment_file_name(offset, suffix):
                raise InvalidRequest(
                    f"{path[:300]} is not the {suffix} file of offset {offset}", field="files"
                )
        return directory

    def _job(
        self, row: RemoteLogSegmentMetadata, files: CopyFiles, directory: Path, no_aborted: bool
    ) -> CopyJob:
        leader_epoch_checkpoint.parse(files.leader_epochs, source="the broker's leader epochs")
        limits, store = self.around.limits, self.stores.default
        state = self.metadata.partition_state(row.segment_id.partition)
        return CopyJob(
            segment_id=row.segment_id,
            start_offset=row.start_offset,
            end_offset=row.end_offset,
            directory=directory,
            leader_epochs=tuple(EpochEntry(epoch, start) for epoch, start in row.leader_epochs),
            lineage_checkpoint=files.leader_epochs,
            broker_id=row.broker_id,
            event_timestamp_ms=row.event_timestamp_ms,
            max_timestamp_ms=row.max_timestamp_ms,
            txn_index_empty=no_aborted,
            store=store.name,
            prefix=store.prefix,
            upload_deadline_ms=row.upload_deadline_ms,
            # DeleteRecords inside of a segment takes the epochs of the head from the broker.
            log_start_offset=row.leader_epochs[0][1],
            limits=UploadLimits(
                limits.part_bytes, limits.parts_parallel, batch_bytes_max=limits.batch_bytes_max
            ),
            gaps_allowed=state is not None and bool(state.gaps_allowed),
        )

    def _after_failure(self, tip: TopicIdPartition, start: int, error: Exception) -> None:
        before_start, before = self._failed.pop(tip, (-1, NO_BACK_OFF))
        if not isinstance(error, Conflict | CorruptData):
            return  # the store or the queue: the broker's own pace is enough
        if len(self._failed) >= FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        failed = after_failure(
            before if before_start == start else NO_BACK_OFF, failure_kind(error), str(error),
            policy=back_off_policy(self.around.limits), now_ms=self._now_ms(),
            fraction=self.around.ambient.random_fraction(),
        )  # fmt: skip
        self._failed[tip] = start, failed

    def _now_ms(self) -> int:
        return self.around.ambient.now_ms()


def _is_empty(path: str) -> bool:
    """True without a transaction index, or with one of no entry. Blocks."""
    try:
        return not path or Path(path).stat().st_size == 0
    except FileNotFoundError:
        return True
    except OSError as error:
        raise RetryLater(f"{path} cannot be looked at: {error.strerror}") from error


def _check_whole(row: RemoteLogSegmentMetadata, result: CopyResult) -> None:
    if result.log_bytes != row.size_bytes:
        raise Conflict(
            f"{row.segment_id} was added with {row.size_bytes} bytes and has {result.log_bytes}"
        )
    if result.producer_snapshot is ProducerSnapshotOrigin.ABSENT:
        # A follower that rebuilds its log truncates it first, and then needs the snapshot.
        raise Conflict(f"{row.segment_id} has no producer snapshot, and none could be made")
