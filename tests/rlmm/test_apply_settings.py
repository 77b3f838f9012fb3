from __future__ import annotations

import pytest

from rlmm import queries
from rlmm.apply_outcome import Verdict
from rlmm.partition_state import TopicPolicy
from rlmm.records import FeatureLevel, TopicPolicyChange
from tests.rlmm.state_world import World


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
    assert queries.feature_level(world.rows) == 1
    assert world.verdict(FeatureLevel(0, -1)) is Verdict.INVALID
    assert world.verdict(FeatureLevel(2, 0)) is Verdict.CONFLICT
    world.accept(FeatureLevel(2, -1))
    assert queries.feature_level(world.rows) == 2
    assert world.verdict(FeatureLevel(2, -1)) is Verdict.NO_EFFECT
    assert world.verdict(FeatureLevel(1, world.offset)) is Verdict.CONFLICT
    assert world.verdict(FeatureLevel(3, -1)) is Verdict.CONFLICT
