"""Outcomes of committed records, and the rows while a record is being judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kafka_formats.errors import Conflict, Fenced, InvalidRequest
from kafka_formats.kafka_uuid import ZERO_UUID
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import Mode, Totals
from rlmm.rows import keys, values
from rlmm.rows.migration import find_migration
from rlmm.rows.nodes import is_voided
from rlmm.rows.partitions import PartitionRow, encode_partition
from rlmm.rows.reads import read_partition_row, read_policy, read_restart, read_totals
from rlmm.rows.rows import OverlayRows
from rlmm.segment import PartitionDeleteState


class Verdict(Enum):
    """The judgement on a record. ACCEPTED changed the state; every other verdict did not."""

    ACCEPTED = "ACCEPTED"
    NO_EFFECT = "NO_EFFECT"  # the state was the same already: counts as success
    FENCED = "FENCED"  # a newer writer is in charge, or the token is not the current one
    INVALID = "INVALID"  # the record is wrong in any state
    SUSPECT = "SUSPECT"  # too many offsets would be taken out; an admin's ClaimReset must allow it
    CONFLICT = "CONFLICT"  # the state is not the one that the record expects
    GONE = "GONE"  # the segment or partition was deleted
    DIVERGED = "DIVERGED"  # outside the merged lineage
    GAP = "GAP"  # it begins above the next offset
    IN_USE = "IN_USE"  # this segment alone serves an offset at or above log start


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict, and an instruction for the record's proposer."""

    verdict: Verdict
    message: str = ""


def conflict(message: str) -> Outcome:
    return Outcome(Verdict.CONFLICT, message)


def fenced(message: str) -> Outcome:
    return Outcome(Verdict.FENCED, message)


def gone(message: str) -> Outcome:
    return Outcome(Verdict.GONE, message)


def invalid(message: str) -> Outcome:
    return Outcome(Verdict.INVALID, message)


ACCEPTED = Outcome(Verdict.ACCEPTED)
NO_EFFECT = Outcome(Verdict.NO_EFFECT, "it was so already")


def raise_unless_done(outcome: Outcome, offset: int) -> None:
    """Raise the outcome as an error for its proposer; ACCEPTED and NO_EFFECT are success."""
    verdict = outcome.verdict
    if verdict in (Verdict.ACCEPTED, Verdict.NO_EFFECT):
        return
    message = f"{outcome.message} (metadata offset {offset})"
    if verdict is Verdict.FENCED:
        raise Fenced(message)
    if verdict is Verdict.INVALID:
        raise InvalidRequest(message)
    raise Conflict(message, reason=verdict.name)


class Draft:
    """The rows with the writes of the record under judgement; taken back unless it is accepted.

    `offset` is the record's metadata offset, `record_time_ms` the record time including it,
    `timestamp_ms` its own batch's, and `epoch` that of the quorum's leader who appended it.
    """

    __slots__ = ("epoch", "offset", "record_time_ms", "rows", "timestamp_ms")

    def __init__(
        self,
        rows: OverlayRows,
        offset: int,
        record_time_ms: int,
        timestamp_ms: int = -1,
        epoch: int = -1,
    ) -> None:
        self.rows = rows
        self.offset = offset
        self.record_time_ms = record_time_ms
        self.timestamp_ms = timestamp_ms
        self.epoch = epoch

    def put_partition(self, partition: TopicIdPartition, row: PartitionRow) -> None:
        self.rows.put_decoded(keys.partition_key(partition), row, encode_partition)

    def count(
        self,
        partition: TopicIdPartition,
        row: PartitionRow,
        *,
        copy_started: int = 0,
        copy_finished: int = 0,
        delete_started: int = 0,
        size_bytes: int = 0,
    ) -> None:
        """Add to the partition's counters and to the totals."""
        changes = (copy_started, copy_finished, delete_started, size_bytes)
        self.put_partition(partition, row.counted(*changes))
        self._add_to_totals(*changes, 0)

    def _add_to_totals(
        self, started: int, finished: int, deleted: int, size_bytes: int, partitions: int
    ) -> None:
        before = read_totals(self.rows)
        after = Totals(
            before[0] + started,
            before[1] + finished,
            before[2] + deleted,
            before[3] + size_bytes,
            before[4] + partitions,
        )
        self.rows.put_decoded(keys.TOTALS_KEY, after, values.encode_totals)

    def create_partition(self, partition: TopicIdPartition, row: PartitionRow) -> None:
        """Write the row of a partition that is new in the log."""
        self.put_partition(partition, row)
        self.rows.put(keys.topic_name_key(partition), values.encode_offset(self.offset))
        self._add_to_totals(0, 0, 0, 0, 1)
        policy = read_policy(self.rows, partition.topic)
        if policy.offset >= 0 and policy.topic_id == ZERO_UUID:
            # The policy was set before its topic: it binds to the first topic of that name.
            bound = replace(policy, topic_id=partition.topic_id)
            self.rows.put(keys.topic_policy_key(partition.topic), values.encode_policy(bound))

    def put_lost_range(self, partition: TopicIdPartition, start: int, end: int, why: str) -> None:
        self.rows.put(keys.lost_range_key(partition, start), values.encode_lost_range(end, why))

    def remove_partition(self, partition: TopicIdPartition) -> None:
        """Remove the partition's own row; the caller removes the other rows about it."""
        self.rows.delete(keys.partition_key(partition))
        self._add_to_totals(0, 0, 0, 0, -1)


