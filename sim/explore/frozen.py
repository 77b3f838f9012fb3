"""Values in which equal states are equal: plain, hashable, without identity and absolute time.

Times are relative to the clock of their host. Beyond `PAST_MS` all are the same: no rule looks
back that far. Node ids are larger than all other numbers: a relabelling finds them wherever they
stand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any

from rlmm.raft.timers import NEVER_MS

PAST_MS = 1000
DURATIONS = frozenset({"wait_max_ms"})
SETS = frozenset({"voters", "granting", "_voters", "known_voters"})
"""Fields whose tuples are ordered by node id only."""
LEFT_OUT: Mapping[str, frozenset[str]] = {
    "RaftCore": frozenset({"_initial"}),
    "Replica": frozenset(
        {"endpoints", "jitter", "next_request_id", "now", "out", "peers", "settings"}
    ),
    "VoterHistory": frozenset({"keys", "latest", "latest_offset"}),
    "Leadership": frozenset({"_check", "_state"}),
    "ReplicaHost": frozenset(
        {"backlog", "clock", "flush_ms", "name", "pace", "paused", "persist_ms", "queue",
         "wake_at_ms", "world"}
    ),
    "Elections": frozenset({"_check"}),
    "Auditor": frozenset({"_world", "_voter_sets", "digests"}),
    "Workload": frozenset({"_world"}),
}  # fmt: skip
"""Fields that say nothing about what happens next, or follow from others."""


_KNOWN: dict[type, tuple[str, ...]] = {}


def _fields(kind: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
    else:
        names = list(getattr(kind, "__slots__", ()))
    left_out = LEFT_OUT.get(kind.__name__, frozenset())
    return _KNOWN.setdefault(kind, tuple(name for name in names if name not in left_out))


def frozen(value: Any, now_ms: int) -> Hashable:
    """The value as tuples, frozen sets and atoms."""
    kind = type(value)
    if kind in (int, str, bool, float, type(None)):
        return value  # type: ignore[no-any-return]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return frozenset((frozen(a, now_ms), frozen(b, now_ms)) for a, b in value.items())
    if isinstance(value, set | frozenset):
        return frozenset(frozen(each, now_ms) for each in value)
    if hasattr(value, "__iter__"):
        return tuple([frozen(each, now_ms) for each in value])
    names = _KNOWN.get(kind) or _fields(kind)
    if not names and hasattr(value, "__dict__"):
        left_out = LEFT_OUT.get(kind.__name__, frozenset())
        names = tuple(sorted(value.__dict__.keys() - left_out))
    return (kind.__name__, *(_field(name, getattr(value, name), now_ms) for name in names))


def _field(name: str, value: Any, now_ms: int) -> Hashable:
    if name.endswith("_ms") and name not in DURATIONS:
        if isinstance(value, dict):
            return frozenset((tuple(key), _time(at, now_ms)) for key, at in value.items())
        return _time(value, now_ms)
    if name in SETS and isinstance(value, tuple):
        return frozenset(frozen(each, now_ms) for each in value)
    if name == "probe":
        return int(value % 12)  # peers in turn; 12 is a multiple of their number
    return frozen(value, now_ms)


def _time(at_ms: int, now_ms: int) -> int | None:
    """Milliseconds since `PAST_MS` ago, never negative: -1 and -2 have one hash. None: never."""
    if at_ms < 0:
        return None
    return at_ms if at_ms == NEVER_MS else max(at_ms - now_ms + PAST_MS, 0)


def relabelled(key: Hashable, names: Mapping[Hashable, Hashable]) -> Hashable:
    """A frozen value with other nodes in the place of those it names."""
    if isinstance(key, tuple):
        return tuple([relabelled(each, names) for each in key])
    if isinstance(key, frozenset):
        return frozenset(relabelled(each, names) for each in key)
    return names.get(key, key)
