"""Planted bugs around the core: in driver, disk, log, view and answers.

Each replaces a rule or two for the length of a run. Every one is found within `SEEDS_MAX` seeds of
`EVENTS` events each; a test holds that. Bugs of the core alone are in `sim/core/planted_bugs.py`.
Two syncs have none: that of the epoch checkpoint, which is made again from the batches, and that of
a truncation, whose tail is cut again or overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import rlmm.apply.apply
import rlmm.log.log_directory
import rlmm.log.quorum_state_file
import rlmm.log.recovery
import rlmm.manager.apply_loop
import rlmm.quorum.disk_queue
import rlmm.quorum.driver
import rlmm.quorum.initial_state
import rlmm.raft.progress
from rlmm.apply.nodes import apply_node_silence
from rlmm.apply.outcome import Draft, Outcome, Verdict
from rlmm.log.disk import Disk
from rlmm.log.log_directory import LogDirectory
from rlmm.log.quorum_state_file import QuorumState
from rlmm.log.recovery import LogCut
from rlmm.log.segment_file import SegmentFile, SegmentScan
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.manager.apply_loop import ApplyLoop
from rlmm.manager.node_liveness import LivenessJudge
from rlmm.manager.proposal_waiters import Decision, ProposalWaiters
from rlmm.metadata_log import MetadataLog, SnapshotId
from rlmm.quorum.damaged_snapshots import DamagedSnapshots
from rlmm.quorum.disk_queue import Append, DiskQueue, Persist
from rlmm.quorum.driver import QuorumDriver
from rlmm.quorum.initial_state import stored
from rlmm.quorum.log_tail import Tail
from rlmm.quorum.network_ports import ProduceAnswer
from rlmm.quorum.own_proposals import Proposals
from rlmm.quorum.proposal_queue import Group
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft import actions as do
from rlmm.raft.messages import Error
from rlmm.raft.messages import SnapshotId as CoreSnapshotId
from rlmm.raft.replica import Replica
from rlmm.records.control_records import NodeSilence
from rlmm.rows.nodes import Liveness, RegisteredNode
from rlmm.view.view import View
from sim.ground.forgetful_disk import ForgetfulDisk
from sim.ground.planting import Patches, planting

SEEDS_MAX = 60
FIRST_SEEDS = {
    "a failed write is repeated behind its torn half": 25,
    "the tail in memory keeps dropped batches over a truncation": 80,
}
"""First seed of the search for a bug that few seeds show."""
EVENTS = 3000

_answered = Proposals.answered
_run_pass = DiskQueue._run
_finish = SnapshotWriter.finish
_roll = LogDirectory._roll
_truncate_to = LogDirectory.truncate_to
_store_point = LogDirectory.store_recovery_point
_install = LogDirectory.install_snapshot
_snapshot_finished = QuorumLog.snapshot_finished
_stored = stored
_is_silent = LivenessJudge._is_silent
_flush_view = View.flush
_set_aside = DamagedSnapshots.set_aside
_truncate_driver = QuorumDriver._truncate
_scan = rlmm.log.recovery._scan


def _nothing(*_: object, **__: object) -> None:
    pass


def _unsynced_replacement(disk: Disk, path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    disk.remove(temporary)
    handle = disk.open_append(temporary)
    handle.append(data)
    handle.close()
    disk.rename(temporary, path)


def _names_left_out(_: ForgetfulDisk, what: str) -> bool:
    return what == "names"


def _roll_unsynced(directory: LogDirectory) -> SegmentFile:
    with patch.object(LogDirectory, "_sync_active", _nothing):
        return _roll(directory)


def _write_until_it_works(directory: LogDirectory, data: bytearray) -> None:
    if data:
        try:
            directory._handle().append(bytes(data))
        except OSError:
            directory._handle().append(bytes(data))


def _persist_behind(driver: QuorumDriver, action: do.PersistQuorumState) -> None:
    """Persist without making later actions wait."""
    driver.jobs.submit(Persist(stored(action.state), lambda: None))


def _sync_before_writing(queue: DiskQueue, jobs: list[Any]) -> object:
    """Sync at the end of a pass only what the pass before it wrote."""
    queue._directory.sync()
    with patch.object(LogDirectory, "sync", _nothing):
        return _run_pass(queue, jobs)


def _sync_voters_like_others(queue: DiskQueue, jobs: list[Any]) -> object:
    """Take a pass with a voter set and something behind it for one without."""
    appended = [job for job in jobs if isinstance(job, Append)]
    later = {id(job) for job in appended[:-1]}
    return _run_pass(
        queue, [replace(job, names_voters=False) if id(job) in later else job for job in jobs]
    )


def _apply_everything(driver: QuorumDriver, action: do.AdvanceHighWatermark) -> None:
    """Take the log's end for the high watermark."""
    driver.high_watermark = action.high_watermark
    driver.apply_to = driver.core.log_end_offset
    driver._on_advance()


