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


class Clocks:
    """A wall clock that is set, and a monotonic one that is not."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.set_ms = 0
        self.not_ours: StrandlineError | None = None

    def ambient(self) -> Ambient:
        async def sleep(_: float) -> None:
            pass

        return Ambient(
            lambda: NOW_MS + self.passed_ms + self.set_ms,
            lambda: self.passed_ms / 1000,
            sleep,
            lambda: 0.5,
            lambda: uuid(1),
        )

    def check(self) -> ClockCheck:
        self.store = store = MemoryStore(lambda: NOW_MS + self.passed_ms)
        limits = CopyLimits(clock_difference_max_s=15.0, clock_check_interval_s=600.0)
        tier = TierStore("main", store, "p/")
        around = Surroundings(Identity("cluster", None, ME), limits, self.ambient())
        return ClockCheck(tier, around, self.confirm)

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
    clocks.not_ours = RetryLater("it is empty or another one")
    await check.compare_if_due()
    assert "empty or another one" in str(check.trouble())
    clocks.not_ours, clocks.store.put = None, put  # type: ignore[method-assign]
    await check.compare_if_due()
    assert check.trouble() is None
