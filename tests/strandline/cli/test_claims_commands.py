"""`strandline claims` and `strandline mode` against a real node: the way out for a lineage that is
wrong by far, and what is refused.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
from typer.testing import Result

from kafka_formats import offset_checkpoint
from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.strandline.command import invoke

DEADLINE_S = 60


def settings(home: Path) -> dict[str, dict[str, object]]:
    (home / "tier").mkdir()
    return {
        "kafka": {"log_dirs": [str(home / "kafka")]},
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(home / "tier")},
        "copier": {"interval_s": 0.5, "upload_margin_s": 0.1},
        "retention": {"interval_s": 0.5, "delete_delay_s": 0.1},
        "http": {"anonymous_role": "admin"},
    }


def asked(node: NodeProcess, *arguments: object, expect: ExitCode = ExitCode.OK) -> Result:
    done = invoke(*arguments, env={"STRANDLINE_URL": node.url})
    assert done.exit_code == expect, done.stdout + done.stderr
    return done


def answer(node: NodeProcess, *arguments: object) -> Any:
    return json.loads(asked(node, *arguments, "--json").stdout)


def said(done: Result) -> str:
    return " ".join((done.stdout + done.stderr).split())


def status(node: NodeProcess) -> dict[str, Any]:
    found = httpx.get(f"{node.url}/v1/topics/orders/partitions/0").json()
    assert isinstance(found, dict)
    return found


def written(home: Path, *, epoch: int, since: int) -> KafkaLog:
    """A replica whose segments are far apart, as a compaction left them: a few records of epoch 0,
    the rest of `epoch`.
    """
    log = KafkaLog.create(home / "kafka", "orders", entries=((0, 0), (epoch, since)))
    for base in (0, since, 200_000, 300_000):
        log.write(base, end=base + 5, epoch=epoch if base else 0)
    cleaned = offset_checkpoint.encode({("orders", 0): 300_000})
    (home / "kafka" / offset_checkpoint.CLEANER_FILE).write_bytes(cleaned)
    return log


def copied_to(node: NodeProcess) -> tuple[object, ...]:
    now = status(node)
    return now["leader_epoch"], now["highest_copied_epoch"], now.get("next_offset")


def test_a_lineage_that_is_wrong_by_far_has_a_way_out(tmp_path: Path) -> None:
    new_log_dir(tmp_path / "kafka")
    lost = written(tmp_path, epoch=1, since=199_990)
    node = NodeProcess(tmp_path, settings(tmp_path))
    with node:
        node.wait_until(lambda: status(node).get("next_offset") == 300_000, "copies", deadline_s=60)
        refused = asked(node, "claims", "reset", "orders", 0, "--yes", expect=ExitCode.CONFLICT)
        assert "there is nothing to reset" in said(refused)
        node.stop()

        # The other replica was elected uncleanly: it went on from 150,000 in epoch 2.
        shutil.rmtree(lost.directory)
        written(tmp_path, epoch=2, since=150_000)
        node.start()
        node.wait_until(
            lambda: status(node)["why_not_copying"] == "claim_refused",
            "the claim to be refused",
            deadline_s=DEADLINE_S,
        )
        reset = ("claims", "reset", "orders", 0)
        assert "retention would delete" in said(asked(node, *reset))
        confirmed = (*reset, "--yes", "--cut-at", 150_000, "--offsets", 150_000)
        asked(node, *confirmed, expect=ExitCode.CONFLICT)
        asked(node, "pause", "deleting", "--topic", "orders")
        assert "strandline claims reset orders 0 --yes --cut-at 150000 --offsets 150000" in said(
            asked(node, *reset)
        )
        wrong = (*reset, "--yes", "--cut-at", 150_000, "--offsets", 100)
        assert "read the claim again" in said(asked(node, *wrong, expect=ExitCode.CONFLICT))
        asked(node, *confirmed)
        node.wait_until(
            lambda: copied_to(node) == (2, 2, 300_000),
            "the right replica to be copied",
            deadline_s=DEADLINE_S,
        )
        claim = answer(node, "claims", "show", "orders", 0)
        assert [each["epoch"] for each in claim["lineage"]] == [0, 2]
        assert (claim["claim_stands"], claim["reset_stands"]) == (True, False)
        actions = [line["action"] for line in answer(node, "audit", "--topic", "orders")]
        assert actions.count("claim_reset") == 1
        for offset, epoch in ((3, 0), (150_003, 2), (200_001, 2)):
            found = httpx.get(
                f"{node.url}/v1/topics/orders/partitions/0/segments/lookup",
                params={"epoch": epoch, "offset": offset},
            )
            assert found.status_code == 200, found.text
        # What was cut off lies there until somebody says that it may go.
        assert len(list((tmp_path / "tier").rglob("*.log"))) == 5
        asked(node, "resume", "deleting", "--topic", "orders")
        accept = ("retention", "accept", "orders", 0, "--accept-percent", 100)
        plan = said(asked(node, "retention", "plan", "orders", 0))
        assert f"if all of it is to go: `strandline {' '.join(map(str, accept))}`" in plan
        asked(node, *accept)
        node.wait_until(
            lambda: len(list((tmp_path / "tier").rglob("*.log"))) == 3,
            "retention to take what serves nothing",
            deadline_s=DEADLINE_S,
        )


def test_a_mode_is_tried_set_and_taken_back(tmp_path: Path) -> None:
    new_log_dir(tmp_path / "kafka")
    written(tmp_path, epoch=1, since=199_990)
    with NodeProcess(tmp_path, settings(tmp_path)) as node:
        node.wait_until(lambda: status(node).get("next_offset") == 300_000, "copies", deadline_s=60)
        set_it = ("mode", "set", "orders", 0, "read_only")
        assert "nothing was changed: --yes does it" in said(asked(node, *set_it))
        assert status(node)["mode"] == "sidecar"
        assert answer(node, *set_it, "--yes")["changed"]
        assert (status(node)["mode"], status(node)["claim_token"]) == ("read_only", None)
        tried = answer(node, "mode", "set", "orders", 0, "sidecar")
        assert tried["next_claim"]["verdict"] == "accepted"
        asked(node, "mode", "set", "orders", 0, "sidecar", "--yes")
        node.wait_until(
            lambda: status(node)["claim_token"] is not None, "a claim", deadline_s=DEADLINE_S
        )
        asked(node, "mode", "set", "nowhere", 0, "paused", expect=ExitCode.NOT_FOUND)
