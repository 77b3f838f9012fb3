"""Which replicas clients are told of, by what the metadata log and its leader say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.virtual_nodes import REPLICA_IDS, Replica

OWN, SECOND, THIRD = (Replica(number, f"replica-{number}", 19_092) for number in (1, 2, 3))
SILENCE_S = 10.0


def replicas() -> LiveReplicas:
    found = LiveReplicas(OWN, SILENCE_S)
    found.registered((OWN, SECOND, THIRD))
    return found


def told(live: LiveReplicas) -> list[int]:
    return [each.node_id for each in live.nodes.replicas]


def test_one_that_was_never_heard_of_is_not_told() -> None:
    live = replicas()
    assert told(live) == [1]
    assert len(live.silent) == 2
    live.heard(5, {2: 300}, 100.0)
    assert told(live) == [1, 2]
    assert [each.node_id for each in live.silent] == [3]


def test_one_that_is_silent_for_too_long_is_left_out_until_it_fetches_again() -> None:
    live = replicas()
    live.heard(5, {1: 20, 2: 10_000, 3: 10_001}, 100.0)
    assert told(live) == [1, 2]
    live.heard(5, {2: 10_001, 3: 400}, 101.0)
    assert told(live) == [1, 3]


def test_this_one_tells_of_itself_however_long_the_leader_has_not_heard_of_it() -> None:
    live = replicas()
    live.heard(5, {1: 1_000_000}, 100.0)
    assert told(live) == [1]


def test_a_leader_that_just_took_over_gives_everybody_a_whole_silence() -> None:
    live = replicas()
    live.heard(5, {2: 300, 3: 50_000}, 100.0)
    live.heard(6, {}, 200.0)
    assert told(live) == [1, 2]
    live.heard(6, {}, 200.0 + SILENCE_S)
    assert told(live) == [1, 2]
    live.heard(6, {}, 200.1 + SILENCE_S)
    assert told(live) == [1]


def test_a_leader_of_before_is_not_listened_to() -> None:
    live = replicas()
    live.heard(6, {2: 300}, 100.0)
    live.heard(5, {2: 300_000, 3: 0}, 101.0)
    assert told(live) == [1, 2]


def test_one_that_has_no_read_listener_any_more_is_left_out_at_once() -> None:
    live = replicas()
    live.heard(5, {2: 300, 3: 300}, 100.0)
    live.registered((OWN, THIRD))
    assert told(live) == [1, 3]
    live.registered((OWN, SECOND, THIRD))
    assert told(live) == [1, 3], "it may be back, and has not fetched yet"


def test_one_whose_id_is_too_large_for_a_virtual_node_is_left_out() -> None:
    live = replicas()
    live.registered((SECOND, Replica(REPLICA_IDS, "large", 19_092)))
    live.heard(5, {2: 300, REPLICA_IDS: 300}, 100.0)
    assert told(live) == [1, 2]


def test_one_that_moved_is_told_at_its_new_address() -> None:
    live = replicas()
    live.heard(5, {2: 300}, 100.0)
    moved = Replica(2, "elsewhere", 29_092, "b")
    live.registered((moved,))
    assert live.nodes.replicas == (OWN, moved)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4),
            st.dictionaries(st.integers(1, 3), st.integers(0, 20_000)),
            st.sets(st.sampled_from((OWN, SECOND, THIRD))),
        )
    )
)
def test_this_replica_is_always_told_and_nobody_who_is_not_registered(
    words: list[tuple[int, dict[int, int], set[Replica]]],
) -> None:
    live = replicas()
    for second, (epoch, silent_ms, registered) in enumerate(words):
        live.registered(registered)
        live.heard(epoch, silent_ms, float(second))
        ids = told(live)
        assert 1 in ids
        assert set(ids) <= {1, *(each.node_id for each in registered)}
        assert live.nodes.own == OWN
