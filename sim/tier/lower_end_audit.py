"""The lower end of a log, its holes and its cuts, seen from outside: by the logs that leaders wrote
(`Partition.truth`), by where their disks began (`Replica.begun`), and by who led when he recorded.

who_records_was_just_asked           the broker of a node that tells of its log leads it right then
the_claimant_alone_records           a word about the lower end names the standing claim
a_log_start_is_where_a_leader_began  the first one, by the disk of the claim's leader
a_log_start_is_below_the_cut         it hides nothing that a later leader wrote from its cut on
a_lost_range_was_the_leaders_next    what its disk had dropped, right behind what is copied
a_cut_takes_lost_ranges_with_it      none of the tail that was cut off is left
lost_ranges_are_in_order             above the log start, disjoint, each with an offset
lost_is_not_served                   nothing is recorded as lost that look-ups find
nothing_counts_above_the_log         log start and next offset are within the claimed leader's log
the_lineage_is_the_leaders           from where a claim tells, each offset has its true epoch
a_first_log_start_is_one_leaders     where nothing was copied, one that begins lower says it anew
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafka_client.broker_requests import TopicPartition
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import BrokerWord, Leads
from rlmm.apply.apply import partition_of
from rlmm.apply.claim_holes import LINEAGE_CHANGED
from rlmm.apply.outcome import Verdict
from rlmm.metadata_log import Proposal
from rlmm.partition_state import LostOffsets, Mode, PartitionState
from rlmm.records.control_records import ExpiryMark, LogStart, LostRange, PartitionClaim
from rlmm.records.records import MetadataRecord, decode
from rlmm.rows import queries
from rlmm.rows.reads import read_segment
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from sim.tier.partition import Partition, end_in_common
from sim.tier.replica import Batch

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.replica import Replica
    from sim.tier.world import World

ANSWERED_MS = 100
"""Age up to which a broker's answer counts as that of right now: others are on their way then."""
COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = SegmentState.DELETE_SEGMENT_STARTED
COUNTED = "{} of a replaced leader, before the next claim"
REFUSED = "{} of a replaced leader, behind the next claim"
KINDS = ("LogStart", "LostRange", "ExpiryMark", "DELETE_SEGMENT_STARTED")
CUT_BELOW_LOG_START = "a cut below the log start"
CUT_INTO_LOST = "a cut into a lost range"
CUT_BELOW_LOST = "a cut below a lost range"
FORGOTTEN = "a log start is forgotten, since a leader's log begins lower"
LOST_TO_ONE = "a lost range that another broker's disk has"
ONE_OFFSET = "a segment of one offset is copied"
TIMES = "a segment is copied whose newest record is not its last"
SITUATIONS = (
    *(COUNTED.format(kind) for kind in ("LogStart", "LostRange", "DELETE_SEGMENT_STARTED")),
    *(REFUSED.format(kind) for kind in ("LogStart", "LostRange", "DELETE_SEGMENT_STARTED")),
    CUT_BELOW_LOG_START, CUT_INTO_LOST, CUT_BELOW_LOST, FORGOTTEN, LOST_TO_ONE,
    ONE_OFFSET, TIMES,
)  # fmt: skip
"""Rare situations of a world of cuts; with a trash there are marks of replaced leaders, too."""


def kind_of(record: MetadataRecord) -> str | None:
    """The kind of a record about the lower end, which can't be taken back; else None."""
    if isinstance(record, LogStart | LostRange | ExpiryMark):
        return type(record).__name__
    if isinstance(record, RemoteLogSegmentMetadataUpdate) and record.state is DELETE_STARTED:
        return record.state.name
    return None


class _Told(NamedTuple):
    """An accepted claim: its metadata offset, and the epoch of the leader whose log it tells of."""

    token: int
    epoch: int
    node_id: int


