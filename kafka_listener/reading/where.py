"""Where a fetch goes: to the tier, to the partition's leader, or nowhere yet. Pure.

The border between tier and leader moves up only: the tier's end with every copied segment, the
start of the leader's disk with retention. An offset that both have is read on the preferred side,
but on the leader's once its epoch is above all in the tier's lineage: that leader's log may have
replaced the tail of the tier, which the next claim tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kafka_listener.reading.read_port import (
    BrokerLogEnds,
    GoToBroker,
    LostOffsets,
    NotAvailable,
    OutOfRange,
    TierEnds,
)


class Prefer(StrEnum):
    """The side that serves what both have."""

    TIER = "tier"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class TierAt:
    """The tier as seen from one offset.

    `ends` None: nothing is tiered. `served`: the range (both ends inclusive) that one segment
    serves at the offset or, if none does, next above it. `lost`: the recorded range that contains
    the offset. `is_current`: everything completed before the question is in this view.
    """

    ends: TierEnds | None
    served: tuple[int, int] | None
    lost: LostOffsets | None
    is_current: bool


@dataclass(frozen=True, slots=True)
class FromTier:
    """The tier serves the offset, and further ones up to `until` (exclusive)."""

    until: int


Where = FromTier | GoToBroker | OutOfRange | NotAvailable | LostOffsets


def where(offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer) -> Where:
    """The place of `offset`. A NotAvailable of a view that is not current may become another
    answer behind a barrier (`waits_for_barrier`).
    """
    found = _where(offset, tier, broker, prefer)
    if isinstance(found, GoToBroker) and broker is not None and not broker.is_reachable:
        return NotAvailable("the leader does not answer")
    return found


def _where(offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer) -> Where:
    whole_start = None if broker is None else broker.log_start_offset
    if whole_start is not None and offset < whole_start:
        return OutOfRange(whole_start)
    on_leader = broker is not None and offset >= broker.local_log_start_offset
    if tier.ends is not None and _is_served(offset, tier, tier.ends):
        assert tier.served is not None, "_is_served saw to it"
        if broker is None or not (
            leader_is_newer(tier.ends, broker) or (prefer is Prefer.BROKER and broker.is_reachable)
        ):
            return FromTier(tier.served[1] + 1)
        if on_leader:
            return GoToBroker()
        return FromTier(min(tier.served[1] + 1, broker.local_log_start_offset))
    if on_leader:
        return GoToBroker()
    return _nowhere(offset, tier, broker)


def where_undecided(offset: int, broker: BrokerLogEnds | None) -> GoToBroker | NotAvailable:
    """The place of an offset whose transaction the tier can't decide yet."""
    if broker is not None and broker.is_reachable and offset >= broker.local_log_start_offset:
        return GoToBroker()
    return NotAvailable(f"the outcome of the transaction at offset {offset} is not tiered yet")


def waits_for_barrier(tier: TierAt, found: Where) -> bool:
    """True if a current view may give another answer than NotAvailable."""
    if tier.is_current or not isinstance(found, NotAvailable):
        return False
    return tier.ends is None or tier.lost is not None


def leader_is_newer(tier: TierEnds, broker: BrokerLogEnds | None) -> bool:
    """True if the leader's log may have replaced the tail of the tier."""
    return broker is not None and broker.leader_epoch > tier.leader_epoch


def leader_has_all(tier: TierEnds, broker: BrokerLogEnds | None) -> bool:
    """True if the leader's disk begins no later than the tier: it alone answers ListOffsets."""
    return broker is not None and broker.local_log_start_offset <= tier.log_start_offset


def _is_served(offset: int, tier: TierAt, ends: TierEnds) -> bool:
    return (
        ends.log_start_offset <= offset < ends.end_offset
        and tier.served is not None
        and tier.served[0] <= offset <= tier.served[1]
    )


def _nowhere(offset: int, tier: TierAt, broker: BrokerLogEnds | None) -> Where:
    """Neither side has the offset, as far as this node knows."""
    if tier.ends is None:
        if broker is None or not tier.is_current:
            return NotAvailable("whether the partition is tiered is not known yet")
        return GoToBroker()
    if broker is None and not 0 <= tier.ends.log_start_offset <= offset < tier.ends.end_offset:
        return NotAvailable("the leader has not said where its log begins and ends")
    if offset < tier.ends.log_start_offset:
        return OutOfRange(tier.ends.log_start_offset)
    if tier.lost is not None and tier.is_current:
        return tier.lost
    return NotAvailable(f"neither the tier nor the leader has offset {offset} now")
