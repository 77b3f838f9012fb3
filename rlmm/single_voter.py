"""A metadata log with one voter: its leader as soon as it is open.

Everything a quorum's leader does that does not need peers: a new epoch at every start, durable
before its first batch; leader-change record first; group commit with zero linger; a high watermark
that never passes what is synced.

One writer thread does everything that changes the log; a second thread reads, and keeps the
recovery point. The event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from kafka_formats.control_record import ControlType
from kafka_formats.errors import (
    Conflict,
    InternalError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    RetryLater,
)
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.committed import committed_group
from rlmm.log.disk import Disk, OsDisk
from rlmm.log.group_commit import GroupCommit, Pending
from rlmm.log.limits import LogLimits
from rlmm.log.log_directory import LogDirectory
from rlmm.log.new_epoch import open_as_leader
from rlmm.log.quorum_records import (
    Voter,
    encode_kraft_version,
    encode_leader_change,
    encode_voters,
)
from rlmm.log.recent_groups import RecentGroups
from rlmm.log.snapshot_files import PRIVATE_CONTROL_TYPES_FROM, SnapshotWriter, read_snapshot
from rlmm.metadata_log import (
    CommittedGroup,
    CommittedRecord,
    LogDescription,
    Proposal,
    ReplicaState,
    SnapshotId,
    SnapshotSink,
)

log = logging.getLogger(__name__)
T = TypeVar("T")


class SingleVoterLog:
    """`MetadataLog` of a sole voter. Make it with `open`."""

    def __init__(
        self,
        directory: LogDirectory,
        disk: Disk,
        *,
        cluster_id: str,
        voter: Voter,
        epoch: int,
        now_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
        on_failure: Callable[[str], None],
        limits: LogLimits,
        writer: ThreadPoolExecutor,
        reader: ThreadPoolExecutor,
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._cluster_id = cluster_id
        self._voter = voter
        self._epoch = epoch
        self._now_ms = now_ms
        self._sleep = sleep
        self._on_failure = on_failure
        self._limits = limits
        self._writer = writer
        self._reader = reader
        self._high_watermark = directory.log_start_offset
        self._may_truncate_to = 0
        self._commit = GroupCommit(
            partial(self._in, writer, directory.append_and_sync),
            epoch=epoch,
            next_offset=directory.log_end_offset,
            now_ms=now_ms,
            on_durable=self._durable,
            on_failure=self._fail,
            limits=limits,
        )
        self._advanced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._recovery_point_due = asyncio.Event()
        self._recent = RecentGroups(bytes_max=limits.recent_bytes_max)
        self._snapshots = directory.snapshots()
        self._failure: str | None = None
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        metadata_directory: Path,
        *,
        cluster_id: str,
        node_id: int,
        directory_id: Uuid,
        voters: tuple[Voter, ...],
        view_flushed_end: int,
        now_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
        on_failure: Callable[[str], None],
        limits: LogLimits | None = None,
        disk: Disk | None = None,
    ) -> SingleVoterLog:
        """Recover, become leader of a new epoch, and be ready.

        `view_flushed_end` is the offset below which the view holds everything durably (0: nothing).
        `on_failure` is called once if the disk fails: the node has to stop then. CorruptData: the
        log, the quorum state or the recovery point is damaged where it must not be.
        """
        limits = limits or LogLimits()
        disk = disk or OsDisk()
        voter = _sole_voter(voters, node_id, directory_id)
        writer = ThreadPoolExecutor(1, thread_name_prefix="metadata-log-writer")
        reader = ThreadPoolExecutor(1, thread_name_prefix="metadata-log-reader")
        opening = partial(
            open_as_leader,
            disk,
            metadata_directory,
            node_id=node_id,
            view_flushed_end=view_flushed_end,
            segment_bytes_max=limits.segment_bytes_max,
        )
        try:
            loop = asyncio.get_running_loop()
            directory, epoch = await loop.run_in_executor(writer, opening)
            self = cls(
                directory,
                disk,
                cluster_id=cluster_id,
                voter=voter,
                epoch=epoch,
                now_ms=now_ms,
                sleep=sleep,
                on_failure=on_failure,
                limits=limits,
                writer=writer,
                reader=reader,
            )
            await self._lead()
        except BaseException as error:
            writer.shutdown(wait=False)
            reader.shutdown(wait=False)
            if isinstance(error, OSError):
                raise _open_failed(metadata_directory, error) from error
            raise
        return self

    async def _lead(self) -> None:
        """Append what an epoch begins with; only with it on disk is anything committed."""
        node_ids = (self._voter.node_id,)
        change = encode_leader_change(self._voter.node_id, node_ids, node_ids)
        first = [Proposal(ControlType.LEADER_CHANGE, change)]
        if self._directory.log_end_offset == 0:
            first += [
                Proposal(ControlType.KRAFT_VERSION, encode_kraft_version()),
                Proposal(ControlType.KRAFT_VOTERS, encode_voters((self._voter,))),
            ]
        self._tasks = [
            asyncio.create_task(self._commit.run(), name="metadata-log-writer"),
            asyncio.create_task(self._recovery_point_loop(), name="metadata-log-recovery-point"),
        ]
        try:
            await self._commit.enqueue(tuple(first)).done
        except BaseException:
            await self.close()
            raise

    # ---- proposals

    async def propose(self, proposals: tuple[Proposal, ...], *, deadline_s: float) -> int:
        if not proposals:
            raise InvalidRequest("nothing to append", field="proposals")
        self._check_open()
        pending = self._commit.enqueue(proposals)
        try:
            async with asyncio.timeout(deadline_s):
                return await asyncio.shield(pending.done)
        except TimeoutError as error:
            raise OutcomeUnknown(
                f"the metadata log did not commit within {deadline_s} s: read the row by its id "
                "before deciding anything"
            ) from error

    def _durable(self, group: Sequence[Pending]) -> None:
        """One voter: what is synced here is synced by a majority, so the high watermark follows."""
        self._high_watermark = self._directory.synced_end
        records = tuple(
            record
            for pending in group
            for record in pending.records()
            if record.control_type is None or record.control_type >= PRIVATE_CONTROL_TYPES_FROM
        )
        self._recent.add(
            group[0].first_offset, CommittedGroup(records, self._high_watermark, self._epoch)
        )
        self._recovery_point_due.set()
        self._wake()

    def _wake(self) -> None:
        advanced, self._advanced = self._advanced, asyncio.get_running_loop().create_future()
        advanced.set_result(None)

    def _fail(self, error: Exception) -> None:
        """The disk failed: everything is refused from now on, and the node has to stop."""
        if self._failure is None:
            self._failure = str(error)
            self._commit.refuse_queued(self._failure)
            self._wake()
            self._on_failure(self._failure)

    async def _recovery_point_loop(self) -> None:
        """Say about once a second, durably, how far the log is durable."""
        while True:
            await self._recovery_point_due.wait()
            await self._sleep(self._limits.recovery_point_interval_s)
            self._recovery_point_due.clear()
            if self._failure is not None:
                return
            try:
                await self._in(self._reader, self._directory.store_recovery_point)
            except Exception as error:
                log.error("the metadata log stopped", exc_info=error)
                self._fail(error)
                return

    # ---- reading

    async def follow(self, from_offset: int) -> AsyncIterator[CommittedGroup]:
        position = from_offset
        while not self._closed:
            if self._failure is not None:
                raise RetryLater(self._failure)
            if position >= self._high_watermark:
                await asyncio.shield(self._advanced)
                continue
            group = await self._group_at(position)
            yield group
            position = group.end_offset

    async def read(self, from_offset: int, *, limit: int) -> tuple[CommittedRecord, ...]:
        found: list[CommittedRecord] = []
        position = from_offset
        while len(found) < limit and position < self._high_watermark:
            group = await self._group_at(position)
            found.extend(group.records)
            position = group.end_offset
        return tuple(found[:limit])

    async def _group_at(self, position: int) -> CommittedGroup:
        if position < self._directory.log_start_offset:
            raise NotFound(
                f"offset {position} is below the metadata log's start "
                f"{self._directory.log_start_offset}: install a snapshot first"
            )
        group = self._recent.group_at(position)
        if group is not None:
            return group
        return await self._in(self._reader, self._read_group, position, self._high_watermark)

    def _read_group(self, position: int, end: int) -> CommittedGroup:
        batches = self._directory.read(position, end, bytes_max=self._limits.read_bytes_max)
        if not batches:
            raise InternalError(f"no batch at offset {position}, below the high watermark {end}")
        return committed_group(batches, position)

    async def barrier(self, *, deadline_s: float) -> int:  # noqa: ARG002 - peers would need it
        # The sole voter is always the leader: what is completed lies below its high watermark.
        self._check_open()
        return self._high_watermark

    # ---- snapshots

    def latest_snapshot(self) -> SnapshotId | None:
        newest = self._snapshots[-1] if self._snapshots else None
        return newest if newest is not None and newest.end_offset > 0 else None

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[Proposal]:
        return read_snapshot(self._disk, self._directory.snapshot_path(snapshot))

    async def begin_snapshot(
        self, snapshot: SnapshotId, *, last_contained_timestamp_ms: int
    ) -> SnapshotSink:
        self._check_open()
        if not 0 < snapshot.end_offset <= self._high_watermark:
            raise InvalidRequest(
                f"a snapshot up to {snapshot.end_offset} is not below the high watermark "
                f"{self._high_watermark}",
                field="snapshot",
            )
        if snapshot in self._snapshots:
            raise Conflict(f"snapshot {snapshot} exists", reason="ALREADY_EXISTS")
        open_writer = partial(
            SnapshotWriter,
            self._disk,
            self._directory.directory,
            snapshot,
            last_contained_timestamp_ms=last_contained_timestamp_ms,
            voters=(self._voter,),
        )
        try:
            writer = await self._in(self._reader, open_writer)
        except OSError as error:
            raise _snapshot_failed(error) from error
        return _Sink(writer, self._reader, self._snapshot_stored)

    async def _snapshot_stored(self) -> None:
        self._snapshots = await self._in(self._reader, self._directory.snapshots)
        await self._cut()

    async def _cut(self) -> None:
        """Cut the log up to what both a snapshot and the flushed view hold, no further."""
        newest = self.latest_snapshot()
        if newest is None:
            return
        up_to = min(newest.end_offset, self._may_truncate_to)
        cut = partial(self._directory.cut_start, up_to, keep_bytes=self._limits.retain_bytes_max)
        remove = partial(self._directory.remove_old_snapshots, keep=self._limits.snapshots_kept)
        await self._in(self._writer, cut)
        await self._in(self._writer, remove)
        self._snapshots = await self._in(self._reader, self._directory.snapshots)

    def allow_truncation_to(self, offset: int) -> None:
        self._may_truncate_to = max(self._may_truncate_to, offset)

    # ---- the rest

    def describe(self) -> LogDescription:
        now = self._now_ms()
        end = self._directory.log_end_offset
        me = ReplicaState(self._voter.node_id, str(self._voter.directory_id), end, now, now)
        return LogDescription(
            cluster_id=self._cluster_id,
            node_id=self._voter.node_id,
            leader_id=-1 if self._failure or self._closed else self._voter.node_id,
            leader_epoch=self._epoch,
            high_watermark=self._high_watermark,
            log_start_offset=self._directory.log_start_offset,
            log_end_offset=end,
            voters=(me,),
            observers=(),
        )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._commit.stop()
        if self._tasks:
            write, recovery_point = self._tasks
            # What is queued is still written; its callers get their answers.
            await asyncio.gather(write, return_exceptions=True)
            recovery_point.cancel()
            await asyncio.gather(recovery_point, return_exceptions=True)
        self._commit.refuse_queued("the metadata log is closed: the node is shutting down")
        self._wake()
        if self._failure is None:
            await self._in(self._reader, self._directory.store_recovery_point)
        await self._in(self._writer, self._directory.close)
        self._writer.shutdown(wait=False)
        self._reader.shutdown(wait=False)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise RetryLater(self._failure)
        if self._closed:
            raise RetryLater("the metadata log is closed: the node is shutting down")

    async def _in(self, executor: ThreadPoolExecutor, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, call, *args)


class _Sink:
    """A snapshot being written, in the reader thread; `stored` is awaited once it is durable."""

    def __init__(
        self,
        writer: SnapshotWriter,
        executor: ThreadPoolExecutor,
        stored: Callable[[], Awaitable[None]],
    ) -> None:
        self._writer = writer
        self._executor = executor
        self._stored = stored

    async def add(self, rows: Sequence[Proposal]) -> None:
        await self._run(partial(self._writer.add, rows))

    async def finish(self) -> None:
        await self._run(self._writer.finish)
        await self._stored()

    async def abandon(self) -> None:
        await self._run(self._writer.abandon)

    async def _run(self, call: Callable[[], object]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, call)
        except OSError as error:
            raise _snapshot_failed(error) from error


def _sole_voter(voters: tuple[Voter, ...], node_id: int, directory_id: Uuid) -> Voter:
    """This node as the only voter there is; InvalidRequest if that is not so."""
    if [(voter.node_id, voter.directory_id) for voter in voters] != [(node_id, directory_id)]:
        raise InvalidRequest(
            f"node {node_id} with directory {directory_id} is not the sole voter, and this version "
            "runs one: format it with itself as the only voter",
            field="voters",
        )
    return voters[0]


def _open_failed(metadata_directory: Path, error: OSError) -> RetryLater:
    return RetryLater(
        f"the metadata log in {metadata_directory} could not be opened: {error}. Check the disk "
        "and its free space, then start the node again"
    )


def _snapshot_failed(error: OSError) -> RetryLater:
    return RetryLater(
        f"the snapshot could not be written: {error}. Check the disk and its free space",
        retry_after_ms=60_000,
    )
