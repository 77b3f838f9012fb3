"""Breadth-first search of everything that can happen in a small world.

A global state is the local states of the hosts, the history (what was shown to the outside), the
messages under way and what is left of each budget. Local states, histories and messages are
numbered; a step of one host is carried out once for each local state and event, and looked up from
then on. A message may stay under way for ever, so loss needs no step of its own; `fail` is a loss
of which the asker is told.
"""

from __future__ import annotations

import pickle
import zlib
from array import array
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

from rlmm.raft.messages import ReplicaKey
from rlmm.raft.states import Leader
from sim.core.disk import Disk
from sim.core.replica_host import ReplicaHost
from sim.explore import bench as b
from sim.explore.frozen import frozen, relabelled
from sim.explore.scenes import begun
from sim.explore.states import BUDGETS, Broken, Facts, Found, Move, Result, Scene, State


class Numbers:
    """Numbers of frozen values, by their 64-bit hashes."""

    def __init__(self, relabellings: list[dict[Hashable, Hashable]]) -> None:
        self._relabellings = relabellings
        self._known: dict[int, int] = {}
        self.relabelled: dict[int, tuple[int, ...]] = {}

    def of(self, key: Hashable) -> int:
        return self._known.setdefault(hash(key), len(self._known))

    def note(self, key: Hashable) -> int:
        """The number of a value that may occur, and of its relabellings."""
        number = self.of(key)
        if number not in self.relabelled:
            others = tuple(self.of(relabelled(key, names)) for names in self._relabellings)
            self.relabelled[number] = others
        return number