def _apply_unsynced(driver: QuorumDriver, action: do.AdvanceHighWatermark) -> None:
    driver.high_watermark = driver.apply_to = max(action.high_watermark, driver.apply_to)
    driver._on_advance()


def _keep_dropped_bases(tail: Tail, end_offset: int, generation: int) -> None:
    tail._generation = generation
    while len(tail._batches) > tail._first and tail._bases[-1] >= end_offset:
        tail._bytes -= len(tail._batches.pop().data)
        tail._bases.pop()


def _keep_what_was_truncated(tail: Tail, _: int, generation: int) -> None:
    tail._generation = generation


async def _move_on_without_rows(log: MetadataLog, view: View, *_: object) -> None:
    snapshot = log.latest_snapshot()
    start = log.describe().log_start_offset
    if snapshot is not None and view.applied_offset + 1 < start <= snapshot.end_offset:
        view.commit((), applied_offset=snapshot.end_offset - 1, epoch=snapshot.epoch)


def _unsynced_snapshot(writer: SnapshotWriter) -> Path:
    handle, writer._file = writer._file, _Unsynced(writer._file)
    with patch.object(type(writer._disk), "sync_directory", _nothing):
        try:
            return _finish(writer)
        finally:
            writer._file = handle


class _Unsynced:
    def __init__(self, handle: Any) -> None:
        self.append, self.close, self.reserve = handle.append, handle.close, handle.reserve

    def sync(self) -> None:
        pass


def _propose_again(proposals: Proposals, group: Group, answer: ProduceAnswer) -> None:
    """Take a lost answer for "not appended"."""
    if answer.error is not Error.NONE and answer.appended:
        answer = ProduceAnswer(Error.NOT_LEADER_OR_FOLLOWER, appended=False)
    _answered(proposals, group, answer)


async def _guess(_: ProposalWaiters, __: int) -> Decision:
    """Take a committed record for an accepted one."""
    return Decision(Outcome(Verdict.ACCEPTED, ""))


async def _believe_to_lead(log: QuorumLog, *, deadline_s: float) -> int:
    assert deadline_s > 0
    return log.driver.high_watermark


async def _at_once(_: ApplyLoop, call: Callable[[], object]) -> object:
    return call()


def _truncate_alone(directory: LogDirectory, end_offset: int) -> None:
    with patch.object(rlmm.log.log_directory, "store_recovery_point", _nothing):
        _truncate_to(directory, end_offset)


def _store_written_end(directory: LogDirectory) -> int:
    with patch.object(directory, "synced_end", directory.log_end_offset):
        return _store_point(directory)


def _truncate_without_epochs(directory: LogDirectory, end_offset: int) -> None:
    with patch.object(LogDirectory, "_store_epochs", _nothing):
        _truncate_to(directory, end_offset)


async def _finish_alone(log: QuorumLog, writer: SnapshotWriter, snapshot: CoreSnapshotId) -> None:
    """Name a snapshot without a look at the recovery point."""
    directory = log._directory
    with patch.object(directory, "store_recovery_point", lambda: directory.synced_end):
        await _snapshot_finished(log, writer, snapshot)


