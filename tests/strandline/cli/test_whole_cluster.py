"""Commands about the whole cluster: all pages, and a node without a part is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from strandline.cli.exit_codes import ExitCode
from tests.strandline.command import invoke

CLIENT = httpx.Client
Pages = dict[str | None, dict[str, Any]]


def node(id_: int, reason: str | None = None) -> dict[str, Any]:
    return {
        "node": id_, "answered": reason is None, "reason": reason,
        "text": reason and f"because of {reason}", "as_of_ms": None, "metadata_offset": None,
    }  # fmt: skip


def line(node_id: int, at_ms: int, why: str = "old") -> dict[str, Any]:
    return {
        "node": node_id, "at_ms": at_ms, "action": "paused", "topic": None, "partition": None,
        "segment_id": None, "start_offset": None, "end_offset": None, "size_bytes": None,
        "why": why, "by": "me", "cursor": "c",
    }  # fmt: skip


def audit(nodes: list[Any], lines: list[Any], cursor: str | None) -> dict[str, Any]:
    return {"nodes": nodes, "lines": lines, "unreadable": 0, "next_cursor": cursor}


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Pages]], None]:
    """By path, the page for each cursor."""

    def answer(paths: dict[str, Pages]) -> None:
        def respond(request: httpx.Request) -> httpx.Response:
            return httpx.Response(
                200, json=paths[request.url.path][request.url.params.get("cursor")]
            )

        def http(**given: Any) -> httpx.Client:
            return CLIENT(**given | {"mounts": None, "transport": httpx.MockTransport(respond)})

        monkeypatch.setattr(httpx, "Client", http)

    return answer


PAGES: Pages = {
    None: audit([node(1), node(2, "timeout")], [line(1, 9)], "x"),
    "x": audit([node(1), node(2)], [line(2, 8), line(1, 7)], "y"),
    "y": audit([node(2)], [line(2, 6)], None),
}


def test_all_pages_are_read_and_a_node_that_missed_one_is_named(
    answering: Callable[[dict[str, Pages]], None],
) -> None:
    answering({"/v1/cluster/audit": PAGES})
    said = invoke("audit", "--all-nodes", "--json")
    document = json.loads(said.stdout)
    assert [(each["node"], each["at_ms"]) for each in document["lines"]] == [
        (1, 9), (2, 8), (1, 7), (2, 6),
    ]  # fmt: skip
    assert [(each["node"], each["reason"]) for each in document["nodes"]] == [
        (1, None), (2, "timeout"),
    ]  # fmt: skip
    assert said.exit_code == ExitCode.INCOMPLETE
    assert said.stderr == "warning: node 2 is missing here, timeout: because of timeout\n"
    few = json.loads(invoke("audit", "--all-nodes", "--json", "--lines", 2).stdout)
    assert (len(few["lines"]), few["next_cursor"]) == (2, "y")


def test_the_cursor_goes_on_behind_the_last_line_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        begin = int(request.url.params.get("cursor", 0))
        end = min(begin + int(request.url.params["limit"]), 2_500)
        lines = [line(1, at_ms) for at_ms in range(begin, end)]
        return httpx.Response(200, json=audit([node(1)], lines, str(end)))

    transport = httpx.MockTransport(respond)
    monkeypatch.setattr(
        httpx, "Client", lambda **given: CLIENT(**given | {"mounts": None, "transport": transport})
    )
    page = json.loads(invoke("audit", "--all-nodes", "--json", "--lines", 1_500).stdout)
    assert (len(page["lines"]), page["next_cursor"]) == (1_500, "1500")


def test_where_all_answer_nothing_is_said_of_it(
    answering: Callable[[dict[str, Pages]], None],
) -> None:
    answering({"/v1/cluster/audit": {None: audit([node(1), node(2)], [line(2, 8)], None)}})
    said = invoke("audit", "--all-nodes")
    assert (said.exit_code, said.stderr) == (ExitCode.OK, "")
    assert said.stdout.split()[:3] == ["node", "time", "action"]
    assert said.stdout.splitlines()[1].split()[:2] == ["2", "1970-01-01"]


def test_a_problem_that_several_nodes_have_is_one_line(
    answering: Callable[[dict[str, Pages]], None],
) -> None:
    def problem(node_id: int, text: str) -> dict[str, Any]:
        return {"node": node_id, "about": "store", "name": "main", "text": text}

    at = {"node": 2, "path": "/kafka", "topic": None, "partition": None, "kind": "x", "text": "?"}
    view = {
        "nodes": [node(1), node(2), node(3, "fenced")],
        "problems": [problem(1, "it hangs"), problem(2, "it hangs"), problem(2, "else")],
        "log_dir_problem_count": 1, "log_dir_problems": [at],
    }  # fmt: skip
    totals = dict.fromkeys(
        ("partitions", "size_bytes", "copy_segment_started", "copy_segment_finished",
         "delete_segment_started"), 0,
    )  # fmt: skip
    names = ("node_id", "version", "cluster_id", "kafka_cluster_id")
    cluster = dict.fromkeys(names, 1) | {"totals": totals, "problems": [], "log_dir_problems": []}
    quorum = {"leader_id": 1, "leader_epoch": 1, "applied_offset": 1}
    answering({
        "/v1/cluster": {None: cluster}, "/v1/quorum": {None: quorum},
        "/v1/cluster/problems": {None: view},
    })  # fmt: skip
    said = invoke("status", "--all-nodes")
    assert said.exit_code == ExitCode.INCOMPLETE
    assert said.stdout.splitlines()[-3:] == [
        "nodes 1, 2: problem with store main: it hangs",
        "node 2: problem with store main: else",
        "node 2: problem at /kafka: ?",
    ]
    assert said.stderr == "warning: node 3 is missing here, fenced: because of fenced\n"
    assert json.loads(invoke("status", "--all-nodes", "--json").stdout)["all_nodes"] == view
    plain = invoke("status")
    assert (plain.exit_code, plain.stderr) == (ExitCode.OK, "")
