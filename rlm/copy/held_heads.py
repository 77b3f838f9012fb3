"""Leader epochs of held segments that a recorded lineage lacks. Pure.

A late claim, made after its node was down, has a checkpoint whose head was cut by local retention.
Epochs that began since the previous claim are then recorded with too high a start, or not at all,
and their records as lost. A different node may hold these records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter

from kafka_formats.errors import InvalidRequest
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlm.local_log.hold_plan import Unit
from rlm.reconcile.lost_claims import with_lost_claims
from rlmm.lineage import (
    changed_ranges,
    epoch_bounds,
    epoch_slot,
    known_from,
    merge,
    within_lineage,
)


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """The facts of a claim, before held segments are added. `proven`: the part of its `checkpoint`
    that surely belongs to the leader's history. `serves`: called with a lineage and two offsets,
    True if the tier serves an offset between them (inclusive) by that lineage. Offsets below
    `log_start_offset` are not needed. `tiered`: called with an entry of the leader's history, gives
    it with the lowest start that the tier proves for it, and the entries that the tier proves below
    (`tiered_head`).
    """

    checkpoint: Epochs
    proven: Epochs
    recorded: Epochs
    log_start_offset: int
    serves: Callable[[Epochs, int, int], bool]
    tiered: Callable[[EpochEntry], Epochs]


@dataclass(frozen=True, slots=True)
class _Join:
    """A change to a lineage: `before`, its entries from index `low` on, are replaced by `after`.
    Both also have the neighbouring entries, which stay.
    """

    low: int
    before: Epochs
    after: Epochs

    def applied(self, lineage: Epochs) -> Epochs:
        return (*lineage[: self.low], *self.after, *lineage[self.low + len(self.before) :])


def with_held_heads(facts: HeadFacts, units: Iterable[Unit]) -> Epochs:
    """The checkpoint for a claim, extended downwards by the epochs of held units that the recorded
    lineage lacks; unchanged if they add none.

    The recorded lineage below the checkpoint may be a mix of branches: some epoch in between was
    never claimed, and heads were cut. So a unit that joins it at an unproven epoch (one that is
    neither in the proven checkpoint nor in a unit already joined to that) may only add to it: it
    may remove no recorded epoch, and no offset that the tier serves, since segments would then be
    deleted in favour of a unit that may itself be cut off. Below a unit that joins it at a proven
    epoch the tier is asked: of its own segments those of that history have to stay, too.
    """
    if not facts.recorded or not facts.proven:
        return facts.checkpoint
    known = lineage = with_lost_claims(facts.checkpoint, facts.recorded)
    sure, asked = {epoch for epoch, _ in facts.proven}, set[int]()
    for unit in sorted(units, key=lambda unit: unit.next_base_offset, reverse=True):
        joint = _joint(lineage, unit)
        if joint is None or unit.first_known_offset < facts.log_start_offset:
            continue
        is_within = _is_within(unit, lineage)
        if not is_within or unit.leader_epochs[0].epoch < lineage[0].epoch:
            join = _join(lineage, unit, joint)
            if _may_join(join, unit, facts, is_sure=joint in sure):
                lineage = join.applied(lineage)
            elif not is_within:
                continue
        if joint in sure:
            sure.update(epoch for epoch, _ in unit.leader_epochs)
            first = unit.leader_epochs[0].epoch
            if first not in asked:
                proven = _tiered_below(lineage, first, facts)
                lineage = _with_entries(lineage, proven)
                asked |= {first, *(epoch for epoch, _ in proven)}
                sure |= asked
    return facts.checkpoint if lineage == known else lineage


def _tiered_below(lineage: Epochs, epoch: int, facts: HeadFacts) -> Epochs:
    """The entries up to an epoch of the leader's history that the tier proves; empty if the lineage
    has them.
    """
    slot = epoch_slot(lineage, epoch)
    if slot is None:
        return ()
    found = facts.tiered(lineage[slot])
    return () if found == (lineage[slot],) else found


def _with_entries(lineage: Epochs, proven: Epochs) -> Epochs:
    """The lineage with proven entries in place of its own up to the last of them; unchanged if the
    two contradict each other.
    """
    if not proven:
        return lineage
    above = tuple(entry for entry in lineage if entry.epoch > proven[-1].epoch)
    told = (*proven, *above)
    try:
        return merge(lineage, told, leader_epoch=told[-1].epoch, higher_epoch=True).epochs
    except InvalidRequest:
        return lineage


def _may_join(join: _Join, unit: Unit, facts: HeadFacts, *, is_sure: bool) -> bool:
    return (
        _is_within(unit, join.after)
        and _keeps(join, facts.proven[0])
        and (is_sure or not _takes(join, facts))
    )


def _is_within(unit: Unit, lineage: Epochs) -> bool:
    end = unit.next_base_offset - 1
    return within_lineage(unit.base_offset, end, unit.leader_epochs, lineage, None)


def _joint(lineage: Epochs, unit: Unit) -> int | None:
    """The epoch that the unit and the lineage share: the one that followed the unit, or the unit's
    last one. An epoch has one leader, whose log up to that epoch all replicas share, even across a
    gap. None: they share none.
    """
    end, last = unit.next_base_offset, unit.leader_epochs[-1].epoch
    slot = epoch_slot(lineage, unit.followed_by)
    if slot is not None and unit.followed_by > last and lineage[slot].start_offset >= end:
        return unit.followed_by
    bounds = epoch_bounds(lineage, last)
    return None if bounds is None or bounds[1] < end - 1 else last


def _join(lineage: Epochs, unit: Unit, joint: int) -> _Join:
    """The change that adds the unit's epochs to the lineage; no change if the two contradict each
    other. An epoch that both have begins at the lower of the two starts.
    """
    told, first = unit.leader_epochs, unit.leader_epochs[0]
    below = min(bisect_left(lineage, at, key=itemgetter(key)) for key, at in enumerate(first))
    slot = epoch_slot(lineage, joint)
    assert slot is not None, "a joint is in the lineage"
    low = max(below - 1, 0)
    before = lineage[low : slot + 2]
    if joint > told[-1].epoch:
        told = (*told, EpochEntry(joint, unit.next_base_offset))
    told = (*told, *lineage[slot + 1 : slot + 2])
    try:
        after = merge(before, told, leader_epoch=told[-1].epoch, higher_epoch=True).epochs
    except InvalidRequest:
        after = before
    return _Join(low, before, after)


def _keeps(join: _Join, first: EpochEntry) -> bool:
    """True if the change keeps all entries from the checkpoint's first epoch on; only that epoch
    may begin lower.

    Retention cuts only the head of a checkpoint, so the rest of it is right.
    """
    behind, was = (
        tuple(entry for entry in each if entry.epoch > first.epoch)
        for each in (join.after, join.before)
    )
    return behind == was and (
        epoch_slot(join.after, first.epoch) is not None
        or epoch_slot(join.before, first.epoch) is None
    )


def _takes(join: _Join, facts: HeadFacts) -> bool:
    """True if the change removes an epoch, or gives an offset that the tier serves a different
    epoch. Offsets below the first entry count as the first epoch's.
    """
    if not dict(join.before).keys() <= dict(join.after).keys():
        return True
    first = max(facts.log_start_offset, 0)
    before, after = known_from(join.before, first), known_from(join.after, first)
    moved = changed_ranges(before, after, first, before[-1].start_offset - 1)
    return any(facts.serves(before, *each) for each in moved)
