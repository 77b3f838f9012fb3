"""Nothing is tiered that nobody asked for."""

from __future__ import annotations

import pytest

from rlm.leadership.topic_filter import TopicFilter


def test_without_an_include_nothing_is_tiered() -> None:
    why = TopicFilter().why_left_out("orders")
    assert why == "no pattern in topics.include names orders, nor does a setting of the cluster"


@pytest.mark.parametrize("topic", ["orders", "logs.web"])
def test_names_and_patterns_include(topic: str) -> None:
    assert TopicFilter(("orders", "logs.*")).why_left_out(topic) is None


def test_patterns_are_case_sensitive_and_match_whole_names() -> None:
    assert TopicFilter(("orders",)).why_left_out("Orders") is not None
    assert TopicFilter(("orders",)).why_left_out("orders2") is not None


def test_exclude_wins_over_include() -> None:
    text = TopicFilter(("*",), ("audit*",)).why_left_out("audit-log")
    assert text is not None
    assert "audit*" in text


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__remote_log_metadata"])
def test_internal_topics_never_are(topic: str) -> None:
    text = TopicFilter(("*", topic)).why_left_out(topic)
    assert text is not None
    assert "internal" in text
