"""Copies of segments that the broker's remote log manager began (RemoteStorageManager's copy).

The broker names the files, or sends them to a node that does not see its disk; this node verifies
and uploads them as its own, so that a delegated segment is as good as one of sidecar mode.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import Conflict, Fenced, InvalidRequest, Refused, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from rlm.cluster_settings.move_hold import MoveHold
from rlm.control.surroundings import Surroundings
from rlm.copy.copier import CLEANED, Copier, check_size
from rlm.copy.copy_slots import Backlog, CopySlots
from rlm.data_plane.copy_job import CopyJob, CopyResult, UploadLimits
from rlm.delegated.failed_copies import FailedCopies
from rlm.delegated.sent_files import SMALL_FILE_BYTES_MAX, Receiving, SentBody
from rlm.delegated.spool import Spool
from rlm.delegated.wire import CopyFiles, SentFiles
from rlm.delete.delete_due import ATTEMPT_MS_MAX
from rlm.format.manifest import ProducerSnapshotOrigin
from rlm.stores.tier_store import TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

Found = TypeVar("Found")

COPIED_WITHIN_S = 60.0
"""The time within which a broker begins its copy: it does so right after its add, and a later
upload would have no caller.
"""


@dataclass(slots=True)
class BrokerCopies:
    """The copies of a node's broker.

    A broker adds a segment before its turn has come: Kafka copies ten at once. `_line`: the
    segments that wait or are copied, each with the time (monotonic, s) until which it counts.
    `_hung`: looks at files that exceeded their time and still run, by log directory.
    """

    metadata: RemoteLogMetadataManager
    copier: Copier
    stores: TierStores
    slots: CopySlots
    around: Surroundings
    log_dirs: Sequence[Path]
    why_not_copy: Callable[[str], str | None]
    spool: Spool
    failed: FailedCopies
    _line: dict[Uuid, float] = field(default_factory=dict)
    _hung: dict[str, asyncio.Future[Any]] = field(default_factory=dict)

    def deadline_ms(self, row: RemoteLogSegmentMetadata) -> int:
        """The upload deadline (Unix time) of a row that is added now. It allows the whole time of
        an upload from its turn on, and as much for each turn before it, limited by ATTEMPT_MS_MAX.
        """
        id_, now_s = row.segment_id.id, self.around.ambient.monotonic()
        before = {each: until_s for each, until_s in self._line.items() if until_s > now_s}
        before.pop(id_, None)
        turns = 1 + len(before) // self._at_once
        self._line = {**before, id_: now_s + COPIED_WITHIN_S}
        turn_ms = self._turn_ms(row)
        return self._now_ms() + min(turns * turn_ms, max(turn_ms, ATTEMPT_MS_MAX))

    def _turn_ms(self, row: RemoteLogSegmentMetadata) -> int:
        deadline_s = self.copier.deadline_s(row.segment_id.partition.topic, row.size_bytes)
        return round(deadline_s * 1000)

    def _turn_ends_ms(self, row: RemoteLogSegmentMetadata) -> int:
        """The deadline of an upload whose turn has come, so that no segment after it waits for
        longer.
        """
        return min(row.upload_deadline_ms, self._now_ms() + self._turn_ms(row))

    @property
    def _at_once(self) -> int:
        limits = self.around.limits
        others = limits.copies_per_log_dir_max if self.sees_disk else self.spool.limits.copies_max
        return min(limits.copies_parallel_max, others)

    @contextmanager
    def _in_line(self, id_: Uuid) -> Iterator[None]:
        """Reserve the segment for one call until the block ends, including the time before its
        upload begins: a second call would send the same objects, perhaps after they were deleted.
        Conflict: it is reserved.
        """
        if self._line.get(id_) == math.inf:
            raise Conflict(f"{id_} is being copied already")
        self._line[id_] = math.inf
        try:
            yield
        finally:
            self._line.pop(id_, None)

    def check_may_begin(self, row: RemoteLogSegmentMetadata) -> None:
        """Raise RetryLater if copying is paused, or this segment failed a moment ago."""
        tip = row.segment_id.partition
        paused = self.why_not_copy(tip.topic)
        if paused is not None:
            raise RetryLater(f"nothing of {tip} is copied now: {paused}")
        self.failed.check_may_begin(tip, row.start_offset)

    async def copy(self, files: CopyFiles) -> bytes:
        """Copy the segment, and return its custom metadata. Once this has returned, raised or was
        cancelled, no byte of the segment is sent any more.
        """
        row = self._row(files)
        with self._in_line(row.segment_id.id):
            return await self._copy(row, files, await self._seen_directory(row, files))

    @property
    def sees_disk(self) -> bool:
        """True if the node sees the broker's disk; if not, the broker has to send the files."""
        return bool(self.log_dirs)

    async def check_room(self, row: RemoteLogSegmentMetadata) -> None:
        """Raise RetryLater if the segment's files could not be received now; checked before its row
        is added.
        """
        if not self.sees_disk:
            await self.spool.check_room(row.size_bytes)

    def check_may_receive(self, files: CopyFiles, *, sends_files: bool) -> None:
        """Raise the errors of `receive` that can be found before the files arrive."""
        if not sends_files:
            raise RetryLater(
                "this node does not see the broker's disk (kafka.log_dirs is empty), and the "
                "plug-in is one that sends no files: use a plug-in of the node's version"
            )
        _check_names(files)
        self._row(files)

    async def receive(self, body: SentBody, go: asyncio.Event) -> bytes:
        """Copy, as `copy` does, the files that the broker sends once `go` is set."""
        sent = await body.head()
        files = sent.copy
        if self.sees_disk:
            raise InvalidRequest("this node reads the broker's disk: name the paths", field="body")
        _check_names(files)
        row = self._row(files)
        _check_sizes(sent)
        tip, left_s = row.segment_id.partition, (row.upload_deadline_ms - self._now_ms()) / 1000
        name = f"{tip.topic}-{tip.partition}"
        id_, deadline = row.segment_id.id, asyncio.timeout(left_s)
        try:
            with self._in_line(id_):
                async with deadline, self.spool.place(id_, sent.size_bytes, name) as directory:
                    self._row(files)
                    until_ms = self._turn_ends_ms(row)
                    if (row_ends_s := deadline.when()) is not None:
                        left_ms = row.upload_deadline_ms - until_ms
                        deadline.reschedule(row_ends_s - left_ms / 1000)
                    go.set()
                    files = await Receiving(sent, body, directory, self.spool.writing).run()
                    deadline.reschedule(None)  # from here on the upload's own deadline ends it
                    self.spool.works()
                    return await self._copy(row, files, directory, until_ms)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise RetryLater(
                f"the files of {row.segment_id} did not come before the upload's deadline"
            ) from None

    async def _copy(
        self,
        row: RemoteLogSegmentMetadata,
        files: CopyFiles,
        directory: Path,
        until_ms: int | None = None,
    ) -> bytes:
        """Copy a segment. `until_ms`: the end of its turn; None: its turn has not begun."""
        tip = row.segment_id.partition
        no_aborted = await self._look(files, partial(_is_empty, files.txn_index))
        job = self._job(row, files, directory, no_aborted)
        if row.txn_index_empty and not job.txn_index_empty:
            raise Conflict(f"{row.segment_id} was added without aborted transactions, but has some")
        try:
            async with self.slots.slot(Backlog(row.size_bytes, 0.0), directory.parent):
                until_ms = self._turn_ends_ms(row) if until_ms is None else until_ms
                await self.copier.confirm_prefix(self.stores.default)
                self._row(files)  # the broker may have deleted it meanwhile
                result = await self.copier.upload(replace(job, upload_deadline_ms=until_ms))
            _check_whole(row, result)
            if result.cleaned and not job.gaps_allowed:
                await self.copier.record_cleaned(tip, CLEANED)
        except Exception as error:
            self.failed.failed(tip, row.start_offset, error)
            raise
        self.failed.succeeded(tip)
        self._check_not_held(row)  # a move may have begun, and it be finished in Kafka's topic
        return result.custom_metadata.encode()

    def _check_not_held(self, row: RemoteLogSegmentMetadata) -> None:
        """Raise RetryLater in phases of a move in which no broker could read a segment of this
        node.
        """
        held = MoveHold(self.metadata).all_delegated()
        if held is not None:
            raise RetryLater(f"{row.segment_id} is not copied: {held}")

    def _row(self, files: CopyFiles) -> RemoteLogSegmentMetadata:
        """The row that was added for this copy, if it may go on."""
        id_ = files.row.segment_id
        row = self.metadata.segment(id_.partition, id_.id)
        if row is None:
            raise RetryLater(f"{id_} is not added yet in this node's view")
        if row.state is not SegmentState.COPY_SEGMENT_STARTED:
            raise Conflict(
                f"{id_} is {row.state.name}: only a segment in COPY_SEGMENT_STARTED is copied"
            )
        if row.writer != self.around.identity.incarnation:
            raise Fenced(f"{id_} was added before this node started, or by a different node")
        if self.copier.is_under_way(id_.id):
            raise Conflict(f"{id_} is being copied already")
        self._check_not_held(row)
        return row

    async def _seen_directory(self, row: RemoteLogSegmentMetadata, files: CopyFiles) -> Path:
        """The replica's directory, by `_directory` in a thread. Files that can't be read now are
        noted as a failure of the copy: the broker's next attempt names the same path.
        """
        _check_names(files)
        try:
            return await self._look(files, partial(self._directory, files))
        except (InvalidRequest, Refused) as error:
            self.failed.unseen(row.segment_id.partition, row.start_offset, error)
            raise

    async def _look(self, files: CopyFiles, look: Callable[[], Found]) -> Found:
        """Run `look` at files in a thread. RetryLater: it takes longer than `stall_deadline_s`, or
        an earlier look at this disk still hangs: each further one would occupy one of few threads.
        """
        deadline_s, disk = self.around.limits.stall_deadline_s, str(Path(files.log).parent.parent)
        hung = RetryLater(
            f"a segment's files below {disk[:300]} could not be looked at within {deadline_s:g} s: "
            "check whether a disk hangs"
        )
        if disk in self._hung:
            raise hung
        looking = asyncio.ensure_future(asyncio.to_thread(look))
        looking.add_done_callback(partial(self._looked, disk))
        await asyncio.wait({looking}, timeout=deadline_s)
        if not looking.done():
            self._hung[disk] = looking
            raise hung
        return looking.result()

    def _looked(self, disk: str, looking: asyncio.Future[Any]) -> None:
        if self._hung.get(disk) is looking:
            del self._hung[disk]
        if not looking.cancelled():
            looking.exception()  # retrieved, so that asyncio does not report it

    def _directory(self, files: CopyFiles) -> Path:
        """The replica's directory. Blocks. InvalidRequest: the files are not in this node's
        kafka.log_dirs. Refused: this node may not read them.
        """
        tip = files.row.segment_id.partition
        directory = Path(files.log).resolve().parent
        log_dirs = [each.resolve() for each in self.log_dirs]
        if directory.parent not in log_dirs or directory.name != f"{tip.topic}-{tip.partition}":
            raise InvalidRequest(
                f"{files.log[:300]} is no segment of {tip} in this node's kafka.log_dirs: node and "
                "broker have to see the same disks under the same paths",
                field="log",
            )
        if Path(files.log).is_file() and not os.access(files.log, os.R_OK):
            raise Refused(f"this node's user may not read {files.log[:300]}")
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
            # After DeleteRecords within the segment the broker has no epochs for the offsets below.
            log_start_offset=row.leader_epochs[0][1],
            limits=UploadLimits(
                limits.part_bytes, limits.parts_parallel, batch_bytes_max=limits.batch_bytes_max
            ),
            gaps_allowed=state is not None and bool(state.gaps_allowed),
        )

    def _now_ms(self) -> int:
        return self.around.ambient.now_ms()


