"""States of a partition, a topic and the cluster, as plain values. The rules: `rlmm/apply/`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import Incarnation, PartitionDeleteState

UNKNOWN_OFFSET = -1

DELETE_GRACE_DEFAULT_MS = 7 * 24 * 3_600_000
"""The time from DELETE_PARTITION_MARKED to the first deleted byte, unless the mark has a different
grace. It is part of the rules of apply: a change needs a new feature level.
"""


class Mode(IntEnum):
    """The program that copies and expires a partition; recorded in the log so that only one does.

    SIDECAR: the node itself. DELEGATED: the broker's own remote log manager, through the plug-in.
    READ_ONLY and PAUSED: none; there is no claim, so nothing is added, expired or deleted.
    """

    SIDECAR = 0
    DELEGATED = 1
    READ_ONLY = 2
    PAUSED = 3


CLAIMABLE_MODES = frozenset({Mode.SIDECAR, Mode.DELEGATED})


@dataclass(frozen=True, slots=True)
class Claim:
    """A leadership. `token` is its record's metadata offset; `timestamp_ms` of its acceptance."""

    token: int
    leader_epoch: int
    incarnation: Incarnation
    claim_number: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets [`start`, `end`], both inclusive, that were deleted before they could be copied."""

    start: int
    end: int
    why: str


class ExpiryMark(NamedTuple):
    """Readers start at `offset` or above; records below are in the trash, and still whole.

    One mark may be the sum of several records: the first at metadata offset `began_at`, the last at
    `marked_at` (`marked_ms` by record time, for display). `began_ms` and `counts_from_ms` are the
    measured times from which the first and the last count at the latest. Once `trash_ms` has passed
    since the last, the log start may follow. `segments` and `size_bytes` are those that the records
    added to the trash, `why` is the last one's reason.
    """

    offset: int
    began_at: int
    began_ms: int
    marked_at: int
    marked_ms: int
    counts_from_ms: int
    trash_ms: int
    segments: int
    size_bytes: int
    why: str


class ExpiryHold(NamedTuple):
    """Retention marks nothing while the topic's policy is that of metadata offset `policy_offset`,
    because `who` undid a mark that this policy would repeat.
    """

    policy_offset: int
    who: str
    why: str
    set_ms: int


@dataclass(frozen=True, slots=True)
class Expiry:
    """The trash of a partition: its marks, ascending, and a hold. `offset` is the metadata offset
    of the last record about either, which a change names; -1 if there was none.
    """

    marks: tuple[ExpiryMark, ...] = ()
    hold: ExpiryHold | None = None
    offset: int = UNKNOWN_OFFSET

    @property
    def below(self) -> int:
        """The offset below which all records are in the trash or deleted; -1 without a mark."""
        return self.marks[-1].offset if self.marks else UNKNOWN_OFFSET

    @property
    def size_bytes(self) -> int:
        return sum(mark.size_bytes for mark in self.marks)

    @property
    def segments(self) -> int:
        return sum(mark.segments for mark in self.marks)

    def held_by(self, policy_offset: int) -> ExpiryHold | None:
        """The hold, if it is in force under the policy of this metadata offset."""
        hold = self.hold
        return hold if hold is not None and hold.policy_offset == policy_offset else None


NOTHING_EXPIRES = Expiry()


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition at one metadata offset.

    `claim` is the one in force, None if there never was one or it was voided (mode change,
    ClaimReset). `voided_claim`: its epoch still bounds the next claim. `log_start_offset` is -1
    until a LogStart is recorded; `local_log_start_offset` is that of the last claimant's broker,
    for information. `highest_copied` is (offset, epoch) within the merged lineage. `next_offset` is
    the offset that the next copy has to contain, -1 while unknown (nothing copied and no log start
    yet). `mode_offset` and `delete_offset` are the metadata offsets of the records that set mode
    and delete state, -1 for none; an admin's change names them (after an undo `delete_offset` is
    that of the undo). `delete_marked_at_ms` is when it was marked, for display, `delete_grace_ms`
    the grace of the mark, `delete_counts_from_ms` the measured time from which that counts at the
    latest. `segment_count` and `size_bytes` count COPY_SEGMENT_FINISHED segments. `adopting`: the
    store's segments of the partition have not been recorded since a restart from a snapshot; the
    claimant does that before it copies. `reset_stands`: an admin's ClaimReset waits for the next
    claim, which may cut the lineage at `reset_cut_at` or above (-1: it may not cut).
    `gaps_allowed`: the reason why offsets without a batch are legal, empty where they are damage.
    `expiry`: the records that readers no longer get, although none of them is deleted.
    """

    partition: TopicIdPartition
    mode: Mode
    claim: Claim | None
    lineage: Epochs
    log_start_offset: int
    highest_copied: tuple[int, int] | None
    next_offset: int
    lost_ranges: tuple[LostOffsets, ...]
    delete_state: PartitionDeleteState | None
    segment_count: int
    size_bytes: int
    mode_offset: int = UNKNOWN_OFFSET
    voided_claim: Claim | None = None
    local_log_start_offset: int = UNKNOWN_OFFSET
    delete_offset: int = UNKNOWN_OFFSET
    delete_marked_at_ms: int = UNKNOWN_OFFSET
    adopting: bool = False
    delete_grace_ms: int = UNKNOWN_OFFSET
    reset_stands: bool = False
    reset_cut_at: int = UNKNOWN_OFFSET
    gaps_allowed: str = ""
    delete_counts_from_ms: int = UNKNOWN_OFFSET
    expiry: Expiry = NOTHING_EXPIRES

    @property
    def first_readable_offset(self) -> int:
        """The offset where readers start: the log start, or above the trash. -1: unknown."""
        return max(self.log_start_offset, self.expiry.below)

    @property
    def last_claim(self) -> Claim | None:
        """The last accepted claim, in force or voided."""
        return self.claim or self.voided_claim

    @property
    def delete_due_ms(self) -> int:
        """The approximate time at which a marked partition's deletion starts, for display; measured
        time decides.
        """
        return delete_due_ms(self.delete_marked_at_ms, self.delete_grace_ms)


