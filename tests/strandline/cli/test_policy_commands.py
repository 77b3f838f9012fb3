"""`strandline policy` against a real node: shown, changed in part, tried before it is set."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import invoke


def answer(node: NodeProcess, *arguments: object) -> Any:
    done = invoke(*arguments, "--json", env={"STRANDLINE_URL": node.url})
    assert done.exit_code == ExitCode.OK, done.stderr
    return json.loads(done.stdout)


def text(node: NodeProcess, *arguments: object) -> str:
    done = invoke(*arguments, env={"STRANDLINE_URL": node.url})
    assert done.exit_code == ExitCode.OK, done.stderr
    return " ".join(done.stdout.split())


def test_a_change_names_a_part_and_leaves_the_rest(changed_node: NodeProcess) -> None:
    shown = text(changed_node, "policy", "show", "payments")
    assert "retention time unlimited retention size unlimited" in shown
    assert "set never: the defaults apply" in shown
    answer(changed_node, "policy", "set", "payments", "--retention-time", "3650d")
    done = answer(changed_node, "policy", "set", "payments", "--deleting", "paused")
    policy = done["policy"]
    assert (policy["retention_ms"], policy["delete_paused"]) == (3650 * 86_400_000, True)
    assert (policy["retention_bytes"], policy["copy_paused"]) == (None, False)
    shown = text(changed_node, "policy", "show", "payments")
    assert "retention time 3650d" in shown
    assert "deleting paused" in shown


def test_a_dry_run_says_what_would_go_and_changes_nothing(changed_node: NodeProcess) -> None:
    before = answer(changed_node, "policy", "show", "orders")
    tried = ("policy", "set", "orders", "--retention-time", "1d", "--dry-run")
    effect = answer(changed_node, *tried)["next_pass"]
    assert effect["segments"] == 27
    assert effect["expiring_bytes"] == effect["tiered_bytes"] > 0
    said = text(changed_node, *tried)
    assert "nothing was changed; with this change, 27 segments are deleted, " in said
    text(changed_node, "pause", "deleting")
    assert ", but not now: deleting is paused on this node" in text(changed_node, *tried)
    text(changed_node, "resume", "deleting")
    assert answer(changed_node, "policy", "show", "orders") == before
    effect = answer(
        changed_node, "policy", "set", "orders", "--retention-size", "1TiB", "--dry-run"
    )
    assert effect["next_pass"]["segments"] == 0


def test_a_dry_run_says_that_delete_records_would_be_followed(changed_node: NodeProcess) -> None:
    follow = ("policy", "set", "orders", "--delete-records")
    goes, stays = (
        "from now on are also removed from the tier",
        "removes on the broker stay in the tier",
    )
    said = text(changed_node, *follow, "followed", "--dry-run")
    assert "DeleteRecords followed" in said
    assert "nothing was changed; with this change, no segment would be deleted now. Records" in said
    assert goes in said
    assert "DeleteRecords not followed" in text(changed_node, "policy", "show", "orders")
    assert stays not in text(changed_node, *follow, "ignored")
    assert goes in text(changed_node, *follow, "followed")
    assert stays in text(changed_node, *follow, "ignored")


def test_a_mistyped_topic_is_refused_with_the_nearest_one(changed_node: NodeProcess) -> None:
    env = {"STRANDLINE_URL": changed_node.url}
    for command in (
        ("policy", "set", "ordres", "--retention-time", "7d"),
        ("policy", "show", "ordres"),
        ("pause", "deleting", "--topic", "ordres"),
    ):
        done = invoke(*command, env=env)
        assert done.exit_code == ExitCode.NOT_FOUND
        assert "Did you mean orders?" in done.stderr
        assert ("add --ahead" in done.stderr) == (command[1] != "show")
    ahead = answer(changed_node, "policy", "set", "later", "--retention-time", "7d", "--ahead")
    assert ahead["policy"]["retention_ms"] == 604_800_000
    assert answer(changed_node, "policy", "show", "later")["retention_ms"] == 604_800_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no part of the policy is given"),
        (("--retention-time", "-1"), "or `unlimited`"),
        (("--retention-time", "7"), "write 7d, 36h"),
        (("--retention-size", "100GB"), "write 100GiB"),
        (("--deleting", "never"), "running"),
    ],
)
def test_what_is_wrong_is_refused_with_how_to_say_it(
    changed_node: NodeProcess, options: tuple[str, ...], said: str
) -> None:
    before = answer(changed_node, "policy", "show", "orders")
    done = invoke("policy", "set", "orders", *options, env={"STRANDLINE_URL": changed_node.url})
    assert done.exit_code == ExitCode.USAGE
    assert said in done.stderr
    assert answer(changed_node, "policy", "show", "orders") == before
