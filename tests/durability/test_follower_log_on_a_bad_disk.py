"""What only a follower does to its log: it truncates it, and replaces it by a snapshot.

The power goes at each step. What was truncated does not come back once that was told, what stayed
stays, and a log that begins behind a snapshot never lacks that snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlmm.log.committed import encode_proposals
from rlmm.log.log_directory import LogDirectory
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import SnapshotWriter, read_snapshot, snapshot_file_name
from rlmm.metadata_log import CommittedRecord, Proposal, SnapshotId
from tests.durability.log_life import LOSSES, METADATA, BrokenPromiseError, Loss, records_of
from tests.durability.test_log_on_a_bad_disk import torn
from tests.rlmm.log.crash_disk import CrashDisk, PowerCut

SNAPSHOT = SnapshotId(40, 4)
ROWS = [Proposal(None, b"row")]
UNTOLD = Proposal(None, b"never synced, never told" * 3)
PARTITION = METADATA / PARTITION_DIRECTORY
SEGMENT_SIZES = (500, 700, 5_000)


@dataclass
class Witness:
    """`kept` has to be there, `gone` must not; `replaced` says that the log begins anew."""

    kept: dict[int, CommittedRecord] = field(default_factory=dict)
    gone: set[CommittedRecord] = field(default_factory=set)
    replacing: bool = False
    replaced: bool = False
    segment_bytes_max: int = SEGMENT_SIZES[0]

    def promises(self) -> Hashable:
        kept, gone = tuple(self.kept.items()), frozenset(self.gone)
        return kept, gone, self.replacing, self.replaced


def open_log(disk: CrashDisk, witness: Witness) -> LogDirectory:
    try:
        return LogDirectory.open(
            disk,
            METADATA,
            view_flushed_end=0,
            segment_bytes_max=witness.segment_bytes_max,
        )
    except CorruptData as error:
        raise BrokenPromiseError(f"the log does not open: {error}") from error


def append(log: LogDirectory, witness: Witness, count: int, *, epoch: int) -> None:
    """Written in one go, synced, and only then told."""
    told = {}
    for _ in range(count):
        offset, value = log.log_end_offset, b"%d-%d" % (log.log_end_offset, epoch) * 12
        told[offset] = CommittedRecord(offset, epoch, offset, None, value)
        # The same record of the same epoch may be fetched again.
        witness.gone.discard(told[offset])
        log.append(
            encode_proposals(
                [Proposal(None, value)], base_offset=offset, epoch=epoch, timestamp_ms=offset
            )
        )
    log.sync()
    witness.kept |= told


def truncate(log: LogDirectory, witness: Witness, end: int) -> None:
    dropped = {offset: record for offset, record in witness.kept.items() if offset >= end}
    witness.kept = {
        offset: record for offset, record in witness.kept.items() if offset not in dropped
    }
    log.truncate_to(end)
    witness.gone |= set(dropped.values())


def install(disk: CrashDisk, log: LogDirectory, witness: Witness) -> None:
    """The part arrives from the leader, in pieces that nobody synced."""
    other = Path("/leader")
    disk.make_directory(other)
    writer = SnapshotWriter(disk, other, SNAPSHOT, last_contained_timestamp_ms=5, voters=())
    writer.add(ROWS)
    data = disk.read(writer.finish())
    part = PARTITION / (snapshot_file_name(SNAPSHOT) + ".part")
    disk.remove(part)
    handle = disk.open_append(part)
    handle.append(data[:100])
    handle.append(data[100:])
    handle.close()
    witness.replacing = True
    log.install_snapshot(SNAPSHOT, part)
    witness.replaced = True


def follower_life(disk: CrashDisk, witness: Witness) -> None:
    log = open_log(disk, witness)
    append(log, witness, 9, epoch=1)
    append(log, witness, 6, epoch=2)
    log.store_recovery_point()
    append(log, witness, 3, epoch=2)
    truncate(log, witness, 11)
    append(log, witness, 2, epoch=3)
    # The next leader never saw epochs 2 and 3, but more of epoch 1.
    truncate(log, witness, 7)
    append(log, witness, 5, epoch=1)
    append(log, witness, 4, epoch=4)
    log.append(encode_proposals([UNTOLD] * 2, base_offset=16, epoch=4, timestamp_ms=16))
    install(disk, log, witness)
    append(log, witness, 3, epoch=4)
    log.close()


def overtaken_life(disk: CrashDisk, witness: Witness) -> None:
    """It led once and wrote much that nobody fetched; the snapshot ends below all that."""
    log = open_log(disk, witness)
    append(log, witness, SNAPSHOT.end_offset - 20, epoch=1)
    append(log, witness, 30, epoch=2)
    log.store_recovery_point()
    witness.kept = {at: each for at, each in witness.kept.items() if at < SNAPSHOT.end_offset}
    install(disk, log, witness)
    append(log, witness, 3, epoch=4)
    log.close()


def check(disk: CrashDisk, witness: Witness) -> None:
    log = open_log(disk, witness)
    found = {record.offset: record for record in records_of(log)}
    log.close()
    anew = log.log_start_offset == SNAPSHOT.end_offset
    if anew and not witness.replacing:
        raise BrokenPromiseError("the log begins behind a snapshot that nobody installed")
    if witness.replaced and not anew:
        raise BrokenPromiseError("the installed snapshot's log is the old one again")
    for offset, record in witness.kept.items():
        if offset >= log.log_start_offset and found.get(offset) != record:
            raise BrokenPromiseError(f"offset {offset} was told and is {found.get(offset)}")
    if back := witness.gone & set(found.values()):
        raise BrokenPromiseError(f"what was truncated is back: {back}")
    if anew:
        try:
            rows = list(read_snapshot(disk, log.snapshot_path(SNAPSHOT)))
        except (CorruptData, FileNotFoundError) as error:
            raise BrokenPromiseError(f"the log lacks its snapshot: {error}") from error
        if rows != ROWS:
            raise BrokenPromiseError("the snapshot is another")


def survive_every_crash(
    losses: Sequence[Loss],
    make: Callable[[], CrashDisk] = CrashDisk,
    sizes: Sequence[int] = SEGMENT_SIZES,
    life: Callable[[CrashDisk, Witness], None] = follower_life,
) -> int:
    cases = 0
    for segment_bytes_max in sizes:
        crash_at, ended = 0, False
        met: set[object] = set()
        while not ended:
            disk, witness = make(), Witness(segment_bytes_max=segment_bytes_max)
            disk.crash_at = crash_at
            try:
                life(disk, witness)
                ended = True
            except PowerCut:
                pass
            for left in disk.states_left(losses, met, witness.promises()):
                check(left, witness)
            cases += len(losses)
            crash_at += 1
    return cases


def test_truncated_is_gone_kept_is_kept_and_a_snapshot_precedes_its_log() -> None:
    assert survive_every_crash([*LOSSES, *torn(range(2))]) > 1_000


def test_a_snapshot_may_end_below_the_log_that_it_replaces() -> None:
    assert survive_every_crash([*LOSSES, *torn(range(2))], life=overtaken_life) > 300


def sync_sites() -> list[str]:
    disk = CrashDisk()
    follower_life(disk, Witness())
    ours = ("truncate_to", "install_snapshot", "restart_log", "sync >", ".sync:")
    return sorted(site for site in disk.sync_sites if any(name in site for name in ours))


NEEDLESS = {
    "log_directory.truncate_to: names":
        "the recovery point went back first, so a hole is cut; the checkpoint's write syncs names",
    "recovery.restart_log > recovery._store_epochs: bytes":
        "a checkpoint that cannot be read is made again from the batches",
    "recovery.restart_log > recovery._store_epochs: names":
        "the sync of the same directory follows",
}  # fmt: skip
"""Syncs of shared functions, and of an order that would hold without."""


@pytest.mark.parametrize("site", sync_sites())
def test_each_sync_left_out_is_caught(site: str) -> None:
    def make() -> CrashDisk:
        disk = CrashDisk()
        disk.ignored_site = site
        return disk

    losses = [*LOSSES, *torn(range(1))]
    if site in NEEDLESS:
        survive_every_crash(LOSSES, make, SEGMENT_SIZES[:1])
        return
    with pytest.raises(BrokenPromiseError):
        survive_every_crash(losses, make)
