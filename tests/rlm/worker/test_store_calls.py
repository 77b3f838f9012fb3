"""What a worker keeps of its store calls until it tells them."""

from __future__ import annotations

from rlm.worker.store_calls import CALLS_KEPT_MAX, StoreCallLog
from rsm_backends.measured_store import StoreCall

CALL = StoreCall("get", 0.1, 0, 7, None)


def test_calls_are_told_once_and_with_the_stores_name() -> None:
    calls = StoreCallLog(lambda: None)
    calls.observer("main").store_call_ended(CALL)
    calls.observer("second").store_call_ended(CALL)
    assert calls.take() == (("main", CALL), ("second", CALL))
    assert calls.take() == ()


def test_no_more_than_the_bound_is_kept() -> None:
    told: list[int] = []
    calls = StoreCallLog(lambda: told.append(len(calls.take())))
    for _ in range(2 * CALLS_KEPT_MAX + 1):
        calls.add("main", CALL)
    assert told == [CALLS_KEPT_MAX, CALLS_KEPT_MAX]
    assert len(calls.take()) == 1