class Space:
    """The states that can be reached from a scene."""

    def __init__(self, scene: Scene, *, remember: bool = True) -> None:
        self.scene = scene
        self.remember = remember
        ids = [b.FIRST_NODE_ID + index for index in range(scene.nodes)]
        self.keys = [ReplicaKey(node_id, f"d{node_id}") for node_id in ids]
        self.bench = b.Bench(scene.settings, self.keys, stale=scene.stale)
        self.bench.batches_per_fetch = scene.batches_per_fetch
        self.orders = self._orders()
        names = [self._renaming(order) for order in self.orders]
        self.nodes, self.histories, self.messages = (Numbers(names) for _ in range(3))
        self.blobs: dict[int, bytes] = {}
        self.facts: dict[int, Facts] = {}
        self.history_blobs: dict[int, bytes] = {}
        self.message_of: dict[int, b.Message] = {}
        self.orphans: dict[int, int] = {}
        self.results: dict[Hashable, Result | str] = {}
        self.steps = 0
        self._at_hand = -1
        self.epoch_max = 0

    def _orders(self) -> list[tuple[int, ...]]:
        """The permutations of hosts that the scene leaves alike, without the identity."""
        alike = self.scene.alike
        rest = [index for index in range(self.scene.nodes) if index not in alike]
        found = []
        for order in permutations(alike):
            whole = dict(zip(alike, order, strict=True)) | {index: index for index in rest}
            found.append(tuple(whole[index] for index in range(self.scene.nodes)))
        return found[1:]

    def _renaming(self, order: tuple[int, ...]) -> dict[Hashable, Hashable]:
        names: dict[Hashable, Hashable] = {}
        for old, new in zip(self.keys, (self.keys[index] for index in order), strict=True):
            names |= {old.node_id: new.node_id, old.directory_id: new.directory_id}
            names[str(old.node_id - b.FIRST_NODE_ID)] = str(new.node_id - b.FIRST_NODE_ID)
        return names

    # ---- numbering

    def number_node(self, host: ReplicaHost, pending: list[partial[None]]) -> int:
        core = host.core
        assert core is not None
        r = core.replica
        waiting = [
            (call.func.__name__, *[each for each in call.args[1:] if not isinstance(each, Disk)])
            for call in pending
        ]
        number = self.nodes.note(frozen((host, waiting), r.now))
        if number not in self.facts:
            settings, jitter = r.settings, r.jitter
            host.world = r.settings = r.jitter = None  # type: ignore[assignment]
            self.blobs[number] = zlib.compress(pickle.dumps((host, pending), -1), 1)
            r.settings, r.jitter = settings, jitter
            leads = isinstance(r.state, Leader)
            self.facts[number] = Facts(
                core.epoch,
                leads,
                tuple(call.func.__name__ for call in pending),
                len(host.disk.unsynced),
                b.links(host),
            )
        return number

    def node(self, number: int) -> tuple[ReplicaHost, list[partial[None]]]:
        host, pending = pickle.loads(zlib.decompress(self.blobs[number]))
        assert isinstance(host, ReplicaHost)
        assert host.core is not None
        host.core.replica.settings = self.scene.settings
        host.core.replica.jitter = self.bench.random.random
        return host, pending

    def number_history(self) -> int:
        told = (self.bench.history, self.bench.clients)
        number = self.histories.note(frozen(told, 0))
        if number not in self.history_blobs:
            self.bench.history._world = self.bench.clients._world = None  # type: ignore[assignment]
            self.history_blobs[number] = pickle.dumps(told, -1)
            self.bench.set_history(*told)
        self._at_hand = number
        return number

    def _take_up_history(self, number: int) -> None:
        if self._at_hand != number:
            self.bench.set_history(*pickle.loads(self.history_blobs[number]))
            self._at_hand = number

    def number_message(self, message: b.Message) -> int:
        asker = str(message.asker)
        other = str(message.source if message.is_answer else message.target)
        key = (asker, other, message.token, message.is_answer, frozen(message.payload, 0))
        number = self.messages.note(key)
        self.message_of.setdefault(number, message)
        return number

    # ---- one step of one host

    def result(self, state: State, at: int, step: b.Step) -> Result:
        """The outcome of a step; whatever it needs to know of the others is part of the key."""
        node = state.nodes[at]
        if not self.remember:
            return self._carry_out(state, at, step)[0]
        key: Hashable
        for key in ((node, step), (state.history, node, step), (state.history, state.nodes, step)):
            found = self.results.get(key)
            if isinstance(found, Result):
                return found
            if found is None:
                break
        result, heard, saw_others = self._carry_out(state, at, step)
        self.results[node, step] = "history" if heard else result
        if heard:
            self.results[state.history, node, step] = "all" if saw_others else result
        if saw_others:
            self.results[state.history, state.nodes, step] = result
        return result

    def _carry_out(self, state: State, at: int, step: b.Step) -> tuple[Result, bool, bool]:
        self.steps += 1
        bench = self.bench
        self._take_up_history(state.history)
        host, pending = self.node(state.nodes[at])
        bench.disks = _Disks(self, state, host)
        if step.kind == "deliver":
            step = step._replace(what=self.message_of[step.what])
        self._at_hand = -1
        gone = bench.run(host, pending, step)
        heard = bench.heard
        self._at_hand = state.history
        history = self.number_history() if heard else state.history
        sent = tuple(self.number_message(each) for each in bench.sent)
        node = self.number_node(host, bench.pending)
        cuts = () if step.cut else bench.cuts()
        result = Result(node, history if heard else -1, sent, frozenset(gone), cuts)
        return result, heard, bench.disks.seen

    def after(self, state: State, move: Move) -> State:
        """The state behind a move. AssertionError: an invariant is broken."""
        result = self.result(state, move.at, move.step)
        nodes, messages = list(state.nodes), set(state.messages)
        if move.message >= 0:
            messages.discard(move.message)
        nodes[move.at] = result.node
        if result.gone:
            for number in state.messages:
                message = self.message_of[number]
                if message.asker == move.at and message.token in result.gone:
                    messages.discard(number)
                    if not message.is_answer:
                        messages.add(self._orphan_of(number, message))
            self._orphan(state, nodes, move.at, result.gone)
        messages.update(result.sent)
        left = state.left
        if move.budget >= 0:
            left = (*left[: move.budget], left[move.budget] - 1, *left[move.budget + 1 :])
        history = state.history if result.history < 0 else result.history
        return State(tuple(nodes), history, tuple(sorted(messages)), left)

    def _orphan_of(self, number: int, message: b.Message) -> int:
        if number not in self.orphans:
            self.orphans[number] = self.number_message(message._replace(token=None))
        return self.orphans[number]

    def _orphan(self, state: State, nodes: list[int], asker: int, gone: frozenset[b.Token]) -> None:
        for other in range(len(nodes)):
            for token in gone:
                if (asker, token) in self.facts[nodes[other]].links:
                    now = State(tuple(nodes), state.history, (), ())
                    nodes[other] = self.result(now, other, b.Step("orphan", (asker, token))).node

    # ---- all moves

    def moves(self, state: State) -> Iterator[Move]:
        tick, late, crash, fail, twice, write, read, snapshot, change = (
            index if left > 0 else -1 for index, left in enumerate(state.left)
        )
        for number in state.messages:
            message = self.message_of[number]
            deliver = b.Step("deliver", number)
            yield Move(message.target, deliver, number)
            if twice >= 0:
                yield Move(message.target, deliver, -1, twice)
            if fail >= 0 and message.token is not None:
                yield Move(message.asker, b.Step("fail", message.token), -1, fail)
        for at, node in enumerate(state.nodes):
            facts = self.facts[node]
            for index in range(len(facts.pending)):
                yield Move(at, b.Step("done", index))
            if tick >= 0:
                yield Move(at, b.Step("tick"), -1, tick)
            if late >= 0:
                yield Move(at, b.Step("late"), -1, late)
            if crash >= 0:
                for kept in range(facts.unsynced + 1):
                    yield Move(at, b.Step("crash", kept=kept), -1, crash)
            if snapshot >= 0:
                yield Move(at, b.Step("snapshot"), -1, snapshot)
            if facts.leads:
                if write >= 0:
                    yield Move(at, b.Step("write"), -1, write)
                if read >= 0:
                    yield Move(at, b.Step("read"), -1, read)
                if change >= 0:
                    for kind, target in self.scene.changes:
                        yield Move(at, b.Step(kind, target), -1, change)

    def successors(self, state: State) -> Iterator[tuple[Move, Callable[[], State]]]:
        """All moves; where a crash inside one leaves something else, that as well."""
        crash = BUDGETS.index("crash")
        for move in self.moves(state):
            yield move, partial(self.after, state, move)
            if state.left[crash] > 0 and move.budget < 0:
                for cut in self.result(state, move.at, move.step).cuts:
                    for kept in (0, b.ALL):
                        step = move.step._replace(cut=cut, kept=kept)
                        cut_off = move._replace(step=step, budget=crash)
                        yield cut_off, partial(self.after, state, cut_off)

    def mark(self, state: State) -> int:
        """A 64-bit hash that is the same for states that differ in the names of hosts only. Among
        10^7 states two different ones have the same with a chance of some 3 in a million. Where
        the core goes by the order of node ids (the first peer asked for the leader, successors
        equally far), such states are told apart.
        """
        best = hash(state)
        nodes, histories = self.nodes.relabelled, self.histories.relabelled
        for index, order in enumerate(self.orders):
            moved = [0] * len(order)
            for old, new in enumerate(order):
                moved[new] = nodes[state.nodes[old]][index]
            messages = sorted(self.messages.relabelled[each][index] for each in state.messages)
            other = hash(
                (tuple(moved), histories[state.history][index], tuple(messages), state.left)
            )
            best = min(best, other)
        return best

    # ---- the search

    def search(self, states_max: int) -> Found:
        """Visit states breadth first, at most `states_max`, up to the first broken invariant."""
        try:
            first = begun(self)
        except AssertionError as error:
            return Found(0, (), self.steps, False, _broken(error, "while the scene is set"))
        self.epoch_max = self._epoch(first) + self.scene.epochs
        seen = {self.mark(first)}
        marks, parents = array("q", seen), array("q", [-1])
        frontier, by_depth, exhausted = [(0, first)], [1], True
        while frontier and exhausted:
            found: list[tuple[int, State]] = []
            for index, state in frontier:
                if len(seen) >= states_max:
                    exhausted = False
                    break
                last = None
                try:
                    for move, follow in self.successors(state):
                        last = move
                        new = follow()
                        mark = self.mark(new)
                        if mark in seen or not self._within(new):
                            continue
                        seen.add(mark)
                        found.append((len(marks), new))
                        marks.append(mark)
                        parents.append(index)
                except AssertionError as error:
                    moves = self._path(first, marks, parents, index)
                    at = "?" if last is None else self.tell(last)
                    broken = _broken(error, *moves, at)
                    return Found(len(seen), (*by_depth, len(found)), self.steps, False, broken)
            by_depth.append(len(found))
            frontier = found
        return Found(len(seen), tuple(by_depth), self.steps, exhausted, None)

    def _within(self, state: State) -> bool:
        return self._epoch(state) <= self.epoch_max

    def _epoch(self, state: State) -> int:
        return max(self.facts[node].epoch for node in state.nodes)

    def _path(
        self, first: State, marks: array[int], parents: array[int], index: int
    ) -> tuple[str, ...]:
        chain = []
        while index > 0:
            chain.append(marks[index])
            index = parents[index]
        state, moves = first, []
        for mark in reversed(chain):
            for move, follow in self.successors(state):
                new = follow()
                if self.mark(new) == mark:
                    moves.append(self.tell(move))
                    state = new
                    break
        return tuple(moves)

    def tell(self, move: Move) -> str:
        """A move as a line of a schedule."""
        step = move.step
        what = self.message_of[step.what] if step.kind == "deliver" else step.what
        text = f"n{self.keys[move.at].node_id} {step.kind}"
        if move.budget == BUDGETS.index("twice"):
            text += " (and keep)"
        text += "" if what is None else f" {what}"
        return text + (f", power cut before action {step.cut}" if step.cut else "")


def _broken(error: AssertionError, *moves: str) -> Broken:
    return Broken(getattr(error, "name", "assertion"), str(error), moves)


class _Disks:
    """The disks of all hosts, taken up when somebody asks for one."""

    def __init__(self, space: Space, state: State, host: ReplicaHost) -> None:
        self._space, self._state, self._host = space, state, host
        self.seen = False

    def get(self, key: ReplicaKey) -> Any:
        if key == self._host.disk.key:
            return self._host.disk
        self.seen = True
        number = self._state.nodes[self._space.keys.index(key)]
        return self._space.node(number)[0].disk
