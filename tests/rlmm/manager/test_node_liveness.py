"""Which nodes the quorum's leader finds silent, and what it records of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafka_formats.kafka_uuid import Uuid
from rlmm.manager.node_liveness import LOOKS_PER_SILENCE, LivenessJudge, NodeLiveness
from rlmm.metadata_log import LogDescription, ReplicaState
from rlmm.records.control_records import NodeSilence
from rlmm.rows.nodes import Liveness, RegisteredNode

SILENCE_MAX_S = 10.0
NOW_MS = 1_700_000_000_000


def directory(node_id: int) -> Uuid:
    return Uuid(b"directory-of-%03d" % node_id)


def node(node_id: int, liveness: Liveness = Liveness.LIVE, offset: int = 40) -> RegisteredNode:
    return RegisteredNode(
        node_id, directory(node_id), 1, offset, offset, NOW_MS, liveness=liveness, liveness_ms=5
    )


class Leader:
    """Node 1 as leader of an epoch; the others fetched so many seconds ago, or never (None)."""

    def __init__(self) -> None:
        self.judge = LivenessJudge(SILENCE_MAX_S)
        self.now_s = 1_000.0
        self.epoch = 4
        self.leads = True
        self.nodes: list[RegisteredNode] = [node(1), node(2), node(3)]
        self.silent_s: dict[int, float] = {2: 0.1, 3: 0.1}
        self.voters = (1, 2)

    def look(self) -> tuple[NodeSilence, ...]:
        return self.judge.judged(self.told(), self.nodes, self.now_s)

    def told(self) -> LogDescription:
        fetched = {1: 0.0, **self.silent_s}
        replicas = [_replica(each, fetched.get(each)) for each in (1, 2, 3)]
        voters = tuple(each for each in replicas if each.node_id in self.voters)
        observers = tuple(
            each for each in replicas if each.node_id in self.silent_s.keys() - self.voters
        )
        return LogDescription(
            "cluster", 1, 1 if self.leads else 2, self.epoch, 50, 0, 50, voters, observers
        )

    def looks(self, seconds: float) -> list[NodeSilence]:
        """Look twice a second for so long; silences grow meanwhile."""
        found: list[NodeSilence] = []
        for _ in range(int(seconds * 2)):
            self.now_s += 0.5
            found += self.look()
        return found

    def silent_since_now(self, node_ids: Iterable[int], seconds: float) -> list[NodeSilence]:
        found: list[NodeSilence] = []
        began_s = self.now_s
        for _ in range(int(seconds * 2)):
            self.now_s += 0.5
            self.silent_s |= dict.fromkeys(node_ids, self.now_s - began_s)
            found += self.look()
        return found


def _replica(node_id: int, silent_s: float | None) -> ReplicaState:
    fetched_ms = -1 if silent_s is None else NOW_MS - int(silent_s * 1000)
    return ReplicaState(node_id, str(directory(node_id)), 50, fetched_ms, fetched_ms)


def fenced(node_id: int, epoch: int = 4) -> NodeSilence:
    return NodeSilence(node_id, 40, epoch, True)


def test_a_node_is_fenced_after_a_whole_silence_and_not_before() -> None:
    leader = Leader()
    leader.looks(11)
    assert leader.silent_since_now([3], SILENCE_MAX_S) == []
    assert leader.look() == ()
    leader.now_s += 0.5
    leader.silent_s[3] = SILENCE_MAX_S + 0.5
    assert leader.look() == (fenced(3),)


def test_a_new_leader_gives_everyone_a_whole_silence() -> None:
    leader = Leader()
    leader.silent_s = {}  # nobody has fetched from it yet
    assert leader.looks(SILENCE_MAX_S) == []
    leader.silent_s = {2: 0.1}
    assert leader.looks(1.0)[:1] == [fenced(3)]
    leader.epoch, leader.silent_s = 6, {}  # it was deposed, and is elected again
    assert leader.looks(SILENCE_MAX_S) == []


def test_a_leader_that_was_suspended_begins_to_listen_anew() -> None:
    leader = Leader()
    leader.looks(30)
    leader.now_s += 60  # their requests wait in its sockets meanwhile
    leader.silent_s = {2: 60.0, 3: 60.0}
    assert leader.look() == ()
    leader.silent_s = {2: 0.1, 3: 0.1}
    assert leader.looks(30) == []


def test_a_fenced_node_comes_back_by_a_fetch_alone() -> None:
    leader = Leader()
    leader.nodes[2] = node(3, Liveness.FENCED)
    del leader.silent_s[3]
    assert leader.looks(30) == []
    leader.silent_s[3] = 0.2
    assert leader.look() == (NodeSilence(3, 40, 4, False),)


def test_a_node_that_just_registered_has_a_whole_silence_too() -> None:
    leader = Leader()
    del leader.silent_s[3]
    leader.nodes.pop()
    leader.looks(60)
    leader.nodes.append(node(3, offset=70))
    assert leader.looks(SILENCE_MAX_S) == []
    assert leader.looks(1.0)[:1] == [NodeSilence(3, 70, 4, True)]


def test_a_node_that_registers_anew_after_a_long_silence_has_a_whole_one() -> None:
    leader = Leader()
    leader.looks(11)
    assert leader.silent_since_now([3], SILENCE_MAX_S) == []
    leader.nodes[2] = node(3, offset=70)
    leader.silent_s[3] = SILENCE_MAX_S * 2  # it has not fetched yet
    assert leader.looks(SILENCE_MAX_S) == []


def test_another_directory_of_the_node_id_does_not_speak_for_it() -> None:
    leader = Leader()
    other = RegisteredNode(3, Uuid(b"another-director"), 1, 40, 40, NOW_MS)
    leader.nodes[2] = other
    leader.looks(SILENCE_MAX_S)
    assert leader.looks(1.0)[:1] == [fenced(3)]


def test_stopped_and_removed_nodes_and_followers_are_left_alone() -> None:
    leader = Leader()
    leader.nodes = [node(1), node(2, Liveness.STOPPED), node(3, Liveness.REMOVED)]
    leader.silent_s = {2: 0.1}
    assert leader.looks(60) == []
    leader.nodes = [node(1), node(2), node(3)]
    leader.leads = False
    assert leader.looks(60) == []


def test_a_leader_that_was_fenced_takes_it_back_itself() -> None:
    leader = Leader()
    leader.nodes[0] = node(1, Liveness.FENCED)
    assert leader.look() == (NodeSilence(1, 40, 4, False),)


def test_a_leader_that_removed_itself_as_a_voter_does_not_fence_itself() -> None:
    leader = Leader()
    leader.looks(11)
    leader.voters, leader.nodes = (2, 3), [node(1)]
    del leader.silent_s[3]
    found = leader.looks(SILENCE_MAX_S * 2)
    assert found == []


def test_an_observer_that_the_leader_has_forgotten_has_its_whole_silence() -> None:
    leader = Leader()
    leader.looks(60)
    assert leader.silent_since_now([3], SILENCE_MAX_S / 2) == []
    del leader.silent_s[3]
    assert leader.looks(SILENCE_MAX_S / 2) == []
    assert leader.looks(0.5) == [fenced(3)]


def test_what_is_no_longer_true_after_a_slow_record_is_not_proposed() -> None:
    leader = Leader()
    leader.looks(11)
    assert leader.silent_since_now([2, 3], SILENCE_MAX_S) == []
    leader.silent_s = {2: SILENCE_MAX_S + 0.5, 3: SILENCE_MAX_S + 0.5}
    proposed: list[NodeSilence] = []

    async def propose(record: NodeSilence, deadline_s: float) -> int:
        assert deadline_s == SILENCE_MAX_S / LOOKS_PER_SILENCE, "the next look judges anew"
        proposed.append(record)
        leader.now_s += 4
        leader.silent_s[3] = 0.2  # it fetched meanwhile
        return 1

    liveness = NodeLiveness(
        leader.judge, leader.told, lambda: tuple(leader.nodes), lambda: leader.now_s, propose
    )
    leader.now_s += 0.5
    asyncio.run(liveness.look())
    assert proposed == [fenced(2)]
