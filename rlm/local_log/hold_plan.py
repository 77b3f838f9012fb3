"""Decides which segments are held past the broker's local retention, until copied. Pure.

A *unit* is a sealed segment held by hard links, in a directory like a replica's, so that it is
copied as from the broker's directory.
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
    """The reason why a unit is released. Stable words."""

    COPIED = "copied"
    BELOW_LOG_START = "below_log_start"
    PARTITION_DELETED = "partition_deleted"
    NOT_TIERED = "not_tiered"
    DIVERGED = "diverged"
    CHANGED = "changed"
    BYTES_MAX = "bytes_max"
    FREE_BYTES_MIN = "free_bytes_min"


NOT_A_LOSS = frozenset({Release.COPIED, Release.PARTITION_DELETED, Release.NOT_TIERED})
"""Nobody misses units released for these reasons."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A held segment. `segment` is the one in the unit's directory, always sealed.

    `leader_epochs` are the segment's, the first moved to its first known offset: its base, unless
    DeleteRecords had reached into it. `modified_ns`: the time of its `.log`'s last write when end
    and epochs were told. `alone`: the broker has removed its own links: the bytes count as ours.
    `followed_by`: the live log's epoch at the next base when last seen. `wanted`: False while its
    topic is left out, perhaps by a mistake. `doubt`: why end and epochs are not what it has; None:
    they are. `cut_off`: see `is_cut_off`.
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
    """One partition. `high_watermark` is a lower bound: local retention deletes up to it, whatever
    transactions are open; -1: it is not known. `next_offset` -1: nothing is copied.

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

    If the file behind a held segment vanished, that segment seems to reach further; a second link
    to its file would make its bytes count as the broker's for ever. A unit held alone is not the
    broker's file, whatever its borders: that is a newer one, perhaps in place of a damaged one.
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
    """Local: DeleteRecords cuts the checkpoint at once, and the segments below it go later."""
    if not facts.checkpoint:
        return False
    first_known = max(base, facts.checkpoint[0].start_offset)
    return first_known < next_base and not is_copied(
        facts, first_known, next_base, facts.checkpoint
    )


def why_let_go(facts: HoldFacts, unit: Unit, own: LocalSegment | None) -> Release | None:
    """The reason why a unit can go; None while of use. `own`: the broker's segment of the same
    file.

    What the broker has in another form now is held anew. A topic left out now may be tiered again,
    from this unit.
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
    """The reason why a unit in doubt can go; None while it may have records that nobody else has.

    The newest epoch that it can have is its own, or that of the live log at its end or, above it,
    at the beginning.
    """
    if not facts.segments or not facts.checkpoint:
        return None
    if own is not None and not facts.left_out:
        return None  # it is being removed
    if facts.segments[-1].base_offset < unit.next_base_offset:
        return None  # a replica that starts over tells too little
    there = epoch_for_offset(facts.checkpoint, unit.next_base_offset - 1)
    newest = max(
        unit.leader_epochs[-1].epoch, facts.checkpoint[0].epoch if there is None else there
    )
    whole = (EpochEntry(newest, unit.base_offset),)
    return _why_unneeded(facts, replace(unit, leader_epochs=whole))


def _is_rewritten(facts: HoldFacts, unit: Unit) -> bool:
    """True if a unit that is the broker's file has other epochs in its checkpoint: when it was
    held, the start of the first epoch was too high by a turned bit, or the time of its last write
    does not tell that it was cut and written anew.
    """
    if not facts.checkpoint:
        return False
    is_cut = unit.base_offset < unit.first_known_offset
    if is_cut and facts.checkpoint[0].start_offset < unit.first_known_offset:
        return True
    return differs(unit, facts.checkpoint, unit.next_base_offset)


def _is_held_anew(facts: HoldFacts, own: LocalSegment) -> bool:
    """True if `to_hold` takes the broker's file as it is now, or once it is sealed and committed,
    when its unit is gone: not of a topic that is left out, nor of a file below the log's start.
    """
    if facts.deleted or facts.left_out or not facts.checkpoint:
        return False
    end = OFFSET_MAX if own.next_base_offset is None else own.next_base_offset
    return facts.checkpoint[0].start_offset < end


def _why_unneeded(facts: HoldFacts, unit: Unit) -> Release | None:
    if is_copied(facts, unit.first_known_offset, unit.next_base_offset, unit.leader_epochs):
        # Copied segments go long before retention reaches them, so this one never was.
        if unit.next_base_offset <= facts.log_start_offset:
            return Release.BELOW_LOG_START
        # What the tier has there is of other epochs: this one was cut off, or a claim with a cut
        # head did not know of it.
        fits = not facts.lineage or _is_within(unit, facts.lineage)
        return Release.COPIED if fits else Release.DIVERGED
    return None


