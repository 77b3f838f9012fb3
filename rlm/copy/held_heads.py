"""Leader epochs of held segments that a recorded lineage lacks. Pure.

A claim that comes late, after its node was down, has a checkpoint whose head local retention cut.
Epochs that began since the claim before it are then recorded as beginning too high, or not at all,
and their records as lost. Another node may hold these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_formats.errors import InvalidRequest
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlm.local_log.hold_plan import Unit
from rlm.reconcile.lost_claims import with_lost_claims
from rlmm.lineage import epoch_bounds, merge, within_lineage


def with_held_heads(
    checkpoint: Epochs, recorded: Epochs, log_start: int, units: Iterable[Unit]
) -> Epochs:
    """The checkpoint for a claim, from the epochs on that held units tell and the recorded lineage
    does not; itself, if they tell nothing. Nothing below `log_start` is wanted.

    The recorded lineage below the checkpoint may be a mix of branches: nobody claimed for an epoch
    in between, and heads were cut. So a unit that joins it at an epoch that neither the checkpoint
    has nor a unit joined to it may add to it, and takes no recorded epoch away.
    """
    if not recorded or not checkpoint:
        return checkpoint
    known = lineage = with_lost_claims(checkpoint, recorded)
    starts, sure = dict(lineage), {epoch for epoch, _ in checkpoint}
    for unit in sorted(units, key=lambda unit: unit.next_base_offset, reverse=True):
        joint = _joint(lineage, starts, unit)
        if joint is None or unit.first_known_offset < log_start:
            continue
        if not _is_within(unit, lineage):
            joined = _with_unit(lineage, unit, joint)
            if not _is_within(unit, joined) or not _keeps(joined, known, checkpoint[0]):
                continue
            if joint not in sure and not starts.keys() <= dict(joined).keys():
                continue
            lineage, starts = joined, dict(joined)
        if joint in sure:
            sure.update(epoch for epoch, _ in unit.leader_epochs)
    return checkpoint if lineage == known else lineage


def _is_within(unit: Unit, lineage: Epochs) -> bool:
    end = unit.next_base_offset - 1
    return within_lineage(unit.base_offset, end, unit.leader_epochs, lineage, None)


def _joint(lineage: Epochs, starts: Mapping[int, int], unit: Unit) -> int | None:
    """The epoch that the unit and the lineage share: the one that followed the unit, or the last in
    it. An epoch has one leader, whose log up to that epoch all replicas share, also across a gap.
    None: they share none.
    """
    end, last = unit.next_base_offset, unit.leader_epochs[-1].epoch
    if unit.followed_by > last and starts.get(unit.followed_by, -1) >= end:
        return unit.followed_by
    bounds = epoch_bounds(lineage, last)
    return None if bounds is None or bounds[1] < end - 1 else last


def _with_unit(lineage: Epochs, unit: Unit, joint: int) -> Epochs:
    """The lineage with the unit's epochs. Where it has one, that begins where it says, or below."""
    told = unit.leader_epochs
    if joint > told[-1].epoch:
        told = (*told, EpochEntry(joint, unit.next_base_offset))
    told = (*told, *(entry for entry in lineage if entry.epoch > told[-1].epoch))
    try:
        return merge(lineage, told, leader_epoch=told[-1].epoch, higher_epoch=True).epochs
    except InvalidRequest:
        return lineage


def _keeps(joined: Epochs, known: Epochs, first: EpochEntry) -> bool:
    """True if all is as known from the checkpoint's first epoch on, which may begin lower.

    Retention cuts the head of a checkpoint alone, so the rest of it is right.
    """
    behind, was = (
        tuple(entry for entry in each if entry.epoch > first.epoch) for each in (joined, known)
    )
    return behind == was and (first.epoch in dict(joined) or first.epoch not in dict(known))
