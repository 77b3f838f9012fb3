"""A real node's log as JSON, and `strandline log`, which the node and its workers follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess, Sections
from tests.strandline.command import invoke
from tests.strandline.conftest import sections


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    parts: Sections = {
        **sections(tmp_path / "tier"),
        "topics": {"include": ["codecs"]},
        "http": {"anonymous_role": "operate"},
        "log": {"format": "json"},
        "log.levels": {"workers": "debug", "tier": "error"},
    }
    with NodeProcess(tmp_path / "node", parts) as process:
        yield process


def lines(node: NodeProcess, area: str) -> list[dict[str, Any]]:
    """Every line of the log is JSON, but for one that is being written."""
    whole = node.log.rpartition("\n")[0]
    return [each for each in map(json.loads, whole.splitlines()) if each["area"] == area]


def log(node: NodeProcess, *arguments: str, code: ExitCode = ExitCode.OK) -> str:
    done = invoke("log", *arguments, env={"STRANDLINE_URL": node.url})
    assert done.exit_code == code, done.stderr
    return done.stdout if code is ExitCode.OK else done.stderr


def test_a_log_is_read_by_machines_and_made_louder_while_the_node_runs(node: NodeProcess) -> None:
    (up,) = lines(node, "workers")
    assert (up["level"], up["node_id"], up["pid"]) == ("debug", 1, node.pid)
    assert lines(node, "tier") == lines(node, "stores") == []

    shown = log(node, "set", "stores", "debug")
    assert "until the node restarts" in shown
    assert json.loads(log(node, "show", "--json"))["levels"]["stores"] == "debug"
    records = f"{node.url}/v1/topics/codecs/partitions/0/records?offset=0&max_bytes=1"
    node.wait_until(lambda: httpx.get(records).status_code == 200, "a copy", deadline_s=60)
    node.wait_until(
        lambda: {each["pid"] == node.pid for each in lines(node, "stores")} == {True, False},
        "calls of the node and of its worker",
        deadline_s=60,
    )
    assert {each["node_id"] for each in lines(node, "stores")} == {1}

    log(node, "set", "http", "debug")
    httpx.get(f"{node.url}/v1/cluster?secret=planted")

    def requests() -> list[str]:
        return [each["message"] for each in lines(node, "http") if "/v1/cluster" in each["message"]]

    node.wait_until(lambda: bool(requests()), "the line behind the answer", deadline_s=60)
    assert "'/v1/cluster'): 400 in" in requests()[0]
    assert "planted" not in node.log
    log(node, "set", "http", "error")
    httpx.get(f"{node.url}/v1/quorum")
    assert not [each for each in lines(node, "http") if "/v1/quorum" in each["message"]]

    assert "quorum" in log(node, "set", "botocore", "debug", code=ExitCode.USAGE)
    assert "warning" in log(node, "set", "stores", "trace", code=ExitCode.USAGE)