def _install_alone(directory: LogDirectory, snapshot: SnapshotId, part: Path) -> None:
    with patch.object(rlmm.log.log_directory, "store_recovery_point", _nothing):
        _install(directory, snapshot, part)


def _flush_up_to_its_end(view: View, *, busy: bool | None = None) -> None:
    """Take for flushed all that was applied when the flush ended."""
    _flush_view(view, busy=busy)
    view._flushed_offset = view._applied_offset


async def _set_aside_alone(found: DamagedSnapshots, snapshot: SnapshotId, error: Exception) -> bool:
    """Set a snapshot aside, and leave the core to offer it."""
    with patch.object(found, "_owner", _Deaf(found._owner)):
        return await _set_aside(found, snapshot, error)


class _Deaf:
    def __init__(self, owner: Any) -> None:
        self.troubles = owner.troubles

    def feed(self, _: object) -> None:
        pass


def _read_on(driver: QuorumDriver, action: do.TruncateTo) -> None:
    """Take what was read of the log before a truncation for what it has."""
    before = driver._generation
    _truncate_driver(driver, action)
    driver._generation = before


def _run_in_one_generation(queue: DiskQueue, jobs: list[Any]) -> object:
    """Tell the end of the log behind a truncation as that before it."""
    before = queue._generation
    done: Any = _run_pass(queue, jobs)
    if not any(isinstance(job, do.InstallSnapshot) for job in jobs):
        queue._generation = done.generation = before
    return done


def _install_at_the_end(directory: LogDirectory, snapshot: SnapshotId, part: Path) -> None:
    """Lower the recovery point only if the log goes on behind the snapshot."""
    if directory.synced_end == snapshot.end_offset:
        _install_alone(directory, snapshot, part)
    else:
        _install(directory, snapshot, part)


def _cut_of_what_stays(*where: Any) -> tuple[list[SegmentScan], LogCut | None]:
    """Remember the last epoch that is left, not that of what is cut."""
    scans, cut = _scan(*where)
    left = max((each.epoch for each in scans[-1].epochs), default=-1)
    return scans, None if cut is None else replace(cut, epoch=left)


def _needs_none_behind_its_own(r: Replica, wanted: CoreSnapshotId | None, end_offset: int) -> bool:
    newest = r.log.latest_snapshot
    if end_offset >= r.high_watermark or wanted is None or newest is None:
        return True
    return newest >= wanted and end_offset >= newest.end_offset


def _any_border(_: LogDirectory, offset: int) -> int:
    return offset


def _stored_without_cut(state: do.PersistedState) -> QuorumState:
    return _stored(replace(state, cut=None))


def _judge_unheard(
    judge: LivenessJudge, node: RegisteredNode, silent_s: dict[tuple[int, str], float], _: float
) -> bool:
    silent = silent_s.get((node.node_id, str(node.directory_id)))
    return silent is None or silent > judge.silence_max_s


def _fence_for_good(
    judge: LivenessJudge, node: RegisteredNode, silent_s: dict[tuple[int, str], float], now_s: float
) -> bool:
    return node.liveness is Liveness.FENCED or _is_silent(judge, node, silent_s, now_s)


def _judged_by_anybody() -> Any:
    return {**rlmm.apply.apply._RULES, NodeSilence: _judge_of_any_epoch}


def _judge_of_any_epoch(draft: Draft, record: NodeSilence) -> Outcome:
    return apply_node_silence(draft, replace(record, leader_epoch=draft.epoch))


