"""The same question answered the slow and obvious way, for small histories."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations, permutations
from typing import TypeVar

from tests.linearizability.checker import Model, Operation

C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S", bound=Hashable)


def is_linearizable(operations: Sequence[Operation[C, R]], model: Model[C, R, S]) -> bool:
    """Whether any order of any choice of the unknown outcomes is one of the register's."""
    return any(
        _keeps_real_time(order) and _is_sequential(order, model)
        for chosen in _choices(operations)
        for order in permutations(chosen)
    )


def _choices(operations: Sequence[Operation[C, R]]) -> Iterator[list[Operation[C, R]]]:
    known = [each for each in operations if each.returned is not None]
    unknown = [each for each in operations if each.returned is None]
    for count in range(len(unknown) + 1):
        for happened in combinations(unknown, count):
            yield [*known, *happened]


def _keeps_real_time(order: Sequence[Operation[C, R]]) -> bool:
    return all(
        later.returned is None or later.returned >= earlier.invoked
        for at, earlier in enumerate(order)
        for later in order[at + 1 :]
    )


def _is_sequential(order: Sequence[Operation[C, R]], model: Model[C, R, S]) -> bool:
    state = model.initial
    for operation in order:
        after = model.step(state, operation.call, operation.result)
        if after is None:
            return False
        state = after
    return True
