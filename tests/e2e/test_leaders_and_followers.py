"""Beside three stock brokers: an unclean election, and a follower that is built from the tier."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kafka_formats import leader_epoch_checkpoint, producer_snapshot
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    segment_file_name,
)
from kafka_formats.properties import encode_partition_metadata
from tests.e2e.auditor import FINISHED, NOTHING_LEFT
from tests.e2e.broker_site import TOPIC_CONFIG, Site, open_site
from tests.e2e.http import PLAIN
from tests.e2e.ledger import value_of
from tests.e2e.tier_client import TierClient
from tests.real.kafka_clients import NewRecord, consume_all, log_bounds, produce

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NUMBERS = count()
SMALL_BATCHES: dict[str, str | int] = {"batch.num.messages": 20, "enable.idempotence": "true"}
LEADER, OTHER, THIRD = 1, 2, 3


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("site"), seed=0) as running:
        yield running


def write(site: Site, topic: str, records: int) -> None:
    """Distinct records, acknowledged by all replicas in sync."""
    values = [NewRecord(value_of(next(NUMBERS))) for _ in range(records)]
    produce(site.cluster.bootstrap, topic, 0, values, config=SMALL_BATCHES)


def tier(site: Site, topic: str, node_id: int) -> TierClient:
    return TierClient(site.quorum.nodes[node_id].url, topic, 0)


def wait_until_copied(site: Site, topic: str, node_id: int) -> int:
    """Until the node has copied what its broker sealed; the offset after it."""
    client = tier(site, topic, node_id)
    end: list[int] = []

    def copied() -> bool:
        end[:] = [int(site.cluster.brokers[node_id].segment_files(topic, 0)[-1].stem)]
        page = client.status()
        return bool(
            page
            and page["highest_copied_offset"] == end[0] - 1
            and page["why_not_copying"] in NOTHING_LEFT
        )

    site.quorum.wait_until(copied, f"{topic} to be copied by node {node_id}")
    return end[0]


def assert_reads_as_the_broker(site: Site, topic: str, node_id: int, end: int) -> None:
    read = tier(site, topic, node_id).records("read_uncommitted")
    expected = consume_all(site.cluster.bootstrap, topic, 0)
    assert [each.offset for each in read] == list(range(end))
    same = read == expected[:end]  # not in the assert: no diff of thousands of records
    assert same


def write_beyond_a_follower(site: Site, topic: str) -> tuple[int, int]:
    """LEADER's node has copied records that OTHER, which is dead now, never had. Where they begin
    at the earliest, and where they end.
    """
    cluster = site.cluster
    config = {
        **TOPIC_CONFIG,
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "true",
    }
    cluster.create_topic(topic, replicas=[[LEADER, OTHER]], config=config)
    write(site, topic, 2_000)
    common = wait_until_copied(site, topic, LEADER)
    cluster.brokers[OTHER].kill()
    site.quorum.wait_until(lambda: cluster.isr(topic, 0) == {LEADER}, "broker 2 to fall behind")
    write(site, topic, 1_500)
    diverged_end = wait_until_copied(site, topic, LEADER)
    assert diverged_end > common
    return common, diverged_end


def test_what_an_unclean_election_cut_off_is_never_served_and_collected(site: Site) -> None:
    topic, cluster = "unclean", site.cluster
    common, diverged_end = write_beyond_a_follower(site, topic)
    before = {row["segment_id"] for row in tier(site, topic, LEADER).segments()}
    cluster.brokers[LEADER].kill()
    cluster.brokers[OTHER].start()
    site.quorum.wait_until(lambda: cluster.leader(topic, 0) == OTHER, "an unclean election")
    cut_at = log_bounds(cluster.bootstrap, topic, 0)[1]
    assert common <= cut_at < diverged_end
    write(site, topic, 800)
    new_end = wait_until_copied(site, topic, OTHER)
    for node_id in site.quorum.nodes:
        assert_reads_as_the_broker(site, topic, node_id, new_end)
    cluster.brokers[LEADER].start()
    cluster.wait_for_replicas(topic, 1)
    write(site, topic, 1_500)
    new_end = wait_until_copied(site, topic, OTHER)
    assert_reads_as_the_broker(site, topic, LEADER, new_end)
    site.quorum.wait_until(
        lambda: nothing_outside_the_lineage(site, topic), "the diverged segments to be collected"
    )
    after = {row["segment_id"] for row in tier(site, topic, OTHER).segments()}
    assert before - after
    assert_reads_as_the_broker(site, topic, THIRD, new_end)


def nothing_outside_the_lineage(site: Site, topic: str) -> bool:
    """No row is left that lies wholly in what was cut off; nothing is on its way out."""
    rows = tier(site, topic, OTHER).segments()
    epochs = {each["epoch"] for row in rows for each in row["leader_epochs"]}
    checkpoint = site.cluster.brokers[OTHER].log_dir / f"{topic}-0" / LEADER_EPOCH_CHECKPOINT_FILE
    lineage = leader_epoch_checkpoint.parse(checkpoint.read_bytes(), source=str(checkpoint))
    return epochs <= {entry.epoch for entry in lineage} and all(
        row["state"] == FINISHED for row in rows
    )


def test_a_follower_built_from_the_tier_joins_without_fetching_what_is_tiered(site: Site) -> None:
    """What stock brokers without tiered storage allow: a replica whose log begins after the last
    tiered offset. One with an empty directory fetches all that the leader still has.
    """
    topic, cluster = "rebuilt", site.cluster
    cluster.create_topic(topic, replicas=[[LEADER, OTHER, THIRD]], config=TOPIC_CONFIG)
    write(site, topic, 6_000)
    wait_until_copied(site, topic, LEADER)
    broker = cluster.brokers[THIRD]
    replica = broker.log_dir / f"{topic}-0"
    broker.stop()
    shutil.rmtree(replica)
    cluster.brokers[LEADER].alter_topic(topic, {"retention.bytes": "200000"})
    leader_files = cluster.brokers[LEADER]
    leader_files.wait_until(
        lambda: int(leader_files.segment_files(topic, 0)[0].stem) > 0, "local retention"
    )
    # Retention is the topic's: any later leader's would delete what its node has yet to copy.
    cluster.brokers[LEADER].alter_topic(topic, {"retention.bytes": TOPIC_CONFIG["retention.bytes"]})
    write(site, topic, 1_000)  # the leader goes on while the follower is away
    wait_until_copied(site, topic, LEADER)
    write(site, topic, 100)
    answer = ask_follower_fetch(site, topic)
    assert answer["plan"] == "build_from_tier"
    local_start = answer["leader_local_log_start_offset"]
    start = answer["fetch_offset"]
    assert 0 < local_start < start
    build_replica(site, topic, replica, answer)
    broker.start()
    cluster.wait_for_replicas(topic, 1)
    fetched = sum(path.stat().st_size for path in broker.segment_files(topic, 0))
    assert int(broker.segment_files(topic, 0)[0].stem) == start
    leaders = {path.name: path for path in cluster.brokers[LEADER].segment_files(topic, 0)}
    tail = b"".join(path.read_bytes() for name, path in sorted(leaders.items()))
    assert 0 < fetched < len(tail)
    theirs = b"".join(path.read_bytes() for path in broker.segment_files(topic, 0))
    same = tail.endswith(theirs)
    assert same
    cluster.move_leader(topic, 0, THIRD)
    write(site, topic, 2_000)  # also the producer state is whole enough to lead
    end = wait_until_copied(site, topic, THIRD)
    read = tier(site, topic, THIRD).records("read_uncommitted")
    assert [each.offset for each in read] == list(range(end))


def ask_follower_fetch(site: Site, topic: str) -> dict[str, Any]:
    """What an empty follower asks, of the node beside the leader."""
    url = f"{site.quorum.nodes[LEADER].url}/v1/topics/{topic}/partitions/0/follower-fetch"
    page = tier(site, topic, LEADER).status()
    asked = {
        "fetch_offset": "0",
        "leader_epoch": str(page["leader_epoch"]),
        "from_last_tiered": "true",
    }
    answer = PLAIN.get(url, params=asked)
    assert answer.status_code == 200, answer.text
    parsed: dict[str, Any] = answer.json()
    return parsed


def build_replica(site: Site, topic: str, replica: Path, answer: dict[str, Any]) -> None:
    """An empty log that begins where the answer says, with its leader epochs and producers."""
    start = answer["fetch_offset"]
    epochs = tuple(
        EpochEntry(each["epoch"], each["start_offset"]) for each in answer["leader_epochs"]
    )
    link = site.quorum.nodes[LEADER].url + answer["producer_snapshot_link"]
    snapshot = PLAIN.get(link).raise_for_status().content
    producers = producer_snapshot.parse(snapshot, source=link)
    assert producers
    assert max(each.last_offset for each in producers) < start
    replica.mkdir()
    topic_id = Uuid.parse(answer["topic_id"])
    (replica / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(topic_id))
    (replica / LEADER_EPOCH_CHECKPOINT_FILE).write_bytes(leader_epoch_checkpoint.encode(epochs))
    (replica / segment_file_name(start, SNAPSHOT_SUFFIX)).write_bytes(snapshot)
    (replica / segment_file_name(start, LOG_SUFFIX)).touch()
