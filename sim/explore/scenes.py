"""Scenes from which the search begins: a blank start spends its depth on the first election."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
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


Until = Callable[["State"], bool]


def settled(
    space: Space, state: State, silent: tuple[int, ...] = (), until: Until | None = None
) -> State:
    """Deliver and complete everything, in order, until nothing is under way or `until` is true.
    What was sent to or by `silent` hosts is lost.
    """
    while True:
        heard = [
            number
            for number in state.messages
            if not {space.message_of[number].source, space.message_of[number].target} & {*silent}
        ]
        state = state._replace(messages=tuple(heard))
        move = None
        for number in heard[:1]:
            move = Move(space.message_of[number].target, b.Step("deliver", number), number)
        for at, node in enumerate(state.nodes):
            if space.facts[node].pending and at not in silent:
                move = Move(at, b.Step("done", 0))
                break
        if move is None or (until is not None and until(state)):
            return state
        state = space.after(state, move)


def does(space: Space, state: State, at: int, kind: str, what: object = None) -> State:
    """The state after host `at` did this."""
    return space.after(state, Move(at, b.Step(kind, what)))


def blank(_: Space, state: State) -> State:
    """All hosts have just started, and nobody has heard of anybody."""
    return state._replace(messages=())


def elected(space: Space, state: State, at: int, silent: tuple[int, ...] = ()) -> State:
    """Host `at` has just been elected by those who are not silent."""

    def leads(state: State) -> bool:
        return space.facts[state.nodes[at]].leads

    for other in range(space.scene.nodes):
        if other not in silent and other != at:
            state = does(space, state, other, "late")
    state = settled(space, does(space, state, at, "late"), silent, leads)
    for _ in range(10):
        if leads(state):
            return state
        state = settled(space, does(space, state, at, "tick"), silent, leads)
    raise AssertionError(f"host {at} is not elected")


def led(space: Space, state: State) -> State:
    """Host 0 leads and has committed what it appended first; the others heard it some time later
    than they first followed it.
    """
    state = settled(space, elected(space, state, 0))
    for at in (*range(1, space.scene.nodes), *range(1, space.scene.nodes), 0):
        state = settled(space, does(space, state, at, "tick"))
    return state


def alone_with_a_record(space: Space, state: State) -> State:
    """Host 0 leads and has a record that nobody else has."""
    return settled(space, does(space, led(space, state), 0, "write"), silent=(1, 2))


def told(space: Space, state: State, source: int, target: int) -> State:
    """A message is under way from a host to another, which was out of reach before."""
    for _ in range(10):
        ways = [(space.message_of[each].source, space.message_of[each].target)
                for each in state.messages]  # fmt: skip
        if (source, target) in ways:
            return state
        state = does(space, state, source, "tick")
    raise AssertionError(f"host {source} sends nothing to {target}")


def two_tails(space: Space, state: State) -> State:
    """Host 0 has a record of its epoch that nobody else has; host 1 leads and tells it so, and
    nobody else has host 1's first record.
    """
    state = elected(space, alone_with_a_record(space, state), 1, silent=(0,))
    return told(space, settled(space, state, silent=(0, 2)), 1, 0)


def two_tails_of_voters(space: Space, state: State) -> State:
    """Hosts 0 and 1 have two tails as in `two_tails`, and the record of host 0 removes a voter."""
    state = does(space, led(space, state), 0, "remove", 2)
    state = elected(space, settled(space, state, silent=(1, 2)), 1, silent=(0,))
    return told(space, settled(space, state, silent=(0,)), 1, 0)


def two_leaders(space: Space, state: State) -> State:
    """Host 1 leads, and host 0 has not heard of it."""
    return settled(space, elected(space, led(space, state), 1, silent=(0,)), silent=(0,))


def new_leader(space: Space, state: State) -> State:
    """Host 1 was elected a moment ago and has committed nothing yet."""
    return elected(space, led(space, state), 1, silent=(0,))


def led_again(space: Space, state: State) -> State:
    """Host 0 leads again after a crash, with a record of its first epoch that only it has."""
    state = does(space, alone_with_a_record(space, state), 0, "crash")
    return elected(space, state, 0)


def written(space: Space, state: State) -> State:
    """Host 0 leads and has committed a record that host 2 lacks."""
    return settled(space, does(space, state, 0, "write"), silent=(2,))


def lagging(space: Space, state: State) -> State:
    """Host 2 lacks a committed record; the leader is gone, and host 1 stands."""
    state = settled(space, written(space, led(space, state)), silent=(0, 1, 2))
    return settled(space, does(space, state, 1, "late"), silent=(0, 1, 2))


def behind(space: Space, state: State) -> State:
    """Host 2 lacks what the leader's log has no more: only a snapshot helps."""
    state = written(space, written(space, led(space, state)))
    state = settled(space, does(space, state, 0, "tick"), silent=(2,))
    return does(space, does(space, state, 0, "snapshot"), 2, "tick")


def installing(space: Space, state: State) -> State:
    """Host 2 replaces its log by the leader's snapshot; the leader crashes, and host 1 stands."""

    def has_begun(state: State) -> bool:
        return "_installed" in space.facts[state.nodes[2]].pending

    state = behind(space, state)
    for _ in range(10):
        state = settled(space, state, until=has_begun)
        if has_begun(state):
            state = does(space, state._replace(messages=()), 0, "crash")
            return does(space, state, 1, "late")
        state = does(space, state, 2, "tick")
    raise AssertionError("host 2 installs no snapshot")


