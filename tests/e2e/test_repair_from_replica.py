"""A segment that is damaged in the tier and on the leader's disk comes back from a follower: stock
brokers, a node beside the leader, `strandline repair` as typed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.e2e.tier_client import TierClient
from tests.real.kafka import REQUEST_DEADLINE_S, KafkaBroker
from tests.real.kafka_clients import NewRecord, produce
from tests.strandline.captured_node import ask

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TOPIC = "letters"
DEADLINE_S = 60
CONFIG = {"internal.segment.bytes": "16384", "retention.ms": "-1", "file.delete.delay.ms": "1000"}
APPLY = ("repair", "--topic", TOPIC, "--partition", "0", "--yes")


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path / "leader") as running:
        yield running


@pytest.fixture
def follower(tmp_path: Path, leader: KafkaBroker) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path / "follower", node_id=2, controller=leader) as running:
        yield running


def settings(tmp_path: Path, broker: KafkaBroker) -> dict[str, dict[str, object]]:
    return {
        "kafka": {"log_dirs": [str(broker.log_dir)], "broker": broker.bootstrap},
        "topics": {"include": [TOPIC]},
        "http": {"anonymous_role": "admin"},
        "stores.main": {"kind": "filesystem", "path": str(tmp_path / "tier")},
        "copier": {"interval_s": 0.3, "upload_deadline_s": 5, "upload_margin_s": 0.5},
        "retention": {"delete_delay_s": 0.5},
        "repair": {"free_bytes_min": 1},
    }


def write(leader: KafkaBroker, follower: KafkaBroker) -> None:
    admin = leader.admin()
    new = NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config=CONFIG)
    admin.create_topics([new])[TOPIC].result(REQUEST_DEADLINE_S)
    for number in range(60):
        produce(leader.bootstrap, TOPIC, 0, [NewRecord(b"%03d" % number * 300)])

    def follows() -> bool:
        ends = [broker.segment_files(TOPIC, 0)[-1:] for broker in (leader, follower)]
        return all(ends) and len({(end.name, end.stat().st_size) for (end,) in ends}) == 1

    leader.wait_until(follows, "the follower to follow")


def flip(path: Path) -> None:
    """In place, as a disk does it: the broker's open files have it as well."""
    with path.open("r+b") as file:
        at = path.stat().st_size // 2
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def only(done: dict[str, Any]) -> dict[str, Any]:
    (told,) = done["segments"]
    assert isinstance(told, dict)
    return told


def test_a_follower_has_what_the_tier_and_the_leaders_disk_lost(
    tmp_path: Path, leader: KafkaBroker, follower: KafkaBroker
) -> None:
    (tmp_path / "tier").mkdir()
    write(leader, follower)
    with NodeProcess(tmp_path / "node", settings(tmp_path, leader)) as node:
        tier = TierClient(node.url, TOPIC, 0)
        node.wait_until(
            lambda: tier.status().get("next_offset") == active_base(leader) > 0,
            "everything sealed to be copied",
            deadline_s=DEADLINE_S,
        )
        wanted = tier.batches()
        stored = harm(tmp_path, leader, live(tier)[1], 1)

        follower.stop()
        told = only(ask(node, *APPLY, code=ExitCode.INCOMPLETE))
        assert told["outcome"] == "failed"
        assert "some sources did not answer: the replica on broker 2: " in told["text"]
        assert ".log has CRC32C" in told["wrong"]
        assert stored.exists()

        follower.start()
        leader.wait_until(lambda: in_sync(leader) == {1, 2}, "the follower to be in sync")
        told = only(ask(node, *APPLY))
        assert (told["outcome"], told["source"]) == ("repaired", "the replica on broker 2")
        ours, leaders = told["tried"][0], told["tried"][-1]
        assert ours.startswith("the broker's segments: CRC32C ")
        assert leaders.startswith("the replica on broker 1: "), told["tried"]
        assert tier.batches() == wanted
        node.wait_until(lambda: not stored.exists(), "the damaged one to go", deadline_s=DEADLINE_S)
        assert ask(node, *APPLY)["damaged"] == 0

        harm(tmp_path, leader, live(tier)[2], 2)
        killed_in_a_repair(node, tier)
        node.wait_until(lambda: is_mended(node), "the repair to be finished", deadline_s=DEADLINE_S)
        assert tier.batches() == wanted
        node.wait_until(
            lambda: stored_ids(tmp_path) == {each["segment_id"] for each in tier.segments()},
            "nothing to be left of what was begun",
            deadline_s=DEADLINE_S,
        )
        assert ask(node, *APPLY)["damaged"] == 0
        assert list((tmp_path / "node" / "data" / "repair").glob("*")) == []


def harm(tmp_path: Path, leader: KafkaBroker, row: dict[str, Any], index: int) -> Path:
    """Its object in the tier, and the leader's own segment with this index."""
    (stored,) = (tmp_path / "tier").rglob(f"*{row['segment_id']}*.log")
    local = leader.segment_files(TOPIC, 0)[index]
    assert int(local.stem) == row["start_offset"]
    flip(stored)
    flip(local)
    return stored


def live(tier: TierClient) -> list[dict[str, Any]]:
    """Ascending by offset."""
    rows = [row for row in tier.segments() if row["state"] == "COPY_SEGMENT_FINISHED"]
    return sorted(rows, key=lambda row: row["start_offset"])


def stored_ids(tmp_path: Path) -> set[str]:
    """Of segments whose `.log` is in the store."""
    paths = (tmp_path / "tier").rglob("*.log")
    return {path.stem.partition("-")[2] for path in paths}


def killed_in_a_repair(node: NodeProcess, tier: TierClient) -> None:
    """By SIGKILL as soon as the new copy is in the metadata, begun or finished."""
    before = {row["segment_id"] for row in tier.segments()}
    asked = {"topic": TOPIC, "apply": True}
    PLAIN.post(f"{node.url}/v1/jobs/repair", json=asked).raise_for_status()
    node.wait_until(
        lambda: {row["segment_id"] for row in tier.segments()} - before != set(),
        "a new copy",
        deadline_s=DEADLINE_S,
    )
    node.kill()
    node.start()


def is_mended(node: NodeProcess) -> bool:
    done = ask(node, *APPLY, code=None)
    return done["checked"] > 0 and not (done["standing"] or done["elsewhere"] or done["unread"])


def active_base(broker: KafkaBroker) -> int:
    return int(broker.segment_files(TOPIC, 0)[-1].stem)


def in_sync(broker: KafkaBroker) -> set[int]:
    found = broker.admin().list_topics(TOPIC, timeout=REQUEST_DEADLINE_S)
    return set(found.topics[TOPIC].partitions[0].isrs)
