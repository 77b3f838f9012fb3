"""`strandline retention delete-records` against a real node: said first, done with --yes, audited,
and the objects gone from the store.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.strandline.cli.test_claims_commands import asked, said, settings, status
from tests.strandline.command import invoke

COMMAND = ("retention", "delete-records", "orders", 0, "--why", "order 7 has to go")


def log_start(node: NodeProcess) -> int:
    found = status(node)["log_start_offset"]
    assert isinstance(found, int)
    return found


def stored(home: Path) -> list[int]:
    """The base offsets of the segments whose `.log` is in the store."""
    return sorted(int(path.name[:20]) for path in (home / "tier").rglob("*.log"))


def deletions(node: NodeProcess) -> list[dict[str, Any]]:
    found = httpx.get(f"{node.url}/v1/audit", params={"action": "records_deleted"}).json()["lines"]
    assert isinstance(found, list)
    return found


def test_records_below_an_offset_go_once_it_is_said_yes(tmp_path: Path) -> None:
    new_log_dir(tmp_path / "kafka")
    log = KafkaLog.create(tmp_path / "kafka", "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    node = NodeProcess(tmp_path, settings(tmp_path))
    with node:
        node.wait_until(lambda: status(node).get("next_offset") == 30, "copies", deadline_s=60)
        assert stored(tmp_path) == [0, 10, 20]

        dry = said(asked(node, *COMMAND, "--before", 15))
        assert "would move from 0 to 15: 1 whole segments are deleted" in dry
        assert (
            "the segment that contains 15 stays in the store until the log start passes 19" in dry
        )
        assert "Nothing was changed: say --yes to do it" in dry
        assert (log_start(node), deletions(node)) == (0, [])

        planned = json.loads(asked(node, *COMMAND, "--before", 15, "--json").stdout)
        done = json.loads(asked(node, *COMMAND, "--before", 15, "--yes", "--json").stdout)
        assert (planned["dry_run"], planned["changed"]) == (True, False)
        assert (done["dry_run"], done["changed"]) == (False, True)
        assert done == planned | {"dry_run": False, "changed": True}
        assert log_start(node) == 15, "nobody reads below, as soon as it is answered"
        assert [(each["end_offset"], each["why"]) for each in deletions(node)] == [
            (14, "order 7 has to go")
        ]
        node.wait_until(lambda: stored(tmp_path) == [10, 20], "the objects go", deadline_s=60)

        again = said(asked(node, *COMMAND, "--before", 15, "--yes"))
        assert "the tier's log start is 15: there is nothing below it to delete" in again
        beyond = asked(node, *COMMAND, "--before", 31, "--yes", expect=ExitCode.USAGE)
        assert "ends at offset 30" in said(beyond)
        assert log_start(node) == 15

        asked(node, *COMMAND, "--before", 20, "--yes")
        node.wait_until(lambda: stored(tmp_path) == [20], "the rest goes", deadline_s=60)
    unasked = invoke(*COMMAND, "--before", 25, "--yes", env={"STRANDLINE_URL": node.url})
    assert unasked.exit_code != ExitCode.OK
