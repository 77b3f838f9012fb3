"""A log's life that may end at any operation, and a witness of what was promised meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_formats.errors import CorruptData
from rlmm.log.committed import committed_group, encode_proposals
from rlmm.log.log_directory import LogDirectory
from rlmm.log.recovery import load_recovery_point
from rlmm.log.snapshot_files import SnapshotWriter, read_snapshot
from rlmm.metadata_log import CommittedRecord, Proposal, SnapshotId
from tests.durability.leader_of_one import open_as_leader
from tests.rlmm.log.appending import append_and_sync
from tests.rlmm.log.crash_disk import CrashDisk, Fate, PowerCut, Survivors

METADATA = Path("/data/metadata")
SEGMENT_BYTES_MAX = 600
LOSSES: list[tuple[Fate, Fate]] = [
    (Survivors.NONE, Survivors.NONE),
    (Survivors.NONE, Survivors.ALL),
    (Survivors.ALL, Survivors.NONE),
    (Survivors.FIRST_HALF, Survivors.ALL),
    (Survivors.LAST_ONLY, Survivors.ALL),
    (Survivors.FIRST_HALF, Survivors.LAST_ONLY),
    (Survivors.ALL, Survivors.FIRST_HALF),
]
Loss = tuple[Fate, Fate]
"""What survives of files and of directories."""


class BrokenPromiseError(AssertionError):
    """The log broke a promise."""


@dataclass
class Witness:
    """What was promised and what was tried, outside the machine that dies."""

    acknowledged: dict[int, CommittedRecord] = field(default_factory=dict)
    tried: set[CommittedRecord] = field(default_factory=set)
    epoch: int = 0
    snapshot: SnapshotId | None = None
    recovery_point: int = 0
    segment_bytes_max: int = SEGMENT_BYTES_MAX

    def copy(self) -> Witness:
        """Another that goes on by itself."""
        return replace(self, acknowledged=dict(self.acknowledged), tried=set(self.tried))

    def promises(self) -> Hashable:
        """All but what was tried: later lives may find more of that, never less."""
        told = self.epoch, self.snapshot, self.recovery_point, self.segment_bytes_max
        return tuple(self.acknowledged.items()), told


def open_log(disk: CrashDisk, witness: Witness) -> tuple[LogDirectory, int]:
    """Open and check; everything that is there counts as acknowledged from then on."""
    try:
        log, epoch = open_as_leader(
            disk,
            METADATA,
            node_id=1,
            view_flushed_end=0,
            segment_bytes_max=witness.segment_bytes_max,
        )
    except CorruptData as error:
        raise BrokenPromiseError(f"the log does not open: {error!r}") from error
    found = {record.offset: record for record in records_of(log)}
    for offset, record in witness.acknowledged.items():
        if offset >= log.log_start_offset and found.get(offset) != record:
            raise BrokenPromiseError(f"offset {offset} was acknowledged and is {found.get(offset)}")
    if not witness.tried >= set(found.values()):
        raise BrokenPromiseError("there is a record that nobody wrote")
    if epoch <= witness.epoch:
        raise BrokenPromiseError(f"epoch {epoch} is led again, after {witness.epoch}")
    if load_recovery_point(disk, METADATA) < witness.recovery_point:
        raise BrokenPromiseError("the recovery point went back")
    if log.log_start_offset > 0 and witness.snapshot not in log.snapshots():
        raise BrokenPromiseError("the log is cut and its snapshot is gone")
    if witness.snapshot is not None:
        try:
            rows = list(read_snapshot(disk, log.snapshot_path(witness.snapshot)))
        except (CorruptData, FileNotFoundError) as error:
            raise BrokenPromiseError("the snapshot is damaged or gone") from error
        if rows != [Proposal(None, b"row")]:
            raise BrokenPromiseError("the snapshot is not what was written")
    witness.epoch = epoch
    witness.acknowledged.update(found)
    return log, epoch


def records_of(log: LogDirectory) -> Iterator[CommittedRecord]:
    position, end = log.log_start_offset, log.log_end_offset
    while position < end:
        batches = log.read(position, end, bytes_max=1)
        group = committed_group(batches, position)
        yield from group.records
        position = group.end_offset


def one_life(disk: CrashDisk, witness: Witness) -> None:
    """Everything a node does to its log, in a few steps; a `PowerCut` may end it anywhere."""
    log, epoch = open_log(disk, witness)
    for step in range(5):
        proposals = [
            Proposal(1000 if (step + index) % 3 == 0 else None, b"%d-%d" % (step, index) * 15)
            for index in range(2)
        ]
        start = log.log_end_offset
        batches = encode_proposals(proposals, base_offset=start, epoch=epoch, timestamp_ms=step)
        records = [
            CommittedRecord(start + index, epoch, step, proposal.control_type, proposal.value)
            for index, proposal in enumerate(proposals)
        ]
        witness.tried.update(records)
        append_and_sync(log, batches)
        witness.acknowledged.update({record.offset: record for record in records})
        if step == 1:
            witness.recovery_point = log.store_recovery_point()
        if step == 3:
            snapshot = SnapshotId(log.log_end_offset, epoch)
            writer = SnapshotWriter(
                disk, log.directory, snapshot, last_contained_timestamp_ms=step, voters=()
            )
            writer.add([Proposal(None, b"row")])
            writer.finish()
            witness.snapshot = snapshot
            log.cut_start(snapshot.end_offset, keep_bytes=0)
            log.remove_old_snapshots(keep=1)
    log.close()


def crashed(
    make: Callable[[], CrashDisk],
    *,
    lives_before: int = 0,
    segment_bytes_max: int = SEGMENT_BYTES_MAX,
) -> Iterator[tuple[CrashDisk, Witness]]:
    """A life that ends before each of its operations in turn; what is left is as it stands then."""
    crash_at = 0
    while True:
        disk, witness = make(), Witness(segment_bytes_max=segment_bytes_max)
        for _ in range(lives_before):
            one_life(disk, witness)
            disk.process_death()
        disk.crash_at = crash_at
        try:
            one_life(disk, witness)
        except PowerCut:
            yield disk, witness
        else:
            return
        crash_at += 1


def survive_every_crash(
    make: Callable[[], CrashDisk] = CrashDisk, losses: Sequence[Loss] = LOSSES
) -> int:
    """Crash a life at each of its operations, lose each kind of thing; returns how many cases."""
    met: set[object] = set()
    return sum(
        open_after_each(losses, disk, witness, met)
        for lives_before in (0, 1)
        for disk, witness in crashed(make, lives_before=lives_before)
    )


def open_after_each(
    losses: Sequence[Loss], disk: CrashDisk, witness: Witness, met: set[object]
) -> int:
    """The power goes; what is left of the disk is opened and checked, unless it is `met` and so was
    before. How many cases.
    """
    for left in disk.states_left(losses, met, witness.promises()):
        log, _ = open_log(left, witness.copy())
        log.close()
    return len(losses)


def process_death_then_power_cut(
    make: Callable[[], CrashDisk] = CrashDisk, losses: Sequence[Loss] = LOSSES
) -> int:
    """What a restart finds in the page cache becomes acknowledged: the power may go right after."""
    cases, met = 0, set[object]()
    for disk, witness in crashed(make):
        disk.process_death()
        open_log(disk, witness)
        cases += open_after_each(losses, disk, witness, met)
    return cases


def recovery_alone_is_durable(make: Callable[[], CrashDisk] = CrashDisk) -> None:
    """What recovery returned, and what is appended in the same epoch (as a follower would), is
    there when the power goes right after it: no other sync helps it.
    """
    for segment_bytes_max in (250, 400, SEGMENT_BYTES_MAX):
        for disk, _ in crashed(make, segment_bytes_max=segment_bytes_max):
            disk.process_death()
            log = _recovered(disk)
            _append(log, epoch=max(log.last_epoch, 1))
            before = list(records_of(log))
            disk.power_cut(Survivors.NONE, Survivors.NONE)
            if list(records_of(_recovered(disk))) != before:
                raise BrokenPromiseError("what was recovered, or written after it, is lost")


def keep_every_promise(
    make: Callable[[], CrashDisk] = CrashDisk, losses: Sequence[Loss] = LOSSES
) -> None:
    """All of the above."""
    recovery_alone_is_durable(make)
    process_death_then_power_cut(make, losses)
    survive_every_crash(make, losses)


def _recovered(disk: CrashDisk) -> LogDirectory:
    try:
        return LogDirectory.open(
            disk, METADATA, view_flushed_end=0, segment_bytes_max=SEGMENT_BYTES_MAX
        )
    except CorruptData as error:
        raise BrokenPromiseError(f"the log does not open: {error!r}") from error


def _append(log: LogDirectory, *, epoch: int) -> None:
    append_and_sync(
        log,
        encode_proposals(
            [Proposal(None, b"one more")],
            base_offset=log.log_end_offset,
            epoch=epoch,
            timestamp_ms=99,
        ),
    )
