from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import FeatureLevel, TopicPolicyChange
from rlmm.rows import queries
from rlmm.rows.reads import read_feature_level
from rlmm.segment import PartitionDeleteState
from tests.rlmm.state_world import ORDERS, World


@pytest.fixture
def world() -> World:
    return World()


def test_a_topic_without_a_policy_has_the_defaults(world: World) -> None:
    assert queries.topic_policy(world.rows, "orders") == TopicPolicy(-1, -1, False, False, -1)


def test_a_policy_names_the_one_it_replaces(world: World) -> None:
    first = TopicPolicyChange("orders", TopicPolicy(retention_ms=1000), -1)
    world.accept(first)
    assert queries.topic_policy(world.rows, "orders") == TopicPolicy(retention_ms=1000, offset=0)
    assert world.verdict(first) is Verdict.NO_EFFECT
    second = TopicPolicyChange("orders", TopicPolicy(copy_paused=True), 0)
    stale = TopicPolicyChange("orders", TopicPolicy(delete_paused=True), -1)
    assert world.verdict(stale) is Verdict.CONFLICT
    world.accept(second)
    assert queries.topic_policy(world.rows, "orders").copy_paused
    assert world.verdict(first) is Verdict.CONFLICT


AGAIN = replace(ORDERS, topic_id=Uuid(b"orders-once-more"))
WEEK = TopicPolicy(retention_ms=604_800_000, delete_paused=True, follow_delete_records=True)


def policies(world: World) -> list[int]:
    """The retention of the first topic of the name, and of the one that was made after it."""
    return [
        queries.topic_policy(world.rows, "orders", each.topic_id).retention_ms
        for each in (ORDERS, AGAIN)
    ]


def made_again(world: World) -> World:
    world.partition = AGAIN
    world.leads((0, 0))
    return world


def test_a_retention_is_for_the_newest_topic_and_not_for_one_that_is_made_again(
    world: World,
) -> None:
    world.leads((0, 0))
    world.accept(TopicPolicyChange("orders", WEEK, -1))
    assert policies(made_again(world)) == [WEEK.retention_ms, -1]
    both = [queries.topic_policy(world.rows, "orders", each.topic_id) for each in (ORDERS, AGAIN)]
    assert [each.delete_paused for each in both] == [True, True], "the switches hold for the name"
    assert [each.follow_delete_records for each in both] == [True, False]
    standing = both[0].offset
    world.accept(TopicPolicyChange("orders", replace(WEEK, retention_ms=5), standing))
    assert policies(world) == [-1, 5], "what is left of the old one is kept"


def test_what_was_decided_ahead_is_for_the_first_topic_that_is_known_by_the_name(
    world: World,
) -> None:
    world.accept(TopicPolicyChange("orders", WEEK, -1))
    assert policies(world) == [-1, -1], "no topic has it yet"
    assert queries.topic_policy(world.rows, "orders").retention_ms == WEEK.retention_ms
    world.leads((0, 0))
    assert policies(world) == [WEEK.retention_ms, -1]
    assert queries.topic_policy(world.rows, "orders").offset == 0, "it is the same policy"
    assert policies(made_again(world)) == [WEEK.retention_ms, -1]


def test_a_retention_names_a_topic_that_is_known(world: World) -> None:
    made_again(world)
    of_another = replace(WEEK, topic_id=ORDERS.topic_id)
    assert world.verdict(TopicPolicyChange("orders", of_another, -1)) is Verdict.INVALID
    world.partition = ORDERS
    world.leads((0, 0))
    world.accept(TopicPolicyChange("orders", replace(WEEK, topic_id=AGAIN.topic_id), -1))
    assert policies(world) == [-1, WEEK.retention_ms]


