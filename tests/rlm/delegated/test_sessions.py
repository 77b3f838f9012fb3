"""Announcements of a broker's plug-in: which counts, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.sessions import (
    REPLACED_MAX,
    SESSION_LIVES_S,
    AnnounceAgain,
    Expected,
    SessionRefused,
    Sessions,
    call,
    hear,
)
from rlm.delegated.wire import WHOLE_SET, Announcement
from tests.rlm.planner_facts import uuid

A, B, C = (TopicIdPartition("orders", uuid(9), number) for number in range(3))
HERE = Expected("kafka-1", 1)
FIRST = Announcement(
    "kafka-1", 1, "0.1.0", "4.3.0", "127.0.0.1:9092", uuid(1), 1, WHOLE_SET, (A,), (B,), ()
)


def test_the_whole_set_makes_a_session_and_every_partition_counts_as_changed() -> None:
    heard = hear(Sessions(), FIRST, HERE, 0.0)
    assert heard.changed == {A, B}
    session = heard.sessions.current
    assert session is not None
    assert session.leaders == {A: 1}
    assert session.followers == {B}
    assert call(heard.sessions, uuid(1), 1, 5.0).current == replace(session, heard_s=5.0)


def test_changes_follow_the_announcement_that_they_name() -> None:
    before = hear(Sessions(), FIRST, HERE, 0.0).sessions
    moved = replace(FIRST, seq=2, base_seq=1, leaders=(B,), followers=(C,), stopped=(A,))
    heard = hear(before, moved, HERE, 1.0)
    assert heard.changed == {B, C}
    session = heard.sessions.current
    assert session is not None
    assert session.leaders == {B: 2}
    assert session.followers == {C}
    again = hear(heard.sessions, moved, HERE, 2.0)
    assert again.changed == set()
    for late in (replace(moved, seq=4, base_seq=3), replace(moved, seq=4, base_seq=1)):
        with pytest.raises(AnnounceAgain):
            hear(heard.sessions, late, HERE, 3.0)
    with pytest.raises(AnnounceAgain):
        hear(heard.sessions, FIRST, HERE, 3.0)


def test_a_leadership_begins_with_the_announcement_that_told_of_it() -> None:
    """Also where the broker led before: it may not have led all the time."""

    def led_before(sessions: Sessions) -> list[bool]:
        session = sessions.current
        assert session is not None
        return [session.led_before(A, seq) for seq in (1, 2, 3)]

    first = hear(Sessions(), FIRST, HERE, 0.0).sessions
    assert led_before(first) == [False, False, False]
    other = hear(first, replace(FIRST, seq=2, base_seq=1, leaders=(C,)), HERE, 1.0).sessions
    assert led_before(other) == [False, False, False]
    again = hear(other, replace(FIRST, seq=3, base_seq=2), HERE, 2.0).sessions
    assert led_before(again) == [True, True, False]
    assert led_before(hear(other, replace(FIRST, seq=2), HERE, 3.0).sessions) == [
        True, False, False,
    ]  # fmt: skip
    anew = hear(again, replace(FIRST, session=uuid(2)), HERE, 4.0).sessions
    assert led_before(anew) == [False, False, False]
    follows = hear(
        first, replace(FIRST, seq=2, base_seq=1, leaders=(), followers=(A,)), HERE, 1.0
    ).sessions
    assert led_before(follows) == [False, False, False]


def test_a_call_of_an_unknown_session_or_an_unheard_announcement_is_to_announce_again() -> None:
    sessions = hear(Sessions(), FIRST, HERE, 0.0).sessions
    for known, id_, seq in ((Sessions(), 1, 1), (sessions, 2, 1), (sessions, 1, 2)):
        with pytest.raises(AnnounceAgain) as caught:
            call(known, uuid(id_), seq, 1.0)
        assert (caught.value.kind, caught.value.reason) == ("retry_later", "ANNOUNCE")
    with pytest.raises(AnnounceAgain):
        hear(Sessions(), replace(FIRST, seq=2, base_seq=1), HERE, 0.0)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (replace(FIRST, kafka_cluster_id="kafka-2"), "CLUSTER"),
        (replace(FIRST, broker_id=2), "BROKER_ID"),
    ],
)
def test_another_broker_or_cluster_is_refused_with_the_reason(
    said: Announcement, reason: str
) -> None:
    with pytest.raises(SessionRefused) as caught:
        hear(Sessions(), said, HERE, 0.0)
    assert (caught.value.kind, caught.value.reason) == ("refused", reason)


def test_a_node_without_a_kafka_cluster_of_its_own_serves_any() -> None:
    assert hear(Sessions(), FIRST, Expected(None, 1), 0.0).sessions.current is not None


def test_a_broker_that_restarted_takes_the_place_of_its_session_before() -> None:
    before = hear(Sessions(), FIRST, HERE, 0.0).sessions
    heard = hear(before, replace(FIRST, session=uuid(2)), HERE, 1.0)
    assert heard.gone == uuid(1)
    with pytest.raises(AnnounceAgain):
        call(heard.sessions, uuid(1), 1, 2.0)


def test_of_two_living_brokers_the_later_one_is_served_and_the_first_is_told() -> None:
    before = hear(Sessions(), FIRST, HERE, 0.0).sessions
    both = hear(before, replace(FIRST, session=uuid(2)), HERE, 1.0).sessions
    with pytest.raises(SessionRefused) as caught:
        hear(both, FIRST, HERE, 2.0)
    assert caught.value.reason == "TWO_BROKERS"
    alive = replace(FIRST, session=uuid(2), base_seq=1, leaders=(), followers=())
    both = hear(both, alive, HERE, 30.0).sessions
    with pytest.raises(SessionRefused):
        hear(both, FIRST, HERE, 29.0 + SESSION_LIVES_S)
    assert hear(both, FIRST, HERE, 30.0 + SESSION_LIVES_S).gone == uuid(2)


def test_replaced_sessions_are_remembered_within_bounds() -> None:
    sessions = Sessions()
    for number in range(3 * REPLACED_MAX):
        said = replace(FIRST, session=uuid(100 + number))
        sessions = hear(sessions, said, HERE, float(number)).sessions
    assert len(sessions.replaced) == REPLACED_MAX


@pytest.mark.parametrize(
    "said",
    [
        replace(FIRST, leaders=(A, A)),
        replace(FIRST, followers=(A,)),
        replace(FIRST, leaders=(TopicIdPartition("no/topic", uuid(9), 0),)),
        replace(FIRST, leaders=(TopicIdPartition("orders", uuid(9), -1),)),
        replace(FIRST, leaders=(TopicIdPartition("orders", Uuid(bytes(16)), 0),)),
        replace(FIRST, base_seq=1),
        replace(FIRST, base_seq=-2),
        replace(FIRST, seq=-1),
    ],
)
def test_partitions_that_no_broker_has_are_refused(said: Announcement) -> None:
    with pytest.raises(InvalidRequest):
        hear(Sessions(), said, HERE, 0.0)


subsets = st.lists(st.sampled_from((A, B, C)), unique=True).map(tuple)


@given(steps=st.lists(st.tuples(subsets, subsets, subsets), max_size=8))
def test_changes_lead_to_the_same_sets_as_the_whole(
    steps: list[tuple[tuple[TopicIdPartition, ...], ...]],
) -> None:
    """The plug-in's sets, kept by hand, and the node's, by changes."""
    sessions = hear(Sessions(), FIRST, HERE, 0.0).sessions
    leaders, followers = {A}, {B}
    for seq, (leads, follows, stops) in enumerate(steps, 2):
        follows = tuple(each for each in follows if each not in leads)
        stops = tuple(each for each in stops if each not in (*leads, *follows))
        said = replace(
            FIRST, seq=seq, base_seq=seq - 1, leaders=leads, followers=follows, stopped=stops
        )
        leaders = leaders - set(follows) - set(stops) | set(leads)
        followers = followers - set(leads) - set(stops) | set(follows)
        sessions = hear(sessions, said, HERE, float(seq)).sessions
        assert sessions.current is not None
        assert sessions.current.leaders.keys() == leaders
        assert sessions.current.followers == followers
