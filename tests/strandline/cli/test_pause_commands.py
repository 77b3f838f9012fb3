"""`strandline pause` and `resume` against a real node, through a restart of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import Result

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import invoke


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that finds nothing to copy."""
    home = tmp_path_factory.mktemp("idle")
    (home / "tier").mkdir()
    sections = {
        "stores.main": {"kind": "filesystem", "path": str(home / "tier")},
        "http": {"anonymous_role": "admin"},
    }
    node = NodeProcess(home, sections)
    node.format("--node-id", "1", "--kafka-cluster-id", "a-cluster")
    node.start()
    yield node
    node.kill()


def ask(node: NodeProcess, *arguments: object) -> Result:
    done = invoke(*arguments, env={"STRANDLINE_URL": node.url})
    assert done.exit_code == ExitCode.OK, done.stderr
    return done


def paused_in_status(node: NodeProcess) -> dict[str, Any]:
    cluster = json.loads(ask(node, "status", "--json").stdout)["cluster"]
    paused = (each for each in cluster["problems"] if each["about"] == "paused")
    return {each["name"]: each["text"] for each in paused}


def test_a_pause_of_the_node_is_shown_and_survives_a_restart(idle: NodeProcess) -> None:
    done = ask(idle, "pause", "deleting", "--why", "a wrong policy")
    assert done.stdout.startswith("deleting is paused on node 1 since ")
    assert done.stdout.endswith(", by anonymous: a wrong policy\n")
    idle.stop()
    idle.start()
    assert list(paused_in_status(idle)) == ["deleting"]
    status = ask(idle, "status").stdout
    assert "paused: deleting is paused on this node by anonymous (a wrong policy)" in status
    resumed = ask(idle, "resume", "deleting", "--why", "it is mended")
    assert resumed.stdout == "deleting goes on, on node 1\n"
    assert paused_in_status(idle) == {}
    told = json.loads(ask(idle, "audit", "--json").stdout)
    assert [(line["action"], line["by"], line["why"]) for line in told] == [
        ("resumed", "anonymous", "deleting on this node: it is mended"),
        ("paused", "anonymous", "deleting on this node: a wrong policy"),
    ]


def test_a_topic_is_paused_without_touching_the_rest_of_its_policy(idle: NodeProcess) -> None:
    ahead = ("--topic", "orders", "--ahead", "--why", "a move")
    said = ask(idle, "pause", "copying", *ahead).stdout
    lines = json.loads(ask(idle, "audit", "--lines", "3", "--json").stdout)
    assert any(line["why"].startswith("a move: orders: {") for line in lines)
    assert said == "copying of orders is paused, on all nodes\n"
    policy = json.loads(ask(idle, "pause", "deleting", "--topic", "orders", "--json").stdout)
    assert (policy["copy_paused"], policy["delete_paused"]) == (True, True)
    said = ask(idle, "resume", "copying", "--topic", "orders", "--ahead").stdout
    assert said == "copying of orders goes on, on all nodes\n"
    policy = json.loads(ask(idle, "resume", "copying", "--topic", "orders", "--json").stdout)
    assert (policy["copy_paused"], policy["delete_paused"]) == (False, True)


def test_what_can_not_be_paused_is_wrong_usage(idle: NodeProcess) -> None:
    done = invoke("pause", "reading", env={"STRANDLINE_URL": idle.url})
    assert done.exit_code == ExitCode.USAGE
    assert "copying" in done.stderr


def test_a_pause_is_waited_for_until_the_last_copy_has_ended(idle: NodeProcess) -> None:
    done = ask(idle, "pause", "copying", "--wait", "1m")
    assert done.stdout.endswith("; copies under way: 0\n")
    ask(idle, "resume", "copying")
    for arguments in (("deleting", "--wait", "1m"), ("copying", "--wait", "1m", "--topic", "a")):
        refused = invoke("pause", *arguments, env={"STRANDLINE_URL": idle.url})
        assert refused.exit_code == ExitCode.USAGE
        assert "--wait" in refused.stderr
