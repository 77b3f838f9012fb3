"""The checker accepts what a register could have done, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.linearizability.brute_force import is_linearizable
from tests.linearizability.checker import Operation, Verdict, check
from tests.linearizability.policy_register import (
    UNSET,
    Call,
    Done,
    PolicyOperation,
    PolicyRegister,
    Read,
    Refused,
    Result,
    Seen,
    Set,
    not_linearizable,
)

CLIENTS = 10
OPERATIONS = 500


def op(
    invoked: int, returned: int | None, call: Call, result: Result | None = None, *, key: str = "k"
) -> PolicyOperation:
    return Operation(key, 0, call, invoked, returned, result)


def verdict(*operations: PolicyOperation) -> Verdict:
    return check(operations, PolicyRegister(operations)).verdict


SET_1 = op(0, 1, Set(1, UNSET), Done(10))
SET_2 = op(2, 3, Set(2, 10), Done(20))


def test_one_after_the_other_is_linearizable() -> None:
    assert verdict(SET_1, op(2, 3, Read(), Seen(1, 10))) is Verdict.LINEARIZABLE
    assert verdict(op(0, 1, Read(), Seen(UNSET, UNSET)), SET_2) is Verdict.VIOLATION
    assert verdict() is Verdict.LINEARIZABLE


def test_concurrent_operations_may_take_effect_in_any_order() -> None:
    reads = (op(0, 9, Read(), Seen(UNSET, UNSET)), op(0, 9, Read(), Seen(2, 20)))
    assert verdict(SET_1, SET_2, *reads) is Verdict.LINEARIZABLE


def test_operations_that_touch_count_as_concurrent() -> None:
    assert verdict(SET_1, op(1, 5, Read(), Seen(UNSET, UNSET))) is Verdict.LINEARIZABLE
    assert verdict(SET_1, op(2, 5, Read(), Seen(UNSET, UNSET))) is Verdict.VIOLATION


def test_a_stale_read_is_found() -> None:
    assert verdict(SET_1, SET_2, op(4, 5, Read(), Seen(1, 10))) is Verdict.VIOLATION


def test_reads_that_go_back_in_time_are_found() -> None:
    long = op(2, 100, Set(2, 10), Done(20))
    new, old = op(4, 5, Read(), Seen(2, 20)), op(6, 7, Read(), Seen(1, 10))
    assert verdict(SET_1, long, new) is Verdict.LINEARIZABLE
    assert verdict(SET_1, long, new, old) is Verdict.VIOLATION


def test_a_lost_write_is_found() -> None:
    assert verdict(SET_1, op(2, 3, Read(), Seen(UNSET, UNSET))) is Verdict.VIOLATION
    assert verdict(SET_1, op(2, 3, Set(2, UNSET), Done(20))) is Verdict.VIOLATION


def test_a_double_effect_is_found() -> None:
    again = op(4, 5, Read(), Seen(1, 30))
    assert verdict(SET_1, SET_2, again) is Verdict.VIOLATION
    # Also where the same value comes back with the version that it had.
    assert verdict(SET_1, SET_2, op(4, 5, Read(), Seen(1, 10))) is Verdict.VIOLATION


def test_a_refusal_without_a_reason_is_found() -> None:
    assert verdict(SET_1, op(2, 3, Set(2, 10), Refused())) is Verdict.VIOLATION
    assert verdict(SET_1, op(2, 3, Set(2, UNSET), Refused())) is Verdict.LINEARIZABLE


def test_two_changes_of_one_version_are_found() -> None:
    both = (op(2, 9, Set(2, 10), Done(20)), op(2, 9, Set(3, 10), Done(30)))
    assert verdict(SET_1, *both) is Verdict.VIOLATION


def test_metadata_offsets_that_go_back_are_found() -> None:
    assert verdict(SET_1, op(2, 3, Set(2, 10), Done(9))) is Verdict.VIOLATION


def test_an_unknown_outcome_may_have_happened_late_or_never() -> None:
    unknown = op(2, None, Set(2, 10))
    old, new = op(4, 5, Read(), Seen(1, 10)), op(6, 7, Read(), Seen(2, 20))
    assert verdict(SET_1, unknown, old) is Verdict.LINEARIZABLE
    assert verdict(SET_1, unknown, new) is Verdict.LINEARIZABLE
    assert verdict(SET_1, unknown, old, new) is Verdict.LINEARIZABLE
    late = op(8, 9, Read(), Seen(1, 10))
    assert verdict(SET_1, unknown, old, new, late) is Verdict.VIOLATION


def test_an_unknown_outcome_does_not_happen_before_its_call() -> None:
    early = op(2, 3, Read(), Seen(2, 20))
    assert verdict(SET_1, early, op(4, None, Set(2, 10))) is Verdict.VIOLATION


def test_an_unknown_outcome_that_nobody_saw_explains_a_refusal() -> None:
    refused = op(4, 5, Set(3, 10), Refused())
    assert verdict(SET_1, refused) is Verdict.VIOLATION
    assert verdict(SET_1, op(2, None, Set(2, 10)), refused) is Verdict.LINEARIZABLE


def test_a_repetition_that_succeeded_took_effect_once() -> None:
    repeated = op(2, 9, Set(2, 10), Done(None))
    assert verdict(SET_1, repeated, op(10, 11, Read(), Seen(2, 20))) is Verdict.LINEARIZABLE
    assert verdict(SET_1, repeated, op(10, 11, Read(), Seen(1, 10))) is Verdict.VIOLATION


def test_a_violation_names_what_cannot_be_explained() -> None:
    stale = op(4, 5, Read(), Seen(1, 10))
    checked = check([SET_1, SET_2, stale], PolicyRegister([SET_1, SET_2, stale]))
    assert checked.explained == (SET_1, SET_2)
    assert checked.stuck == stale
    assert f"nothing explains {stale}" in str(checked)


def test_keys_are_judged_apart() -> None:
    other = op(2, 3, Read(), Seen(UNSET, UNSET), key="other")
    bad = op(2, 3, Read(), Seen(UNSET, UNSET))
    assert not_linearizable([SET_1, other]) == {}
    assert set(not_linearizable([SET_1, other, bad])) == {"k"}


def test_a_search_that_gives_up_is_not_a_pass() -> None:
    sets = [op(0, 100, Set(value, UNSET), Refused()) for value in range(20)]
    operations = [SET_1, *sets, op(0, 100, Read(), Seen(99, 99))]
    checked = check(operations, PolicyRegister(operations), steps_max=100)
    assert checked.verdict is Verdict.INCONCLUSIVE
    assert checked.steps == 101


def test_an_outcome_without_its_time_is_refused() -> None:
    with pytest.raises(ValueError, match="an outcome is known with its time"):
        op(0, 1, Read())


# ---- against the obvious way

SMALL = st.sampled_from((UNSET, 1, 2, 3))
CALLS_AND_RESULTS: st.SearchStrategy[tuple[Call, Result]] = st.one_of(
    # Value and version are mostly the same number, so that many histories are possible ones.
    st.tuples(st.just(Read()), st.builds(lambda value: Seen(value, value), SMALL)),
    st.tuples(st.just(Read()), st.builds(Seen, SMALL, SMALL)),
    st.builds(lambda value, replaces: (Set(value, replaces), Done(value)), SMALL, SMALL),
    st.tuples(st.builds(Set, SMALL, SMALL), st.sampled_from((Done(None), Refused()))),
)


@st.composite
def histories(draw: st.DrawFn) -> list[PolicyOperation]:
    """Up to six operations; about one history in five is linearizable."""
    operations: list[PolicyOperation] = []
    for _ in range(draw(st.integers(min_value=0, max_value=6))):
        call, result = draw(CALLS_AND_RESULTS)
        invoked = draw(st.integers(min_value=0, max_value=6))
        if isinstance(call, Read) or draw(st.booleans()):
            returned = invoked + draw(st.integers(min_value=0, max_value=8))
            operations.append(op(invoked, returned, call, result))
        else:
            operations.append(op(invoked, None, call))
    return operations


@given(histories())
@settings(max_examples=300, deadline=None)
def test_the_search_agrees_with_trying_every_order(operations: list[PolicyOperation]) -> None:
    model = PolicyRegister(operations)
    expected = Verdict.LINEARIZABLE if is_linearizable(operations, model) else Verdict.VIOLATION
    assert check(operations, model).verdict is expected


def real_history(seed: int, clients: int, count: int) -> list[PolicyOperation]:
    """What clients of a true register see, every call taking effect somewhere within its time."""
    choose = random.Random(seed)
    state, clock = Seen(UNSET, UNSET), 0
    known = dict.fromkeys(range(clients), state)
    free_at = dict.fromkeys(range(clients), 0)
    operations: list[PolicyOperation] = []
    for number in range(count):
        client = choose.randrange(clients)
        clock += choose.randrange(1, 10)
        invoked = max(free_at[client], clock - choose.randrange(60))
        clock = max(clock, invoked)
        returned = clock + choose.randrange(60)
        call: Call = Read() if choose.random() < 0.5 else Set(number, known[client].version)
        result: Result = state
        if isinstance(call, Set):
            result = Refused()
            if call.replaces == state.version:
                state = Seen(number, clock)
                result = Done(clock)
        else:
            known[client] = state
        free_at[client] = returned + 1
        if isinstance(call, Set) and choose.random() < 0.02:
            operations.append(op(invoked, None, call))
        else:
            operations.append(op(invoked, returned, call, result))
    return operations


@pytest.mark.parametrize("seed", range(5))
def test_long_true_histories_are_found_linearizable(seed: int) -> None:
    operations = real_history(seed, CLIENTS, OPERATIONS)
    checked = check(operations, PolicyRegister(operations))
    assert checked.verdict is Verdict.LINEARIZABLE, checked


@pytest.mark.parametrize("seed", range(5))
def test_one_stale_read_in_a_long_history_is_found(seed: int) -> None:
    operations = real_history(seed, CLIENTS, OPERATIONS)
    assert verdict(*with_a_stale_read(operations)) is Verdict.VIOLATION


def with_a_stale_read(operations: Sequence[PolicyOperation]) -> list[PolicyOperation]:
    """Something of the first half, read again at the end."""
    reads = [each for each in operations[: OPERATIONS // 2] if isinstance(each.result, Seen)]
    ends = max(each.returned or 0 for each in operations)
    return [*operations, op(ends + 1, ends + 2, Read(), reads[-1].result)]
