"""A second store is added, and one is moved: what was copied stays readable, wherever it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import CAPTURED, invoke

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

DEADLINE_S = 60


def sections(tiers: dict[str, Path], *topics: str) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {
        "kafka": {"log_dirs": [str(CAPTURED)]},
        "topics": {"include": list(topics)},
        "copier": {"interval_s": 0.5},
        "http": {"anonymous_role": "admin"},
    }
    for name, path in tiers.items():
        found[f"stores.{name}"] = {"kind": "filesystem", "path": str(path)}
    return found


def ask(node: NodeProcess, *arguments: object) -> Any:
    done = invoke(*arguments, "--json", env={"STRANDLINE_URL": node.url})
    assert done.exit_code == ExitCode.OK, done.stderr
    return json.loads(done.stdout)


def records(node: NodeProcess, topic: str) -> str:
    env = {"STRANDLINE_URL": node.url}
    done = invoke("records", topic, 0, "--max-bytes", 2**20, env=env)
    assert done.exit_code == ExitCode.OK, done.stderr
    return done.stdout


def wait_copied(node: NodeProcess, **expected: int) -> None:
    def copied() -> bool:
        found = {each["topic"]: each["remote_segments"] for each in ask(node, "topics", "list")}
        return all(found.get(topic) == segments for topic, segments in expected.items())

    node.wait_until(copied, f"copies of {expected}", deadline_s=DEADLINE_S)


def counted(node: NodeProcess) -> dict[str, int]:
    return {each["name"]: each["segments"] for each in ask(node, "stores", "list")}


def test_a_store_is_added_and_another_one_moved(tmp_path: Path) -> None:
    first, second, moved = (tmp_path / name for name in ("first", "second", "moved"))
    first.mkdir()
    second.mkdir()
    with NodeProcess(tmp_path / "node", sections({"main": first}, "codecs")) as node:
        wait_copied(node, codecs=3)
        old = records(node, "codecs")
        assert counted(node) == {"main": 3}
        node.stop()

    both = sections({"main": first, "second": second}, "codecs", "orders")
    node = NodeProcess(tmp_path / "node", both)
    node.write_config()
    node.config.write_text('default_store = "second"\n' + node.config.read_text())
    try:
        node.start()
        wait_copied(node, codecs=3, orders=27)
        assert counted(node) == {"main": 3, "second": 27}
        assert list(second.rglob("orders-*"))
        assert not list(first.rglob("orders-*"))
        assert records(node, "codecs") == old
        new = records(node, "orders")
        node.stop()

        shutil.copytree(first, moved)
        first.rename(tmp_path / "away")
        config = node.config.read_text()
        node.config.write_text(config.replace(json.dumps(str(first)), json.dumps(str(moved))))
        compared = invoke("reconcile", "--config", node.config, "--json")
        assert compared.exit_code == ExitCode.OK, compared.stderr
        report = json.loads(compared.stdout)
        assert (report["missing"], report["whole"]) == ([], 3 + 27)
        node.start()
        assert counted(node) == {"main": 3, "second": 27}
        assert (records(node, "codecs"), records(node, "orders")) == (old, new)
    finally:
        if node.running:
            node.kill()
