"""Three stock brokers, a node beside each, MinIO: a bad half hour in minutes, then the audit.

FAULTS_S is how long faults go on (each kind once, however short; a minute in the soak), FAULTS_SEED
their order. A run that fails names its seed and leaves its logs in the test's directory.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.e2e.auditor import Auditor
from tests.e2e.broker_site import Site, open_site
from tests.e2e.bucket import stored_objects
from tests.e2e.faults import (
    DELETED_TOPIC,
    FAULTS,
    GROWING_TOPIC,
    RETAINED_BYTES,
    SHORTENED_TOPIC,
    run_faults,
)
from tests.e2e.ledger import LogKey
from tests.real.s3_admin import client as s3_client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

FAULTS_S = float(os.environ.get("FAULTS_S", "0"))
SOAK_FAULTS_S = FAULTS_S or 60
SEED = int(os.environ.get("FAULTS_SEED", "20261121"))
SOAK_SEEDS = range(1, 21)


def assert_nothing_is_lost(home: Path, seed: int, *, faults_s: float) -> None:
    chance = random.Random(seed)
    print(f"\nFAULTS_SEED={seed}, logs in {home}")
    with open_site(home, seed) as site:
        site.make_topic(GROWING_TOPIC, 2)
        site.make_topic(SHORTENED_TOPIC, 1)
        site.make_topic(DELETED_TOPIC, 1)
        with site.writer:
            run_faults(site, chance, FAULTS, faults_s=faults_s)
        site.writer.write_filler()
        auditor = Auditor(site, chance)
        auditor.wait_until_quiet()
        assert auditor.findings() == []
        assert_retention_was_carried_out(site)
        kept = {key: auditor.batches(key) for key in site.logs()}
        drop_locally(site)
        delete_past_lives(site)
        auditor.wait_until_quiet()
        assert auditor.reread(kept) == []
        assert auditor.bucket_findings() == []
        assert_a_lost_object_is_found(site, auditor)
        print(f"{site.ledger.total()} records, {sum(map(len, kept.values()))} batches audited")


def assert_retention_was_carried_out(site: Site) -> None:
    """The log start moved, and at least what is to be kept is there."""
    for key in site.topics[SHORTENED_TOPIC].keys:
        status = site.tier(site.leader_node(key), key).status()
        assert status["log_start_offset"] > 0
        assert status["remote_bytes"] >= RETAINED_BYTES


def assert_a_lost_object_is_found(site: Site, auditor: Auditor) -> None:
    """The auditor bites: an object that goes behind our back is missed."""
    key = next(key for key in site.logs() if auditor.batches(key))
    client = site.tier(site.leader_node(key), key)
    first = client.segments()[0]["segment_id"]
    (gone,) = (
        each for each in stored_objects(site.store) if first in each and each.endswith(".log")
    )
    s3 = s3_client(site.store)
    s3.delete_object(Bucket=site.store.bucket, Key=gone)
    s3.close()
    assert auditor.bucket_findings() == [f"1 missing objects: {[gone]}"]


def drop_locally(site: Site) -> None:
    """The brokers keep no more than the active segments, and the nodes have noticed."""
    broker = next(iter(site.cluster.running.values()))
    for topic in site.topics.values():
        broker.alter_topic(topic.name, {"retention.bytes": "1"})

    def dropped(key: LogKey) -> bool:
        files = site.cluster.leader_log(key.topic, key.partition)
        status = site.tier(site.leader_node(key), key).status()
        return len(files) == 1 and status["local_log_start_offset"] == int(files[0].stem)

    site.quorum.wait_until(lambda: all(map(dropped, site.logs())), "local retention")


def delete_past_lives(site: Site) -> None:
    """What was tiered of deleted topics goes, with its objects."""
    for key in site.past_logs():
        site.delete_tiered_data(key.topic, site.topics[key.topic].past_ids[key.life])
    site.wait_for_past_lives_to_go()


def test_a_bad_half_hour_loses_nothing(tmp_path: Path) -> None:
    """Each kind of fault once. How many come a second time within a minute is the machine's to
    say: they are left to the soak.
    """
    assert_nothing_is_lost(tmp_path, SEED, faults_s=FAULTS_S)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_no_order_of_faults_loses_anything(tmp_path: Path, seed: int) -> None:
    assert_nothing_is_lost(tmp_path, seed, faults_s=SOAK_FAULTS_S)