def _check_names(files: CopyFiles) -> None:
    start, following = files.row.start_offset, files.row.end_offset + 1
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


def _check_sizes(sent: SentFiles) -> None:
    """Raise Conflict or InvalidRequest unless the sent sizes fit the row, the named files, and the
    limit of a small file.
    """
    row, sizes = sent.copy.row, sent.sizes
    if sizes[0] != row.size_bytes:
        raise Conflict(f"{row.segment_id} was added with {row.size_bytes} bytes and has {sizes[0]}")
    for path, size in zip(sent.copy.paths, sizes, strict=False):
        if not path and size is not None:
            raise InvalidRequest("a file without a name has bytes", field="sizes")
    if any(size is not None and size > SMALL_FILE_BYTES_MAX for size in sizes[1:]):
        raise InvalidRequest(
            f"a file beside the .log has at most {SMALL_FILE_BYTES_MAX} bytes", field="sizes"
        )


def _is_empty(path: str) -> bool:
    """True if there is no transaction index, or an empty one. Blocks."""
    try:
        return not path or Path(path).stat().st_size == 0
    except FileNotFoundError:
        return True
    except OSError as error:
        raise RetryLater(f"{path} cannot be looked at: {error.strerror}") from error


def _check_whole(row: RemoteLogSegmentMetadata, result: CopyResult) -> None:
    check_size(row, result)
    if result.producer_snapshot is ProducerSnapshotOrigin.ABSENT:
        # A follower that rebuilds its log truncates it first, and then needs the snapshot.
        raise Conflict(f"{row.segment_id} has no producer snapshot, and none could be made")