def is_copied(facts: HoldFacts, first_known: int, next_base: int, epochs: Epochs) -> bool:
    """True if every offset is in the tier or expired there, none is recorded as lost, and none is
    an older leader's, which an unclean election cut off: the claim that records the cut may wait.
    No claim of an epoch waits that the recorded lineage went past without it, unless the live log
    neither claimed nor follows that lineage: a second unclean election may bring its epochs back.
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
    """True if the live log and the recorded lineage have other epochs in the unit: the checkpoint
    alone is a file without a checksum, and another election may undo what is recorded alone.
    """
    if not facts.lineage or _is_within(unit, facts.lineage):
        return False
    return _differs_from_live(facts, unit)


def is_cut_off(facts: HoldFacts, unit: Unit) -> bool:
    """True if the live log has other epochs in the unit, or had them when it last told: retention
    takes these too, perhaps before any claim names them. Undone by a log that goes on in the unit's
    last epoch, whose one leader had the unit's records.
    """
    if not unit.cut_off or not facts.segments or not facts.checkpoint:
        return unit.cut_off or _differs_from_live(facts, unit)
    at = max(unit.next_base_offset - 1, facts.segments[0].base_offset)
    goes_on = epoch_for_offset(facts.checkpoint, at) == unit.leader_epochs[-1].epoch
    return not goes_on or at > facts.segments[-1].base_offset or _differs_from_live(facts, unit)


def _was_cut_off(facts: HoldFacts, unit: Unit) -> bool:
    """True if the live log contradicted the unit, and begins behind it now, so that it will not
    tell any more.
    """
    return (
        unit.cut_off
        and bool(facts.segments)
        and unit.next_base_offset <= facts.segments[0].base_offset
        and not _differs_from_live(facts, unit)
    )


def _differs_from_live(facts: HoldFacts, unit: Unit) -> bool:
    """True if the live log has other epochs in the unit. A replica that starts over proves
    nothing, nor does the checkpoint of a log that retention emptied: no batch bears it out.
    """
    if not facts.segments or not facts.checkpoint:
        return False
    reached = facts.segments[-1].base_offset
    return reached > facts.checkpoint[0].start_offset and differs(unit, facts.checkpoint, reached)


def differs(unit: Unit, above: Epochs, reached: int) -> bool:
    """True if a log with the epochs `above` up to `reached` has others in the unit, or lower ones
    after.
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

    They may overlap each other and the live log: a replica fetched again has other segment borders.
    A unit inside another one is left out. `lineage` is the recorded one, or empty; a unit outside
    it hides none inside: of two that contradict each other, one was cut off.
    """
    if not segments or not checkpoint:
        return ()
    base, above = segments[0].base_offset, checkpoint
    found: list[Unit] = []
    for unit in _from_the_top(each for each in units if each.base_offset < base):
        if unit.base_offset >= base or (lineage and not _is_within(unit, lineage)):
            continue
        # No taken unit ends below this one, so the lowest of them has all it shares with any.
        if not differs(unit, above, OFFSET_MAX):
            found.append(unit)
            base, above = unit.base_offset, unit.leader_epochs
    return tuple(reversed(found))


def _from_the_top(units: Iterable[Unit]) -> list[Unit]:
    """Units by descending end; of equal ends the longer first."""
    return sorted(units, key=lambda each: (-each.next_base_offset, each.base_offset))


def _is_within(unit: Unit, lineage: Epochs) -> bool:
    """True if the unit is of the lineage's history. Epochs below the lineage's first one may only
    stand where the lineage has not begun.
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
    """The checkpoint before local retention cut its head, as far as `usable` units know. If both
    have an epoch, the smaller start stays: a start is only ever wrong upwards.
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
    """The units that reach `offset`, where the log has `epoch`, and are surely of its history, down
    to the first gap: those that have that epoch there, or that end there and were followed by it or
    end in it. An epoch has one leader, whose log up to that epoch all replicas share. `led`: the
    epoch that this broker leads; None: it leads none. No leader cuts its log, nor does a follower
    within an epoch: where that epoch began, the records of the one before are of its history.

    That a unit was once seen in the live log proves nothing: between two looks that may be cut off
    and begin again, with other epochs, where the unit ends. Behind a gap the history is unknown;
    records deleted before the unit was held are such a gap.
    """
    found: list[Unit] = []
    for unit in _from_the_top(units):
        if unit.next_base_offset < offset or epoch is None:
            break
        if unit.first_known_offset >= offset or epoch not in _epochs_at(unit, offset, led):
            continue  # it has nothing more, or is of another history and hides nothing of this one
        found.append(unit)
        if unit.first_known_offset > unit.base_offset:
            break
        offset, epoch = unit.base_offset, unit.leader_epochs[0].epoch
    return tuple(reversed(found))


def _epochs_at(unit: Unit, offset: int, led: int | None) -> tuple[int | None, ...]:
    """Epochs that prove, at `offset` in a log, that it has the unit's history below."""
    if offset < unit.next_base_offset:
        return (epoch_for_offset(unit.leader_epochs, offset),)
    last = unit.leader_epochs[-1].epoch
    return (unit.followed_by, last, led if led == last + 1 else last)


def over_budget(
    units: Iterable[Unit], *, bytes_max: int, bytes_missing: int
) -> tuple[tuple[Unit, Release], ...]:
    """The units to release until those held alone fit into `bytes_max` and `bytes_missing` of the
    disk become free: those of whose offsets another one holds as many bytes, then unwanted ones,
    then those in doubt, which can't be copied as they are, then the oldest. Only units held alone
    free anything. All but the unwanted count as missed: of two files for the same offsets nobody
    has looked at which is sound.
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
    # Stable: the oldest first.
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
