"""Which replicas clients are told of, by what the metadata log says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.virtual_nodes import REPLICA_IDS, Replica
from rlmm.records.node_facts import NodeFacts, ReadAddress
from rlmm.rows.nodes import Liveness, RegisteredNode

OWN = Replica(1, "replica-1", 19_092, "a")


def registered(
    node_id: int, liveness: Liveness = Liveness.LIVE, *, reads: bool = True
) -> RegisteredNode:
    address = ReadAddress(f"replica-{node_id}", 19_092, "a") if reads else None
    facts = NodeFacts(address)
    return RegisteredNode(
        node_id, Uuid(bytes(16)), 1, 5, 5, 0, facts=facts, liveness=liveness, liveness_ms=7
    )


def live(*nodes: RegisteredNode) -> LiveReplicas:
    found = LiveReplicas(OWN)
    found.registered(nodes)
    return found


def told(replicas: LiveReplicas) -> list[int]:
    return [each.node_id for each in replicas.nodes.replicas]


def test_before_any_word_this_one_is_alone() -> None:
    assert told(LiveReplicas(OWN)) == [1]


@pytest.mark.parametrize("liveness", [each for each in Liveness if each is not Liveness.LIVE])
def test_one_that_does_not_live_is_left_out(liveness: Liveness) -> None:
    replicas = live(registered(1), registered(2, liveness), registered(3))
    assert told(replicas) == [1, 3]
    silent = [each.node_id for each in replicas.silent]
    assert silent == ([2] if liveness is Liveness.FENCED else [])


def test_this_one_tells_of_itself_even_if_it_is_fenced() -> None:
    replicas = live(registered(1, Liveness.FENCED))
    assert (told(replicas), replicas.silent) == ([1], ())


def test_one_without_a_read_listener_is_left_out() -> None:
    assert told(live(registered(2, reads=False), registered(3))) == [1, 3]


def test_one_whose_id_is_too_large_for_a_virtual_node_is_left_out() -> None:
    assert told(live(registered(2), registered(REPLICA_IDS))) == [1, 2]


@given(st.lists(st.dictionaries(st.integers(1, 4), st.sampled_from(Liveness))))
def test_this_replica_is_always_told_and_nobody_who_does_not_live(
    words: list[dict[int, Liveness]],
) -> None:
    replicas = LiveReplicas(OWN)
    for word in words:
        replicas.registered(registered(*each) for each in word.items())
        lives = {node_id for node_id, liveness in word.items() if liveness is Liveness.LIVE}
        assert told(replicas) == sorted({1, *lives})
        assert replicas.nodes.own == OWN
