"""Decides which segments are held past the broker's local retention, until copied. Pure.

A *unit* is a sealed segment held by hard links, in a directory like a replica's, so that it can be
copied in the same way as from the broker's directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_formats.leader_epoch_checkpoint import (
    EpochEntry,
    Epochs,
    entries_in_range,
    epoch_for_offset,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.local_log.log_dir import LocalSegment
from rlmm.lineage import filtered, within_lineage
from rlmm.partition_state import LostOffsets
from rlmm.segment import OFFSET_MAX


class Release(StrEnum):
    """The reason why a unit is released. The values are part of the API."""

    COPIED = "copied"
    BELOW_LOG_START = "below_log_start"
    PARTITION_DELETED = "partition_deleted"
    NOT_TIERED = "not_tiered"
    DIVERGED = "diverged"
    CHANGED = "changed"
    BYTES_MAX = "bytes_max"
    FREE_BYTES_MIN = "free_bytes_min"


NOT_A_LOSS = frozenset({Release.COPIED, Release.PARTITION_DELETED, Release.NOT_TIERED})
"""Reasons whose release loses no record that is still wanted."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A held segment. `segment` is the one in the unit's directory, always sealed.

    `leader_epochs` are the segment's, the first moved to its first known offset: its base, unless
    DeleteRecords had reached into it. `modified_ns`: the modification time of its `.log` when end
    and epochs were recorded. `alone`: the broker has removed its own links: the bytes count as
    ours. `followed_by`: the live log's epoch at the next base when last seen. `wanted`: False while
    its topic is left out, perhaps by a mistake. `doubt`: the reason why the recorded end and epochs
    may differ from those of the file; None: they agree. `cut_off`: see `is_cut_off`.
    """

    partition: TopicIdPartition
    segment: LocalSegment
    leader_epochs: Epochs
    modified_ns: int
    alone: bool
    followed_by: int
    wanted: bool = True
    doubt: str | None = None
    cut_off: bool = False

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def first_known_offset(self) -> int:
        """The first offset whose epoch is known."""
        return self.leader_epochs[0].start_offset

    @property
    def next_base_offset(self) -> int:
        assert self.segment.next_base_offset is not None, "only sealed segments are held"
        return self.segment.next_base_offset


@dataclass(frozen=True, slots=True)
class HoldFacts:
    """The facts of one partition. `high_watermark` is a lower bound (not the LSO: local retention
    deletes up to the high watermark even if transactions are open); -1: not known. `next_offset`
    -1: nothing is copied.

    `segments` are the broker's own, `checkpoint` its leader epoch checkpoint, `lineage` the
    recorded one.
    """

    segments: Sequence[LocalSegment]
    checkpoint: Epochs
    high_watermark: int
    next_offset: int
    lost_ranges: Sequence[LostOffsets]
    deleted: bool
    left_out: bool
    log_start_offset: int = -1
    lineage: Epochs = ()


def to_hold(facts: HoldFacts, held: Iterable[Unit]) -> tuple[LocalSegment, ...]:
    """The sealed, committed, uncopied segments of the broker that are not held yet.

    If the file after a held segment vanished, that segment seems to reach further; a second link
    to its file would make its bytes count as the broker's for ever. A unit held alone is not the
    broker's file, even with the same borders: the broker's is a newer one, which may replace a
    damaged one.
    """
    if facts.deleted or facts.left_out:
        return ()
    held = tuple(unit for unit in held if not unit.alone)
    known = {(unit.base_offset, unit.next_base_offset) for unit in held}
    files = {(unit.base_offset, unit.segment.size_bytes) for unit in held}
    return tuple(
        segment
        for segment in facts.segments
        if segment.next_base_offset is not None
        and segment.next_base_offset <= facts.high_watermark
        and (segment.base_offset, segment.next_base_offset) not in known
        and (segment.base_offset, segment.size_bytes) not in files
        and _is_wanted(facts, segment.base_offset, segment.next_base_offset)
    )


def _is_wanted(facts: HoldFacts, base: int, next_base: int) -> bool:
    """True if the segment has known offsets that are not copied. DeleteRecords cuts the checkpoint
    at once, and the broker deletes the segments below it later.
    """
    if not facts.checkpoint:
        return False
    first_known = max(base, facts.checkpoint[0].start_offset)
    return first_known < next_base and not is_copied(
        facts, first_known, next_base, facts.checkpoint
    )


def why_let_go(facts: HoldFacts, unit: Unit, own: LocalSegment | None) -> Release | None:
    """The reason why a unit can be released; None while it may be needed. `own`: the broker's
    segment of the same file.

    A file that the broker has rewritten is released and held again. The units of a topic that is
    left out now stay: it may be tiered again, from them.
    """
    if facts.deleted:
        return Release.PARTITION_DELETED
    is_another = unit.doubt is not None or (own is not None and _is_rewritten(facts, unit))
    if own is not None and is_another and _is_held_anew(facts, own):
        return Release.CHANGED
    if unit.doubt is not None:
        return _why_unneeded_whatever_it_has(facts, unit, own)
    unneeded = _why_unneeded(facts, unit)
    if unneeded is None and (_contradicts(facts, unit) or _was_cut_off(facts, unit)):
        return Release.DIVERGED
    return unneeded


def _why_unneeded_whatever_it_has(
    facts: HoldFacts, unit: Unit, own: LocalSegment | None
) -> Release | None:
    """The reason why a unit in doubt can be released; None while it may have the only copy of some
    records.

    The newest epoch that it can have is its own last one, or the live log's epoch at the unit's
    end; for a live log that begins above the unit, that log's first epoch.
    """
    if not facts.segments or not facts.checkpoint:
        return None
    if own is not None and not facts.left_out:
        return None  # it is being removed
    if facts.segments[-1].base_offset < unit.next_base_offset:
        return None  # a replica that starts over proves too little
    there = epoch_for_offset(facts.checkpoint, unit.next_base_offset - 1)
    newest = max(
        unit.leader_epochs[-1].epoch, facts.checkpoint[0].epoch if there is None else there
    )
    whole = (EpochEntry(newest, unit.base_offset),)
    return _why_unneeded(facts, replace(unit, leader_epochs=whole))


def _is_rewritten(facts: HoldFacts, unit: Unit) -> bool:
    """True if a unit that is the broker's file differs from the broker's checkpoint: either a
    flipped bit had moved the first epoch's start too high when the unit was held, or the file was
    truncated and rewritten without a visible change of its modification time.
    """
    if not facts.checkpoint:
        return False
    is_cut = unit.base_offset < unit.first_known_offset
    if is_cut and facts.checkpoint[0].start_offset < unit.first_known_offset:
        return True
    return differs(unit, facts.checkpoint, unit.next_base_offset)


def _is_held_anew(facts: HoldFacts, own: LocalSegment) -> bool:
    """True if `to_hold` will hold the broker's file anew once its unit is released, now or when it
    is sealed and committed: not if the topic is left out, nor for a file below the log's start.
    """
    if facts.deleted or facts.left_out or not facts.checkpoint:
        return False
    end = OFFSET_MAX if own.next_base_offset is None else own.next_base_offset
    return facts.checkpoint[0].start_offset < end


def _why_unneeded(facts: HoldFacts, unit: Unit) -> Release | None:
    if is_copied(facts, unit.first_known_offset, unit.next_base_offset, unit.leader_epochs):
        # Units of copied segments are released long before retention reaches them, so this one was
        # never copied.
        if unit.next_base_offset <= facts.log_start_offset:
            return Release.BELOW_LOG_START
        # Outside the lineage, the tier has different epochs there: this unit was cut off, or a
        # claim whose checkpoint had lost its head did not have these epochs.
        fits = not facts.lineage or _is_within(unit, facts.lineage)
        return Release.COPIED if fits else Release.DIVERGED
    return None


def is_copied(facts: HoldFacts, first_known: int, next_base: int, epochs: Epochs) -> bool:
    """True if every offset is in the tier or expired there, none is recorded as lost, and what the
    tier has is not an older leader's copy, cut off by an unclean election whose claim is not yet
    recorded. Epochs that the recorded lineage has passed without containing them will not be
    claimed any more, unless the live log neither claimed nor follows that lineage: a second unclean
    election may bring its epochs back.
    """
    if next_base > facts.next_offset:
        return False
    if any(lost.start < next_base and first_known <= lost.end for lost in facts.lost_ranges):
        return False
    newest = epoch_for_offset(epochs, next_base - 1)
    if newest is None or not facts.lineage:
        return True
    if facts.checkpoint and facts.checkpoint[-1].epoch == facts.lineage[-1].epoch:
        return newest <= facts.lineage[-1].epoch
    inside = entries_in_range(epochs, first_known, next_base)
    return within_lineage(first_known, next_base - 1, inside, facts.lineage, None)


def _contradicts(facts: HoldFacts, unit: Unit) -> bool:
    """True if both the live log and the recorded lineage contradict the unit's epochs. Neither is
    enough alone: the checkpoint is a file without a checksum, and a further election may undo the
    recorded lineage.
    """
    if not facts.lineage or _is_within(unit, facts.lineage):
        return False
    return _differs_from_live(facts, unit)


def is_cut_off(facts: HoldFacts, unit: Unit) -> bool:
    """True if the live log contradicts the unit's epochs, or did when it last reached the unit:
    retention removes the contradicting segments too, perhaps before any claim has their epochs. A
    log that continues in the unit's last epoch undoes it: that epoch's one leader had the unit's
    records.
    """
    if not unit.cut_off or not facts.segments or not facts.checkpoint:
        return unit.cut_off or _differs_from_live(facts, unit)
    at = max(unit.next_base_offset - 1, facts.segments[0].base_offset)
    goes_on = epoch_for_offset(facts.checkpoint, at) == unit.leader_epochs[-1].epoch
    return not goes_on or at > facts.segments[-1].base_offset or _differs_from_live(facts, unit)


def _was_cut_off(facts: HoldFacts, unit: Unit) -> bool:
    """True if the live log contradicted the unit, and now begins after it, so that it can no longer
    be compared with it.
    """
    return (
        unit.cut_off
        and bool(facts.segments)
        and unit.next_base_offset <= facts.segments[0].base_offset
        and not _differs_from_live(facts, unit)
    )


def _differs_from_live(facts: HoldFacts, unit: Unit) -> bool:
    """True if the live log has different epochs within the unit. A replica that starts over proves
    nothing, nor does the checkpoint of a log that retention emptied: no batch confirms it.
    """
    if not facts.segments or not facts.checkpoint:
        return False
    reached = facts.segments[-1].base_offset
    return reached > facts.checkpoint[0].start_offset and differs(unit, facts.checkpoint, reached)


def differs(unit: Unit, above: Epochs, reached: int) -> bool:
    """True if a log with the epochs `above` up to `reached` has different epochs within the unit,
    or a lower epoch after it.
    """
    first = above[0]
    if unit.next_base_offset <= min(reached, first.start_offset):
        return unit.leader_epochs[-1].epoch > first.epoch
    start = max(unit.first_known_offset, first.start_offset)
    borders = (entry.start_offset for entry in (*unit.leader_epochs, *above))
    return any(
        epoch_for_offset(unit.leader_epochs, offset) != epoch_for_offset(above, offset)
        for offset in (*borders, start)
        if start <= offset < min(unit.next_base_offset, reached)
    )


def usable(
    units: Iterable[Unit], segments: Sequence[LocalSegment], checkpoint: Epochs, lineage: Epochs
) -> tuple[Unit, ...]:
    """Units that begin below the live log and fit it, bases and ends ascending, for copies.

    They may overlap each other and the live log: a replica that was fetched again has different
    segment borders. A unit inside another one is left out. `lineage` is the recorded one, or empty;
    a unit outside the lineage never replaces one inside: of two units that contradict each other,
    one was cut off.
    """
    if not segments or not checkpoint:
        return ()
    base, above = segments[0].base_offset, checkpoint
    found: list[Unit] = []
    for unit in _from_the_top(each for each in units if each.base_offset < base):
        if unit.base_offset >= base or (lineage and not _is_within(unit, lineage)):
            continue
        # No taken unit ends below this one, so to compare it with the lowest of them is enough.
        if not differs(unit, above, OFFSET_MAX):
            found.append(unit)
            base, above = unit.base_offset, unit.leader_epochs
    return tuple(reversed(found))


def _from_the_top(units: Iterable[Unit]) -> list[Unit]:
    """Units by descending end; of equal ends the longer first."""
    return sorted(units, key=lambda each: (-each.next_base_offset, each.base_offset))


def _is_within(unit: Unit, lineage: Epochs) -> bool:
    """True if the unit belongs to the lineage's history. Epochs below the lineage's first one are
    allowed only at offsets where the lineage has not begun.
    """
    first = lineage[0]
    if unit.leader_epochs[0].epoch < first.epoch:
        known = (entry for entry in unit.leader_epochs if entry.epoch >= first.epoch)
        begins = next(known, None)
        if begins is None or begins.start_offset > first.start_offset:
            return False
    end = unit.next_base_offset - 1
    return within_lineage(unit.base_offset, end, unit.leader_epochs, lineage, None)


def with_heads(units: Sequence[Unit], checkpoint: Epochs) -> Epochs:
    """The checkpoint as it was before local retention cut its head, as far as `usable` units have
    it. If both have an epoch, the smaller start is kept: a wrong start is always too high.
    """
    entries = list(checkpoint)
    for unit in reversed(units):
        for entry in reversed(unit.leader_epochs):
            if entries and entry.epoch == entries[0].epoch:
                start = min(entry.start_offset, entries[0].start_offset)
                entries[0] = EpochEntry(entry.epoch, start)
            elif entries and entry.start_offset < entries[0].start_offset:
                entries.insert(0, entry)
    return filtered(entries)


def unbroken(
    units: Iterable[Unit], offset: int, epoch: int | None, led: int | None = None
) -> tuple[Unit, ...]:
    """The units that reach `offset`, where the log has `epoch`, and surely belong to its history,
    down to the first gap: those that have that epoch there, or that end there and were followed by
    it or end in it. An epoch has one leader, whose log up to that epoch all replicas share. `led`:
    the epoch that this broker leads; None: it leads none. A leader never truncates its log, nor
    does a follower within an epoch: the records of the epoch before, up to where the led epoch
    began, belong to its history.

    That a unit was once seen in the live log proves nothing: between two scans that log may be
    truncated and begin again, with different epochs, where the unit ends. Below a gap the history
    is unknown; records deleted before the unit was held are such a gap.
    """
    found: list[Unit] = []
    for unit in _from_the_top(units):
        if unit.next_base_offset < offset or epoch is None:
            break
        if unit.first_known_offset >= offset or epoch not in _epochs_at(unit, offset, led):
            continue  # it adds no offset, or belongs to a different history
        found.append(unit)
        if unit.first_known_offset > unit.base_offset:
            break
        offset, epoch = unit.base_offset, unit.leader_epochs[0].epoch
    return tuple(reversed(found))


def _epochs_at(unit: Unit, offset: int, led: int | None) -> tuple[int | None, ...]:
    """Epochs that prove, if the log has one of them at `offset`, that the unit belongs to its
    history.
    """
    if offset < unit.next_base_offset:
        return (epoch_for_offset(unit.leader_epochs, offset),)
    last = unit.leader_epochs[-1].epoch
    return (unit.followed_by, last, led if led == last + 1 else last)


def over_budget(
    units: Iterable[Unit], *, bytes_max: int, bytes_missing: int
) -> tuple[tuple[Unit, Release], ...]:
    """The units to release until those held alone fit into `bytes_max`, and `bytes_missing` more
    bytes of the disk are free. The order: units whose offsets another unit holds in as many bytes,
    then unwanted ones, then those in doubt, which can't be copied as they are, then the oldest.
    Only units held alone free any bytes. All but the unwanted count as missed: of two files with
    the same offsets it was never checked which one is sound.
    """
    fullest: dict[tuple[TopicIdPartition, int, int], Unit] = {}
    alone = []
    for unit in sorted(
        units, key=lambda unit: (unit.modified_ns, unit.partition, unit.base_offset)
    ):
        place = unit.partition, unit.base_offset, unit.next_base_offset
        best = fullest.get(place)
        if best is None or best.segment.size_bytes <= unit.segment.size_bytes:
            fullest[place] = unit
        if unit.alone:
            alone.append(unit)
    kept = {id(unit) for unit in fullest.values()}
    # The sort is stable, so the oldest stay first.
    alone.sort(key=lambda unit: (id(unit) in kept, unit.wanted, unit.doubt is None))
    over = sum(unit.segment.size_bytes for unit in alone) - bytes_max
    released = []
    for unit in alone:
        if over <= 0 and bytes_missing <= 0:
            break
        why = Release.BYTES_MAX if over > 0 else Release.FREE_BYTES_MIN
        released.append((unit, why if unit.wanted else Release.NOT_TIERED))
        over -= unit.segment.size_bytes
        bytes_missing -= unit.segment.size_bytes
    return tuple(released)
