"""[LOSS-8] A different release is installed over the program of a running node, and its worker
dies: the new one has other fields in its messages. The node records nothing that it says.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.properties import parse_meta_properties
from strandline.demo.feed import DemoFeed
from tests.capture.captured import LOG_DIR
from tests.e2e.node_process import NodeProcess
from tests.e2e.tier_client import TierClient
from tests.real.older_program import PACKAGES, REPOSITORY
from tests.real.process_tree import descendants
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

WAIT_S = 60
FIELDS = ("    log_bytes: int\n", "    max_timestamp_ms: int\n")


def swap_fields(program: Path) -> None:
    """Two fields of a copy's result change places, as between two releases."""
    path = program / "rlm" / "data_plane" / "copy_job.py"
    before, after = "".join(FIELDS), "".join(reversed(FIELDS))
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def test_a_worker_of_a_release_installed_since_copies_nothing(tmp_path: Path) -> None:
    program, log_dir, tier = tmp_path / "program", tmp_path / "kafka", tmp_path / "tier"
    for name in PACKAGES:
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, program / name)
    tier.mkdir()
    feed = DemoFeed(LOG_DIR, log_dir, ("orders",))
    meta = log_dir / "meta.properties"
    cluster_id = parse_meta_properties(meta.read_bytes(), source=str(meta)).cluster_id
    node = NodeProcess(
        tmp_path / "node",
        {
            "topics": {"include": ["*"]},
            "stores.main": {"kind": "filesystem", "path": str(tier)},
            "http": {"anonymous_role": "admin"},
            "copier": {"interval_s": 0.3},
            "kafka": {"log_dirs": [str(log_dir)]},
        },
    )
    node.program = program
    node.format("--kafka-cluster-id", str(cluster_id), "--node-id", "1")

    def copied() -> list[dict[str, Any]]:
        rows = [row for each in feed.partitions for row in TierClient(node.url, *each).segments()]
        return [row for row in rows if row["state"] == "COPY_SEGMENT_FINISHED"]

    def play(steps: range) -> None:
        for step in steps:
            feed.play(step)

    feed.play(0)
    node.start()
    try:
        play(range(1, 3))
        before = 2 * len(feed.partitions)
        node.wait_until(lambda: len(copied()) == before, "copies", deadline_s=WAIT_S)
        swap_fields(program)
        for pid in descendants(node.pid):
            os.kill(pid, signal.SIGKILL)
        play(range(3, feed.steps))

        def is_told() -> bool:
            said = " ".join(invoke("status", "--url", node.url).stdout.split())
            return "was installed since: restart the node" in said

        node.wait_until(is_told, "the problem", deadline_s=WAIT_S)
        assert len(copied()) == before
        node.stop()
        node.start()
        node.wait_until(
            lambda: len(copied()) == feed.sealed_segments, "the rest", deadline_s=WAIT_S
        )
        assert min(row["max_timestamp_ms"] for row in copied()) > 10**12
    finally:
        if node.running:
            node.kill()
