"""Segments that nodes keep from local retention by links, among real files: crashes, full disks,
brokers that go on while links are made, and an auditor of the directories.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import rlm.local_log.hold_directory
import rlm.local_log.hold_tree
import rlm.local_log.unit_files
from kafka_formats import leader_epoch_checkpoint
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, epoch_for_offset
from kafka_formats.log_names import LEADER_EPOCH_CHECKPOINT_FILE
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.local_log.active_links import active_root
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition
from rlm.local_log.segment_facts import segment_epochs
from rlmm.lineage import within_lineage
from rlmm.partition_state import LostOffsets, PartitionState
from rlmm.records.control_records import LogStart, LostRange
from rlmm.rows import queries
from rlmm.rows.rows import RowReader
from rlmm.segment import Incarnation
from sim.ground.forgetful_disk import PowerCut
from sim.nodes.loop import LIFE
from sim.tier.readers import batches_of
from sim.tier.replica import Batch, batches_within
from sim.tier.served import answer

if TYPE_CHECKING:
    from sim.tier.machine import Machine, Process
    from sim.tier.partition import Partition
    from sim.tier.world import World

STALE_MS_MAX = 200_000
"""Longest time between a node's look at the log directories and its deed."""


class _DiskAmid:
    """`os` for hold directories: anything may happen between two calls."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def link(self, source: Path, target: Path) -> None:
        if target.parent.name.startswith(".making-") and target.suffix == ".log":
            self._step(f"link {_told(target.parent)}")
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._step(f"rename {_told(source)}")
        os.rename(source, target)

    def listdir(self, path: Path) -> list[str]:
        if path.name.startswith(".removing-"):
            self._step(f"remove {_told(path)}")
        else:
            self._may_fail(f"list {path.name}")
        return os.listdir(path)

    def stat(self, path: Path) -> os.stat_result:
        self._may_fail(f"stat {path.name}")
        return os.stat(path)

    def _may_fail(self, what: str) -> None:
        if self._world.faults.disk_fails(what):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _step(self, what: str) -> None:
        world, life = self._world, LIFE.get()
        (process,) = (m.process for m in world.machines if m.process and m.process.life is life)
        where = f"{process.machine.name} before {what}"
        world.note(where)
        if world.faults.crashes_at(where):
            world.note(f"{process.machine.name} crashes before {what}")
            process.life.alive = False
            world.schedule.after(0, process.machine.kill)
            raise PowerCut
        if world.faults.disk_fails(where):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if world.faults.brokers_act_amid(where):
            world.brokers.act_amid()


@contextmanager
def disks_of(world: World) -> Iterator[None]:
    """Use the world's disk for the length of the block."""
    disk = _DiskAmid(world)
    with (
        patch.object(rlm.local_log.hold_directory, "os", disk),
        patch.object(rlm.local_log.hold_tree, "os", disk),
        patch.object(rlm.local_log.unit_files, "os", disk),
    ):
        yield


