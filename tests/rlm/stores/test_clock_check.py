"""This node's clock against the store's."""

from __future__ import annotations

import pytest

from kafka_formats.errors import Refused, RetryLater, StrandlineError
from rlm.control.surroundings import Ambient, CopyLimits, Identity, Surroundings
from rlm.stores.clock_check import ClockCheck, clock_trouble, compare_clocks
from rlm.stores.tier_store import TierStore
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectInfo
from tests.rlm.planner_facts import ME, NOW_MS, uuid


@pytest.mark.parametrize("store_ms", [NOW_MS - 1_000, NOW_MS, NOW_MS + 40, NOW_MS + 15_040])
def test_a_store_time_around_the_write_is_no_trouble(store_ms: int) -> None:
    assert compare_clocks("main", NOW_MS, NOW_MS + 40, store_ms, 15_000) is None


@pytest.mark.parametrize("store_ms", [NOW_MS - 16_001, NOW_MS + 15_041])
def test_a_larger_difference_is_said_with_what_to_do(store_ms: int) -> None:
    text = compare_clocks("main", NOW_MS, NOW_MS + 40, store_ms, 15_000)
    assert text is not None
    assert "NTP" in text


def test_a_store_without_times_counts_as_differing() -> None:
    assert compare_clocks("main", NOW_MS, NOW_MS, None, 15_000) is not None


async def test_the_probe_leaves_nothing_behind() -> None:
    store = MemoryStore(lambda: NOW_MS)
    assert (
        await clock_trouble(TierStore("main", store, "p/"), 1, lambda: NOW_MS, 1_000, deadline_s=5)
        is None
    )
    assert (await store.list_page("")).objects == ()


async def test_a_store_that_refuses_the_probe_leaves_the_clock_unknown() -> None:
    class ReadOnly(MemoryStore):
        async def put(
            self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
        ) -> ObjectInfo:
            raise Refused("read only")

    tier = TierStore("main", ReadOnly(lambda: NOW_MS), "")
    text = await clock_trouble(tier, 1, lambda: NOW_MS, 1_000, deadline_s=5)
    assert text is not None
    assert "read only" in text


HOLD_S = 3 * 86_400.0
YEAR_MS = 365 * 86_400_000


class Memory:
    """A data directory's memory of the clock, for as long as the test."""

    def __init__(self) -> None:
        self.remembered_ms: int | None = None
        self.written = 0

    async def remember(self, trusted_ms: int) -> None:
        self.remembered_ms = trusted_ms
        self.written += 1