BUGS: dict[str, Patches] = {
    "a new leader fences whom it has not heard yet": (
        (LivenessJudge, "_is_silent", _judge_unheard),
    ),
    "a fenced node stays fenced": ((LivenessJudge, "_is_silent", _fence_for_good),),
    "an earlier leader's word fences": ((rlmm.apply.apply, "_RULES", _judged_by_anybody()),),
    "the log is acknowledged before its sync": ((LogDirectory, "_sync_active", _nothing),),
    "a pass syncs before it writes": ((DiskQueue, "_run", _sync_before_writing),),
    "the quorum state is not synced": (
        (rlmm.log.quorum_state_file, "replace_file", _unsynced_replacement),
    ),
    "the recovery point is not synced": (
        (rlmm.log.recovery, "replace_file", _unsynced_replacement),
    ),
    "a truncation leaves the recovery point above it": (
        (LogDirectory, "truncate_to", _truncate_alone),
    ),
    "the recovery point is the written end": (
        (LogDirectory, "store_recovery_point", _store_written_end),
    ),
    "an installed snapshot leaves the recovery point above it": (
        (LogDirectory, "install_snapshot", _install_alone),
    ),
    "a truncation leaves the epochs of what is gone": (
        (LogDirectory, "truncate_to", _truncate_without_epochs),
    ),
    "a snapshot taken here is named above the recovery point": (
        (QuorumLog, "snapshot_finished", _finish_alone),
    ),
    "a cut is made before it is remembered": ((rlmm.log.recovery, "_remember_cut", _nothing),),
    "a cut is not stored with the quorum state": (
        (rlmm.quorum.driver, "stored", _stored_without_cut),
    ),
    "a failed write is repeated behind its torn half": (
        (LogDirectory, "_write", _write_until_it_works),
    ),
    "a full segment is not synced": ((LogDirectory, "_roll", _roll_unsynced),),
    "names are never synced": ((ForgetfulDisk, "sync_is_left_out", _names_left_out),),
    "messages overtake the quorum state": ((QuorumDriver, "_persist", _persist_behind),),
    "voters count above the recovery point": ((DiskQueue, "_run", _sync_voters_like_others),),
    "voters that a restart finds count above the recovery point": (
        (rlmm.quorum.initial_state, "_keep_voters", _nothing),
    ),
    "what is not committed is applied": ((QuorumDriver, "_advance", _apply_everything),),
    "what is not durable here is applied": ((QuorumDriver, "_advance", _apply_unsynced),),
    "the tail in memory is not truncated": ((Tail, "truncate_to", _keep_what_was_truncated),),
    "the tail in memory keeps dropped batches over a truncation": (
        (Tail, "truncate_to", _keep_dropped_bases),
    ),
    "an installed snapshot leaves the view's rows": (
        (rlmm.manager.apply_loop, "install_if_needed", _move_on_without_rows),
    ),
    "a snapshot is named before it is durable": ((SnapshotWriter, "finish", _unsynced_snapshot),),
    "a lost answer counts as not appended": ((Proposals, "answered", _propose_again),),
    "outcomes are told before they are known": ((ProposalWaiters, "wait", _guess),),
    "a read asks no majority": ((QuorumLog, "barrier", _believe_to_lead),),
    "a snapshot ends inside a batch": (
        (ApplyLoop, "between_groups", _at_once),
        (LogDirectory, "border_from", _any_border),
    ),
    "a view takes the end of its flush for its begin": ((View, "flush", _flush_up_to_its_end),),
    "parts of an abandoned download stay": ((rlmm.quorum.disk_queue, "remove_files", _nothing),),
    "the core offers a snapshot that was set aside": (
        (DamagedSnapshots, "set_aside", _set_aside_alone),
    ),
    "a driver reads on over a truncation": ((QuorumDriver, "_truncate", _read_on),),
    "the disk's generation stays over a truncation": ((DiskQueue, "_run", _run_in_one_generation),),
    "the recovery point stays where a log ends with its snapshot": (
        (LogDirectory, "install_snapshot", _install_at_the_end),
    ),
    "a cut has the epoch of what stays": ((rlmm.log.recovery, "_scan", _cut_of_what_stays),),
    "a download begins over behind its own snapshot": (
        (rlmm.raft.progress, "_needs_no_snapshot", _needs_none_behind_its_own),
    ),
    "a snapshot stays due": ((ApplyLoop, "snapshot_begun", _nothing),),
}


def planted(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS[name])
