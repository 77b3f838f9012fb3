"""DeleteRecords on a stock broker takes the records from the tier, and retention does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.node_process import NodeProcess
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import NewRecord, produce
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

TOPIC = "letters"
DEADLINE_S = 60
CONFIG = {
    "internal.segment.bytes": "16384",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "file.delete.delay.ms": "1000",
}


def settings(tmp_path: Path, broker: KafkaBroker) -> dict[str, dict[str, object]]:
    return {
        "kafka": {"log_dirs": [str(broker.log_dir)], "broker": broker.bootstrap},
        "topics": {"include": [TOPIC]},
        "http": {"anonymous_role": "admin"},
        "stores.main": {"kind": "filesystem", "path": str(tmp_path / "tier")},
        "copier": {"interval_s": 0.3, "upload_deadline_s": 5, "upload_margin_s": 0.5},
        "retention": {"interval_s": 0.5, "delete_delay_s": 0.5, "max_percent": 100},
    }


def status(node: NodeProcess) -> dict[str, Any]:
    found = httpx.get(f"{node.url}/v1/topics/{TOPIC}/partitions/0").json()
    assert isinstance(found, dict)
    return found


def active_base(broker: KafkaBroker) -> int:
    return int(broker.segment_files(TOPIC, 0)[-1].stem)


def stored(home: Path) -> list[int]:
    """The base offsets of the segments whose `.log` is in the store."""
    return sorted(int(path.name[:20]) for path in (home / "tier").rglob("*.log"))


def test_the_tier_follows_delete_records_and_keeps_what_retention_drops(tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    with KafkaBroker(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, config=CONFIG)
        for _ in range(15):
            produce(broker.bootstrap, TOPIC, 0, [NewRecord(bytes(1000))] * 10)
        with NodeProcess(tmp_path / "node", settings(tmp_path, broker)) as node:
            node.wait_until(
                lambda: status(node).get("next_offset") == active_base(broker) > 0,
                "everything sealed to be copied",
                deadline_s=DEADLINE_S,
            )
            bases = stored(tmp_path)
            assert len(bases) > 4
            follow = ("policy", "set", TOPIC, "--delete-records", "followed")
            done = invoke(*follow, env={"STRANDLINE_URL": node.url})
            assert done.exit_code == 0, done.stderr
            node.wait_until(
                lambda: "is followed from 0 on" in node.log, "a look", deadline_s=DEADLINE_S
            )

            broker.delete_records(TOPIC, 0, bases[1] + 1)
            node.wait_until(
                lambda: status(node)["log_start_offset"] == bases[1] + 1,
                "log start to follow",
                deadline_s=DEADLINE_S,
            )
            node.wait_until(
                lambda: stored(tmp_path) == bases[1:], "the objects to go", deadline_s=DEADLINE_S
            )

            broker.alter_topic(TOPIC, {"retention.bytes": "1"})
            broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) == 1, "local retention")
            node.wait_until(
                lambda: status(node)["local_log_start_offset"] == active_base(broker),
                "the node to see that the local log is short",
                deadline_s=DEADLINE_S,
            )
            assert status(node)["log_start_offset"] == bases[1] + 1
            assert stored(tmp_path)[: len(bases) - 1] == bases[1:]