def delete_due_ms(marked_at_ms: int, grace_ms: int) -> int:
    """The end of a mark's grace. A negative grace means the default one."""
    return marked_at_ms + (DELETE_GRACE_DEFAULT_MS if grace_ms < 0 else grace_ms)


def grace_ms_of(state: PartitionState) -> int:
    """The length of a mark's grace."""
    return delete_due_ms(0, state.delete_grace_ms)


UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """An admin's decisions for a topic's tier; defaults apply where nothing was decided.

    Retention counts the remote part only; -1 is unlimited. `offset` is the metadata offset of the
    record that set the policy, -1 for the defaults; a change names it.

    Settings that delete apply to one topic, `topic_id`; a different topic of the name, earlier or
    later, keeps everything. Zero: the first topic that will be known by the name. The switches
    apply to every topic of the name, since they can only keep data. With `follow_delete_records`
    the tier's log start follows DeleteRecords on the broker
    (`rlm/retention/delete_records_watch.py`).
    """

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    copy_paused: bool = False
    delete_paused: bool = False
    offset: int = UNKNOWN_OFFSET
    topic_id: Uuid = ZERO_UUID
    follow_delete_records: bool = False

    def counts_for(self, topic_id: Uuid) -> TopicPolicy:
        """The part of the policy that applies to this topic: all of it, or only the switches."""
        if topic_id == self.topic_id:
            return self
        return replace(
            self, retention_ms=UNLIMITED, retention_bytes=UNLIMITED, follow_delete_records=False
        )


@dataclass(frozen=True, slots=True)
class Restart:
    """A start of the cluster from its predecessor's snapshot, which ended at `offset`, exclusive.

    Claims below it are void. `reconciled_offset` is that of the record that compared the state with
    a full listing, -1 while there is none: until then nothing is deleted.
    """

    offset: int
    reconciled_offset: int = UNKNOWN_OFFSET

    @property
    def is_reconciled(self) -> bool:
        return self.reconciled_offset >= 0


class MeasuredTime(NamedTuple):
    """The time that nodes have measured since the log began, in milliseconds, and the metadata
    offset of the last TimePassed (-1: none yet). Graces and tombstones wait for `until_ms`.
    """

    ms: int = 0
    offset: int = UNKNOWN_OFFSET
    until_ms: int = 0


class Totals(NamedTuple):
    """Counts over all partitions. `size_bytes` is that of COPY_SEGMENT_FINISHED segments."""

    copy_started: int = 0
    copy_finished: int = 0
    delete_started: int = 0
    size_bytes: int = 0
    partitions: int = 0
