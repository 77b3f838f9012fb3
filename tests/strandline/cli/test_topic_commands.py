"""`strandline topics` against a real node: shown, marked only with `--yes`, taken back, gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import Result

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import invoke

WEEK_MS = 7 * 86_400_000


def ask(node: NodeProcess, *arguments: object) -> Result:
    return invoke(*arguments, env={"STRANDLINE_URL": node.url})


def answer(node: NodeProcess, *arguments: object) -> Any:
    done = ask(node, *arguments, "--json")
    assert done.exit_code == ExitCode.OK, done.stderr
    return json.loads(done.stdout)


def text(node: NodeProcess, *arguments: object) -> str:
    done = ask(node, *arguments)
    assert done.exit_code == ExitCode.OK, done.stderr
    return " ".join(done.stdout.split())


def test_a_deletion_is_tried_made_shown_and_taken_back(changed_node: NodeProcess) -> None:
    tried = text(changed_node, "topics", "delete", "events")
    assert "nothing was changed: --yes marks" in tried
    assert "events still exists in Kafka: this node's broker has 2 of its partitions." in tried
    assert "the topic is never tiered again" in tried
    assert answer(changed_node, "topics", "delete", "events")["dry_run"] is True
    states = [each["delete_state"] for each in answer(changed_node, "topics", "deletion", "events")]
    assert states == [None, None]

    made = answer(changed_node, "topics", "delete", "events", "--yes")
    assert made["change"]["changed"] == 2
    assert {each["grace_ms"] for each in made["partitions"]} == {WEEK_MS}
    shown = text(changed_node, "topics", "show", "events")
    assert "deletion 2 of 2 partitions are marked for deletion, from " in shown
    assert "already marked; no data is deleted before" in text(
        changed_node, "topics", "delete", "events", "--yes"
    )
    other = ask(changed_node, "topics", "delete", "events", "--yes", "--grace", "1h")
    assert other.exit_code == ExitCode.CONFLICT
    assert "undo that first" in other.stderr

    assert text(changed_node, "topics", "undo-delete", "events") == (
        "2 partitions of events are no longer marked for deletion"
    )
    again = text(changed_node, "topics", "undo-delete", "events")
    assert again == "no partition of events was marked for deletion: nothing was changed"
    shown = answer(changed_node, "topics", "show", "events")
    assert [each["delete_state"] for each in shown["tiered_partitions"]] == [None, None]
    lines = answer(changed_node, "audit", "--topic", "events", "--lines", 4)
    assert [line["action"] for line in lines] == ["delete_undone"] * 2 + ["partition_marked"] * 2


def test_what_is_deleted_without_a_grace_is_waited_for_until_it_is_gone(
    changed_node: NodeProcess, tmp_path: Path
) -> None:
    tier = changed_node.config.parent / "tier"
    assert list(tier.glob("codecs-*/**/*.log"))
    done = ask(changed_node, "topics", "delete", "codecs", "--yes", "--grace", "0s")
    assert done.exit_code == ExitCode.OK, done.stderr
    said = text(changed_node, "topics", "deletion", "codecs", "--wait", "60s")
    assert said == "codecs has no data in the tier any more"
    assert list(tier.glob("codecs-*/**/*.log")) == []
    gone = ask(changed_node, "topics", "deletion", "codecs")
    assert gone.exit_code == ExitCode.NOT_FOUND
    actions = {line["action"] for line in answer(changed_node, "audit", "--topic", "codecs")}
    assert {
        "partition_marked", "partition_delete_started", "segment_marked", "objects_deleted",
        "partition_delete_finished",
    } <= actions  # fmt: skip


def test_what_is_not_there_is_not_marked(changed_node: NodeProcess) -> None:
    missing = ask(changed_node, "topics", "delete", "ordres", "--yes")
    assert missing.exit_code == ExitCode.NOT_FOUND
    wrong = ("topics", "delete", "orders", "--yes", "--topic-id", "AAAAAAAAQACAAAAAAAAAAQ")
    assert ask(changed_node, *wrong).exit_code == ExitCode.NOT_FOUND
    endless = ask(changed_node, "topics", "delete", "orders", "--yes", "--grace", "unlimited")
    assert endless.exit_code == ExitCode.USAGE
    assert endless.stderr.rstrip().endswith("write 7d, 36h, 90m, 30s or 500ms")
    waited = ask(changed_node, "topics", "deletion", "orders", "--wait", "1ms")
    assert waited.exit_code == ExitCode.INCOMPLETE
    assert "no partition is marked for deletion" in waited.stdout
