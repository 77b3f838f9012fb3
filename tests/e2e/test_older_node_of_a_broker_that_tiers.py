"""A node of an older feature level beside a broker with today's plug-in: it serves the broker as
long as its quorum has that level. Behind that it ends; the broker waits, and says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.test_broker_that_tiers_in_trouble import beside_three_nodes
from tests.e2e.test_older_program import OLDER
from tests.e2e.tiering_broker import TOPIC, tasks_of
from tests.real.kafka import KAFKA_VERSION
from tests.real.kafka_clients import log_bounds
from tests.real.older_program import program_of
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(400)]


def test_a_broker_waits_for_a_node_that_does_not_know_its_quorums_level(tmp_path: Path) -> None:
    older = program_of(OLDER, tmp_path / "older")
    with beside_three_nodes(tmp_path, KAFKA_VERSION) as (there, quorum):
        beside = quorum.nodes[1]

        def runs(program: Path | None) -> None:
            beside.stop()
            beside.program = program
            beside.start()

        def is_raised() -> bool:
            url = quorum.nodes[quorum.leader()].url
            return invoke("quorum", "finalize", 2, "--url", url).exit_code == ExitCode.OK

        there.write_until_copied(2)
        tasks = tasks_of(there.broker)
        runs(older)
        there.write_until_copied(3)
        runs(None)
        quorum.wait_until(is_raised, "the level to be raised")
        there.write_until_copied(2)
        beside.stop()
        beside.program = older
        beside.spawn()
        assert "the metadata has feature level 2, and this program knows 1 to 1" in (
            beside.ends_by_itself()
        )
        there.write_into_trouble()
        there.told("Start the node, or correct strandline.node.url")
        assert log_bounds(there.broker.bootstrap, TOPIC, 0)[0] == 0
        beside.program = None
        beside.start()
        there.write_until_copied(3)
        assert tasks <= tasks_of(there.broker)
        there.assert_whole()
