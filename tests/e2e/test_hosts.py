"""The hosts of the recipes leave no node behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.e2e.hosts import Hosts

WAIT_S = 30


def test_a_node_that_died_keeps_no_other_one_running(tmp_path: Path) -> None:
    dead, living = subprocess.Popen(["true"]), subprocess.Popen(["sleep", "600"])
    try:
        dead.wait(WAIT_S)
        with Hosts(tmp_path) as hosts:
            for number, node in ((1, dead), (2, living)):
                (hosts.folder(number) / "node.pid").write_text(f"{node.pid}\n")
        assert living.wait(WAIT_S) != 0
    finally:
        living.kill()
        living.wait()