class Clocks:
    """A wall clock that is set, alone or with the store's, and a monotonic one that is not."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.set_ms = 0
        self.both_set_ms = 0
        self.memory = Memory()
        self.not_ours: StrandlineError | None = None

    def ambient(self) -> Ambient:
        async def sleep(_: float) -> None:
            pass

        return Ambient(
            lambda: NOW_MS + self.passed_ms + self.set_ms + self.both_set_ms,
            lambda: self.passed_ms / 1000,
            sleep,
            lambda: 0.5,
            lambda: uuid(1),
        )

    def check(self) -> ClockCheck:
        self.store = store = MemoryStore(lambda: NOW_MS + self.passed_ms + self.both_set_ms)
        limits = CopyLimits(
            clock_difference_max_s=15.0, clock_check_interval_s=600.0, clock_hold_s=HOLD_S
        )
        tier = TierStore("main", store, "p/")
        around = Surroundings(Identity("cluster", None, ME), limits, self.ambient())
        return ClockCheck(tier, around, self.confirm, self.memory)

    async def confirm(self, _: TierStore) -> None:
        if self.not_ours is not None:
            raise self.not_ours


@pytest.mark.parametrize("set_ms", [3_600_000, -3_600_000])
async def test_a_clock_that_is_set_between_two_comparisons_is_in_doubt_at_once(
    set_ms: int,
) -> None:
    clocks = Clocks()
    check = clocks.check()
    assert check.trouble() is not None  # nobody compared it yet
    assert await check.compare_if_due() is False
    clocks.passed_ms += 1_000
    assert check.trouble() is None
    clocks.set_ms = set_ms
    assert "was set" in str(check.trouble())
    assert await check.compare_if_due() is True
    assert "NTP" in str(check.trouble())
    clocks.set_ms = 0
    await check.compare_if_due()
    assert check.trouble() is None


async def test_a_right_clock_is_compared_again_only_after_the_interval() -> None:
    clocks = Clocks()
    check = clocks.check()
    await check.compare_if_due()
    clocks.passed_ms += 599_000
    assert await check.compare_if_due() is False
    clocks.passed_ms += 2_000
    assert await check.compare_if_due() is True


async def test_no_probe_is_put_into_a_store_that_may_not_be_ours() -> None:
    clocks = Clocks()
    check = clocks.check()

    async def refused(*_: object, **__: object) -> ObjectInfo:
        raise AssertionError("written to")

    put, clocks.store.put = clocks.store.put, refused  # type: ignore[method-assign]
    clocks.not_ours = RetryLater("it is empty or a different one")
    await check.compare_if_due()
    assert "empty or a different one" in str(check.trouble())
    clocks.not_ours, clocks.store.put = None, put  # type: ignore[method-assign]
    await check.compare_if_due()
    assert check.trouble() is None


async def compared(clocks: Clocks, check: ClockCheck, *, passed_ms: int = 600_000) -> str | None:
    """The reason why nothing is deleted, a while and a comparison later."""
    clocks.passed_ms += passed_ms
    await check.compare_if_due()
    await check.remember()
    assert check.trouble() is None
    return check.set_ahead()


async def test_clocks_of_node_and_store_that_were_set_ahead_together_hold_for_a_while() -> None:
    clocks = Clocks()
    check = clocks.check()
    assert await compared(clocks, check) is None
    clocks.both_set_ms = YEAR_MS
    assert "was set" in str(check.trouble()), "at once, before they are compared"
    told = await compared(clocks, check, passed_ms=1_000)
    assert told is not None
    assert f"{YEAR_MS // 1000} s" in told
    assert await compared(clocks, check, passed_ms=round(HOLD_S * 1000) - 1_000) is not None
    assert await compared(clocks, check, passed_ms=1_000) is None
    assert await compared(clocks, check) is None


async def test_that_ends_at_once_when_they_are_set_back() -> None:
    clocks = Clocks()
    check = clocks.check()
    await compared(clocks, check)
    clocks.both_set_ms = YEAR_MS
    assert await compared(clocks, check) is not None
    clocks.both_set_ms = 0
    assert check.trouble() is not None
    assert await compared(clocks, check, passed_ms=5_000) is None
    clocks.both_set_ms = YEAR_MS
    assert await compared(clocks, check) is not None, "and is told anew"


async def test_that_holds_no_longer_than_they_were_set_ahead() -> None:
    """A paused machine: nothing goes earlier than it would have."""
    clocks = Clocks()
    check = clocks.check()
    await compared(clocks, check)
    clocks.both_set_ms = 40_000
    assert await compared(clocks, check, passed_ms=1_000) is not None
    assert await compared(clocks, check, passed_ms=39_000) is not None
    assert await compared(clocks, check, passed_ms=1_000) is None


async def test_small_settings_add_up() -> None:
    clocks = Clocks()
    check = clocks.check()
    await compared(clocks, check)
    clocks.both_set_ms = 10_000
    assert await compared(clocks, check) is None
    clocks.both_set_ms = 20_000
    assert await compared(clocks, check) is not None


async def test_clocks_that_are_set_ahead_again_begin_the_while_anew() -> None:
    clocks = Clocks()
    check = clocks.check()
    await compared(clocks, check)
    clocks.both_set_ms = 3_600_000
    assert await compared(clocks, check) is not None
    assert await compared(clocks, check, passed_ms=3_000_000) is not None
    clocks.both_set_ms = 2 * 3_600_000
    assert await compared(clocks, check, passed_ms=1_000) is not None
    assert await compared(clocks, check, passed_ms=3_600_000) is not None
    clocks.both_set_ms = 3_600_000
    assert await compared(clocks, check, passed_ms=1_000) is None, "it was that far ahead long ago"


async def test_clocks_that_were_set_back_together_hold_nothing_until_they_are_set_ahead() -> None:
    clocks = Clocks()
    check = clocks.check()
    await compared(clocks, check)
    clocks.both_set_ms = -YEAR_MS
    assert await compared(clocks, check) is None
    clocks.both_set_ms = 0
    assert await compared(clocks, check) is not None


async def test_a_wrong_clock_that_is_set_right_holds_nothing_that_a_right_store_shows() -> None:
    clocks = Clocks()
    clocks.set_ms = -YEAR_MS
    check = clocks.check()
    await check.compare_if_due()
    assert "NTP" in str(check.trouble())
    clocks.set_ms = 0
    assert await compared(clocks, check) is None


@pytest.mark.parametrize(("away_ms", "is_held"), [(540_000, False), (60 * 3_600_000, True)])
async def test_a_node_that_was_down_for_long_cannot_tell_that_from_clocks_that_were_set(
    away_ms: int, *, is_held: bool
) -> None:
    clocks = Clocks()
    await compared(clocks, clocks.check())
    clocks.passed_ms += away_ms
    check = clocks.check()
    assert (await compared(clocks, check, passed_ms=0) is not None) is is_held
    assert await compared(clocks, check, passed_ms=away_ms + 60_000) is None


async def test_a_restart_forgets_neither_the_time_before_nor_that_it_is_held() -> None:
    clocks = Clocks()
    check = clocks.check()
    await compared(clocks, check)
    clocks.both_set_ms = YEAR_MS
    assert await compared(clocks, check) is not None
    for _ in range(5):
        clocks.passed_ms += 60_000
        check = clocks.check()
        told = await compared(clocks, check, passed_ms=0)
        assert told is not None
        assert "down" in told
        assert clocks.memory.remembered_ms == NOW_MS + 1_200_000
    clocks.both_set_ms = 0
    assert await compared(clocks, check, passed_ms=1_000) is None


async def test_the_time_is_remembered_each_minute() -> None:
    clocks = Clocks()
    check = clocks.check()
    await check.remember()
    assert clocks.memory.written == 0, "nobody has compared it"
    await check.compare_if_due()
    for _ in range(24):
        await check.remember()
        clocks.passed_ms += 5_000
    assert clocks.memory.written == 2
    assert clocks.memory.remembered_ms == NOW_MS + 60_000
