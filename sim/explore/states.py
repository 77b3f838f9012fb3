"""States, moves and figures of a search, and the scene that it begins with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rlmm.raft.timers import RaftSettings
from sim.core.quorum import HASTY
from sim.explore import bench as b

if TYPE_CHECKING:
    from sim.explore.space import Space

BUDGETS = ("tick", "late", "crash", "fail", "twice", "write", "read", "snapshot", "change")


class State(NamedTuple):
    """Numbers of local states, history and messages; `left` is in the order of `BUDGETS`."""

    nodes: tuple[int, ...]
    history: int
    messages: tuple[int, ...]
    left: tuple[int, ...]


class Result(NamedTuple):
    """The outcome of a step of one host. `gone`: requests whose answers are not waited for."""

    node: int
    history: int
    sent: tuple[int, ...]
    gone: frozenset[b.Token]
    cuts: tuple[int, ...]


class Move(NamedTuple):
    """A step of host `at`, which takes `message` from the network and one of `budget`."""

    at: int
    step: b.Step
    message: int = -1
    budget: int = -1


class Broken(NamedTuple):
    """An invariant that does not hold, and the moves that lead there."""

    name: str
    message: str
    moves: tuple[str, ...]


class Found(NamedTuple):
    """Figures of a search. `by_depth`: new states; `exhausted`: there are no others."""

    states: int
    by_depth: tuple[int, ...]
    steps: int
    exhausted: bool
    broken: Broken | None


class Facts(NamedTuple):
    """The part of a local state that decides which moves there are."""

    epoch: int
    leads: bool
    pending: tuple[str, ...]
    unsynced: int
    links: frozenset[tuple[int, Hashable]]


@dataclass(frozen=True)
class Scene:
    """A world to search. `nodes` hosts, the first `voters` of them voters; the hosts `alike` may
    be exchanged. `changes`: (add or remove, host) that an operator may ask of a leader. `stale`:
    each completion of a flush may come again later. `epochs`: how many above the first. `budgets`:
    how often, by `BUDGETS`.
    """

    budgets: Mapping[str, int]
    prologue: Callable[[Space, State], State]
    nodes: int = 3
    voters: int = 3
    alike: tuple[int, ...] = ()
    changes: tuple[tuple[str, int], ...] = ()
    epochs: int = 2
    stale: bool = False
    batches_per_fetch: int = 1000
    settings: RaftSettings = field(default_factory=lambda: HASTY)
