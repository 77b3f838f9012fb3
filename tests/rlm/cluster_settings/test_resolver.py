"""Which setting wins over others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from rlm.cluster_settings.in_force import SettingsInForce
from rlm.cluster_settings.known_settings import SCOPES, Setting, check_setting
from rlm.cluster_settings.resolver import Resolver
from rlm.leadership.topic_filter import TopicFilter
from rlm.node_files.kill_switches import Switch
from rlm.quota.flow_limits import FlowLimits, Rates
from rlmm.records.setting_scope import CLUSTER, ScopeKind, SettingScope, of_node, of_topic
from rlmm.rows.cluster_settings import SettingRow
from sim.tier.cluster_settings import winner

OWN = TopicFilter(("orders", "logs.*"), ("logs.debug",))


def row(
    scope: SettingScope, value: str, setting: str = Setting.TIERED, offset: int = 7
) -> SettingRow:
    return SettingRow(scope, setting, value, "ann", "a reason", offset, 60)


def in_force(*rows: SettingRow, node_id: int = 1) -> SettingsInForce:
    return SettingsInForce(lambda: rows, node_id, OWN)


def tiered(topic: str, *rows: SettingRow) -> bool:
    return in_force(*rows).why_left_out(topic) is None


def test_without_settings_the_file_of_the_node_decides() -> None:
    assert [tiered(topic) for topic in ("orders", "logs.debug", "other")] == [True, False, False]


def test_the_log_wins_over_the_file_both_ways() -> None:
    rows = (row(of_topic("orders"), "false"), row(of_topic("logs.d*"), "true"))
    assert [tiered(topic, *rows) for topic in ("orders", "logs.debug")] == [False, True]
    why = in_force(*rows).why_left_out("orders")
    assert why is not None
    assert "by ann (a reason)" in why
    assert "strandline topics enable orders" in why


def test_the_log_alone_disables_a_topic_on_all_nodes() -> None:
    rows = (row(of_topic("orders"), "false"), row(of_topic("logs.d*"), "true"))
    settings = in_force(*rows)
    assert settings.why_disabled("orders") == settings.why_left_out("orders") is not None
    assert [settings.why_disabled(topic) for topic in ("logs.debug", "other")] == [None, None]


def test_internal_topics_are_never_tiered() -> None:
    assert not tiered("__consumer_offsets", row(of_topic("*"), "true"))


def test_the_name_wins_over_patterns_and_the_longest_pattern_over_others() -> None:
    rows = (
        row(of_topic("a*"), "false", offset=9),
        row(of_topic("ab*"), "true", offset=5),
        row(of_topic("abc"), "false", offset=1),
    )
    assert [tiered(topic, *rows) for topic in ("abc", "abd", "ac")] == [False, True, False]


def test_of_equally_long_patterns_the_one_set_last_wins() -> None:
    older, newer = row(of_topic("a*"), "false", offset=5), row(of_topic("*b"), "true", offset=6)
    assert tiered("ab", older, newer)
    assert not tiered("ab", replace(older, offset=7), newer)


def test_a_node_wins_over_the_cluster() -> None:
    paused = row(CLUSTER, "true", Setting.COPYING_PAUSED)
    resumed = row(of_node(2), "false", Setting.COPYING_PAUSED)
    texts = [in_force(paused, resumed, node_id=each).pause_text(Switch.COPYING) for each in (1, 2)]
    assert texts[1] is None
    assert texts[0] is not None
    assert "paused for the cluster by ann (a reason)" in texts[0]
    assert "strandline resume copying --cluster" in texts[0]
    assert in_force(paused).pause_text(Switch.DELETING) is None
    assert [each.name for each in in_force(paused).problems()] == ["copying (cluster settings)"]


def test_limits_are_of_the_node_and_within_them_of_a_topic() -> None:
    own = FlowLimits(Rates(100, 200), {"orders": Rates(10, None), "logs": Rates(20, None)})
    rows = (
        row(CLUSTER, "300", Setting.COPY_RATE),
        row(of_node(2), "0", Setting.COPY_RATE),
        row(of_topic("orders"), "0", Setting.COPY_RATE),
        row(of_topic("new"), "7", Setting.READ_RATE),
    )
    topics = {"logs": Rates(20, None), "new": Rates(None, 7)}
    assert in_force(*rows).limits(own) == FlowLimits(Rates(300, 200), topics)
    assert in_force(*rows, node_id=2).limits(own) == FlowLimits(Rates(None, 200), topics)
    assert in_force().limits(own) == own


@pytest.mark.parametrize(
    "unknown",
    [
        row(of_topic("orders"), "no"),
        row(CLUSTER, "false"),
        row(of_topic("orders"), "false", "topics.newer"),
        row(of_topic("ord*"), "5", Setting.COPY_RATE),
    ],
)
def test_what_this_program_does_not_know_counts_as_not_set(unknown: SettingRow) -> None:
    assert tiered("orders", unknown)


def test_a_change_is_in_force_with_its_rows() -> None:
    rows = [(row(of_topic("orders"), "false"),)]
    settings = SettingsInForce(lambda: rows[-1], 1, OWN)
    assert settings.why_left_out("orders") is not None
    rows.append((row(of_topic("orders"), "true"),))
    assert settings.why_left_out("orders") is None


@pytest.mark.parametrize(
    ("setting", "scope", "value"),
    [
        (Setting.TIERED, CLUSTER, "true"),
        (Setting.TIERED, of_topic("__consumer_offsets"), "true"),
        (Setting.TIERED, of_topic("orders"), "yes"),
        (Setting.COPYING_PAUSED, of_topic("orders"), "true"),
        (Setting.COPY_RATE, of_topic("ord*"), "5"),
        (Setting.COPY_RATE, CLUSTER, "-5"),
        (Setting.COPY_RATE, CLUSTER, "1e9"),
    ],
)
def test_settings_that_say_nothing_are_refused(
    setting: Setting, scope: SettingScope, value: str
) -> None:
    with pytest.raises(InvalidRequest):
        check_setting(setting, scope, value)


@pytest.mark.parametrize("setting", list(Setting))
def test_each_setting_is_for_the_scopes_that_it_names(setting: Setting) -> None:
    names = {ScopeKind.CLUSTER: CLUSTER, ScopeKind.NODE: of_node(3), ScopeKind.TOPIC: of_topic("t")}
    for kind in SCOPES[setting]:
        check_setting(setting, names[kind], None)
        check_setting(setting, names[kind], "0" if "limits" in setting else "true")


SCOPE = st.one_of(
    st.just(CLUSTER),
    st.integers(1, 3).map(of_node),
    st.sampled_from(["a", "b", "ab", "a*", "*b", "?", "??", "*", "[ab]*", "[b-a]"]).map(of_topic),
)
ROW = st.builds(
    row,
    SCOPE,
    st.sampled_from(["true", "false", "0", "9", "maybe"]),
    st.sampled_from([*Setting, "newer"]),
)


@given(
    st.lists(ROW, max_size=12, unique_by=lambda each: (each.key, each.scope)),
    st.sampled_from(list(Setting)),
    st.integers(1, 3),
    st.sampled_from([None, "a", "b", "ab", "ba"]),
)
def test_it_answers_as_the_rule_says(
    rows: list[SettingRow], setting: Setting, node_id: int, topic: str | None
) -> None:
    rows = [replace(each, offset=number) for number, each in enumerate(rows)]
    expected = winner(rows, setting, node_id, topic)
    assert Resolver(rows).row(setting, node_id, topic) == expected
    assert Resolver(reversed(rows)).row(setting, node_id, topic) == expected
