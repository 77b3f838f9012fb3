"""The place of a fetch: a table of cases, and a world in which planted mistakes are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from kafka_listener.reading.fetch_target import (
    FromTier,
    Prefer,
    TierAt,
    Where,
    is_in_log,
    leader_has_all,
    waits_for_barrier,
    where,
    where_undecided,
)
from kafka_listener.reading.read_port import (
    BrokerLogEnds,
    GoToBroker,
    LostOffsets,
    NotAvailable,
    OutOfRange,
    TierEnds,
)
from rlmm.segment import OFFSET_MAX
from tests.kafka_listener.reading.read_world import WhereRule, World

SEEDS = 150
STEPS = 120

ENDS = TierEnds(log_start_offset=10, end_offset=100, leader_epoch=3)
LOST = LostOffsets(40, 49, "retention")
LEADER = BrokerLogEnds(
    leader_epoch=3, local_log_start_offset=80, last_stable_offset=150, high_watermark=150
)
NEWER = replace(LEADER, leader_epoch=4)


HAS_MORE = replace(LEADER, local_log_start_offset=5)
TIERS_ITSELF = replace(LEADER, log_start_offset=20)


@pytest.mark.parametrize(
    ("ends", "log_start", "broker", "first", "last"),
    [
        (ENDS, None, LEADER, 10, 150),
        (ENDS, None, HAS_MORE, 5, 150),
        (ENDS, 30, LEADER, 30, 150),
        (ENDS, None, None, 10, 100),
        (None, None, LEADER, 80, 150),
        (None, None, TIERS_ITSELF, 20, 150),
        (ENDS, None, replace(LEADER, high_watermark=90), 10, 100),
    ],
)
def test_offsets_from_the_logs_start_to_its_end_are_in_it(
    ends: TierEnds | None,
    log_start: int | None,
    broker: BrokerLogEnds | None,
    first: int,
    last: int,
) -> None:
    found = [each for each in range(-1, 200) if is_in_log(each, ends, log_start, broker)]
    assert found == [*range(first, last + 1)]


def test_of_a_log_that_nobody_told_of_no_offset_is_known() -> None:
    assert not is_in_log(0, None, None, None)


def at(
    served: tuple[int, int] | None,
    *,
    ends: TierEnds | None = ENDS,
    lost: LostOffsets | None = None,
    is_current: bool = True,
    agreed_until: int | None = None,
    log_start: int | None = None,
) -> TierAt:
    return TierAt(ends, served, lost, is_current, agreed_until, log_start)


NA = NotAvailable
CASES: dict[str, tuple[int, TierAt, BrokerLogEnds | None, Prefer, Where | type[NotAvailable]]] = {
    "in the tier": (20, at((20, 39)), LEADER, Prefer.TIER, FromTier(40)),
    "in both, the tier preferred": (90, at((90, 99)), LEADER, Prefer.TIER, FromTier(100)),
    "in both, the broker preferred": (90, at((90, 99)), LEADER, Prefer.BROKER, GoToBroker(90)),
    "not past the leader's start": (70, at((70, 99)), LEADER, Prefer.BROKER, FromTier(80)),
    "in both, a newer leader": (90, at((90, 99)), NEWER, Prefer.TIER, GoToBroker(90)),
    "below a newer leader's start, which has it, too": (
        70,
        at((70, 99), agreed_until=90),
        NEWER,
        Prefer.TIER,
        FromTier(80),
    ),
    "below a newer leader's start, where its log differs": (
        70,
        at((70, 99), agreed_until=75),
        NEWER,
        Prefer.TIER,
        FromTier(75),
    ),
    "where the log of a newer leader differed": (
        75,
        at((75, 99), agreed_until=75),
        NEWER,
        Prefer.TIER,
        NA,
    ),
    "below a newer leader's start, and it can't tell": (70, at((70, 99)), NEWER, Prefer.TIER, NA),
    "at the tier's end": (100, at(None), LEADER, Prefer.TIER, GoToBroker(100)),
    "above the high watermark": (151, at(None), LEADER, Prefer.TIER, GoToBroker(151)),
    "the tier, leader never heard of": (20, at((20, 39)), None, Prefer.BROKER, NA),
    "the tier's end, leader silent": (100, at(None), None, Prefer.TIER, NA),
    "below the start": (9, at((10, 39)), LEADER, Prefer.TIER, OutOfRange(10)),
    "below 0": (-1, at((10, 39)), LEADER, Prefer.TIER, OutOfRange(10)),
    "below the start, leader silent": (9, at((10, 39)), None, Prefer.TIER, NA),
    "below the tier's start, the leader has more": (
        9,
        at((10, 39)),
        replace(LEADER, local_log_start_offset=5),
        Prefer.TIER,
        GoToBroker(9),
    ),
    "below the start that the leader sets for all": (
        20,
        at((20, 39), log_start=30),
        LEADER,
        Prefer.TIER,
        OutOfRange(30),
    ),
    "below the start that the leader sets for all, by an old view": (
        20,
        at((20, 39), log_start=30, is_current=False),
        LEADER,
        Prefer.TIER,
        OutOfRange(30),
    ),
    "below the start of the leader's disk": (
        20,
        at((20, 39), is_current=False),
        replace(LEADER, log_start_offset=80),
        Prefer.TIER,
        FromTier(40),
    ),
    "lost": (45, at((50, 69), lost=LOST), LEADER, Prefer.TIER, LOST),
    "lost, the leader has it": (
        45,
        at((50, 69), lost=LOST),
        replace(LEADER, local_log_start_offset=30),
        Prefer.TIER,
        GoToBroker(45),
    ),
    "lost, by an old view": (
        45,
        at((50, 69), lost=LOST, is_current=False),
        LEADER,
        Prefer.TIER,
        NA,
    ),
    "in a gap not recorded": (45, at((50, 69)), LEADER, Prefer.TIER, NA),
    "the tier lags behind the leader's retention": (
        100,
        at(None),
        replace(LEADER, local_log_start_offset=120),
        Prefer.TIER,
        NA,
    ),
    "in both, the broker preferred and silent": (
        90,
        at((90, 99)),
        replace(LEADER, is_reachable=False),
        Prefer.BROKER,
        FromTier(100),
    ),
    "in both, a newer leader that is silent": (
        90,
        at((90, 99)),
        replace(NEWER, is_reachable=False),
        Prefer.TIER,
        NA,
    ),
    "at the tier's end, a silent leader": (
        100,
        at(None),
        replace(LEADER, is_reachable=False),
        Prefer.TIER,
        NA,
    ),
    "nothing tiered": (50, at(None, ends=None), LEADER, Prefer.TIER, GoToBroker(50)),
    "nothing tiered, by an old view": (
        50,
        at(None, ends=None, is_current=False),
        LEADER,
        Prefer.TIER,
        NA,
    ),
    "nothing tiered, leader silent": (50, at(None, ends=None), None, Prefer.TIER, NA),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_place_of_an_offset(name: str) -> None:
    offset, tier, broker, prefer, expected = CASES[name]
    found = where(offset, tier, broker, prefer)
    assert isinstance(found, NA) if expected is NA else found == expected


def test_only_an_old_view_waits_for_a_barrier() -> None:
    for name, (offset, tier, broker, prefer, _) in CASES.items():
        waits = waits_for_barrier(tier, where(offset, tier, broker, prefer))
        assert waits == ("by an old view" in name)


def test_an_undecided_offset_is_the_leaders_if_it_has_it() -> None:
    assert where_undecided(80, LEADER) == GoToBroker(80)
    assert isinstance(where_undecided(79, LEADER), NotAvailable)
    assert isinstance(where_undecided(80, None), NotAvailable)
    assert isinstance(where_undecided(80, replace(LEADER, is_reachable=False)), NotAvailable)


def test_a_leader_whose_disk_begins_with_the_tier_has_all() -> None:
    assert leader_has_all(ENDS, replace(LEADER, local_log_start_offset=10))
    assert not leader_has_all(ENDS, LEADER)
    assert not leader_has_all(ENDS, None)


def run(rule: WhereRule, seed: int) -> None:
    chance = Random(seed)
    world = World(chance, rule, chance.choice(tuple(Prefer)))
    for _ in range(STEPS):
        world.step()
    world.settle_and_read_all()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_consumer_reads_every_offset_once_whatever_moves(seed: int) -> None:
    run(where, seed)


def one_too_many(offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer) -> Where:
    found = where(offset, tier, broker, prefer)
    return FromTier(found.until + 1) if isinstance(found, FromTier) else found


def the_next_served(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    found = where(offset, tier, broker, prefer)
    if isinstance(found, NotAvailable) and tier.served is not None and tier.served[0] > offset:
        return LostOffsets(offset, tier.served[0] - 1, "a guess")
    return found


def blind_to_newer_leaders(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    told = None if broker is None else replace(broker, leader_epoch=0)
    return where(offset, tier, told, Prefer.TIER)


def what_an_outgrown_lineage_has_is_served(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    return where(offset, replace(tier, agreed_until=OFFSET_MAX), broker, prefer)


def what_is_not_known_of_a_newer_leader_is_served(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    agreed = OFFSET_MAX if tier.agreed_until is None else tier.agreed_until
    return where(offset, replace(tier, agreed_until=agreed), broker, prefer)


def a_leader_that_nobody_heard_of_is_no_newer_one(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    told = broker or BrokerLogEnds(0, OFFSET_MAX, 0, 0, is_reachable=False)
    return where(offset, tier, told, prefer)


def the_start_of_the_leaders_disk_is_the_logs(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    start = None if broker is None else broker.log_start_offset
    return where(offset, replace(tier, log_start_offset=start), broker, prefer)


def an_old_view_is_believed(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    return where(offset, replace(tier, is_current=True), broker, prefer)


def what_is_nowhere_is_out_of_range(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    found = where(offset, tier, broker, prefer)
    return OutOfRange(offset + 1) if isinstance(found, NotAvailable) else found


def lost_though_the_leader_has_it(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    return where(offset, tier, broker, prefer) if tier.lost is None else tier.lost


def the_tier_ends_early(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    if tier.ends is not None and offset == tier.ends.end_offset - 1:
        tier = replace(tier, served=None)
    return where(offset, tier, broker, prefer)


def every_other_offset_from_the_leader(
    offset: int, tier: TierAt, broker: BrokerLogEnds | None, prefer: Prefer
) -> Where:
    return where(offset, tier, broker, Prefer.TIER if offset % 2 else Prefer.BROKER)


PLANTED: tuple[Callable[..., Where], ...] = (
    one_too_many,
    the_next_served,
    blind_to_newer_leaders,
    what_an_outgrown_lineage_has_is_served,
    what_is_not_known_of_a_newer_leader_is_served,
    a_leader_that_nobody_heard_of_is_no_newer_one,
    the_start_of_the_leaders_disk_is_the_logs,
    an_old_view_is_believed,
    what_is_nowhere_is_out_of_range,
    lost_though_the_leader_has_it,
    the_tier_ends_early,
    every_other_offset_from_the_leader,
)


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_a_planted_mistake_is_found(rule: WhereRule) -> None:
    def fails(seed: int) -> bool:
        try:
            run(rule, seed)
        except (AssertionError, StopIteration):
            return True
        return False

    assert any(fails(seed) for seed in range(SEEDS))