def test_the_switches_of_a_policy_change_after_its_topic_is_gone(world: World) -> None:
    world.leads((0, 0))
    world.accept(TopicPolicyChange("orders", replace(WEEK, delete_paused=False), -1))
    world.delete(*PartitionDeleteState)
    standing = queries.topic_policy(world.rows, "orders")
    assert standing.topic_id == ORDERS.topic_id
    paused = replace(standing, delete_paused=True)
    world.accept(TopicPolicyChange("orders", paused, standing.offset))
    assert policies(made_again(world)) == [WEEK.retention_ms, -1]


def test_setting_the_defaults_on_purpose_is_a_policy(world: World) -> None:
    world.accept(TopicPolicyChange("orders", TopicPolicy(), -1))
    assert queries.topic_policy(world.rows, "orders").offset == 0


@pytest.mark.parametrize(
    "change",
    [
        TopicPolicyChange("a/b", TopicPolicy(), -1),
        TopicPolicyChange("", TopicPolicy(), -1),
        TopicPolicyChange("orders", TopicPolicy(retention_ms=-2), -1),
        TopicPolicyChange("orders", TopicPolicy(retention_bytes=-2), -1),
    ],
)
def test_policies_that_mean_nothing_are_invalid(world: World, change: TopicPolicyChange) -> None:
    assert not world.changed_by(change)
    assert world.verdict(change) is Verdict.INVALID


def test_the_feature_level_goes_up_only(world: World) -> None:
    assert read_feature_level(world.rows)[0] == 1
    assert world.verdict(FeatureLevel(0, -1)) is Verdict.INVALID
    assert world.verdict(FeatureLevel(2, 0)) is Verdict.CONFLICT
    world.accept(FeatureLevel(2, -1))
    assert read_feature_level(world.rows)[0] == 2
    assert world.verdict(FeatureLevel(2, -1)) is Verdict.NO_EFFECT
    assert world.verdict(FeatureLevel(1, world.offset)) is Verdict.CONFLICT
    assert world.verdict(FeatureLevel(3, -1)) is Verdict.CONFLICT


def test_what_retention_decided_by_another_policy_is_refused(world: World) -> None:
    world.leads((0, 0))
    world.copy(1, 0, 9, [(0, 0)])
    world.copy(2, 10, 19, [(0, 10)])
    world.accept(TopicPolicyChange("orders", TopicPolicy(retention_ms=0), -1))
    policy, move = world.offset, world.a_log_start(10, 0)
    delete = world.a_delete(1)
    assert world.verdict(replace(move, policy_offset=-1)) is Verdict.CONFLICT
    world.accept(replace(move, policy_offset=policy))
    world.accept(TopicPolicyChange("orders", TopicPolicy(delete_paused=True), policy))
    paused = world.offset
    for named in (policy, paused, None):
        outcome = world.put(replace(delete, policy_offset=named))
        assert (outcome.verdict, "paused" in outcome.message) == (Verdict.CONFLICT, True)
    further = replace(world.a_log_start(20, 0), policy_offset=paused)
    assert world.verdict(further) is Verdict.CONFLICT
    world.accept(TopicPolicyChange("orders", TopicPolicy(), paused))
    assert world.verdict(replace(delete, policy_offset=paused)) is Verdict.CONFLICT
    world.accept(replace(delete, policy_offset=world.offset - 1))


def test_deleting_that_is_paused_by_the_policy_holds_a_topics_deletion_back(world: World) -> None:
    world.leads((0, 0))
    world.copy(1, 0, 9, [(0, 0)])
    world.delete(PartitionDeleteState.DELETE_PARTITION_MARKED)
    world.accept(TopicPolicyChange("orders", TopicPolicy(delete_paused=True), -1))
    policy = world.offset
    start = PartitionDeleteState.DELETE_PARTITION_STARTED
    assert world.verdict(world.a_step(start)) is Verdict.CONFLICT
    world.accept(TopicPolicyChange("orders", TopicPolicy(), policy))
    world.delete(start)
    world.accept(TopicPolicyChange("orders", TopicPolicy(delete_paused=True), world.offset - 1))
    assert world.verdict(world.a_delete(1)) is Verdict.CONFLICT