class HoldAuditor:
    """Checks links by the directories and the replicas alone."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._linked: dict[Path, Incarnation] = {}
        self._denied: set[Path] = set()
        self._committed: dict[Incarnation, dict[Path, tuple[object, ...]]] = {}
        self._last_then: dict[Incarnation, int] = {}
        self._unwanted: dict[tuple[TopicIdPartition, int, int], bool] = {}
        self._unwanted_at = 0
        self._taken: dict[tuple[int, TopicIdPartition], list[list[Batch]]] = {}

    def passed(self, process: Process) -> None:
        """Check that a pass held what local retention may take next, which goes by the high
        watermark: segments that were sealed, committed and uncopied before it looked and are so
        still, and active ones with records, of the latest leader's log: a claim that cut an older
        one makes it uncopied again, once the node has heard of it.
        """
        world, machine = self._world, process.machine
        heard = self._last_then.get(process.incarnation, -1)
        self._last_then[process.incarnation] = next(reversed(world.auditor.reference.values), -1)
        if process.view is None or process.view.applied_offset < heard:
            return
        before = self._committed.get(process.incarnation, {})
        self._committed[process.incarnation] = now = {}
        for partition in world.brokers.partitions:
            replica = partition.replicas.get(machine.node_id)
            if replica is None or "disk_error" in world.faults.kinds or world.local_damage.is_on:
                continue
            # What is written may be a deleted topic's.
            committed = min(world.brokers.written(machine, partition), replica.high_watermark)
            sealed = replica.sealed(below=committed)
            for path, start, end in (*sealed, *replica.active()):
                found = path.stat()
                unneeded = self._is_unwanted(partition.tip, start, end) or not (
                    self._is_of_the_log(machine, partition, path, start, end)
                )
                is_active = start >= replica.bases[-1]
                known = queries.partition_state(world.auditor.reference.rows, partition.tip)
                stands = known and (known.claim, known.log_start_offset)  # it may come and go
                of_file = replica.truncated_ms, found.st_ino, is_active
                mark = replica.epochs, of_file, unneeded, stands
                now[path] = mark
                world.auditor.check(
                    found.st_nlink > 1 or mark != before.get(path) or unneeded,
                    "hold_keeps_what_is_not_copied",
                    f"{machine.name} does not hold {start} to {end - 1} of {partition.tip}",
                )

    def _is_unwanted(self, tip: TopicIdPartition, start: int, end: int) -> bool:
        """True if nobody needs the offsets, by the metadata alone; remembered until these
        change.
        """
        reference, asked = self._world.auditor.reference, (tip, start, end)
        if self._unwanted_at != len(reference.values):
            self._unwanted_at = len(reference.values)
            self._unwanted.clear()
        if asked not in self._unwanted:
            state = queries.partition_state(reference.rows, tip)
            deleted = state is not None and state.delete_state is not None
            self._unwanted[asked] = deleted or self._served(reference.rows, tip, start, end)
        return self._unwanted[asked]

    def held(self, process: Process, unit: Unit) -> None:
        """Check that a new link's file has no other link, since two would hide each other from the
        budget. Exempt are files that could not be read, and links to a file that was cut since: the
        next pass releases those.
        """
        path, world = unit.segment.log_path, self._world
        self._linked[path] = process.incarnation
        base, _, size, inode, _ = path.parent.name.split("-")
        others = path.parent.parent.glob(f"{base}-*-{size}-{inode}-*")
        same = [each for each in others if each != path.parent]
        world.auditor.check(
            not same or "disk_error" in world.faults.kinds,
            "held_once",
            f"{process.machine.name} links {_told(path.parent)} again",
        )

    def held_left(self, process: Process, unit: Unit) -> None:
        """Note a unit made of a file that was active when it left the log."""
        self._linked[unit.segment.log_path] = process.incarnation

    def denied(self, process: Process, unit: Unit, local: LocalPartition | None) -> None:
        """Check that what is let go as perhaps not committed has no log that goes on in its last
        epoch. It is missed aloud: retention passed it, and epochs that nobody looked at.
        """
        if local is None:
            return  # it is kept, and judged again
        taken = self._taken.get((process.machine.node_id, unit.partition), [])
        start, end = unit.base_offset, unit.next_base_offset
        taken[:] = [each for each in taken if not start <= each[0].base < end]
        goes_on = epoch_for_offset(local.leader_epochs, local.segments[0].base_offset)
        self._world.auditor.check(
            goes_on != unit.leader_epochs[-1].epoch,
            "hold_keeps_what_is_not_copied",
            f"{process.machine.name} lets {start} to {end - 1} of {unit.partition} go, whose epoch "
            "goes on in its log",
        )

    def denied_anew(self, unit: Unit) -> None:
        """Note a unit that was written to and, perhaps, has what was not committed."""
        self._denied.add(unit.segment.log_path)

    def told_anew(self, process: Process, unit: Unit, told: Unit | None) -> None:
        """Note that a process told a unit anew by its batches."""
        self._linked.pop(unit.segment.log_path, None)
        if told is not None:
            self._linked[told.segment.log_path] = process.incarnation

    def releasing(self, process: Process, unit: Unit) -> None:
        """Check that a unit may be released: copied, of another log now, or no room. A file that is
        held alone counts as it is, whatever its unit says: what nobody has read is not known to be
        of another log.
        """
        world, machine = self._world, process.machine
        partition = world.brokers.partition(unit.partition)
        path = unit.segment.log_path
        self._linked.pop(path, None)
        start, end = unit.base_offset, unit.next_base_offset
        taken = self._taken.get((machine.node_id, unit.partition), [])
        taken[:] = [each for each in taken if not start <= each[0].base < end]
        if path in self._denied:
            return  # it is missed aloud, as in `denied`
        if any(
            each.samefile(path)
            for each in path.parent.parent.glob(f"*/{path.name}")
            if each != path and path.exists()
        ):
            return  # a file that was written to and held anew stays by its later link
        if path.exists() and _has_left(machine, path):
            end = max((batch.last + 1 for batch in batches_of(path.read_bytes())), default=start)
        unread = end not in (start, unit.next_base_offset)
        if (
            partition.deleted
            or not (self._is_of_the_log(machine, partition, path, start, end, at_once=unread))
            or any(
                self._served(rows, unit.partition, _first_known(path, start), end)
                for rows in (world.auditor.reference.rows, process.view)
                if rows is not None
            )
        ):
            return  # by a view that lags, too: its node may release just before a claim cuts it
        alone_bytes = _alone_bytes(machine)
        world.auditor.check(
            alone_bytes > world.hold_bytes_max
            or machine.missing_bytes > 0
            or world.schedule.now_ms - machine.missed_bytes_ms < STALE_MS_MAX,
            "hold_keeps_what_is_not_copied",
            f"{machine.name} lets {start} to {end - 1} of {unit.partition} go, {alone_bytes} bytes "
            "are held alone",
        )

    def taken(self, machine: Machine, partition: Partition) -> None:
        """Note records of an active segment that local retention is about to take, if the node has
        linked it.
        """
        replica = partition.replicas[machine.node_id]
        for path, start, end in replica.active():
            batches = replica.within(start, end)
            if batches and path.stat().st_nlink > 1:
                self._taken.setdefault((machine.node_id, partition.tip), []).append(batches)

    def _check_taken(self, record: LostRange, state: PartitionState, partition: Partition) -> None:
        """Check that a lost range has none of the latest leader's records that were linked when
        retention took them. A claim that knew less of the log's head may contradict them.
        """
        assert state.claim is not None
        node_id = state.claim.incarnation.node_id
        for batches in self._taken.get((node_id, partition.tip), ()):
            start, end = batches[0].base, batches[-1].last
            epochs = sorted({each.epoch: each.base for each in reversed(batches)}.items())
            whole = tuple(EpochEntry(*each) for each in epochs)
            log = partition.truth[partition.epoch]
            wanted = all(each in log for each in batches) and within_lineage(
                start, end, whole, state.lineage, None
            )
            passed = any(start in each for each in partition.replicas[node_id].passed)
            self._world.auditor.check(
                passed or not wanted or end < record.start or record.end < start,
                "hold_keeps_what_is_not_copied",
                f"{record} is said to be lost, {start} to {end} was linked",
            )

    def lost(self, record: LostRange, state: PartitionState) -> None:
        """Check that a lost range is not held by the node that records it.

        What the log start passed counts as lost and may fill the range later, also whole segments
        that the broker still has. What a claim contradicts, because it knew less of the log's head,
        is kept and can't be copied.
        """
        assert state.claim is not None
        node_id = state.claim.incarnation.node_id
        partition = self._world.brokers.partition(record.partition)
        self._check_taken(record, state, partition)
        replica = partition.replicas[node_id]
        for path, start, end in self._held_by_claimant(state):
            base, _ = _offsets(path)
            passed = base >= replica.bases[0] and record.end < replica.log_start
            if passed or any(base in each for each in replica.passed):
                continue
            if not _fits(path, state):
                continue
            self._world.auditor.check(
                record.end < start or end <= record.start,
                "hold_keeps_what_is_not_copied",
                f"{record} is said to be lost, {start} to {end - 1} is held",
            )

    def first_log_start(self, record: LogStart, state: PartitionState) -> None:
        """Check that nothing held comes before a first log start, except what DeleteRecords took,
        also of segments that the broker has not removed yet.
        """
        assert state.claim is not None
        node_id = state.claim.incarnation.node_id
        replica = self._world.brokers.partition(record.partition).replicas[node_id]
        for path, start, end in self._held_by_claimant(state):
            base, _ = _offsets(path)
            stands_below_the_log_start = replica.bases[0] <= base < replica.log_start
            was_passed = any(base in each for each in replica.passed)
            self._world.auditor.check(
                not start < record.offset <= end or was_passed or stands_below_the_log_start,
                "hold_keeps_what_is_not_copied",
                f"{record} passes over {start} to {min(end, record.offset) - 1}, which is held",
            )

    def unquiet(self) -> Iterator[str]:
        """Links left though all is copied, except for what may fill a lost range and for topics
        unknown to the metadata.
        """
        for machine in self._world.departed.present:
            waiting = {log.parent for log in held_logs(machine) if self._waits(machine, log)}
            for path in sorted({*machine.hold_dir.glob("*/*/*")} - waiting):
                yield f"{machine.name} still has {path.relative_to(machine.hold_dir)}"
            for log in active_root(machine.hold_dir).glob("*/*/*/*.log"):
                partition = self._world.brokers.with_id(Uuid.parse(log.parent.parent.name))
                known = not partition.deleted or partition.tip in self._world.auditor.claimed
                if _has_left(machine, log) and known:
                    yield f"{machine.name} still links {log}, which left its log"

    def _waits(self, machine: Machine, log: Path) -> bool:
        """True if a link waits: for its broker to lead or to remove its own segments there, for
        other records at these offsets, or for room; or if a claim that knew less of the log's head
        contradicts it.
        """
        start, end = _offsets(log)
        partition = self._world.brokers.with_id(Uuid.parse(log.parent.parent.name))
        if partition.deleted:
            return partition.tip not in self._world.auditor.claimed
        rows = self._world.auditor.reference.rows
        state = queries.partition_state(rows, partition.tip)
        lost = () if state is None else state.lost_ranges
        fills = any(each.start < end and start <= each.end for each in lost)
        if fills and not _has_any_of(log, lost):
            return True  # damage took just that; what it has is in the tier
        bases, has_left = partition.replicas[machine.node_id].bases, _has_left(machine, log)
        if end > bases[-1]:
            return has_left
        stands = start >= bases[0] and not {start, end} <= set(bases)
        if not fills or partition.leader != machine.node_id or not has_left or stands:
            return fills
        assert state is not None, "it has lost ranges"
        return not _fits(log, state)

    def _held_by_claimant(self, state: PartitionState) -> Iterator[tuple[Path, int, int]]:
        """Log, first known offset and end of links made by the claiming process for the claimed
        log.
        """
        assert state.claim is not None
        incarnation = state.claim.incarnation
        machine = self._world.machine(incarnation.node_id)
        partition = self._world.brokers.partition(state.partition)
        for path in held_logs(machine):
            start, end = _offsets(path)
            if (
                self._linked.get(path) == incarnation
                and path.parent.parent.name == str(state.partition.topic_id)
                and self._is_of_the_log(machine, partition, path, start, end)
            ):
                yield path, _first_known(path, start), end

    def _is_of_the_log(
        self,
        machine: Machine,
        partition: Partition,
        path: Path,
        start: int,
        end: int,
        *,
        at_once: bool = False,
    ) -> bool:
        """True if a file surely belongs to the replica's and the latest leader's log: `at_once`, or
        since any node had a look.
        """
        replica = partition.replicas[machine.node_id]
        looked_at = at_once or self._world.now_ms() - replica.truncated_ms >= STALE_MS_MAX
        if not looked_at or not path.exists():
            return False
        data = path.read_bytes()
        logs = (replica.batches, partition.truth[partition.epoch])
        return all(
            b"".join(batch.data for batch in batches_within(log, start, end)) == data
            for log in logs
        )

    def _served(self, rows: RowReader, tip: TopicIdPartition, start: int, end: int) -> bool:
        """True if the tier has, or had, these offsets."""
        state = queries.partition_state(rows, tip)
        if state is None:
            return False
        offset = max(start, state.log_start_offset)
        while offset < end:
            found = answer(rows, state, offset)
            if found is None:
                return False
            offset = found.valid_until + 1
        return True


def held_logs(machine: Machine) -> list[Path]:
    """Held segments: `<hold>/<partition>/<topic id>/<unit>/<base>.log`."""
    return sorted(
        log
        for unit in machine.hold_dir.glob("*/*/[0-9]*")
        for log in unit.glob(f"{unit.name[:20]}.log")
    )


def _offsets(log: Path) -> tuple[int, int]:
    """A unit's base and the next one's, from its name."""
    base, end, *_ = map(int, log.parent.name.split("-"))
    return base, end


def _fits(log: Path, state: PartitionState) -> bool:
    """True if a held segment is in the claimed lineage, and no offset has another epoch there."""
    base, end = _offsets(log)
    epochs = segment_epochs(_epochs(log), _first_known(log, base), end)
    first = max(epochs[0].start_offset, state.lineage[0].start_offset)
    starts = {first, *(each.start_offset for each in (*epochs, *state.lineage))}
    return within_lineage(base, end - 1, epochs, state.lineage, None) and all(
        epoch_for_offset(epochs, each) == epoch_for_offset(state.lineage, each)
        for each in starts
        if first <= each < end
    )


def _has_any_of(log: Path, lost: Sequence[LostOffsets]) -> bool:
    """True if it has a batch of a lost range: damage may have taken some through the link."""
    first = _first_known(log, _offsets(log)[0])
    return any(
        max(batch.base, first, each.start) <= min(batch.last, each.end)
        for batch in batches_of(log.read_bytes())
        for each in lost
    )


def _epochs(log: Path) -> leader_epoch_checkpoint.Epochs:
    path = log.with_name(LEADER_EPOCH_CHECKPOINT_FILE)
    return leader_epoch_checkpoint.parse(path.read_bytes(), source="")


def _first_known(log: Path, start: int) -> int:
    """First offset of a held segment that DeleteRecords had not taken before."""
    return max(start, _epochs(log)[0].start_offset)


def _has_left(machine: Machine, held: Path) -> bool:
    """True if a held file is not the broker's any more, whatever else links it: a unit and the link
    to the active segment, which stays for another pass, may be two links of one file.
    """
    own = machine.log_dir / held.parents[2].name / held.name
    return not (own.exists() and own.samefile(held))


def _alone_bytes(machine: Machine) -> int:
    """Bytes of files that are held alone: by units, and by links to active segments that left the
    log, of which nothing tells yet whether they were committed. Each file counts once.
    """
    linked = active_root(machine.hold_dir).glob("*/*/*/*.log")
    alone = (each for each in (*held_logs(machine), *linked) if _has_left(machine, each))
    return sum({found.st_ino: found.st_size for found in map(Path.stat, alone)}.values())


def _told(unit: Path) -> str:
    """Name of a unit's directory, without its zeros and its inode."""
    mark, _, name = unit.name.rpartition(".")
    words = name.removeprefix("making-").removeprefix("removing-").split("-")[:3]
    return f"{mark or ''}{unit.parent.parent.name} " + "-".join(str(int(each)) for each in words)
