"""The audit over HTTP: newest first, in pages, filtered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.http.tokens import Role
from api.http.vouched_requests import VouchedRequests
from rlm.control.audit import AuditAction, AuditLine
from rlmm.quorum.envelopes import Envelope
from rlmm.quorum.network_ports import PeerFailedError
from tests.api.fake_audit import SEGMENT, FakeAudit
from tests.api.fake_cluster import FakeCluster
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


async def test_the_cursor_of_a_page_is_the_same_page_whatever_was_written_since() -> None:
    node = make_node()
    async with node.client() as client:
        first = (await client.get("/v1/audit")).json()
        node.context.audit.note(some_audit(1, [99]).lines[0])
        again = (await client.get("/v1/audit", params={"cursor": first["cursor"]})).json()
    assert again == first


async def test_the_cursor_of_a_line_leads_to_the_lines_older_than_it() -> None:
    async with make_node().client() as client:
        lines = (await client.get("/v1/audit")).json()["lines"]
        for number, line in enumerate(lines, 1):
            answer = await client.get("/v1/audit", params={"cursor": line["cursor"]})
            assert answer.json()["lines"] == lines[number:]


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
    assert line.pop("cursor")
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


def some_audit(node_id: int, times: list[int]) -> FakeAudit:
    """Lines at these times, oldest first."""
    action = AuditAction.PAUSED
    return FakeAudit(
        [
            AuditLine(at_ms, action, None, None, -1, -1, -1, f"line {number}", f"node {node_id}")
            for number, at_ms in enumerate(times)
        ]
    )


def cluster_with_audits() -> FakeCluster:
    cluster = FakeCluster()
    for node_id, times in ((1, [1, 4, 4, 9]), (2, [2, 4, 5]), (3, [])):
        node = cluster.nodes[node_id]
        node.context = replace(node.context, audit=some_audit(node_id, times))
        cluster.vouched[node_id] = VouchedRequests(node.app(), node.context.identity)
    return cluster


async def whole(cluster: FakeCluster, **params: Any) -> list[tuple[int, int, str]]:
    """Node, time and text of the lines of all pages."""
    found: list[tuple[int, int, str]] = []
    while True:
        page = await cluster.ask("/v1/cluster/audit", **params)
        found += [(line["node"], line["at_ms"], line["why"]) for line in page["lines"]]
        if page["next_cursor"] is None:
            return found
        params["cursor"] = page["next_cursor"]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_one_audit_over_all_nodes_by_time(limit: int) -> None:
    found = await whole(cluster_with_audits(), limit=limit)
    assert found == [
        (1, 9, "line 3"), (2, 5, "line 2"), (1, 4, "line 2"), (1, 4, "line 1"), (2, 4, "line 1"),
        (2, 2, "line 0"), (1, 1, "line 0"),
    ]  # fmt: skip


async def test_lines_that_are_written_meanwhile_do_not_move_the_pages() -> None:
    cluster = cluster_with_audits()
    page = await cluster.ask("/v1/cluster/audit", limit=1)
    assert [line["at_ms"] for line in page["lines"]] == [9]
    for node in cluster.nodes.values():
        node.context.audit.note(some_audit(9, [99]).lines[0])
    rest = await whole(cluster, limit=2, cursor=page["next_cursor"])
    # Also of the nodes of which no line was shown yet.
    assert [(node, at_ms) for node, at_ms, _ in rest] == [
        (2, 5), (1, 4), (1, 4), (2, 4), (2, 2), (1, 1),
    ]  # fmt: skip


async def test_a_node_that_was_silent_for_a_page_has_its_lines_on_the_next() -> None:
    cluster = cluster_with_audits()

    async def gone(_: Envelope) -> bytes:
        raise PeerFailedError("gone", sent=False)

    cluster.answers[2] = gone
    page = await cluster.ask("/v1/cluster/audit", limit=2)
    assert [each["node"] for each in page["nodes"] if not each["answered"]] == [2]
    assert [line["at_ms"] for line in page["lines"]] == [9, 4]
    del cluster.answers[2]
    rest = await whole(cluster, limit=2, cursor=page["next_cursor"])
    assert sorted(rest) == [
        (1, 1, "line 0"), (1, 4, "line 1"), (2, 2, "line 0"), (2, 4, "line 1"), (2, 5, "line 2"),
    ]  # fmt: skip


async def test_more_nodes_than_a_cursor_can_hold_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("api.routes.audit.CURSOR_CHARACTERS_MAX", 50)
    cluster = cluster_with_audits()
    answer = await cluster.answer("/v1/cluster/audit", limit=1)
    assert (answer.status_code, answer.json()["field"]) == (400, "limit")
    assert len((await cluster.ask("/v1/cluster/audit", limit=9))["lines"]) == 7


async def test_a_cursor_of_one_filter_is_none_of_another() -> None:
    cluster = cluster_with_audits()
    page = await cluster.ask("/v1/cluster/audit", limit=1, action="paused")
    wrong: list[dict[str, Any]] = [{"action": "resumed"}, {}]
    for params in wrong:
        answer = await cluster.answer("/v1/cluster/audit", cursor=page["next_cursor"], **params)
        assert (answer.status_code, answer.json()["field"]) == (400, "cursor")
