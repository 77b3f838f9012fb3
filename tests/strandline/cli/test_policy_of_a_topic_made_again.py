"""A topic's switches apply to all topics of its name; its retention is for one topic id."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, cast

import pytest

from strandline.cli.client import NodeClient
from strandline.cli.policy_commands import SwitchChoice, policy_set_command

WEEK_MS = 604_800_000


class Node:
    """The topic was made again; the retention that stands is the first one's."""

    def __init__(self) -> None:
        self.changed: list[dict[str, Any]] = []

    def get(self, path: str, *, topic_id: str | None = None) -> dict[str, Any]:
        assert path == "/v1/topics/orders/policy"
        of = topic_id or "second"
        return {
            "topic": "orders", "topic_id": of, "set_for": "first", "offset": 7,
            "retention_ms": WEEK_MS if of == "first" else None, "retention_bytes": None,
            "copy_paused": False, "delete_paused": False, "follow_delete_records": False,
        }  # fmt: skip

    def pages(self, _path: str, _items: str, **_: object) -> Iterator[dict[str, Any]]:
        return iter(())

    def change(self, _method: str, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.changed.append(body)
        return self.get("/v1/topics/orders/policy", topic_id=body["topic_id"]) | body


@pytest.mark.parametrize("named", [None, "second"])
def test_a_pause_leaves_the_retention_of_the_topic_that_had_the_name(named: str | None) -> None:
    node = Node()
    pause = inspect.unwrap(policy_set_command)
    pause(cast(NodeClient, node), "orders", copying=SwitchChoice.PAUSED, topic_id=named)
    (body,) = node.changed
    assert (body["copy_paused"], body["retention_ms"], body["topic_id"]) == (True, WEEK_MS, "first")


def test_a_retention_is_of_the_newest_topic() -> None:
    node = Node()
    inspect.unwrap(policy_set_command)(cast(NodeClient, node), "orders", retention_time="1d")
    (body,) = node.changed
    assert (body["retention_ms"], body["topic_id"]) == (86_400_000, "second")
