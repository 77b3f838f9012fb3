"""Invariants of the answers to brokers that tier, and of the metadata of their segments.

list_is_whole          a leader's list has every segment that was finished before its request and
                       still is
listed_is_there        ... and none that was deleted before the claim, or marked and still finished
copied_is_there        all on a replica's disk up to the highest copied offset is in the tier, above
                       a gap at the low end
deleted_is_not_read    a segment that a broker was told is marked as deleted is not served any more
id_used_once           a segment id is added once, and no record of it follows its deletion
finished_once          a copy is finished once, and its custom metadata never changes after that
finished_is_covered    each offset of a finished segment is served in its epoch, and by finished
                       segments only
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import end_offset_for
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.wire import ALL_EPOCHS
from rlmm.partition_state import Mode
from rlmm.rows import queries
from rlmm.rows.coverage import covering
from rlmm.rows.reads import read_segment
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.replica import Batch, Replica
    from sim.tier.world import World

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
MARKED = SegmentState.DELETE_SEGMENT_STARTED
GONE = SegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class Asked:
    """The state when a claimed leader sends a request: its claim, and the finished segments."""

    token: int
    finished: frozenset[Uuid]


class ToldAuditor:
    """Checks answers by the rows of the metadata log and the records of the replicas."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._added: set[Uuid] = set()
        self._custom: dict[Uuid, bytes | None] = {}
        self._gone: dict[Uuid, int] = {}
        self._marked: dict[Uuid, int] = {}
        self._heard: dict[tuple[Process, Uuid], int] = {}

    def _check(self, holds: bool, name: str, message: str) -> None:
        self._world.auditor.check(holds, name, message)

    # ---- lists

    def asked(self, broker: int, tip: TopicIdPartition) -> Asked | None:
        """The state at a list; None: the broker does not lead under a claim of its node."""
        rows = self._world.auditor.reference.rows
        state = queries.partition_state(rows, tip)
        partition = self._world.brokers.partition(tip)
        if state is None or state.claim is None or state.mode is not Mode.DELEGATED:
            return None
        claim = state.claim
        if (claim.incarnation.node_id, claim.leader_epoch) != (broker, partition.epoch):
            return None
        ids = (each.segment_id.id for each in _of_state(self._rows(tip), FINISHED))
        return Asked(claim.token, frozenset(ids))

    def listed(
        self,
        broker: int,
        tip: TopicIdPartition,
        epoch: int,
        told: Iterable[RemoteLogSegmentMetadata],
        before: Asked | None,
    ) -> None:
        """Check a list."""
        now = self.asked(broker, tip)
        if before is None or now is None or before.token != now.token:
            return
        states = {each.segment_id.id: each.state for each in told}
        for row in _of_state(self._rows(tip), FINISHED):
            id_ = row.segment_id.id
            self._check(
                id_ not in before.finished
                or not self._is_of(broker, row, epoch)
                or id_ in states,  # as unfinished, where the node does not hear of it yet
                "list_is_whole",
                f"a list of epoch {epoch} for broker {broker} lacks {row.segment_id}, which ends "
                f"at {row.end_offset}",
            )
        for id_, state in states.items():
            self._check(
                self._gone.get(id_, before.token) >= before.token
                and (state is not FINISHED or self._marked.get(id_, before.token) >= before.token),
                "listed_is_there",
                f"a list for broker {broker} has {id_}, deleted before it was claimed, as {state}",
            )

    def _is_of(self, broker: int, row: RemoteLogSegmentMetadata, epoch: int) -> bool:
        """True if a row is in the list of an epoch: it has an offset of it within the log."""
        if epoch == ALL_EPOCHS:
            return True
        replica = self._world.brokers.partition(row.segment_id.partition).replicas.get(broker)
        for number, (each, start) in enumerate(row.leader_epochs):
            if each != epoch or replica is None:
                continue
            following = [at for _, at in row.leader_epochs[number + 1 :]]
            first = max(start, row.start_offset)
            if first > min((row.end_offset, *(at - 1 for at in following))):
                return False
            if all(of.epoch != epoch for of in replica.epochs):
                return False
            return first < end_offset_for(replica.epochs, epoch, replica.end)[1]
        return False

    def _rows(self, tip: TopicIdPartition) -> Iterable[RemoteLogSegmentMetadata]:
        return queries.list_segments(self._world.auditor.reference.rows, tip)

    # ---- the highest copied offset

    def copied(self, broker: int, tip: TopicIdPartition, replica: Replica, last: int) -> None:
        """Check the highest copied offset that a broker gets: its disk may be deleted up to it."""
        self._world.scenes.audit.copied(broker, tip, replica, last)
        partition = self._world.brokers.partition(tip)
        leader, audit = partition.leading, self._world.delegated.audit
        if leader is None or partition.deleted or partition.replicas.get(broker) is not replica:
            return
        missing: Batch | None = None
        for batch in reversed([each for each in replica.batches if each.last <= last]):
            if batch.base < max(replica.bases[0], leader.log_start):
                return
            if audit.is_needed(partition, batch):
                missing = missing or batch
            elif missing is not None and audit.has(partition, batch):
                self._check(
                    False,
                    "copied_is_there",
                    f"broker {broker} takes {tip} for copied up to {last}, and the tier does not "
                    f"have {missing.base} to {missing.last} of epoch {missing.epoch}",
                )

    # ---- deletions

    def marks(self, process: Process | None, id_: Uuid) -> None:
        """Note that a broker was told that a segment is marked as deleted."""
        if process is not None:
            self._heard.setdefault((process, id_), len(self._heard))

    def asks(self) -> int:
        """The moment of a read."""
        return len(self._heard)

    def served(self, process: Process | None, id_: Uuid, asked: int, what: str) -> None:
        """Check what a node served, asked for at that moment."""
        if process is None:
            return
        marked = self._heard.get((process, id_), asked)
        self._check(marked >= asked, "deleted_is_not_read", f"{what} has {id_}, which is deleted")

    # ---- the metadata log

    def committed(
        self,
        decoded: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate,
        before: RemoteLogSegmentMetadata | None,
    ) -> None:
        """Check an accepted record of a segment."""
        id_, at = decoded.segment_id.id, self._world.log.end - 1
        self._check(id_ not in self._gone, "id_used_once", f"{id_} comes back as {decoded.state}")
        if decoded.state is SegmentState.COPY_SEGMENT_STARTED:
            self._check(id_ not in self._added, "id_used_once", f"{id_} is added again")
            self._added.add(id_)
        elif decoded.state is FINISHED:
            self._finished(id_, decoded)
        elif decoded.state is MARKED:
            self._marked[id_] = at
            if before is not None:
                self._check_uncovered(before)
        elif decoded.state is GONE:
            self._gone[id_] = at

    def _finished(
        self, id_: Uuid, decoded: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
    ) -> None:
        self._check(
            id_ not in self._custom and id_ not in self._marked,
            "finished_once",
            f"{id_} is finished, and was so, or marked, before",
        )
        self._custom[id_] = decoded.custom_metadata
        row = read_segment(self._world.auditor.reference.rows, id_)
        assert row is not None
        for epoch, offset in _offsets(row):
            found = self._serving(row.segment_id.partition, epoch, offset)
            self._check(
                found is not None and found.state is FINISHED,
                "finished_is_covered",
                f"{offset} of epoch {epoch} of {row.segment_id} is served by {found}",
            )

    def _check_uncovered(self, row: RemoteLogSegmentMetadata) -> None:
        """Check that no offset is served by a segment any more, but by any other that has it."""
        tip, id_ = row.segment_id.partition, row.segment_id.id
        others = [set(_offsets(each)) for each in _of_state(self._rows(tip), FINISHED)]
        for epoch, offset in _offsets(row):
            found = self._serving(tip, epoch, offset)
            is_served = any((epoch, offset) in each for each in others)
            self._check(
                (found is not None) is is_served and (found is None or found.segment_id.id != id_),
                "finished_is_covered",
                f"{row.segment_id} is deleted, and {offset} of epoch {epoch} served by {found}",
            )

    def _serving(
        self, tip: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        rows = self._world.auditor.reference.rows
        found = covering(rows, tip, epoch, offset)
        return None if found is None else read_segment(rows, found.segment)


def _of_state(
    rows: Iterable[RemoteLogSegmentMetadata], state: SegmentState
) -> list[RemoteLogSegmentMetadata]:
    return [row for row in rows if row.state is state]


def _offsets(row: RemoteLogSegmentMetadata) -> list[tuple[int, int]]:
    """Each offset of a segment, with its epoch."""
    first = max(row.start_offset, row.leader_epochs[0][1])
    return [
        (max(epoch for epoch, start in row.leader_epochs if start <= offset), offset)
        for offset in range(first, row.end_offset + 1)
    ]
