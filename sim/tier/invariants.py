"""Invariants of the tier, seen from outside: committed records, objects written and deleted, bytes
read.

The source's bytes are known from `Partition.truth`; what a node says is not believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.run_events import SegmentCopied
from rlm.data_plane.copy_job import CopyJob
from rlm.delete.delete_due import was_finished
from rlm.format.object_keys import own_prefix, parse_segment_key, segment_keys
from rlmm.apply.apply import partition_of
from rlmm.apply.outcome import Verdict
from rlmm.metadata_log import CommittedRecord
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import (
    ClusterSetting,
    ExpiryMark,
    ExpiryTakenBack,
    LogStart,
    LostRange,
    PartitionClaim,
    PartitionDeleteUndo,
    SegmentMissing,
)
from rlmm.records.records import MetadataRecord, decode
from rlmm.rows import queries
from rlmm.rows.reads import read_segment
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from rlmm.view.view import View
from sim.core.invariants import InvariantError
from sim.nodes.reference import Reference
from sim.tier.claimed_logs import Claimed, claimed, log_of_claims
from sim.tier.late import SLACK_MS
from sim.tier.replica import Batch, batches_within
from sim.tier.retained import RetentionAudit
from sim.tier.served import unserved

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.partition import Partition
    from sim.tier.world import World

COPY_STARTED = SegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = SegmentState.DELETE_SEGMENT_STARTED
LONG_AGO_MS = -(1 << 40)
DELETE_FINISHED = SegmentState.DELETE_SEGMENT_FINISHED


class Auditor:
    """Checks everything; `violation` is the first broken invariant. `accepted` counts records by
    kind or state.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.violation: InvariantError | None = None
        self.reference = Reference(self.check)
        self.accepted: Counter[str] = Counter()
        self.read_bytes = 0
        self._offset = -1
        self.ids: set[Uuid] = set()
        self._claims: dict[TopicIdPartition, list[Claimed]] = {}
        self._forgotten: set[TopicIdPartition] = set()
        self._marked_ms: dict[Uuid, int] = {}
        self._uploads: dict[Process, set[TopicIdPartition | RemoteLogSegmentId]] = {}
        self._missing: set[str] = set()
        self._copied: set[tuple[object, ...]] = set()
        self.retained = RetentionAudit(world)

    @property
    def claimed(self) -> Collection[TopicIdPartition]:
        """Partitions that the metadata ever had, without those that a disaster made unknown."""
        return self._claims.keys() - self._forgotten

    def check(self, holds: bool, name: str, message: str) -> None:
        """Raise and remember a broken invariant, since the code under test may catch everything."""
        if not holds:
            error = InvariantError(name, message)
            self.violation = self.violation or error
            raise error

    # ---- the metadata log

    def committed(self, record: CommittedRecord) -> None:
        """Check the next record of the log."""
        decoded = decode(record.control_type, record.value)
        before, state_before = self._row(decoded), self._state(decoded)
        self._world.lower_end.committing(decoded)
        tip = partition_of(decoded)
        whole_before = None if tip is None else queries.partition_state(self.reference.rows, tip)
        self._offset = record.offset
        self.reference.apply(record)
        verdict = self.reference.verdicts[record.offset]
        self._world.note(f"log {record.offset}: {self._world.told(decoded)} {verdict.value}")
        self._world.lower_end.committed(record.offset, decoded, verdict)
        if verdict is not Verdict.ACCEPTED:
            return
        self._world.readers.named.committed(tip)
        self.accepted[_name(decoded)] += 1
        if self._world.disaster.is_over:
            self._world.disaster.audit.committed(decoded, tip, whole_before)
        self._world.scenes.audit.committed(decoded, before, whole_before)
        self._world.absences.committed(decoded)
        match decoded:
            case PartitionClaim():
                claims = self._claims.setdefault(decoded.partition, [])
                self._forgotten.discard(decoded.partition)
                known = state_before.lineage if state_before else ()
                claims.append(
                    claimed(
                        record.offset, decoded.leader_epoch, decoded.leader_epochs,
                        decoded.local_log_start_offset, known,
                    )
                )  # fmt: skip
                self._world.building.audit.claims(record.offset, decoded)
            case RemoteLogSegmentMetadata():
                if decoded.segment_id.id not in self.ids:  # else it is adopted
                    self._check_committed(decoded)
                self.ids.add(decoded.segment_id.id)
                self._world.delegated.audit.committed(decoded, None)
            case RemoteLogSegmentMetadataUpdate():
                self._updated(decoded, before)
                self._world.delegated.audit.committed(decoded, before)
            case SegmentMissing():
                self._marked_ms[decoded.segment] = LONG_AGO_MS
            case LostRange():
                self._lost(decoded)
            case LogStart():
                self.retained.log_start(decoded, state_before)
            case ExpiryMark():
                self.retained.marked(decoded, state_before)
            case ExpiryTakenBack() | PartitionDeleteUndo():
                self._world.trash.audit.taken_back(decoded)
            case ClusterSetting():
                self._world.settings.committed(record.offset)
            case _:
                pass
        partition = getattr(decoded, "partition", None)
        if isinstance(decoded, RemoteLogSegmentMetadataUpdate):
            partition = decoded.segment_id.partition
        if isinstance(partition, TopicIdPartition):
            self._no_hole(partition)
            self._world.trash.committed(record.offset, partition, decoded, before)

    def restart(self, end: int) -> None:
        """Go on with the rows of a snapshot at `end`. Claims that are lost are known all the same:
        copies under them tell of the logs.
        """
        self.reference.restart(self._world.log.rows, end)
        for claims in self._claims.values():
            claims[:] = [each._replace(offset=min(each.offset, end - 1)) for each in claims]
        rows = self.reference.rows
        unknown = {tip for tip in self._claims if queries.partition_state(rows, tip) is None}
        self._forgotten |= unknown
        self._world.lower_end.restart(end)
        self._world.disaster.audit.restarted()

    def applied(self, process: Process, view: View) -> None:
        """Check a step that a node committed to its view; of a lost cluster nothing is judged."""
        goes_on = process.life.alive and process.log and not process.log.is_of_lost_cluster
        if goes_on and view.applied_offset >= 0:
            self.check(
                view.digest() == self.reference.digests[view.applied_offset],
                "same_offset_same_state",
                f"{process.machine.name} has other rows at {view.applied_offset}",
            )
            self._world.settings.applied(process)

    def copied(self, process: Process, event: SegmentCopied) -> None:
        """Check a node's statement that a segment is copied."""
        row = read_segment(self.reference.rows, event.segment_id.id)
        self.check(
            event.segment_id.id in self.ids and (row is None or row.state is not COPY_STARTED),
            "acknowledged_is_durable",
            f"{process.machine.name} says {event.segment_id} is copied, the log says {row}",
        )

    def _row(self, record: MetadataRecord) -> RemoteLogSegmentMetadata | None:
        if isinstance(record, RemoteLogSegmentMetadataUpdate):
            return read_segment(self.reference.rows, record.segment_id.id)
        return None

    def _state(self, record: MetadataRecord) -> PartitionState | None:
        """The partition before a record that claims it, or moves what readers start at."""
        if isinstance(record, LogStart | PartitionClaim | ExpiryMark):
            return queries.partition_state(self.reference.rows, record.partition)
        return None

    def _updated(
        self, update: RemoteLogSegmentMetadataUpdate, row: RemoteLogSegmentMetadata | None
    ) -> None:
        assert row is not None
        if update.state is COPY_FINISHED:
            self._copied.add((row.segment_id.partition, row.leader_epochs, row.end_offset))
            self._check_objects(row)
            self._world.damage.finished(row)
        elif update.state is DELETE_STARTED:
            self._marked_ms[row.segment_id.id] = self._world.schedule.now_ms
            self._world.damage.twice.deleting(update, row)
        elif update.state is DELETE_FINISHED and not self._world.faults.breaks_timing:
            left = [key for key in self.keys(row) if self._world.bucket.content(key) is not None]
            self.check(
                not left, "delete_order", f"the row of {row.segment_id} went before its {left}"
            )

    def _check_committed(self, row: RemoteLogSegmentMetadata) -> None:
        """Check that a copy has only committed, decided records; a repair's were copied before."""
        if (row.segment_id.partition, row.leader_epochs, row.end_offset) in self._copied:
            return
        partition = self._world.brokers.partition(row.segment_id.partition)
        replica = partition.replicas.get(row.broker_id)
        claim = self._claims[row.segment_id.partition][-1]
        self.check(
            replica is None
            or replica.epoch != claim.leader_epoch
            or row.end_offset < replica.last_stable,
            "copied_is_committed",
            f"{row.start_offset} to {row.end_offset} is copied, not all stable on n{row.broker_id}",
        )

    def uploading(self, process: Process, job: CopyJob) -> None:
        """Check a copy that begins."""
        going = self._uploads.setdefault(process, set())
        what = self._one_at_a_time(job)
        self.check(what not in going, "one_copy_in_flight", f"{what} is copied twice at a time")
        going.add(what)

    def uploaded(self, process: Process, job: CopyJob) -> None:
        """Note the end of a copy."""
        self._uploads[process] -= {job.segment_id, job.segment_id.partition}

    def _one_at_a_time(self, job: CopyJob) -> TopicIdPartition | RemoteLogSegmentId:
        """A broker that gave an attempt up begins another one, while the first may wait for its
        turn at the node: their segment ids and objects are different.
        """
        brokers = self._world.delegated.audit.is_a_brokers(job.segment_id.id)
        return job.segment_id if brokers else job.segment_id.partition

    def keys(self, row: RemoteLogSegmentMetadata) -> tuple[str, str, str]:
        return segment_keys(self._world.prefix, row.segment_id, row.start_offset).all()

    def _check_objects(self, row: RemoteLogSegmentMetadata) -> None:
        keys = segment_keys(self._world.prefix, row.segment_id, row.start_offset)
        for key in keys.all():
            self.check(
                self._world.bucket.content(key) is not None or key in self._missing,
                "finished_is_readable",
                f"{key} of a finished segment is not there",
            )
        tip = row.segment_id.partition
        state = queries.partition_state(self.reference.rows, tip)
        served_from = row.leader_epochs[0][1]
        if state is not None:
            served_from = max(served_from, state.log_start_offset)
        found = self._world.bucket.content(keys.log) or b""
        # What damage took below where it serves, a log start, is missed by nobody.
        wanted = [
            b"".join(
                batch.data
                for batch in batches_within(log, row.start_offset, row.end_offset + 1)
                if batch.last >= served_from or batch.data in found
            )
            for log in self._logs(tip, row.start_offset)
        ]
        self.check(
            found in wanted or keys.log in self._missing,
            "finished_is_readable",
            f"{keys.log} is not what the leader wrote",
        )

    def _logs(self, tip: TopicIdPartition, start: int) -> Iterator[list[Batch]]:
        """Logs of leaders that may have written from `start` on; as `_in_lineage`."""
        for claim in reversed(self.claims_until(tip, self._offset)):
            yield self._world.brokers.partition(tip).truth[claim.leader_epoch]
            if start >= claim.first_start:
                return

    def claims_until(self, tip: TopicIdPartition, at_offset: int) -> list[Claimed]:
        return [claim for claim in self._claims.get(tip, ()) if claim.offset <= at_offset]

    def is_gone(self, key: str) -> bool:
        """True for an object that is not there, unless the world itself removed it."""
        return self._world.bucket.content(key) is None and key not in self._missing

    def truth(self, tip: TopicIdPartition) -> list[Batch]:
        """Log of the leader whose claim stands."""
        claims = self.claims_until(tip, self._offset)
        if not claims:
            return []
        return self._world.brokers.partition(tip).truth[claims[-1].leader_epoch]

    def told(self, tip: TopicIdPartition) -> list[Batch]:
        """Log of the leader whose claim stands, from where that tells of it; below, those of the
        claims before, whose records the tier may have instead.
        """
        claims = self.claims_until(tip, self._offset)
        return log_of_claims(self._world.brokers.partition(tip).truth, claims) if claims else []

    def _in_lineage(self, tip: TopicIdPartition, batch: Batch, at: int) -> bool:
        """True if a batch is in the log of the leader of claim number `at`; below its checkpoint,
        in the logs of the claims before.
        """
        logs = self._world.brokers.partition(tip).truth
        for claim in reversed(self._claims[tip][: at + 1]):
            found = any(each.data == batch.data for each in logs[claim.leader_epoch])
            if found or batch.base >= claim.first_start:
                return found
        return False

    def _lost(self, lost: LostRange) -> None:
        """Check that a lost range is gone from the claimant's disk. A replaced leader may say it of
        a log that its broker had; `lost_in_vain` checks that this is made good.
        """
        state = queries.partition_state(self.reference.rows, lost.partition)
        assert state is not None
        assert state.claim is not None
        partition = self._world.brokers.partition(lost.partition)
        self._world.hold_audit.lost(lost, state)
        replica = partition.replicas[state.claim.incarnation.node_id]
        replaced = replica.epoch != state.claim.leader_epoch
        # Whole batches, but for one that the log start lies in, where DeleteRecords put it.
        gone = [b for b in replica.batches if lost.start <= b.last and b.base <= lost.end]
        damaged = all(
            b in each.lost or b not in each.batches or b.last < max(each.bases[0], each.log_start)
            for each in partition.replicas.values()
            for b in gone
        )
        dropped = max(replica.bases[0], replica.log_start) > lost.end
        self.check(
            partition.deleted or replaced or dropped or (bool(gone) and damaged),
            "no_hole",
            f"{lost} is said to be lost, the log begins at {replica.log_start} on the disk",
        )

    def _no_hole(self, tip: TopicIdPartition) -> None:
        rows = self.reference.rows
        state = queries.partition_state(rows, tip)
        if state is None or state.delete_state is not None or state.highest_copied is None:
            return
        if state.mode is not Mode.SIDECAR:
            return  # the broker deletes; `DelegatedAuditor` sees what it loses
        for start, end in unserved(self.reference, state):
            self.check(False, "no_hole", f"nothing serves {start} to {end} of {tip}")

    # ---- the store

    def writing(self, key: str, data: bytes) -> None:
        """Check an object about to be written, over any that is there."""
        if key.startswith(own_prefix(self._world.prefix)):
            return
        parsed = parse_segment_key(self._world.prefix, key)
        if key in self._world.foreign:
            return
        self.check(
            parsed is not None and parsed.segment_id.id in self.ids,
            "quiesced_bucket_equals_metadata",
            f"{key} is written, and the log does not know it",
        )
        assert parsed is not None
        row = read_segment(self.reference.rows, parsed.segment_id.id)
        before = self._world.bucket.content(key)
        self.check(
            row is None
            or row.state is not COPY_FINISHED
            or before in (data, None)
            or key in self._missing,
            "finished_is_readable",
            f"{key} of a finished segment is overwritten",
        )

    def deleting(self, key: str) -> None:
        """Check an object about to be deleted."""
        if key.startswith(f"{own_prefix(self._world.prefix)}clock-probe"):
            return
        parsed = parse_segment_key(self._world.prefix, key)
        id_ = None if parsed is None else parsed.segment_id.id
        self.check(id_ in self.ids, "foreign_is_untouched", f"{key} is deleted")
        assert parsed is not None
        if self._world.disaster.settles:
            return
        row = read_segment(self.reference.rows, parsed.segment_id.id)
        if row is None:  # deleted to the end: an orphan
            self.check(
                not self._world.disaster.is_unknown(key), "unknown_is_kept", f"{key} is deleted"
            )
            return
        self.check(key in self.keys(row), "foreign_is_untouched", f"{key} is deleted")
        self.check(
            row.state is DELETE_STARTED, "delete_order", f"{key} is deleted, its row is {row.state}"
        )
        brokers = self._world.delegated.audit.is_a_brokers(
            row.segment_id.id
        )  # which give readers no time
        if was_finished(row) and not self._world.faults.breaks_timing and not brokers:
            since_ms = self.since_mark_ms(row.segment_id.id)
            delay_ms = round(self._world.limits.delete_delay_s * 1000)
            self.check(
                since_ms is not None and since_ms >= delay_ms - SLACK_MS,
                "delete_order",
                f"{key} goes {since_ms} ms after its mark, readers have {delay_ms} ms",
            )

    def since_mark_ms(self, segment: Uuid) -> int | None:
        """True time since a segment was marked; None if it is not."""
        marked_ms = self._marked_ms.get(segment)
        return None if marked_ms is None else self._world.schedule.now_ms - marked_ms

    def went_behind_our_back(self, key: str) -> None:
        """Note an object that the world itself removes or harms."""
        self._missing.add(key)

    # ---- readers

    def read(
        self, tip: TopicIdPartition, got: list[Batch], offset: int, span: tuple[int, int]
    ) -> None:
        """Check batches that a reader got from `offset` on, while the view went over `span`."""
        claims = self._claims.get(tip, [])
        before = [at for at, claim in enumerate(claims) if claim.offset <= span[0]][-1:]
        within = [at for at, claim in enumerate(claims) if span[0] < claim.offset <= span[1]]
        for batch in got:
            self.read_bytes += len(batch.data)
            self.check(
                any(self._in_lineage(tip, batch, at) for at in (*before, *within)),
                "no_bad_byte",
                f"a reader of {tip} got {batch.base} to {batch.last} of epoch {batch.epoch}, which "
                "is not in the lineage",
            )
        self.check(not got or got[0].last >= offset, "no_bad_byte", f"{got[:1]} for {offset}")
        if got and self._world.trash.is_on:
            self._world.trash.audit.read(tip, offset, span)

    # ---- when all is quiet

    def lost_in_vain(self, partition: Partition) -> Iterator[str]:
        """Lost ranges that are whole on the disk of the leader, which copies them."""
        leader = partition.leading
        state = queries.partition_state(self.reference.rows, partition.tip)
        if leader is None or state is None:
            return
        first = max(leader.bases[0], leader.log_start, state.log_start_offset)
        for lost in state.lost_ranges:
            start, end = max(lost.start, first), min(lost.end, leader.bases[-1] - 1)
            within = (each for each in leader.batches if start <= each.last and each.base <= end)
            if start <= end and any(each not in leader.lost for each in within):
                yield f"{start} to {end} of {partition.tip} is lost, n{partition.leader} has it"

    def unquiet(self) -> Iterator[str]:
        """Differences between bucket and metadata."""
        world, rows = self._world, self.reference.rows
        expected = {f"{own_prefix(world.prefix)}cluster.json", *world.foreign}
        kept = set[str]()
        for tip in queries.partitions(rows):
            for row in queries.list_segments(rows, tip):
                if world.disaster.audit.is_kept(row):
                    kept |= set(self.keys(row))
                    continue
                if row.state is not COPY_FINISHED:
                    yield f"{row.segment_id} is {row.state.name}"
                expected |= set(self.keys(row))
        found = world.bucket.contents.keys()
        probes = {key for key in found if "clock-probe" in key}
        for key in sorted(found - expected - kept - probes):
            if world.disaster.is_unknown(key):
                continue
            yield f"{key} is in the bucket alone"
        for key in sorted(expected - found - self._missing):
            yield f"{key} is missing"
        # One without a part, begun by a request whose answer was lost, goes with its segment.
        dangling = world.bucket.unfinished(with_parts=True)
        dangling += [k for k in world.bucket.unfinished(with_parts=False) if k not in expected]
        if world.faults.breaks_timing:
            # A request that begins an upload may arrive when nobody looks for it any more.
            dangling = world.bucket.unfinished(with_parts=True)
        for key in dangling:
            if key in kept or world.disaster.is_unknown(key):
                continue
            yield f"an upload of {key} dangles"


def _name(record: MetadataRecord) -> str:
    state = getattr(record, "state", None)
    return type(record).__name__ if state is None else str(state.name)
