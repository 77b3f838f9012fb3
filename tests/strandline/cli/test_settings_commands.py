"""`strandline settings`, `topics enable`, and the scopes of pauses and limits, at a real node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import Result

from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import invoke


def ask(node: NodeProcess, *arguments: object) -> Result:
    return invoke(*arguments, env={"STRANDLINE_URL": node.url})


def text(node: NodeProcess, *arguments: object) -> str:
    done = ask(node, *arguments)
    assert done.exit_code == ExitCode.OK, done.stderr
    return " ".join(done.stdout.split())


def answer(node: NodeProcess, *arguments: object) -> Any:
    done = ask(node, *arguments, "--json")
    assert done.exit_code == ExitCode.OK, done.stderr
    return json.loads(done.stdout)


def paused(node: NodeProcess) -> set[str]:
    problems = answer(node, "status")["cluster"]["problems"]
    return {each["name"] for each in problems if each["about"] == "paused"}


def test_topics_are_chosen_and_the_choice_is_taken_back(changed_node: NodeProcess) -> None:
    tried = text(changed_node, "topics", "disable", "event*", "--dry-run")
    assert "events 1 ends 2" in tried
    assert tried.endswith("nothing was changed")
    assert answer(changed_node, "settings", "list")["settings"] == []
    made = text(changed_node, "topics", "disable", "event*", "--why", "a look first")
    assert made.endswith("event*: not tiered from now on, on all nodes")
    assert " events no 2 " in f" {text(changed_node, 'topics', 'list')} "
    assert "was disabled for topic event*" in text(changed_node, "topics", "show", "events")
    listed = text(changed_node, "settings", "list")
    assert "topics.tiered topic event* false anonymous" in listed
    assert listed.endswith("a look first")
    shown = text(changed_node, "settings", "show", "--topic", "events")
    assert "topics.tiered no set for topic event* by anonymous" in shown
    wins = text(changed_node, "topics", "enable", "events")
    assert "events 1 begins 2" in wins
    for name in ("event*", "events"):
        text(changed_node, "settings", "remove", "topics.tiered", "--topic", name)
    assert answer(changed_node, "settings", "list")["settings"] == []


def test_a_mistyped_topic_or_setting_is_refused(changed_node: NodeProcess) -> None:
    done = ask(changed_node, "topics", "enable", "evnets")
    assert done.exit_code == ExitCode.NOT_FOUND
    assert "Did you mean events?" in done.stderr
    for scope in ([], ["--cluster"]):
        slow = ask(changed_node, "limits", "set", "--read", "1MiB", "--topic", "evnets", *scope)
        assert slow.exit_code == ExitCode.NOT_FOUND
        assert "Did you mean events?" in slow.stderr
    assert answer(changed_node, "limits", "show")["topics"] == {}
    none = ask(changed_node, "settings", "remove", "copying.paused", "--cluster")
    assert none.exit_code == ExitCode.NOT_FOUND
    both = ask(changed_node, "pause", "copying", "--cluster", "--node", 1)
    assert both.exit_code == ExitCode.USAGE


def test_a_pause_of_the_cluster_leaves_the_switch_of_the_node(changed_node: NodeProcess) -> None:
    text(changed_node, "pause", "copying")
    said = text(changed_node, "pause", "copying", "--cluster", "--why", "the bucket moves")
    assert said == "copying of the cluster is paused"
    second = text(changed_node, "pause", "copying", "--cluster", "--why", "mine")
    assert "is paused already, set for the cluster by anonymous at " in second
    assert second.endswith(": the bucket moves")
    assert paused(changed_node) == {"copying", "copying (cluster settings)"}
    assert text(changed_node, "resume", "copying", "--node", 1).startswith(
        "copying of node 1 goes on still paused: set for the cluster by anonymous at "
    )
    text(changed_node, "resume", "copying")
    assert paused(changed_node) == set()
    done = text(changed_node, "resume", "copying", "--cluster")
    assert done.startswith("copying of the cluster goes on")


@pytest.mark.parametrize("end", ["resume", "pause"])
def test_an_exception_of_a_node_ends_with_the_pause_that_it_is_of(
    changed_node: NodeProcess, end: str
) -> None:
    text(changed_node, "pause", "deleting", "--cluster", "--why", "\x1b[31mred")
    shown = text(changed_node, "resume", "deleting", "--node", 1)
    assert shown.endswith(r"\x1b[31mred")
    told = text(changed_node, end, "deleting", "--cluster")
    assert "node 1 is no exception any more: set for node 1 by anonymous at " in told
    text(changed_node, "pause", "deleting", "--cluster", "--why", "emergency")
    assert paused(changed_node) == {"deleting (cluster settings)"}
    text(changed_node, "resume", "deleting", "--cluster")
    assert answer(changed_node, "settings", "list")["settings"] == []


def test_a_node_is_made_no_exception_where_the_cluster_is_not_paused(
    changed_node: NodeProcess,
) -> None:
    """Over HTTP the cluster was said to be running: a setting stands, and is no pause."""

    def set_for_cluster(value: bool) -> None:
        given = {"scope": {"kind": "cluster"}, "value": value}
        put = PLAIN.put(f"{changed_node.url}/v1/settings/deleting.paused", json=given)
        assert put.status_code == 200, put.text

    set_for_cluster(False)
    text(changed_node, "pause", "deleting", "--node", 1, "--why", "a disk")
    text(changed_node, "resume", "deleting", "--node", 1)
    set_for_cluster(True)
    assert paused(changed_node) == {"deleting (cluster settings)"}
    text(changed_node, "resume", "deleting", "--cluster")
    assert answer(changed_node, "settings", "list")["settings"] == []


def test_limits_of_the_log_win_over_those_of_the_node(changed_node: NodeProcess) -> None:
    text(changed_node, "limits", "set", "--copy", "50MiB", "--cluster", "--why", "office hours")
    assert "node 1 50MiB/s unlimited" in text(changed_node, "limits", "show")
    refused = ask(changed_node, "limits", "set", "--copy", "60MiB")
    assert refused.exit_code == ExitCode.CONFLICT
    assert "set for cluster in the settings of the cluster" in " ".join(refused.stderr.split())
    text(changed_node, "limits", "set", "--read", "30MiB")
    text(changed_node, "limits", "set", "--read", "20MiB", "--cluster", "--topic", "events")
    shown = text(changed_node, "limits", "show")
    assert "node 1 50MiB/s 30MiB/s topic events unlimited 20MiB/s" in shown
    values = json.loads(
        invoke(
            "config", "--config", changed_node.config, "--url", changed_node.url, "--json"
        ).stdout
    )
    wins = values["limits.copy_bytes_per_s"]
    assert (wins["value"], wins["below"]) == (50 * 2**20, {"value": 0, "origin": "default"})
    assert wins["origin"].startswith("set for the cluster by anonymous at ")
    assert wins["origin"].endswith(": office hours")
    assert values["limits.read_bytes_per_s events"]["value"] == f"{20 * 2**20}"
    given = values["limits.read_bytes_per_s"]
    assert (given["value"], given["below"]["value"]) == (30 * 2**20, 0)
    assert given["origin"] == "the running node, until it restarts"
    text(changed_node, "settings", "remove", "limits.copy_bytes_per_s", "--cluster")
    text(changed_node, "settings", "remove", "limits.read_bytes_per_s", "--topic", "events")
    assert "node 1 unlimited 30MiB/s" in text(changed_node, "limits", "show")
    text(changed_node, "limits", "set", "--read", "unlimited")


def test_the_settings_of_a_node_that_does_not_answer_are_its_own(
    changed_node: NodeProcess,
) -> None:
    elsewhere = "http://127.0.0.1:1"
    done = invoke("config", "--config", changed_node.config, "--url", elsewhere, "--json")
    assert done.exit_code == ExitCode.OK
    told = json.loads(done.stdout)["settings of the cluster"]
    assert told["value"] is None
    assert told["origin"].startswith(f"unknown: no answer from {elsewhere}")