def lost(space: Space, state: State) -> State:
    """Host 1 lost what it had beside the leader alone, which is out of reach; host 2 stands."""
    state = does(space, written(space, led(space, state)), 1, "damage")
    return does(space, state._replace(messages=()), 2, "late")


def lost_and_told(space: Space, state: State) -> State:
    """Host 1 lost what it had beside the leader alone, which leads again, and says so."""
    state = does(space, written(space, led(space, state)), 1, "damage")
    state = does(space, state._replace(messages=()), 0, "crash")
    state = settled(space, elected(space, state, 0, silent=(1,)), silent=(1,))
    return told(space, state, 0, 1)


def lost_behind_removal(space: Space, state: State) -> State:
    """Host 0 has a record alone that removes host 2; then host 2 led, and host 1 lost what the two
    had committed. Host 0 has heard of the later epoch.
    """
    state = settled(space, does(space, led(space, state), 0, "remove", 2), silent=(1, 2))
    state = settled(space, elected(space, state, 2, silent=(0,)), silent=(0,))
    for at in (1, 2, 1):
        state = settled(space, does(space, state, at, "tick"), silent=(0,))
    state = does(space, state, 1, "damage")._replace(messages=())
    return settled(space, does(space, state, 0, "late"), silent=(2,))


def passed(space: Space, state: State, source: int, target: int) -> State:
    """The state once all that is under way from a host to another has arrived."""
    for number in state.messages:
        message = space.message_of[number]
        if (message.source, message.target) == (source, target):
            state = space.after(state, Move(target, b.Step("deliver", number), number))
    return state


def forgotten_vote(space: Space, state: State) -> State:
    """Hosts 0 and 1 stand in the same epoch. Host 2 has voted for host 1, which has not heard of
    it; then host 2 lost its disk and was formatted again, and host 0 has heard of that.
    """
    state = blank(space, state)
    for at in (0, 1):
        state = does(space, state, at, "late")
    for at in (0, 1):
        state = passed(space, passed(space, state, at, 2), 2, at)
    state = does(space, passed(space, state, 1, 2), 2, "forget")
    return passed(space, passed(space, state, 0, 2), 2, 0)


def forgotten_leader(space: Space, state: State) -> State:
    """Host 0 remembers nothing and needs every answer: host 1 voted for it, and host 2 was not
    asked yet. Then hosts 1 and 2 committed something under host 1, and host 2 was formatted again.
    """
    state = does(space, blank(space, state), 0, "forget")
    state = does(space, state, 0, "late")
    for at in (1, 2, 1):
        state = passed(space, passed(space, state, 0, at), at, 0)
    late = tuple(each for each in state.messages if space.message_of[each].target == 2)
    state = settled(space, elected(space, state, 1, silent=(0,)), silent=(0,))
    for at in (1, 2, 1):
        state = settled(space, does(space, state, at, "tick"), silent=(0,))
    return does(space, state, 2, "forget")._replace(messages=late)


def copied(space: Space, state: State) -> State:
    """Host 1 asks host 2 for its vote, and so does an older process with the key of host 1."""
    state = does(space, blank(space, state), 1, "late")
    state = passed(space, passed(space, state, 1, 2), 2, 1)
    (asks,) = (
        message
        for message in map(space.message_of.__getitem__, state.messages)
        if message.target == 2
    )
    older = replace(asks.payload, incarnation=asks.payload.incarnation - 1)
    copy = space.number_message(asks._replace(token=None, payload=older))
    return state._replace(messages=tuple(sorted((*state.messages, copy))))


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
        {"tick": 2, "late": 2, "crash": 1, "write": 1, "twice": 1}, two_tails
    ),
    "removal": Scene(
        {"tick": 1, "late": 2, "crash": 1, "change": 2},
        led, alike=(1, 2), changes=(("remove", 0), ("remove", 1), ("remove", 2)),
    ),
    "behind": Scene({"tick": 3, "late": 2, "crash": 1, "write": 1}, behind),
    "installing": Scene({"tick": 1, "late": 1}, installing),
    "told of another tail": Scene({"tick": 1}, two_tails, stale=True),
    "told of other voters": Scene({}, two_tails_of_voters),
    "two leaders": Scene({"write": 1, "read": 1}, two_leaders),
    "new leader": Scene({"change": 1, "crash": 1}, new_leader, changes=(("remove", 2),)),
    "led again": Scene({"tick": 1}, led_again, batches_per_fetch=1),
    "lagging": Scene({"late": 1}, lagging),
    "lost": Scene({"tick": 1, "late": 1, "crash": 1}, lost),
    "lost and told": Scene({"tick": 1, "late": 1}, lost_and_told),
    "lost behind removal": Scene({"tick": 1, "late": 1}, lost_behind_removal),
    "forgotten vote": Scene({}, forgotten_vote),
    "forgotten leader": Scene({}, forgotten_leader),
    "copied": Scene({"crash": 1}, copied),
    "leader removed": Scene({"change": 1}, led, alike=(1, 2), changes=(("remove", 0),)),
}  # fmt: skip
