"""Is a history of concurrent operations linearizable?

Wing and Gong's search for an order of the operations that a sequential register could have
produced, with Lowe's memoisation of (operations taken, state). Keys are independent, so each is
searched alone (locality: Herlihy and Wing). The search is exponential at worst; it gives up after
`steps_max` steps of the model, and giving up is no verdict: INCONCLUSIVE is never a pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

STEPS_MAX = 1_000_000

C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S", bound=Hashable)
C_contra = TypeVar("C_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Operation(Generic[C, R]):
    """One call of one client. `invoked` and `returned` are times of one clock that all share.

    An operation without a result has an unknown outcome: it may have taken effect at any time after
    `invoked`, however late, or never.
    """

    key: str
    client: int
    call: C
    invoked: int
    returned: int | None = None
    result: R | None = None

    def __post_init__(self) -> None:
        if (self.returned is None) != (self.result is None):
            raise ValueError(f"{self}: an outcome is known with its time, or not at all")


class Model(Protocol[C_contra, R_contra, S]):
    """A sequential object: what one key holds."""

    @property
    def initial(self) -> S: ...

    def step(self, state: S, call: C_contra, result: R_contra | None) -> S | None:
        """The state after the call, None if it could not have had this result there.

        With an unknown result: the state after it took effect.
        """
        ...


class Verdict(Enum):
    LINEARIZABLE = "linearizable"
    VIOLATION = "violation"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Checked(Generic[C, R]):
    """`explained` is the longest order that was found, `stuck` what had returned and fits nowhere
    behind it; both for people, of a violation.
    """

    verdict: Verdict
    steps: int
    explained: tuple[Operation[C, R], ...] = ()
    stuck: Operation[C, R] | None = None

    def __str__(self) -> str:
        lines = [f"{self.verdict.value} after {self.steps} steps"]
        lines += [f"  {each}" for each in self.explained[-5:]]
        return "\n".join([*lines, f"  nothing explains {self.stuck}"])


def by_key(
    operations: Iterable[Operation[C, R]],
) -> dict[str, list[Operation[C, R]]]:
    """The operations of each key, in the given order."""
    keys: dict[str, list[Operation[C, R]]] = {}
    for operation in operations:
        keys.setdefault(operation.key, []).append(operation)
    return keys


def check(
    operations: Sequence[Operation[C, R]], model: Model[C, R, S], *, steps_max: int = STEPS_MAX
) -> Checked[C, R]:
    """Judge the operations of one key."""
    return _Search(operations, model, steps_max).run()


class _Search(Generic[C, R, S]):
    """Events are numbered: operation i is called at event 2i + 1 and returns at event 2i + 2, and 0
    heads the list of those that are not yet in the order.
    """

    def __init__(
        self, operations: Sequence[Operation[C, R]], model: Model[C, R, S], steps_max: int
    ) -> None:
        self._operations = operations
        self._model = model
        self._steps_max = steps_max
        self._next = [0] * (2 * len(operations) + 1)
        self._previous = [0] * (2 * len(operations) + 1)
        self._link()

    def _link(self) -> None:
        # Calls before returns of the same instant: what only touches counts as concurrent.
        timed = [(each.invoked, 0, 2 * i + 1) for i, each in enumerate(self._operations)]
        timed += [
            (each.returned, 1, 2 * i + 2)
            for i, each in enumerate(self._operations)
            if each.returned is not None
        ]
        before = 0
        for _, _, event in sorted(timed):
            self._next[before], self._previous[event] = event, before
            before = event
        self._next[before], self._previous[0] = 0, before

    def _take(self, event: int) -> None:
        self._next[self._previous[event]] = self._next[event]
        self._previous[self._next[event]] = self._previous[event]

    def _give_back(self, event: int) -> None:
        self._next[self._previous[event]] = event
        self._previous[self._next[event]] = event

    def run(self) -> Checked[C, R]:
        operations, model = self._operations, self._model
        open_ended = [each.returned is None for each in operations]
        left = len(operations) - sum(open_ended)
        state, taken, steps = model.initial, 0, 0
        order: list[tuple[int, S]] = []
        seen: set[tuple[int, S]] = set()
        explained: tuple[Operation[C, R], ...] = ()
        stuck: Operation[C, R] | None = None
        longest = -1
        event = self._next[0]
        while left:
            index = (event - 1) // 2
            if event % 2:
                steps += 1
                if steps > self._steps_max:
                    return Checked(Verdict.INCONCLUSIVE, steps)
                after = self._after(state, index)
                if after is not None and (taken | 1 << index, after) not in seen:
                    order.append((index, state))
                    state, taken = after, taken | 1 << index
                    seen.add((taken, state))
                    self._take(event)
                    if not open_ended[index]:
                        self._take(event + 1)
                        left -= 1
                    event = self._next[0]
                else:
                    event = self._next[event]
                continue
            # A return of something that is not in the order: what is in it has to change.
            if len(order) > longest:
                longest = len(order)
                explained = tuple(operations[each] for each, _ in order)
                stuck = operations[index]
            if not order:
                return Checked(Verdict.VIOLATION, steps, explained, stuck)
            index, state = order.pop()
            taken ^= 1 << index
            event = 2 * index + 1
            if not open_ended[index]:
                self._give_back(event + 1)
                left += 1
            self._give_back(event)
            event = self._next[event]
        return Checked(Verdict.LINEARIZABLE, steps)

    def _after(self, state: S, index: int) -> S | None:
        operation = self._operations[index]
        after = self._model.step(state, operation.call, operation.result)
        # An unknown outcome that changes nothing here is one that did not happen yet.
        return None if operation.returned is None and after == state else after
