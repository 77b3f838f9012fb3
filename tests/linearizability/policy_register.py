"""A topic's policy as a register: read behind a barrier, changed by compare-and-set.

A change names the metadata offset of the policy it replaces, so the offset is the
version. A value is set by one operation of a history only, which may try several times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.linearizability.checker import Checked, Operation, Verdict, by_key, check

UNSET = -1
"""Value and version of a policy that nobody set."""


@dataclass(frozen=True, slots=True)
class Read:
    pass


@dataclass(frozen=True, slots=True)
class Set:
    """Put `value` where the version is `replaces`."""

    value: int
    replaces: int


@dataclass(frozen=True, slots=True)
class Seen:
    value: int
    version: int


@dataclass(frozen=True, slots=True)
class Done:
    """`version` is None where a repetition succeeded: either attempt may have set the value."""

    version: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The version was another one; nothing changed."""


Call = Read | Set
Result = Seen | Done | Refused
PolicyOperation = Operation[Call, Result]


class PolicyRegister:
    """`Model` of one key. Takes the versions of unknown outcomes from whoever saw the values."""

    initial = Seen(UNSET, UNSET)

    def __init__(self, operations: Iterable[PolicyOperation]) -> None:
        self._versions: dict[int, int] = {}
        for operation in operations:
            call, result = operation.call, operation.result
            if isinstance(result, Seen):
                # A value with two versions is one set twice: no state explains the second.
                self._versions.setdefault(result.value, result.version)
            elif isinstance(result, Done) and isinstance(call, Set) and result.version is not None:
                self._versions.setdefault(call.value, result.version)

    def step(self, state: Seen, call: Call, result: Result | None) -> Seen | None:
        if isinstance(call, Read):
            return state if result is None or result == state else None
        matches = call.replaces == state.version
        if isinstance(result, Refused):
            return None if matches else state
        if not matches:
            return state if result is None else None
        version = result.version if isinstance(result, Done) else None
        if version is None:
            version = self._versions.get(call.value)
        if version is None:
            # Nobody saw it: a version of its own, which no change names.
            return Seen(call.value, UNSET - 1 - call.value)
        # Metadata offsets only grow.
        return Seen(call.value, version) if version > state.version else None


def check_policies(operations: Iterable[PolicyOperation]) -> dict[str, Checked[Call, Result]]:
    """A verdict of each key."""
    return {key: check(each, PolicyRegister(each)) for key, each in by_key(operations).items()}


def not_linearizable(operations: Iterable[PolicyOperation]) -> dict[str, Checked[Call, Result]]:
    """The keys that are not *shown* to be linearizable, inconclusive ones included."""
    return {
        key: checked
        for key, checked in check_policies(operations).items()
        if checked.verdict is not Verdict.LINEARIZABLE
    }
