"""The audit over HTTP: newest first, in pages, filtered."""

from __future__ import annotations

from typing import Any

import pytest

from api.http.tokens import Role
from tests.api.fake_audit import SEGMENT
from tests.api.fakes import make_node


async def times(**params: str | int) -> list[int]:
    """Lines of all pages of two lines each."""
    found: list[int] = []
    async with make_node(anonymous_role=Role.READ).client() as client:
        while True:
            answer = await client.get("/v1/audit", params={"limit": 2, **params})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            found += [line["at_ms"] for line in page["lines"]]
            if page["next_cursor"] is None:
                return found
            params["cursor"] = page["next_cursor"]


async def test_lines_come_newest_first_over_pages() -> None:
    assert await times() == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"topic": "orders"}, [3, 2]),
        ({"partition": 0}, [4]),
        ({"action": "objects_deleted"}, [4, 3]),
        ({"segment": str(SEGMENT), "action": "segment_marked"}, [2]),
        ({"topic": "nobody's"}, []),
    ],
)
async def test_filters_combine(filters: dict[str, Any], expected: list[int]) -> None:
    assert await times(**filters) == expected


async def test_what_a_line_does_not_have_is_null() -> None:
    async with make_node().client() as client:
        line = (await client.get("/v1/audit", params={"action": "collection"})).json()["lines"][0]
    assert line == {
        "at_ms": 1, "action": "collection", "topic": None, "topic_id": None, "partition": None,
        "segment_id": None, "start_offset": None, "end_offset": None, "size_bytes": 7,
        "why": "3 orphans", "by": "boss",
    }  # fmt: skip


@pytest.mark.parametrize(
    "params", [{"segment": "x"}, {"action": "all"}, {"cursor": "x"}, {"partition": -1}]
)
async def test_a_wrong_filter_is_named(params: dict[str, str]) -> None:
    async with make_node().client() as client:
        answer = await client.get("/v1/audit", params=params)
    assert answer.status_code == 400
    assert answer.json()["field"] == next(iter(params))
