"""Decides whether the tier or the partition's leader serves a fetch, or neither yet. Pure.

The border between tier and leader only moves up: the tier's end with every copied segment, the
start of the leader's disk with retention. An offset that both have is read from the preferred side,
with one exception: a leader whose epoch is above all epochs in the tier's lineage may have replaced
the tail of the tier, which shows only with the next claim. Until then such offsets are read from
the leader, and the tier serves only what this leader has reported to be in its own log; nothing
without such a report.
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
    """The side that serves offsets that both have."""

    TIER = "tier"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class TierAt:
    """The tier as seen from one offset.

    `ends` None: nothing is tiered, or going to be. `served`: the range (both ends inclusive) that
    one segment serves at the offset or, if none does, next above it. `lost`: the range that
    contains the offset and is recorded as lost, or is gone below the leader's log start
    (`whole_log_start`).
    `is_current`: this view has everything that was completed before the request. `agreed_until`: if
    the leader is newer than the tier's lineage, the offset (exclusive) up to which its log equals
    the tier; None: unknown. `log_start_offset`: the start of the whole log as the leader reported
    it, where that is above the tier's (`whole_log_start`).
    """

    ends: TierEnds | None
    served: tuple[int, int] | None
    lost: LostOffsets | None
    is_current: bool
    agreed_until: int | None = None
    log_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class FromTier:
    """The tier serves the offset, and the following ones up to `until` (exclusive)."""

    until: int


Where = FromTier | GoToBroker | OutOfRange | NotAvailable | LostOffsets


def where(offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer) -> Where:
    """The side that serves `offset`. A NotAvailable from a view that is not current may become a
    different answer after a barrier (`waits_for_barrier`).
    """
    found = _where(offset, tier, broker, prefer)
    if isinstance(found, GoToBroker) and broker is not None and not broker.is_reachable:
        return NotAvailable("the leader does not answer")
    return found


def _where(offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer) -> Where:
    if broker is None:
        # An unknown leader may have replaced the tail of the tier.
        return NotAvailable(
            "the partition's leader has not reported yet where its log begins and at which "
            "epoch; clients try again"
        )
    if tier.log_start_offset is not None and offset < tier.log_start_offset:
        return OutOfRange(tier.log_start_offset)
    on_leader = offset >= broker.local_log_start_offset
    if tier.ends is None or not _is_served(offset, tier, tier.ends):
        return GoToBroker(offset) if on_leader else _nowhere(offset, tier)
    assert tier.served is not None, "_is_served returned True"
    until = tier.served[1] + 1
    is_newer = leader_is_newer(tier.ends, broker)
    if not is_newer and not (prefer is Prefer.BROKER and broker.is_reachable):
        return FromTier(until)
    if on_leader:
        return GoToBroker(offset)
    until = min(until, broker.local_log_start_offset)
    if not is_newer:
        return FromTier(until)
    if tier.agreed_until is None or tier.agreed_until <= offset:
        return NotAvailable(
            f"the leader of epoch {broker.leader_epoch} may have replaced offset {offset}; "
            "clients try again, until a node has claimed the partition at that epoch"
        )
    return FromTier(min(until, tier.agreed_until))


def where_undecided(offset: int, broker: BrokerLogEnds | None) -> GoToBroker | NotAvailable:
    """The side that serves an offset whose transaction the tier can't decide yet."""
    if broker is not None and broker.is_reachable and offset >= broker.local_log_start_offset:
        return GoToBroker(offset)
    return NotAvailable(f"the outcome of the transaction at offset {offset} is not tiered yet")


def waits_for_barrier(tier: TierAt, found: Where) -> bool:
    """True if a current view may change the answer: a NotAvailable, or an OutOfRange that follows
    from the leader's log start, as an admin may have changed the mode.
    """
    if tier.is_current:
        return False
    if isinstance(found, OutOfRange):
        return tier.log_start_offset == found.log_start_offset
    return isinstance(found, NotAvailable) and (tier.ends is None or tier.lost is not None)


def leader_is_newer(tier: TierEnds, broker: BrokerLogEnds | None) -> bool:
    """True if the leader's log may have replaced the tail of the tier."""
    return broker is not None and broker.leader_epoch > tier.leader_epoch


def leader_has_all(tier: TierEnds, broker: BrokerLogEnds | None) -> bool:
    """True if the leader's disk begins at or below the tier's start: then it alone answers
    ListOffsets.
    """
    return broker is not None and broker.local_log_start_offset <= tier.log_start_offset


def is_in_log(
    offset: int, tier: TierEnds | None, log_start: int | None, broker: BrokerLogEnds | None
) -> bool:
    """True if the offset lies between the log's start and its end (inclusive), as far as they are
    known. `log_start`: the start of the whole log as the leader reported it (`whole_log_start`).
    """
    if log_start is not None and offset < log_start:
        return False
    starts, ends = [], []
    if tier is not None:
        starts.append(tier.log_start_offset)
        ends.append(tier.end_offset)
    if broker is not None:
        starts.append(broker.local_log_start_offset)
        if tier is None and broker.log_start_offset is not None:
            starts.append(broker.log_start_offset)
        ends.append(broker.high_watermark)
    return bool(starts) and min(starts) <= offset <= max(ends)


def _is_served(offset: int, tier: TierAt, ends: TierEnds) -> bool:
    return (
        ends.log_start_offset <= offset < ends.end_offset
        and tier.served is not None
        and tier.served[0] <= offset <= tier.served[1]
    )


def _nowhere(offset: int, tier: TierAt) -> Where:
    """The answer for an offset that neither side has, as far as this node knows."""
    if tier.ends is None:
        if not tier.is_current:
            return NotAvailable(
                "this node's view lags, so it is not known yet whether the partition is tiered; "
                "clients try again"
            )
        return GoToBroker(offset)
    if offset < tier.ends.log_start_offset:
        return OutOfRange(tier.ends.log_start_offset)
    if tier.lost is not None and tier.is_current:
        return tier.lost
    return NotAvailable(
        f"neither the tier nor the leader has offset {offset} now: a node has still to copy it, or "
        "to record it as lost (`strandline lag`). If the topic is to be tiered no longer, disable "
        "it by `strandline topics disable`"
    )
