"""`strandline partitions skip` and `allow-gaps` against a real node with a damaged segment."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import Result

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.strandline.cli.test_claims_commands import DEADLINE_S, settings
from tests.strandline.command import invoke


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    """Two partitions, each with its segment at 10 removed."""
    log_dir = new_log_dir(tmp_path / "kafka")
    for number in (1, 0):
        log = KafkaLog.create(log_dir, "orders", number, entries=((0, 0),))
        log.write(0, 10, 20, end=25)
        log.delete_segment(10)
    return log


def asked(node: NodeProcess, *arguments: object, expect: ExitCode = ExitCode.OK) -> Result:
    done = invoke("partitions", *arguments, env={"STRANDLINE_URL": node.url})
    assert done.exit_code == expect, done.stdout + done.stderr
    return done


def status(node: NodeProcess, partition: int) -> dict[str, Any]:
    found = httpx.get(f"{node.url}/v1/topics/orders/partitions/{partition}").json()
    assert isinstance(found, dict)
    return found


def is_blocked(node: NodeProcess, partition: int) -> bool:
    return status(node, partition).get("blocked") is not None


def test_a_damaged_segment_is_told_skipped_and_passed(tmp_path: Path, log: KafkaLog) -> None:
    with NodeProcess(tmp_path, settings(tmp_path)) as node:
        for partition in (0, 1):
            node.wait_until(
                partial(is_blocked, node, partition), "the damage is told", deadline_s=DEADLINE_S
            )
        assert "no good batch of offsets 10 to 19" in status(node, 0)["blocked"]
        assert "orders" in asked(node).stdout
        assert len(json.loads(asked(node, "orders", "--json").stdout)) == 2
        assert json.loads(asked(node, "list", "--json").stdout)

        reason = ("orders", 0, "--reason", "the disk died")
        dry = asked(node, "skip", *reason).stdout
        assert "add --offsets 10-19 --yes" in dry
        assert "no good batch of offsets 10 to 19: no broker is configured" in dry
        assert status(node, 0)["lost_ranges"] == []
        asked(node, "skip", *reason, "--yes", expect=ExitCode.USAGE)
        named = (*reason, "--offsets", "10-19", "--yes")
        asked(node, "skip", *reason, "--offsets", "10-18", "--yes", expect=ExitCode.CONFLICT)
        asked(node, "skip", *named)
        node.wait_until(
            lambda: status(node, 0)["highest_copied_offset"] == 9, "copies", deadline_s=DEADLINE_S
        )
        node.wait_until(
            lambda: not is_blocked(node, 0), "nothing stands in the way", deadline_s=DEADLINE_S
        )
        (lost,) = status(node, 0)["lost_ranges"]
        assert lost["why"].endswith(": the disk died")
        asked(node, "skip", *named, expect=ExitCode.CONFLICT)

        mirror = ("orders", 1, "--reason", "a mirror", "--yes")
        assert "a mirror" in asked(node, "allow-gaps", *mirror).stdout
        node.wait_until(
            lambda: status(node, 1)["highest_copied_offset"] == 19, "copies", deadline_s=DEADLINE_S
        )
        assert status(node, 1)["lost_ranges"] == []