def deletes_held_back(draft: Draft) -> Outcome | None:
    """Return CONFLICT from a restart until its reconciliation: unknown objects may be the only
    copy.
    """
    restart = read_restart(draft.rows)
    if restart is None or restart.is_reconciled:
        return None
    return conflict(
        "nothing is deleted until the state is reconciled with the store: the metadata was "
        "restarted from a snapshot; run `strandline reconcile`"
    )


def deleting_paused(draft: Draft, partition: TopicIdPartition) -> Outcome | None:
    """Return CONFLICT while the topic's policy pauses deleting, even if one was under way."""
    policy = read_policy(draft.rows, partition.topic)
    if not policy.delete_paused:
        return None
    return conflict(
        f"deleting of {partition.topic} is paused by its policy, set at metadata offset "
        f"{policy.offset}: resume it first"
    )


def decided_otherwise(
    draft: Draft, partition: TopicIdPartition, policy_offset: int | None
) -> Outcome | None:
    """Return CONFLICT unless the policy that decided a deletion is in force; `policy_offset` None:
    no policy decided it.
    """
    if policy_offset is None:
        return None
    standing = read_policy(draft.rows, partition.topic).offset
    if standing == policy_offset:
        return None
    return conflict(
        f"it was decided by the policy of {partition.topic} that was set at metadata offset "
        f"{policy_offset} (-1: the defaults), but the one of {standing} is in force: plan it again"
    )


def find_live(draft: Draft, partition: TopicIdPartition) -> PartitionRow | Outcome:
    """The partition's row if a leader's records may still change it; else the outcome."""
    row = find(draft, partition)
    if isinstance(row, Outcome) or row.delete_state is None:
        return row
    if row.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED:
        return conflict(
            f"{partition} is marked for deletion: undo that first, or stop writing to it"
        )
    return gone(f"{partition} is being deleted: stop writing to it")


def find(draft: Draft, partition: TopicIdPartition) -> PartitionRow | Outcome:
    """The partition's row, or the outcome if there is none. Its claim is marked as voided if the
    claimant has lost its node id.
    """
    row = read_partition_row(draft.rows, partition)
    if row is None:
        return is_gone(draft, partition) or fenced(
            f"{partition} is not known: claim it before anything else"
        )
    if not row.claim_voided and is_voided(draft.rows, row.claim):
        row = row._replace(claim_voided=True)
    return wrong_name(row, partition) or held_by_move(draft, partition, row.mode) or row


def held_by_move(draft: Draft, partition: TopicIdPartition, mode: Mode) -> Outcome | None:
    """Return CONFLICT for a delegated partition while the move from Kafka's metadata topic freezes
    it.
    """
    if mode is not Mode.DELEGATED:
        return None
    migration = find_migration(draft.rows)
    if not migration.is_held:
        return None
    return conflict(
        f"{partition} is delegated, and the move from Kafka's metadata topic is in phase "
        f"{migration.phase.name} since metadata offset {migration.since}: it cannot be changed "
        "here until the phase is QUORUM"
    )


def is_gone(draft: Draft, partition: TopicIdPartition) -> Outcome | None:
    if draft.rows.get(keys.partition_tombstone_key(partition)) is None:
        return None
    return gone(f"{partition} was deleted")


def wrong_name(row: PartitionRow, partition: TopicIdPartition) -> Outcome | None:
    if row.topic == partition.topic:
        return None
    return invalid(
        f"topic id {partition.topic_id} belongs to topic {row.topic}, not to {partition.topic}"
    )


def without_token(row: PartitionRow, token: int, what: str) -> Outcome | None:
    """Return FENCED unless `token` is that of the claim in force."""
    claim = row.standing_claim
    if claim is None:
        return fenced(f"{what} needs a claim, but none is in force: claim first")
    if claim.token != token:
        return fenced(
            f"{what} has token {token}, but the claim in force is {claim.token} of node "
            f"{claim.incarnation.node_id} at epoch {claim.leader_epoch}: stop this leadership"
        )
    return None
