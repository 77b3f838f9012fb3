"""This node's memory of one partition between two scans. A restart loses it: everything that must
survive is in the metadata log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset, truncate_from_start
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.backoff import NO_BACK_OFF, BackOff
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.copier import AttemptFailed, Copied
from rlm.copy.held_heads import HeadFacts, with_held_heads
from rlm.copy.partition_status import (
    CopyUnderWay,
    LastError,
    LocalFacts,
    PartitionStatus,
    Role,
    StatusFacts,
    partition_status,
)
from rlm.copy.tiered_head import tiered_head, with_recorded_start
from rlm.leadership.leadership import (
    BrokerWord,
    Leads,
    NoAnswer,
    NotLeading,
    OwnClaim,
    RefusedClaim,
)
from rlm.local_log.gap_rule import Offsets
from rlm.local_log.hold_plan import Unit, differs, unbroken, usable, with_heads
from rlm.local_log.log_dir import LocalPartition, LocalSegment
from rlm.local_log.lost_epochs import FoundEpochs, with_heads_found
from rlm.reconcile.adoption_plan import FoundInStores
from rlm.reconcile.lost_claims import with_lost_claims
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.partition_state import LostOffsets, Mode, PartitionState
from rlmm.records.control_records import PartitionClaim
from rlmm.segment import Incarnation

NOT_SCANNED = Wait(WhyNot.NOT_SCANNED, "the log directories have not been read yet")
HOLD_NOT_LOOKED_AT = Wait(
    WhyNot.NOT_SCANNED,
    "the held segments of this partition have not been read yet, so missing offsets are not "
    "treated as lost",
)

ADOPTION_WAITS = (
    "segments of the store are not recorded before what is missing below them is copied, and "
    "until then retention and repair of the partition wait"
)


_Asked = tuple[tuple[Unit, ...], tuple[LocalSegment, ...], Epochs, Epochs]


@dataclass(slots=True)
class PartitionWork:
    """The state of one partition; changed on the event loop only. `task` drives it; at most one.

    `left_out`: why the partition is never claimed (not included, compacted, ...). `mode`: the mode
    that it should have: DELEGATED if the broker tiers it itself, through this node. `unusable`: why
    its directory cannot be read; `local` is then as last read. `word`: the broker's answer about
    its leadership. `looked`: the number of the scan that read `local` and `word`. `back_off` is
    that of copies, `trouble` that of all other unforeseen failures. `leadership`: whether the
    broker led at its last answer, and the epoch. `units`: all held segments; `hold_wait`: why they
    are unknown. `lineage`, `next_offset`: as recorded at the last decision; `found_epochs`: epochs
    read from batches after the broker's checkpoint was lost. `found`: the stores' segments at the
    last listing, while the partition is to be adopted. `log_start_heard`: the highest log start
    that the broker reported. `led_from`: the token of a delegated claim, and the broker's log start
    when it began to lead. `tiered_log_start`: a leader epoch, and the log start reported in it, the
    tier included. `one_copy` is locked during every copy, a `repair` included. `fills_done` and
    `fills_failed`: ranges that were to fill a lost range.
    """

    partition: TopicIdPartition
    local: LocalPartition | None = None
    left_out: Wait | None = None
    mode: Mode = Mode.SIDECAR
    unusable: Wait | None = None
    word: BrokerWord = field(default_factory=lambda: NoAnswer("the broker was not asked yet"))
    looked: int = 0
    leadership: tuple[bool, int] | None = None
    claim: OwnClaim | None = None
    refused: RefusedClaim | None = None
    back_off: BackOff = NO_BACK_OFF
    trouble: BackOff = NO_BACK_OFF
    units: tuple[Unit, ...] = ()
    hold_wait: Wait | None = None
    lineage: Epochs = ()
    next_offset: int = 0
    log_start_heard: int = 0
    led_from: tuple[int, int] | None = None
    tiered_log_start: tuple[int, int | NoAnswer] | None = None
    found_epochs: FoundEpochs | None = None
    found: FoundInStores | None = None
    fills_done: frozenset[Offsets] = frozenset()
    fills_failed: dict[Offsets, BackOff] = field(default_factory=dict)
    wait: Wait = NOT_SCANNED
    last_error: LastError | None = None
    copying: CopyUnderWay | None = None
    task: asyncio.Task[None] | None = None
    one_copy: asyncio.Lock = field(default_factory=asyncio.Lock)
    repair: asyncio.Task[Copied | AttemptFailed] | None = None
    _kept: tuple[_Asked, tuple[Unit, ...]] | None = None

    @property
    def is_kept_by_broker(self) -> bool:
        """True if the broker deletes no uncopied segment, since its own remote log manager copies
        them. False if its configs contradict its plug-in (`left_out`): then its retention goes on.
        """
        return self.mode is Mode.DELEGATED and self.left_out is None

    @property
    def role(self) -> Role:
        """This node's role for the partition, as of the last scan."""
        if self.left_out is not None:
            return Role.NOT_TIERED
        if self.local is None:
            return Role.REMOTE_ONLY
        if isinstance(self.word, Leads):
            return Role.LEADER
        if isinstance(self.word, NotLeading):
            return Role.FOLLOWER
        return Role.UNKNOWN

    @property
    def leader_epoch(self) -> int:
        """The epoch that the broker reported, else the last one on disk, else -1."""
        if isinstance(self.word, Leads):
            return self.word.leader_epoch
        if self.local is not None and self.local.leader_epochs:
            return self.local.leader_epochs[-1].epoch
        return -1

    @property
    def kept(self) -> tuple[Unit, ...]:
        """Held segments below the broker's own that may be copied, ascending. They are chosen anew
        for each `local`, so that segments that the broker removed since the last hold pass are no
        gap.
        """
        if self.local is None or not self.units:
            return ()
        asked = (self.units, self.local.segments, self.proven_checkpoint, self.lineage)
        if self._kept is None or self._kept[0] != asked:  # a decision reads them several times
            self._kept = asked, usable(*asked)
        return self._kept[1]

    @property
    def segments(self) -> tuple[LocalSegment, ...]:
        """Segments to copy from this machine: held ones, then the broker's; ascending."""
        if self.local is None:
            return ()
        return (*(unit.segment for unit in self.kept), *self.local.known_segments)

    def once_there(self, base: int, end: int, lost: Iterable[LostOffsets]) -> tuple[Offsets, ...]:
        """Offsets of the segment `base` to `end` (inclusive) that had batches according to evidence
        outside it: an index without a `.log`, a held segment that begins there, a recorded lost
        range. A gap over one of them was not left by the cleaner (`gap_rule.GapWatch`).
        """
        assert self.local is not None, "the segment is on this machine"
        own = self.local.leader_epochs
        bases = {
            *self.local.removed_logs,
            *(
                unit.base_offset
                for unit in self.units
                if unit.first_known_offset == unit.base_offset
                and unit.leader_epochs[0].epoch == epoch_for_offset(own, unit.base_offset)
            ),
        }
        return (
            *((at, at) for at in sorted(bases) if base < at <= end),
            *((each.start, each.end) for each in lost if each.start <= end and base <= each.end),
        )

    @property
    def checkpoint(self) -> Epochs:
        """The leader epochs of `segments`."""
        return () if self.local is None else with_heads(self.kept, self.proven_checkpoint)

    @property
    def claimed_checkpoint(self) -> Epochs:
        """The epochs for a claim: the broker's checkpoint with the heads that its first epoch
        proves, whatever lineage is recorded, which a claim may change.
        """
        if self.local is None:
            return ()
        own = self.proven_checkpoint
        start = self.local.local_log_start_offset
        epoch = epoch_for_offset(own, start)
        first = self.local.segments[0].base_offset
        below = (unit for unit in self.units if unit.base_offset < first)
        led = self.word.leader_epoch if isinstance(self.word, Leads) else None
        return with_heads(unbroken(below, start, epoch, led), own)

    @property
    def proven_checkpoint(self) -> Epochs:
        """The broker's checkpoint; only its part from the first file on if the entries below are
        contradicted by the recorded lineage or, where that has none, by held segments. No batch in
        its files can confirm an entry below them, and a wrong one would truncate the lineage, or
        hide held segments. New epochs since the last claim that begin after all that is recorded
        truncate nothing, and stay unless held segments contradict them.
        """
        if self.local is None:
            return ()
        own, first = self.local.leader_epochs, self.local.segments[0].base_offset
        if self.mode is Mode.DELEGATED or not own:
            return own
        below = (unit for unit in self.units if unit.base_offset < first)
        if self.lineage and self.lineage[0].start_offset <= first:
            recorded = max(self.next_offset, self.lineage[-1].start_offset + 1)
            agree = _agree_below(min(first, recorded), own, self.lineage)
            new = [entry for entry in own if recorded <= entry.start_offset < first]
            if agree and new:
                newer = new[0].epoch >= self.lineage[-1].epoch
                agree = newer and not any(differs(unit, own, first) for unit in below)
        else:
            agree = not any(differs(unit, own, first) for unit in below)
        return own if agree else truncate_from_start(own, first)

    def epochs_to_claim(self, leader_epoch: int, metadata: MetadataReads) -> Epochs:
        """The epochs for a claim at `leader_epoch`: the checkpoint, the lost claims found in the
        stores, and the epochs that the tier's segments and the held ones prove.

        The tier and the held segments add nothing at an epoch that was claimed before: its first
        claim fixed how the lineage begins, and a later one may not change that; nor for a broker
        that tiers itself, which cuts no epochs.
        """
        told = () if self.found is None else self.found.lineage
        state = metadata.partition_state(self.partition)
        last = None if state is None else state.last_claim
        if last is not None and last.leader_epoch >= leader_epoch:
            return with_lost_claims(self.proven_checkpoint, told)
        own = self.claimed_checkpoint
        known = with_lost_claims(own, told)
        if state is None or last is None or self.mode is Mode.DELEGATED:
            return known
        listed = partial(metadata.list_remote_log_segments, self.partition)
        stays = () if self.may_lack_a_claim_before(leader_epoch, metadata) else state.lineage
        known = with_recorded_start(known, state.lineage)
        known = with_lost_claims(known, tiered_head(known, stays, listed))
        facts = HeadFacts(
            checkpoint=known,
            proven=own if told else known,
            recorded=state.lineage,
            log_start_offset=state.log_start_offset,
            serves=partial(metadata.serves_any, self.partition),
            tiered=lambda entry: tiered_head((entry,), stays, listed),
        )
        return with_held_heads(facts, self.units)

    def may_lack_a_claim_before(self, leader_epoch: int, metadata: MetadataReads) -> bool:
        """True if another node may have claimed an epoch below `leader_epoch` that the metadata
        here do not have yet: they lag, and that claim may cut the lineage that they have.

        False for a broker that tiers itself, whose claims rest on its checkpoint alone.
        """
        state = metadata.partition_state(self.partition)
        last = None if state is None else state.last_claim
        claimed = -1 if last is None else last.leader_epoch
        return self.mode is not Mode.DELEGATED and claimed + 1 < leader_epoch

    @property
    def log_start_said(self) -> int:
        """The log start from the broker's answer or its checkpoint: no record below it is needed.

        That checkpoint may still have the value of a deleted topic, so the first epoch's start
        bounds it: DeleteRecords moves that too.
        """
        if self.local is None:
            return self.log_start_heard
        on_disk = self.local.log_start_offset or 0
        if self.local.leader_epochs:
            on_disk = min(on_disk, self.local.leader_epochs[0].start_offset)
        return max(on_disk, self.log_start_heard)

    def claim_record(
        self, by: Incarnation, number: int, leader_epoch: int, metadata: MetadataReads
    ) -> PartitionClaim:
        """The claim of this partition, from this disk and the tier."""
        assert self.local is not None, "only partitions on this disk are claimed"
        return PartitionClaim(
            partition=self.partition,
            mode=self.mode,
            leader_epoch=leader_epoch,
            incarnation=by,
            claim_number=number,
            leader_epochs=self.epochs_to_claim(leader_epoch, metadata),
            local_log_start_offset=self.local.local_log_start_offset,
        )

    @property
    def broker_log_start(self) -> int:
        """The first offset that the broker may still have on its disk."""
        on_disk = 0 if self.local is None else self.local.local_log_start_offset
        return max(on_disk, self.log_start_said)

    @property
    def log_dir(self) -> Path | None:
        """The log directory that its copies are read from."""
        if self.local is None or not self.local.is_seen:
            return None
        return self.local.directory.parent

    def seen(self, local: LocalPartition | None) -> None:
        """Take a scan's result; None: there is no replica."""
        self.local = local
        if local is None:
            self.found_epochs = None
        else:
            self.local = with_heads_found(local, self.found_epochs, self.log_start_said)
        if self.fills_failed:
            here = {(each.base_offset, each.next_base_offset) for each in self.segments}
            self.fills_failed = {
                (base, end): failed
                for (base, end), failed in self.fills_failed.items()
                if (base, end + 1) in here
            }

    def learn(self, found: FoundEpochs) -> bool:
        """Take epochs read from the batches; True if they fit the replica as it is now."""
        before = self.local
        self.found_epochs = found
        self.seen(before)
        return self.local != before

    def segment(self, base_offset: int) -> LocalSegment | None:
        """The local segment with this base, as of the last scan."""
        for segment in self.segments:
            if segment.base_offset == base_offset:
                return segment
        return None

    def filled(self, offsets: Offsets) -> None:
        """Record that the segment's part of a lost range is in the tier, or can't get there under
        this claim.
        """
        self.fills_done |= {offsets}
        self.fills_failed.pop(offsets, None)

    def fills_not_now(self, now_ms: int) -> frozenset[Offsets]:
        """Segments for lost ranges that must not be tried now."""
        waiting = (each for each, failed in self.fills_failed.items() if failed.waits_at(now_ms))
        return self.fills_done | frozenset(waiting)

    def waits(self, wait: Wait) -> None:
        """Set the reason why copying waits; an adoption that is not finished waits for it too."""
        if self.found is not None and self.found.whole and self.claim is not None:
            # Offsets that are not copied yet, sealed or not, hold up the adoption of later ones.
            up_to_date = wait.why is WhyNot.NO_SEALED_SEGMENT
            why = WhyNot.NOT_ADOPTED if up_to_date else wait.why
            wait = replace(wait, why=why, text=f"{wait.text}; {ADOPTION_WAITS}")
        self.wait = wait

    def failed(self, kind: str, text: str, now_ms: int) -> None:
        """Remember an error for the status page."""
        self.last_error = LastError(kind, text, now_ms)

    def recorded(self, state: PartitionState | None) -> None:
        """Take the recorded lineage and next offset from the metadata."""
        self.lineage = () if state is None else state.lineage
        self.next_offset = 0 if state is None else state.next_offset

    def status(
        self, state: PartitionState | None, now_ms: int, metadata_offset: int, node_id: int
    ) -> PartitionStatus:
        """The status page on this node."""
        local = self.local
        self.recorded(state)
        claim = state.claim if state is not None else None
        facts = StatusFacts(
            partition=self.partition,
            role=self.role,
            state=state,
            local=None
            if local is None or not local.is_seen
            else LocalFacts(
                segments=self.segments,
                checkpoint=local.leader_epochs,
                log_start_offset=local.local_log_start_offset,
                high_watermark=local.high_watermark,
            ),
            claim=self.claim,
            leader_epoch=self.leader_epoch,
            last_stable_offset=(
                self.word.last_stable_offset if isinstance(self.word, Leads) else None
            ),
            wait=self.left_out or self.unusable or self.wait,
            back_off=self.back_off,
            last_error=self.last_error,
            copying=self.copying,
            now_ms=now_ms,
            metadata_offset=metadata_offset,
            claimed_here=claim is not None and claim.incarnation.node_id == node_id,
            led_when_last_heard=claim is None
            and self.leadership is not None
            and self.leadership[0],
        )
        return partition_status(facts)


def _agree_below(offset: int, own: Epochs, lineage: Epochs) -> bool:
    """True if the lineage has each offset of `own` below `offset` in the same epoch."""
    if own[0].start_offset >= offset:
        return True
    borders = {entry.start_offset for entry in (*own, *lineage)}
    return own[0].start_offset >= lineage[0].start_offset and all(
        epoch_for_offset(own, at) == epoch_for_offset(lineage, at)
        for at in borders
        if own[0].start_offset <= at < offset
    )
