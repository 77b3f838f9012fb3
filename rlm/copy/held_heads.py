"""Leader epochs of held segments that a recorded lineage lacks. Pure.

A claim that comes late, after its node was down, has a checkpoint whose head local retention cut.
Epochs that began since the claim before it are then recorded as beginning too high, or not at all,
and their records as lost. Another node may hold these.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    """
    if not recorded or not checkpoint:
        return checkpoint
    known = lineage = with_lost_claims(checkpoint, recorded)
    for unit in sorted(units, key=lambda unit: unit.next_base_offset, reverse=True):
        if unit.first_known_offset >= log_start and not _is_within(unit, lineage):
            lineage = _with_unit(lineage, unit)
    return checkpoint if lineage == known else lineage


def _is_within(unit: Unit, lineage: Epochs) -> bool:
    end = unit.next_base_offset - 1
    return within_lineage(unit.base_offset, end, unit.leader_epochs, lineage, None)


def _with_unit(lineage: Epochs, unit: Unit) -> Epochs:
    """The lineage with the unit's epochs, if it has the epoch that followed the unit, or the last
    one in it: an epoch has one leader, whose log up to that epoch all replicas share, also across
    a gap. Where the lineage has one, it begins where it says, or below.
    """
    end, last = unit.next_base_offset, unit.leader_epochs[-1].epoch
    bounds = epoch_bounds(lineage, last)
    told = unit.leader_epochs
    if unit.followed_by > last and dict(lineage).get(unit.followed_by, -1) >= end:
        told = (*told, EpochEntry(unit.followed_by, end))
    elif bounds is None or bounds[1] < end - 1:
        return lineage
    told = (*told, *(entry for entry in lineage if entry.epoch > told[-1].epoch))
    try:
        return merge(lineage, told, leader_epoch=told[-1].epoch, higher_epoch=True).epochs
    except InvalidRequest:
        return lineage