class LowerEndAudit:
    """Checks each record of the metadata log."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._claims: dict[TopicIdPartition, list[_Told]] = {}
        self._before: PartitionState | None = None
        self._led: dict[tuple[int, TopicPartition], dict[int, int]] = {}
        """The times at which a node's broker said last that it leads in an epoch."""

    def answered(self, node_id: int, words: Mapping[TopicPartition, BrokerWord]) -> None:
        """Remember what a node's broker answers now."""
        now_ms = self._world.schedule.now_ms
        for tip, word in words.items():
            if isinstance(word, Leads):
                self._led.setdefault((node_id, tip), {})[word.leader_epoch] = now_ms

    def stood_still(self, node_id: int, since_ms: int) -> None:
        """Leave a pause of a node's process out of the age of its broker's last answers: between
        an answer and the record that rests on it a process may stand still.
        """
        now_ms = self._world.schedule.now_ms
        for (of, _), epochs in self._led.items():
            if of == node_id:
                for epoch, at_ms in epochs.items():
                    epochs[epoch] = min(at_ms + now_ms - since_ms, now_ms)

    def restart(self, end: int) -> None:
        """Forget the claims that a disaster took: their offsets are given anew."""
        for claims in self._claims.values():
            claims[:] = [each for each in claims if each.token < end]

    def committing(self, record: MetadataRecord) -> None:
        """Remember the partition as it is before a record."""
        tip = partition_of(record)
        self._before = None if tip is None else self._state(tip)

    def committed(self, offset: int, record: MetadataRecord, verdict: Verdict) -> None:
        """Check a record that was judged."""
        tip = partition_of(record)
        if tip is None:
            return
        self._count(tip, record, verdict)
        if verdict is not Verdict.ACCEPTED:
            return
        state, before = self._state(tip), self._before
        if isinstance(record, PartitionClaim):
            told = _Told(offset, record.leader_epoch, record.incarnation.node_id)
            self._claims.setdefault(tip, []).append(told)
        if state is None or state.mode is not Mode.SIDECAR or not self._claims.get(tip):
            return
        self._by_the_claimant(record, before)
        match record:
            case PartitionClaim():
                self._claimed(record, before, state)
            case LogStart() if before is not None and before.log_start_offset < 0:
                self._began(record)
            case LostRange():
                self._lost(record, before)
            case _:
                pass
        self._in_order(record, before, state)

    def _check(self, holds: bool, name: str, message: str) -> None:
        self._world.auditor.check(holds, name, message)

    def _state(self, tip: TopicIdPartition) -> PartitionState | None:
        return queries.partition_state(self._world.auditor.reference.rows, tip)

    # ---- who

    def proposing(self, process: Process, proposals: tuple[Proposal, ...]) -> None:
        """Check that a node which records by its broker's log has just heard that it leads."""
        record = decode(proposals[0].control_type, proposals[0].value)
        if not isinstance(record, LogStart | LostRange):
            return
        if isinstance(record, LogStart) and record.policy_offset is not None:
            return  # retention's, by what is in the tier
        told = self._teller(record.partition, record.token)
        partition = self._world.brokers.partition(record.partition)
        replica = partition.replicas.get(process.machine.node_id)
        if told is None or replica is None or partition.deleted:
            return
        tip = partition.tip
        # It may have heard of another leader since.
        led = self._led.get((process.machine.node_id, (tip.topic, tip.partition)), {})
        led_ms = led.get(told.epoch)
        just_led = led_ms is not None and self._world.schedule.now_ms - led_ms <= ANSWERED_MS
        self._check(
            just_led or (replica.leads and replica.epoch == told.epoch),
            "who_records_was_just_asked",
            f"{process.machine.name} proposes {record} of epoch {told.epoch}, its broker is at "
            f"epoch {replica.epoch} by now",
        )

    def _by_the_claimant(self, record: MetadataRecord, before: PartitionState | None) -> None:
        if kind_of(record) is None or before is None or before.delete_state is not None:
            return
        token = getattr(record, "token", None)
        self._check(
            before.claim is not None and before.claim.token == token,
            "the_claimant_alone_records",
            f"{record} is accepted, and the claim is {before.claim}",
        )

    def _teller(self, tip: TopicIdPartition, token: int) -> _Told | None:
        return next((each for each in self._claims.get(tip, ()) if each.token == token), None)

    def _count(self, tip: TopicIdPartition, record: MetadataRecord, verdict: Verdict) -> None:
        """Count what a leader records that was replaced meanwhile, and odd segments."""
        note, kind = self._world.cuts.note, kind_of(record)
        if kind is not None:
            told = self._teller(tip, getattr(record, "token", -1))
            partition = self._world.brokers.partition(tip)
            if told is None or partition.epoch <= told.epoch or partition.deleted:
                return
            note(COUNTED.format(kind), holds=verdict is Verdict.ACCEPTED)
            note(REFUSED.format(kind), holds=verdict is Verdict.FENCED)
        elif (
            isinstance(record, RemoteLogSegmentMetadataUpdate)
            and record.state is COPY_FINISHED
            and verdict is Verdict.ACCEPTED
        ):
            row = read_segment(self._world.auditor.reference.rows, record.segment_id.id)
            assert row is not None
            self._count_copied(row)

    def _count_copied(self, row: RemoteLogSegmentMetadata) -> None:
        self._world.cuts.note(ONE_OFFSET, holds=row.start_offset == row.end_offset)
        partition = self._world.brokers.partition(row.segment_id.partition)
        last = [
            each.timestamp_ms
            for log in partition.truth.values()
            for each in log
            if each.last == row.end_offset
        ]
        older = bool(last) and all(each < row.max_timestamp_ms for each in last)
        self._world.cuts.note(TIMES, holds=older)

    # ---- the lower end

    def _leader(self, tip: TopicIdPartition) -> tuple[Partition, Replica, _Told]:
        """The claimed leader's partition and replica, which may have gone since, with its claim."""
        partition, told = self._world.brokers.partition(tip), self._claims[tip][-1]
        replica = partition.replicas.get(told.node_id) or partition.departed[told.node_id]
        return partition, replica, told

    def _began(self, record: LogStart) -> None:
        """Check a first log start by where the leader's disk began while it led."""
        _, replica, told = self._leader(record.partition)
        began = replica.begun.get(told.epoch, 0)
        self._check(
            record.offset <= began,
            "a_log_start_is_where_a_leader_began",
            f"{record} of epoch {told.epoch}, in which n{told.node_id} had all from {began} on",
        )

    def _lost(self, record: LostRange, before: PartitionState | None) -> None:
        """Check a lost range by what the leader's disk had dropped while it led."""
        assert before is not None
        partition, replica, told = self._leader(record.partition)
        self._check(
            record.start == before.next_offset,
            "a_lost_range_was_the_leaders_next",
            f"{record} is accepted, and the next offset is {before.next_offset}",
        )
        began = replica.begun.get(told.epoch, 0)
        self._check(
            record.end < began or bool(replica.lost) or self._world.local_damage.is_on,
            "a_lost_range_was_the_leaders_next",
            f"{record} of epoch {told.epoch}, in which n{told.node_id} had all from {began} on",
        )
        elsewhere = any(
            max(each.bases[0], each.log_start) <= record.start and record.end < each.end
            for each in partition.replicas.values()
        )
        self._world.cuts.note(LOST_TO_ONE, holds=elsewhere)

    # ---- claims

    def _claimed(
        self, claim: PartitionClaim, before: PartitionState | None, state: PartitionState
    ) -> None:
        partition, _, told = self._leader(claim.partition)
        log = partition.truth[told.epoch]
        first = max(claim.leader_epochs[0].start_offset, claim.local_log_start_offset, 0)
        self._is_the_leaders(log, first, claim, state)
        if before is None:
            return
        earlier = {each.epoch for each in self._claims[claim.partition][:-1]}
        common = max((end_in_common(partition.truth[each], log) for each in earlier), default=0)
        cut_at = max(common, first, _known_from(before.lineage, log, common))
        if earlier:
            self._check(
                state.log_start_offset <= cut_at,
                "a_log_start_is_below_the_cut",
                f"{claim} has a log of its own from {common} on and tells of it from {first} on, "
                f"the log start is {state.log_start_offset}",
            )
            self._took_lost_ranges(claim, state, cut_at)
        self._count_cut(before, state)
        nothing = before.highest_copied is None and state.highest_copied is None
        begins_lower = 0 <= claim.local_log_start_offset < before.log_start_offset
        if before.log_start_offset >= 0:
            self._world.cuts.note(FORGOTTEN, holds=state.log_start_offset < 0)
            self._check(
                (state.log_start_offset < 0) == (nothing and begins_lower),
                "a_first_log_start_is_one_leaders",
                f"{claim} leads from {before} to {state}",
            )

    def _is_the_leaders(
        self, log: list[Batch], first: int, claim: PartitionClaim, state: PartitionState
    ) -> None:
        for batch in log:
            if batch.base >= first:
                self._check(
                    epoch_for_offset(state.lineage, batch.base) == batch.epoch,
                    "the_lineage_is_the_leaders",
                    f"{claim} leads to {state.lineage}, {batch.base} is of epoch {batch.epoch}",
                )

    def _took_lost_ranges(self, claim: PartitionClaim, state: PartitionState, cut_at: int) -> None:
        """Check that lost ranges above a cut are new: of what an epoch brought back."""
        highest = -1 if state.highest_copied is None else state.highest_copied[0]
        for lost in state.lost_ranges:
            self._check(
                lost.end < cut_at or (lost.why == LINEAGE_CHANGED and lost.end <= highest),
                "a_cut_takes_lost_ranges_with_it",
                f"{claim} has a log of its own from {cut_at} on, and {lost} is left",
            )

    def _count_cut(self, before: PartitionState, state: PartitionState) -> None:
        cut_at = _first_other(before.lineage, state.lineage)
        if cut_at is None:
            return
        note = self._world.cuts.note
        note(CUT_BELOW_LOG_START, holds=cut_at < before.log_start_offset)
        note(CUT_INTO_LOST, holds=any(_is_amid(each, cut_at) for each in before.lost_ranges))
        note(CUT_BELOW_LOST, holds=any(cut_at <= each.start for each in before.lost_ranges))

    # ---- after each record

    def _in_order(
        self, record: MetadataRecord, before: PartitionState | None, state: PartitionState
    ) -> None:
        start, lost = state.log_start_offset, state.lost_ranges
        partition, replica, told = self._leader(state.partition)
        log = partition.truth[told.epoch]
        end = log[-1].last + 1 if log else replica.begun.get(told.epoch, 0)
        self._check(
            max(start, state.next_offset) <= end and (start < 0 or start <= state.next_offset),
            "nothing_counts_above_the_log",
            f"{record} leads to {state}, the log of epoch {told.epoch} ends at {end}",
        )
        borders = [border for each in lost for border in (each.start, each.end + 1)]
        self._check(
            all(each.start <= each.end for each in lost)
            and borders == sorted(borders)
            and (not lost or 0 <= start <= lost[0].start),
            "lost_ranges_are_in_order",
            f"{record} leads to {state}",
        )
        finishes = isinstance(record, RemoteLogSegmentMetadataUpdate) and (
            record.state is COPY_FINISHED
        )
        as_before = before is not None and (before.lost_ranges, before.lineage) == (
            lost, state.lineage,
        )  # fmt: skip
        for served in self._served(state) if finishes or not as_before else ():
            self._check(False, "lost_is_not_served", f"{record} leads to {state}: {served}")

    def _served(self, state: PartitionState) -> Iterator[object]:
        rows = self._world.auditor.reference.rows
        for lost in state.lost_ranges:
            yield from queries.served_segments(rows, state, lost.start, lost.end)


def _is_amid(lost: LostOffsets, offset: int) -> bool:
    return lost.start < offset <= lost.end


def _known_from(lineage: Epochs, log: list[Batch], common: int) -> int:
    """The offset from which on a lineage is known. Below it a log of its own has a longer head, of
    which the tier has nothing, unless its epochs are above all known ones.
    """
    new = next((each.epoch for each in log if each.base >= common), None)
    if not lineage or new is None or new > lineage[-1].epoch:
        return 0
    return lineage[0].start_offset


def _first_other(before: Epochs, after: Epochs) -> int | None:
    """The first known offset whose epoch is another one."""
    borders = sorted({each.start_offset for each in (*before, *after)})
    known = [each for each in borders if before and each >= before[0].start_offset]
    changed = (e for e in known if epoch_for_offset(before, e) != epoch_for_offset(after, e))
    return next(changed, None)
