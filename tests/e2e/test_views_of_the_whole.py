"""Three real nodes in one view: one killed, one that hangs; the third names both in its time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.properties import parse_meta_properties
from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import COPIER_ID, NodeQuorum
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS, invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DEADLINE_S = 60.0
ALL = (1, 2, 3)
VIEWS = {"lag": "partitions", "sizes": "topics", "running": "running", "audit": "lines"}


def view(quorum: NodeQuorum, asked: int, name: str, **params: Any) -> dict[str, Any]:
    answer = PLAIN.get(f"{quorum.nodes[asked].url}/v1/cluster/{name}", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def reasons(of: dict[str, Any]) -> dict[int, str | None]:
    return {each["node"]: each["reason"] for each in of["nodes"]}


def pages(quorum: NodeQuorum, asked: int, name: str, limit: int) -> list[Any]:
    found: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = view(quorum, asked, name, limit=limit, **cursor)
        found += page[VIEWS[name]]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def sizes_agree(sizes: dict[str, Any]) -> bool:
    """True once those by topic were gathered after the last copy."""
    by_topic = sum(each["remote_bytes"] for each in sizes["topics"])
    return bool(sizes["tier"]["size_bytes"] == by_topic > 0)


def all_answer(quorum: NodeQuorum) -> None:
    """The same from any node, in pages of any size; with lines of the audit of each."""
    for node_id in ALL:
        url = quorum.nodes[node_id].url
        said = invoke("pause", "deleting", "--why", f"test {node_id}", "--url", url)
        assert said.exit_code == ExitCode.OK, said.stderr
    for asked in ALL:
        # A node whose registration failed, as amid an election, is registered seconds later.
        quorum.wait_until(
            lambda: reasons(view(quorum, asked, "lag")).keys() == set(ALL),  # noqa: B023
            f"node {asked} to know all",
            deadline_s=DEADLINE_S,
        )
        for name in (*VIEWS, "problems"):
            assert reasons(view(quorum, asked, name)) == dict.fromkeys(ALL), name
        lines = pages(quorum, asked, "audit", 2)
        assert lines == view(quorum, asked, "audit", limit=1_000)["lines"]
        paused = {line["node"]: line["why"] for line in lines if line["action"] == "paused"}
        assert paused == {each: f"deleting on this node: test {each}" for each in ALL}
        assert [line["at_ms"] for line in lines] == sorted(
            (line["at_ms"] for line in lines), reverse=True
        )
        quorum.wait_until(
            lambda: sizes_agree(view(quorum, asked, "sizes")),  # noqa: B023
            "a new survey",
            deadline_s=DEADLINE_S,
        )
        sizes = view(quorum, asked, "sizes")
        assert [each["node"] for each in sizes["local"] if each["local_bytes"]] == [COPIER_ID]
        assert pages(quorum, asked, "sizes", 1) == sizes["topics"]
        problems = view(quorum, asked, "problems")["problems"]
        assert {each["node"] for each in problems if each["about"] == "paused"} == set(ALL)
        for command in ("lag", "sizes", "running", "status --all-nodes", "audit --all-nodes"):
            said = invoke(*command.split(), "--json", "--url", quorum.nodes[asked].url)
            assert (said.exit_code, said.stderr) == (ExitCode.OK, ""), command


def one_is_killed_and_one_hangs(quorum: NodeQuorum) -> None:
    asked, killed, hung = COPIER_ID, 2, 3
    quorum.nodes[killed].kill()
    quorum.nodes[hung].suspend()
    for name in (*VIEWS, "problems"):
        told = view(quorum, asked, name)
        found = reasons(told)
        assert found[asked] is None
        # The leader may have found out that it is silent before it was suspended itself.
        assert found[killed] in ("unreachable", "fenced"), told["nodes"]
        assert found[hung] == "timeout", told["nodes"]
    said = invoke("lag", "--json", "--url", quorum.nodes[asked].url)
    assert said.exit_code == ExitCode.INCOMPLETE
    assert f"node {killed} is missing here" in said.stderr
    assert f"node {hung} is missing here, timeout: " in said.stderr
    assert json.loads(said.stdout)["total"]["partitions"] > 0
    metrics = PLAIN.get(f"{quorum.nodes[asked].url}/metrics").text
    assert 'strandline_http_nodes_asked_total{outcome="timeout"}' in metrics
    assert f"node {hung} is missing in views of the cluster: timeout" in quorum.nodes[asked].log
    quorum.nodes[hung].wake()
    quorum.nodes[killed].start()
    quorum.wait_until(
        lambda: reasons(view(quorum, asked, "lag")) == dict.fromkeys(ALL),
        "all to answer again",
        deadline_s=DEADLINE_S,
    )
    assert f"node {hung} takes part in views of the cluster again" in quorum.nodes[asked].log


def test_who_does_not_answer_is_named_by_who_does(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    shutil.copytree(CAPTURED, tmp_path / "kafka")
    meta = tmp_path / "kafka" / "meta.properties"
    kafka_cluster_id = parse_meta_properties(meta.read_bytes(), source=str(meta)).cluster_id
    sections: dict[str, dict[str, object]] = {
        "http": {"anonymous_role": "admin", "view_timeout_s": 4.0},
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(tmp_path / "store")},
    }
    with NodeQuorum(tmp_path, str(kafka_cluster_id), sections, tmp_path / "kafka") as quorum:
        quorum.wait_until(
            lambda: view(quorum, 2, "sizes")["tier"]["copy_segment_finished"] == CAPTURED_SEGMENTS,
            "every segment to be copied",
            deadline_s=DEADLINE_S,
        )
        all_answer(quorum)
        one_is_killed_and_one_hangs(quorum)
