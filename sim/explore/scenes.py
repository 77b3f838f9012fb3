"""Scenes from which the search begins: a blank start spends its depth on the first election."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlmm.raft.actions import PersistedState
from rlmm.raft.messages import Voter, VoterSet
from sim.core.disk import Disk
from sim.explore import bench as b
from sim.explore.states import BUDGETS, Move, Scene, State

if TYPE_CHECKING:
    from sim.explore.space import Space


def begun(space: Space) -> State:
    """The state from which the search of the space's scene begins."""
    scene = space.scene
    state = scene.prologue(space, _formatted(space, scene.voters))
    return state._replace(left=tuple(scene.budgets.get(name, 0) for name in BUDGETS))


def _formatted(space: Space, voters: int) -> State:
    sets = VoterSet(tuple(Voter(key) for key in space.keys[:voters]))
    numbers, sent = [], set()
    for key in space.keys:
        host = b.new_host(space.bench, Disk(key, sets, quorum=PersistedState(0)))
        space.bench.run(host, [], b.Step("start"))
        sent |= {space.number_message(each) for each in space.bench.sent}
        numbers.append(space.number_node(host, space.bench.pending))
    left = (1000,) * len(BUDGETS)
    return State(tuple(numbers), space.number_history(), tuple(sorted(sent)), left)


def settled(space: Space, state: State, silent: tuple[int, ...] = ()) -> State:
    """Deliver and complete everything, in order, until nothing is under way; `silent` hosts get
    and send nothing.
    """
    while True:
        move = None
        for number in state.messages:
            message = space.message_of[number]
            if message.source in silent or message.target in silent:
                continue
            move = Move(message.target, b.Step("deliver", number), number)
            break
        for at, node in enumerate(state.nodes):
            if space.facts[node].pending and at not in silent:
                move = Move(at, b.Step("done", 0))
                break
        if move is None:
            kept = [
                number
                for number in state.messages
                if space.message_of[number].source not in silent
                and space.message_of[number].target not in silent
            ]
            return state._replace(messages=tuple(kept))
        state = space.after(state, move)


def does(space: Space, state: State, at: int, kind: str, what: object = None) -> State:
    return space.after(state, Move(at, b.Step(kind, what)))


def blank(_: Space, state: State) -> State:
    """All hosts have just started, and nobody has heard of anybody."""
    return state._replace(messages=())


def led(space: Space, state: State) -> State:
    """Host 0 leads, and has committed what it appended first."""
    return elected(space, state, 0, silent=())


def elected(space: Space, state: State, at: int, silent: tuple[int, ...]) -> State:
    """Host `at` leads, elected by those who are not silent."""
    for other in range(space.scene.nodes):
        if other not in silent and other != at:
            state = does(space, state, other, "late")
    state = settled(space, does(space, state, at, "late"), silent)
    for _ in range(10):
        if space.facts[state.nodes[at]].leads:
            return settled(space, does(space, state, at, "tick"), silent)
        state = settled(space, does(space, state, at, "tick"), silent)
    raise AssertionError(f"host {at} is not elected")


def two_tails(space: Space, state: State) -> State:
    """Host 0 led epoch 1 and has a record that nobody else has; host 1 leads a later one."""
    state = does(space, led(space, state), 0, "write")
    state = settled(space, state, silent=(1, 2))
    return elected(space, state, 1, silent=(0,))


def behind(space: Space, state: State) -> State:
    """Host 2 lacks what the leader's log has no more: only a snapshot helps."""
    state = does(space, led(space, state), 0, "write")
    state = settled(space, settled(space, state, silent=(2,)), silent=(2,))
    state = settled(space, does(space, state, 0, "tick"), silent=(2,))
    state = does(space, state, 0, "snapshot")
    return does(space, state, 2, "tick")


SCENES: Mapping[str, Scene] = {
    "two voters": Scene(
        {"tick": 2, "late": 2, "crash": 1, "fail": 1, "twice": 1},
        blank, nodes=2, voters=2, alike=(0, 1),
    ),
    "blank": Scene({"tick": 1, "late": 2, "crash": 1, "twice": 1}, blank, alike=(0, 1, 2)),
    "led": Scene(
        {"tick": 1, "late": 2, "crash": 1, "write": 1, "read": 1, "twice": 1}, led, alike=(1, 2)
    ),
    "two tails": Scene(
        {"tick": 2, "late": 2, "crash": 1, "write": 1, "twice": 1}, two_tails, epoch_max=4
    ),
    "removal": Scene(
        {"tick": 1, "late": 2, "crash": 1, "change": 2},
        led, alike=(1, 2), changes=(("remove", 0), ("remove", 1), ("remove", 2)),
    ),
    "behind": Scene({"tick": 3, "late": 2, "crash": 1, "write": 1}, behind),
}  # fmt: skip
