"""Three stock brokers on an older jar of the plug-in get today's one by one, beside today's nodes:
while producers and consumers run nothing is lost, and brokers of both go on copying.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.auditor import Auditor
from tests.e2e.broker_site import open_site
from tests.e2e.faults import all_in_sync
from tests.e2e.scanning_reader import ScanningReader
from tests.e2e.tiering_audit import assert_every_task_lives, wait_for_copies, wait_for_retention
from tests.e2e.tiering_broker import TOPIC, broker_settings, tasks_of
from tests.real.broker_plugin import jar_of, plugin_jar
from tests.real.kafka_cluster import BROKERS

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(900)]

OLDER = "b0094196"
"""The first that was tested on all versions of Kafka: no changes of lists, no files sent."""
SEED = 1


def test_each_broker_gets_the_new_jar_while_the_others_go_on(tmp_path: Path) -> None:
    older = jar_of(OLDER, tmp_path / "older")
    assert older.read_bytes() != plugin_jar().read_bytes()
    with open_site(tmp_path, SEED, tiering=lambda url: broker_settings(url, older)) as site:
        site.make_topic(TOPIC, len(BROKERS))
        with site.writer:
            wait_for_copies(site)
            threads = {number: tasks_of(each) for number, each in site.cluster.brokers.items()}
            with ScanningReader(
                site.cluster.bootstrap, site.ledger, site.logs, SEED, pause_s=1
            ) as reader:
                for number, broker in site.cluster.brokers.items():
                    site.tell(f"broker {number} gets the new jar")
                    broker.restart(overrides=broker_settings(site.quorum.nodes[number].url))
                    all_in_sync(site)
                    site.lead_by_turns()
                    wait_for_copies(site)
        site.writer.write_filler()
        auditor = Auditor(site, random.Random(SEED))
        auditor.wait_until_quiet()
        wait_for_retention(site)
        assert auditor.findings() == []
        assert_every_task_lives(site, threads)
        assert reader.scans > 0
