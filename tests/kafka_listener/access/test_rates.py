"""Rates of users and client ids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.access.rates import NAMES_MAX, WAIT_S_MAX, TierRates

MIB = 1 << 20


def test_without_limits_nobody_waits() -> None:
    rates = TierRates()
    assert rates.sent("alice", "a", 1 << 40, 0.0) == 0
    assert rates.bytes_max(8 * MIB) == 8 * MIB


def test_an_answer_is_paid_off_before_the_next() -> None:
    rates = TierRates(user_bytes_per_s=MIB)
    now = 1.0
    rates.wait_s("alice", "a", 0.0)
    assert rates.wait_s("alice", "a", now) == 0
    told = rates.sent("alice", "a", 4 * MIB, now)
    assert 3 < told < 4
    assert rates.wait_s("alice", "another", now + told) <= 1e-3
    assert rates.wait_s("bob", "a", 0.5) < 1e-3


def test_client_ids_have_their_own_and_the_longer_wait_counts() -> None:
    rates = TierRates(user_bytes_per_s=4 * MIB, client_id_bytes_per_s=MIB)
    rates.wait_s("alice", "a", 0.0)
    rates.wait_s("alice", "b", 0.0)
    assert rates.sent("alice", "a", 2 * MIB, 10.0) > 1.4
    assert rates.wait_s("alice", "b", 10.0) < 0.1
    assert rates.bytes_max(8 * MIB) == MIB


def test_no_client_waits_longer_than_its_request_lives() -> None:
    rates = TierRates(user_bytes_per_s=1)
    assert rates.sent("alice", "a", MIB, 0.0) == WAIT_S_MAX


def test_the_names_are_bounded() -> None:
    rates = TierRates(client_id_bytes_per_s=MIB)
    for number in range(NAMES_MAX + 10):
        rates.wait_s("alice", f"id {number}", 0.0)
    assert len(rates._rates) == NAMES_MAX


@given(st.lists(st.tuples(st.integers(1, 2 * MIB), st.floats(0, 3)), max_size=30))
def test_who_waits_as_told_gets_no_more_than_the_rate(answers: list[tuple[int, float]]) -> None:
    rates, now, sent = TierRates(user_bytes_per_s=MIB), 0.0, 0
    rates.wait_s("alice", "a", now)
    for size, idle_s in answers:
        now += idle_s + rates.wait_s("alice", "a", now + idle_s)
        rates.sent("alice", "a", size, now)
        sent += size
        assert sent <= MIB * (now + 0.5) + 2 * MIB
