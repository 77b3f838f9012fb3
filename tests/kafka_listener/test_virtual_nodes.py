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
    before = VirtualNodes(all_of_them[0], all_of_them).by_partition(topic_id, partition)
    gone = data.draw(st.sampled_from(all_of_them))
    left = tuple(each for each in all_of_them if each != gone)
    after = VirtualNodes(left[0], left).by_partition(topic_id, partition)
    assert after == tuple(each for each in before if each != gone)


def test_partitions_are_spread_evenly() -> None:
    three = replicas(3)
    nodes = VirtualNodes(three[0], three)
    first = [nodes.by_partition(bytes(16), number)[0].node_id for number in range(3_000)]
    assert all(900 < first.count(each.node_id) < 1_100 for each in three)
