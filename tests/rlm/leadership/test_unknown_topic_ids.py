"""A topic is gone only if no live broker knows it."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import AsyncMock, Mock, patch

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlm.leadership.leadership import NoAnswer
from tests.rlm.leadership.test_broker_view import id_of, scripted


@pytest.mark.parametrize("knowing", [1, 3, 10, 99])
async def test_every_live_broker_is_asked_while_an_id_is_unknown_to_all(knowing: int) -> None:
    """Ten brokers, of which the one named has heard of the topic."""
    known, new = id_of("known"), id_of("new")
    asked: list[tuple[int, tuple[Uuid, ...]]] = []

    async def unknown_to(
        node_id: int, _host: str, _port: int, ids: Sequence[Uuid]
    ) -> frozenset[Uuid]:
        asked.append((node_id, tuple(ids)))
        return frozenset(ids) & (frozenset() if node_id == knowing else frozenset({new}))

    brokers = dict.fromkeys(range(1, 11), ("127.0.0.1", 1))
    async with scripted() as (_, view):
        with (
            patch.object(view, "ask", AsyncMock(return_value=Mock(brokers=brokers))),
            patch.object(view, "_unknown_to", unknown_to),
        ):
            answers = await view.unknown_topic_ids([known, new])
    assert not isinstance(answers, NoAnswer)
    gone = frozenset.intersection(*answers.values())
    assert gone == (frozenset({new}) if knowing == 99 else frozenset())
    assert [node_id for node_id, _ in asked] == list(range(1, max(2, min(knowing, 10)) + 1))
    assert all(ids == (new,) for node_id, ids in asked if node_id > 2)
