"""A feature level is raised in a cluster whose nodes are upgraded one by one: the program of the
commit before that level runs beside today's, is put back, and refuses what it does not know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_formats.properties import parse_meta_properties
from strandline.cli.exit_codes import ExitCode
from strandline.demo.feed import DemoFeed
from tests.capture.captured import LOG_DIR
from tests.e2e.node_quorum import NodeQuorum
from tests.e2e.tier_client import TierClient
from tests.real.older_program import program_of
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

OLDER = "315b5544"
"""The last that knows feature level 1 alone."""
FINISHED = "COPY_SEGMENT_FINISHED"


class Upgrade:
    """Node 1 copies; 2 and 3 begin with the older program."""

    def __init__(self, quorum: NodeQuorum, feed: DemoFeed, older: Path) -> None:
        self.quorum = quorum
        self.older = older
        self._feed = feed
        self._steps = iter(range(1, feed.steps))
        feed.play(0)  # seals nothing yet

    def runs(self, node_id: int, program: Path | None) -> None:
        """Restart a node on another program, in order."""
        node = self.quorum.nodes[node_id]
        if node.running:
            node.stop()
        node.program = program
        node.start()

    def copies_on(self) -> None:
        """A segment more of each partition is copied, and all nodes have the same rows."""
        before = self._finished(1)
        self._feed.play(next(self._steps))
        self.quorum.wait_until(lambda: self._finished(1) > before, "another copied segment")
        self.quorum.wait_until(lambda: len(self.quorum.states()) == 1, "one state on all nodes")

    def _finished(self, node_id: int) -> int:
        url = self.quorum.nodes[node_id].url
        rows: list[dict[str, Any]] = [
            row for each in self._feed.partitions for row in TierClient(url, *each).segments()
        ]
        return sum(row["state"] == FINISHED for row in rows)

    def finalize(self) -> tuple[ExitCode, str]:
        """`strandline quorum finalize 2`, asked of the leader's node."""
        url = self.quorum.nodes[self.quorum.leader()].url
        done = invoke("quorum", "finalize", 2, "--url", url)
        return ExitCode(done.exit_code), done.stderr

    def level(self) -> int:
        level: int = self.quorum.described(self.quorum.leader())["feature_level"]
        return level


def test_a_level_is_raised_once_all_know_it_and_an_older_program_stops_then(
    tmp_path: Path,
) -> None:
    older = program_of(OLDER, tmp_path / "older")
    log_dir, tier = tmp_path / "kafka", tmp_path / "tier"
    tier.mkdir()
    feed = DemoFeed(LOG_DIR, log_dir, ("codecs", "events", "orders", "payments"))
    meta = log_dir / "meta.properties"
    cluster_id = parse_meta_properties(meta.read_bytes(), source=str(meta)).cluster_id
    sections: dict[str, dict[str, object]] = {
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(tier)},
        "http": {"anonymous_role": "admin"},
        "copier": {"interval_s": 0.3},
    }
    with NodeQuorum(tmp_path, str(cluster_id), sections, log_dir) as quorum:
        upgrade = Upgrade(quorum, feed, older)
        for node_id in (2, 3):
            upgrade.runs(node_id, older)
        upgrade.copies_on()
        upgrade.runs(2, None)
        code, said = upgrade.finalize()
        assert (code, "node 3 knows 1 to 1" in said) == (ExitCode.CONFLICT, True), said
        assert upgrade.level() == 1
        upgrade.runs(2, older)  # back, as long as nothing is finalised
        upgrade.copies_on()
        for node_id in (2, 3):
            upgrade.runs(node_id, None)
        quorum.wait_until(lambda: upgrade.finalize()[0] == ExitCode.OK, "the level to be raised")
        assert upgrade.level() == 2
        upgrade.copies_on()
        victim = 3
        node = quorum.nodes[victim]
        node.stop()
        node.program = older
        node.spawn()
        log = node.ends_by_itself()
        assert "the metadata has feature level 2, and this program knows 1 to 1" in log
        upgrade.copies_on()
        node.program = None
        node.start()
        upgrade.copies_on()
