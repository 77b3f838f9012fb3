"""`strandline trash restore` asked of a node of an older release, which restores in two steps."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, cast

import pytest

from strandline.cli.asking import Answer
from strandline.cli.client import NodeClient
from strandline.cli.trash_commands import trash_restore_command


class OlderNode:
    """Its undo removes the marks of a deletion alone, and tells of nothing else."""

    def __init__(self) -> None:
        self.state = "deleted"
        self.changed: list[str] = []

    def pages(self, path: str, items: str, **_: object) -> Iterator[dict[str, Any]]:
        assert (path, items) == ("/v1/trash", "partitions")
        yield {"topic_id": "an id", "partition": 0, "state": self.state, "marks": [{"why": "age"}]}

    def change(self, method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
        assert method == "POST"
        self.changed.append(path)
        if path.endswith("undo"):
            self.state = "expired"
            return {"topic": "orders", "changed": 1, "goes_from_ms": None}
        return {
            "topic": "orders", "partition": 0, "log_start_offset": 0, "segments": 3,
            "size_bytes": 30, "hold": False,
        }  # fmt: skip


def test_the_topic_comes_back_and_then_what_retention_had_hidden(
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = OlderNode()
    restore = inspect.unwrap(trash_restore_command)
    answer = cast(Answer, restore(cast(NodeClient, node), "orders", "a mistake"))
    answer.show()
    assert node.changed == [
        "/v1/topics/orders/tiered-data/undo",
        "/v1/topics/orders/partitions/0/trash/restore",
    ]
    said = capsys.readouterr().out
    assert "1 partitions of orders are no longer marked for deletion" in said
    assert "orders-0 is readable from 0 on again" in said
