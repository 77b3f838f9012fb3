"""The driver's disk work, in order, in one thread: group commit with zero linger.

Jobs that queue up during a pass go into the next; a pass ends with one sync for all its flushes.
Quorum state, appends, truncations and snapshots keep the core's order (`rlmm/raft/actions.py`).

A pass is a hop to the thread and one back, and a commit waits for both: an append and its flush are
in the same pass.

The recovery point is moved past a voter set before the voter set counts as synced: a replica whose
tail was cut below it would use an older set, perhaps as the only voter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.disk import Disk, remove_files
from rlmm.log.log_directory import LogDirectory
from rlmm.log.quorum_state_file import QuorumState
from rlmm.log.snapshot_files import DOWNLOAD_SUFFIX, check_snapshot, download_name, snapshot_voters
from rlmm.metadata_log import SnapshotId
from rlmm.quorum.framing import PlacedBatch, voter_set
from rlmm.quorum.observer import QuorumStats
from rlmm.raft.actions import Flush, InstallSnapshot, TruncateTo, WriteSnapshotChunk
from rlmm.raft.events import (
    Event,
    FlushCompleted,
    SnapshotChunkWritten,
    SnapshotDamaged,
    SnapshotInstalled,
)
from rlmm.raft.messages import VoterSet

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Append:
    """Append batches. `names_voters`: they contain a VotersRecord."""

    batches: tuple[PlacedBatch, ...]
    names_voters: bool = False


@dataclass(frozen=True, slots=True)
class Persist:
    """Store the state durably before any later job; `done` is called on the event loop."""

    state: QuorumState
    done: Callable[[], None]


Job = Append | Persist | Flush | TruncateTo | WriteSnapshotChunk | InstallSnapshot


@dataclass(slots=True)
class _Pass:
    """The results of one pass of the thread."""

    events: list[Event]
    done: list[Callable[[], None]]
    written_end: int
    generation: int
    sync_s: float | None = None


class DiskQueue:
    """The queue. Use it on the event loop; `on_event` and `on_written` are called there too."""

    def __init__(
        self,
        directory: LogDirectory,
        disk: Disk,
        writer: ThreadPoolExecutor,
        *,
        on_event: Callable[[Event], None],
        on_written: Callable[[int, int], None],
        on_failure: Callable[[Exception], None],
        observer: QuorumStats,
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._writer = writer
        self._on_event = on_event
        self._on_written = on_written
        self._on_failure = on_failure
        self._observer = observer
        self._jobs: list[Job] = []
        self._running: asyncio.Future[_Pass] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._failed = False
        self._generation = 0
        self._voters_to_sync = False

    def submit(self, job: Job) -> None:
        """Queue a job; `begin` follows in this turn of the loop."""
        if not self._failed:
            self._jobs.append(job)
            self._idle.clear()

    def begin(self) -> None:
        """Start on the queued jobs, or leave them to the pass after the running one."""
        if self._jobs and self._running is None:
            jobs, self._jobs = self._jobs, []
            loop = asyncio.get_running_loop()
            self._running = loop.run_in_executor(self._writer, self._run, jobs)
            self._running.add_done_callback(self._ended)

    async def settled(self) -> None:
        """Return once everything submitted so far is done."""
        await self._idle.wait()

    def _ended(self, running: asyncio.Future[_Pass]) -> None:
        self._running = None
        if running.cancelled() or (error := running.exception()) is not None:
            self._failed = True
            self._jobs = []
            self._idle.set()
            if not running.cancelled():
                assert isinstance(error, Exception), error
                self._on_failure(error)
            return
        done = running.result()
        # The next pass starts before these results are handled: the disk takes the longest.
        self.begin()
        if done.sync_s is not None:
            self._observer.synced(done.sync_s)
        self._on_written(done.written_end, done.generation)
        for call in done.done:
            call()
        for event in done.events:
            self._on_event(event)
        self.begin()
        if self._running is None:
            self._idle.set()

    def _run(self, jobs: Sequence[Job]) -> _Pass:
        done = _Pass([], [], 0, self._generation)
        flush: Flush | None = None
        waiting: list[PlacedBatch] = []
        for job in jobs:
            if isinstance(job, Append):
                waiting.extend(job.batches)
                self._voters_to_sync |= job.names_voters
                continue
            if isinstance(job, Flush):
                flush = job
                continue
            self._append(waiting)
            waiting = []
            if isinstance(job, Persist):
                quorum_state.store(self._disk, self._directory.directory, job.state)
                done.done.append(job.done)
            elif isinstance(job, TruncateTo):
                self._directory.truncate_to(job.end_offset)
                self._generation = job.generation
            elif isinstance(job, WriteSnapshotChunk):
                done.events.append(self._write_chunk(job))
            else:
                done.events.append(self._install(job))
        self._append(waiting)
        if flush is not None:
            began = self._observer.now()
            self._directory.sync()
            done.sync_s = self._observer.now() - began
            if self._voters_to_sync:
                self._directory.store_recovery_point()
                self._voters_to_sync = False
            # Only the last flush is reported: it covers the others, unless they are of a log that
            # was replaced.
            done.events.append(FlushCompleted(flush.epoch, flush.offset, flush.generation))
        done.written_end, done.generation = self._directory.log_end_offset, self._generation
        return done

    def _append(self, batches: Sequence[PlacedBatch]) -> None:
        if batches:
            self._directory.append([batch.encoded() for batch in batches])

    def _part(self, snapshot: SnapshotId) -> Path:
        return self._directory.directory / download_name(snapshot)

    def _write_chunk(self, job: WriteSnapshotChunk) -> SnapshotChunkWritten:
        path = self._part(job.snapshot)
        if job.position == 0:
            # Other downloads were given up; a node slower than its leader's snapshots would fill
            # its disk with them.
            remove_files(self._disk, self._directory.directory, suffix=DOWNLOAD_SUFFIX)
        assert isinstance(job.payload, bytes)
        handle = self._disk.open_append(path)
        try:
            handle.append(job.payload)
        finally:
            handle.close()
        return SnapshotChunkWritten(job.snapshot, job.position + job.payload_bytes)

    def _install(self, job: InstallSnapshot) -> Event:
        """Check, sync and name the snapshot, and only then replace the log; after a crash recovery
        finishes this.
        """
        part = self._part(job.snapshot)
        try:
            check_snapshot(self._disk, part)
            voters = voter_set(snapshot_voters(self._disk, part))
            self._check_end(job)
            _check_voters(job, voters)
        except CorruptData as error:
            log.warning("a fetched snapshot is refused: %s", error)
            self._disk.remove(part)
            return SnapshotDamaged(job.snapshot)
        self._directory.install_snapshot(job.snapshot, part)
        self._generation = job.generation
        return SnapshotInstalled(job.snapshot, job.size_bytes, voters)

    def _check_end(self, job: InstallSnapshot) -> None:
        """Raise CorruptData if a batch of the own log crosses the end: batches are sent whole."""
        end, epoch = job.snapshot
        if epoch_for_offset(self._directory.epochs, end - 1) != epoch:
            return
        try:
            border = self._directory.border_from(end)
        except CorruptData:
            return  # the snapshot takes the place of what is damaged
        if border != end:
            raise CorruptData(
                f"snapshot {job.snapshot} ends inside the record batch that ends at {border}",
                source="metadata log",
            )


def _check_voters(job: InstallSnapshot, voters: VoterSet) -> None:
    """Raise CorruptData for a snapshot of another quorum under the same cluster id.

    Voters change one at a time, but between this log's end and the snapshot any number of changes
    may lie, so the known ones cannot all be asked for. One is enough: it is a node id and the id of
    its directory, and a directory votes where it was formatted or has caught up, in one quorum.
    """
    if job.known_voters and not set(job.known_voters) & set(voters.keys):
        raise CorruptData(
            f"snapshot {job.snapshot} has the voters {[*voters.keys]}, and none of those that this "
            f"log has: {[*job.known_voters]}. Its leader is of another quorum under this cluster's "
            "id, or all voters were replaced while this node was away: then format this one anew",
            source="metadata log",
        )
