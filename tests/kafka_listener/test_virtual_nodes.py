"""Virtual nodes: ids and ports that stay, shares that move where they have to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.virtual_nodes import (
    BROKER_IDS,
    FIRST_ID,
    PORT_MAX,
    REPLICA_IDS,
    Replica,
    VirtualNodes,
    not_shown,
    port_of,
    virtual_id,
)

IDS = st.tuples(st.integers(0, REPLICA_IDS - 1), st.integers(0, BROKER_IDS - 1))
JAVA_COORDINATORS_FROM = 2**31 - 1


@given(IDS, IDS)
def test_ids_are_one_for_each_pair_no_brokers_and_below_those_javas_client_makes(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert (virtual_id(*one) == virtual_id(*other)) == (one == other)
    assert FIRST_ID <= virtual_id(*one) < 2**30 < JAVA_COORDINATORS_FROM - virtual_id(*other)
    assert BROKER_IDS <= FIRST_ID


def test_ids_and_ports_stay_as_clients_remember_them() -> None:
    assert virtual_id(100, 1) == 20_054_017
    assert port_of(19_092, 1) == 19_094


@pytest.mark.parametrize(
    ("replica", "broker"), [(REPLICA_IDS, 1), (1, BROKER_IDS), (-1, 1), (1, -1)]
)
def test_an_id_that_does_not_fit_is_refused(replica: int, broker: int) -> None:
    with pytest.raises(ValueError, match="not below"):
        virtual_id(replica, broker)


def replicas(count: int, port: int = 19_092) -> tuple[Replica, ...]:
    return tuple(Replica(100 + number, f"replica-{number}", port) for number in range(count))


def test_each_replica_has_a_node_for_each_broker() -> None:
    both = replicas(2)
    nodes = VirtualNodes(both[0], both).all_nodes([3, 1])
    assert [(node.host, node.port) for node in nodes] == [
        ("replica-0", 19_094), ("replica-0", 19_096), ("replica-1", 19_094), ("replica-1", 19_096),
    ]  # fmt: skip
    assert [node.node_id for node in nodes] == sorted({node.node_id for node in nodes})


def test_a_broker_whose_port_is_none_is_not_shown() -> None:
    nodes = VirtualNodes.alone(Replica(1, "here", 60_000))
    last = PORT_MAX - 60_001
    assert nodes.shown(last)
    assert not nodes.shown(last + 1)
    assert not_shown({1: ("b", 9092), last + 1: ("b", 9092), BROKER_IDS: ("b", 9092)}, nodes) == (
        last + 1, BROKER_IDS,
    )  # fmt: skip
    assert [node.port for node in nodes.all_nodes([last, last + 1])] == [PORT_MAX]


@given(st.binary(min_size=16, max_size=16), st.integers(0, 1_000), st.integers(2, 6), st.data())
def test_a_replica_that_goes_moves_its_own_share_only(
    topic_id: bytes, partition: int, count: int, data: st.DataObject
) -> None:
    all_of_them = replicas(count)
    before = VirtualNodes(all_of_them[0], all_of_them).serving(topic_id, partition, 3)
    gone = data.draw(st.sampled_from(all_of_them))
    left = tuple(each for each in all_of_them if each != gone)
    after = VirtualNodes(left[0], left).serving(topic_id, partition, 3)
    gone_id = virtual_id(gone.node_id, 3)
    assert after == tuple(each for each in before if each.node_id != gone_id)


def test_partitions_are_spread_evenly() -> None:
    three = replicas(3)
    nodes = VirtualNodes(three[0], three)
    first = [nodes.serving(bytes(16), number, 3)[0].node_id for number in range(3_000)]
    assert all(900 < first.count(virtual_id(each.node_id, 3)) < 1_100 for each in three)


def test_a_replica_without_a_port_for_a_broker_takes_none_of_its_partitions_nor_hides_it() -> None:
    own, crowded = Replica(1, "here", 19_092), Replica(2, "there", PORT_MAX - 2)
    nodes = VirtualNodes(own, (own, crowded))
    assert nodes.shown(5)
    assert [(node.host, node.port) for node in nodes.all_nodes([1, 5])] == [
        ("here", 19_094), ("here", 19_098), ("there", PORT_MAX),
    ]  # fmt: skip
    assert {node.host for each in range(50) for node in nodes.serving(bytes(16), each, 5)} == {
        "here"
    }
    assert len(nodes.serving(bytes(16), 0, 1)) == 2


def test_a_client_is_sent_to_its_own_zone_and_never_on_from_there() -> None:
    a, b, c = (Replica(100 + n, f"replica-{n}", 19_092, zone) for n, zone in enumerate("abb"))
    here, there = VirtualNodes(a, (a, b, c)), VirtualNodes(b, (a, b, c))
    assert not here.has_nearer("a")
    assert not here.has_nearer("nowhere")
    assert here.nearer("", bytes(16), 0, 1) is None
    assert here.nearer("a", bytes(16), 0, 1) is None
    assert here.nearer("nowhere", bytes(16), 0, 1) is None
    sent_to = {here.nearer("b", bytes(16), number, 1) for number in range(50)}
    assert sent_to == {there.node(b, 1), there.node(c, 1)}, "spread over the zone"
    assert there.nearer("b", bytes(16), 0, 1) is None
