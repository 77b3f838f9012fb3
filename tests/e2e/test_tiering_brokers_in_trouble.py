"""Three stock brokers that tier by their nodes, MinIO, faults whose kinds and order a seed draws:
consumers of the brokers miss nothing, read nothing that was aborted and nothing twice; the bucket
has no object that no row names; each broker goes on copying, following and expiring.

TIERING_FAULTS_SEED is a single run's seed. A run that fails leaves its story and all logs in the
test's directory.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.e2e.auditor import Auditor
from tests.e2e.broker_site import open_site
from tests.e2e.faults import DELETED_TOPIC, GROWING_TOPIC, SHORTENED_TOPIC, run_faults
from tests.e2e.ledger import LogKey
from tests.e2e.scanning_reader import ScanningReader
from tests.e2e.tiering_audit import (
    assert_every_task_lives,
    delete_all,
    wait_for_copies,
    wait_for_retention,
)
from tests.e2e.tiering_broker import broker_settings, tasks_of
from tests.e2e.tiering_faults import CUT_TOPIC, TIERING_FAULTS

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(900)]

SEEDS = [int(each) for each in os.environ.get("TIERING_FAULTS_SEED", "").split(",") if each]
KINDS = 9
"""Of half of the kinds each seed has one: some two minutes."""
PARTITIONS = {GROWING_TOPIC: 3, SHORTENED_TOPIC: 1, DELETED_TOPIC: 1, CUT_TOPIC: 1}


@pytest.mark.parametrize("seed", SEEDS or range(1, 21))
def test_no_order_of_faults_loses_what_brokers_tier(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    print(f"\nTIERING_FAULTS_SEED={seed}, logs in {tmp_path}")
    with open_site(tmp_path, seed, tiering=broker_settings) as site:
        for topic, partitions in PARTITIONS.items():
            site.make_topic(topic, partitions)

        def keys_that_stay() -> list[LogKey]:
            return [key for key in site.logs() if key.topic == GROWING_TOPIC]

        reader = ScanningReader(
            site.cluster.bootstrap, site.ledger, keys_that_stay, seed, pause_s=1
        )
        with site.writer:
            wait_for_copies(site)
            threads = {number: tasks_of(each) for number, each in site.cluster.brokers.items()}
            with reader:
                run_faults(site, chance, TIERING_FAULTS, kinds=KINDS)
        site.tell("healed")
        site.lead_by_turns()
        site.writer.write_filler()
        auditor = Auditor(site, chance)
        auditor.wait_until_quiet()
        wait_for_retention(site)
        site.tell("quiet")
        assert auditor.findings() == []
        assert_every_task_lives(site, threads)
        site.tell("audited")
        delete_all(site)
        print(f"{reader.scans} scans, {reader.records} records, {site.ledger.total()} written")
