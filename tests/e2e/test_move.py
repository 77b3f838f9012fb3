"""A stock broker on Kafka's own metadata manager and storage moves into the metadata log, goes
back, moves again and finishes, by the commands of docs/OPERATIONS.md. In each phase records are
written and read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.e2e.migrating_broker import METADATA_PARTITIONS, of_bridge, of_kafka
from tests.e2e.node_process import NodeProcess
from tests.e2e.tiering_broker import TOPIC, node_sections, topic_config
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.real.kafka_clients import NewRecord, consume_all, produce
from tests.real.kafkas_metadata import KafkasSegment, read_by_kafkas_manager
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

METADATA_TOPIC = "__remote_log_metadata"
RECORD_BYTES = 4_000
BATCH = 60


@contextmanager
def moving_site(
    tmp_path: Path, version: str = KAFKA_VERSION
) -> Iterator[tuple[KafkaBroker, NodeProcess]]:
    """A broker that tiers by Kafka's own managers, and a node beside it, in phase NONE."""
    broker = KafkaBroker(tmp_path / "broker", version=version)
    (tmp_path / "tier").mkdir()
    (tmp_path / "kafkas").mkdir()
    sections = node_sections(tmp_path, broker)
    sections["kafka"]["broker"] = broker.bootstrap
    broker.format()
    node = NodeProcess(tmp_path / "node", sections)
    broker.override(of_kafka(tmp_path / "kafkas"))
    try:
        broker.start()
        node.format()
        node.start()
        yield broker, node
    finally:
        if node.running:
            node.kill()
        broker.close()


def row_of(told: dict[str, Any]) -> KafkasSegment:
    """The node's row as Kafka's class has it."""
    return KafkasSegment(
        told["segment_id"], told["state"], told["start_offset"], told["end_offset"],
        told["size_bytes"],
        tuple((each["epoch"], each["start_offset"]) for each in told["leader_epochs"]),
        told["broker_id"], told["max_timestamp_ms"], told["event_timestamp_ms"],
        told["custom_metadata"],
    )  # fmt: skip


class Moved:
    """The site, and the records that were written."""

    def __init__(self, broker: KafkaBroker, node: NodeProcess) -> None:
        self.broker, self.node, self.first, self.written = broker, node, 0, 0

    def command(self, *arguments: object, code: ExitCode = ExitCode.OK) -> str:
        said = invoke(*arguments, "--url", self.node.url)
        assert said.exit_code == code, said.stdout + said.stderr
        return said.stdout

    def wait_until_nothing_is_in_the_way(self, to: str = "switch") -> None:
        """The bridge is heard, and the node sees its broker again."""
        self.broker.wait_until(
            lambda: self.says("migrate", to, "--dry-run") == ExitCode.OK, "the bridge"
        )

    def says(self, *arguments: object) -> int:
        return invoke(*arguments, "--url", self.node.url).exit_code

    def write(self) -> None:
        values = [
            (b"%08d" % number) * (RECORD_BYTES // 8)
            for number in range(self.written, self.written + BATCH)
        ]
        for at in range(0, BATCH, 6):  # a batch is no larger than a segment
            batch = [NewRecord(value) for value in values[at : at + 6]]
            produce(self.broker.bootstrap, TOPIC, 0, batch)
        self.written += BATCH

    def local_start(self) -> int:
        return min(int(path.stem) for path in self.broker.segment_files(TOPIC, 0))

    def write_until_tiered(self) -> None:
        """New records, until the broker has deleted all but the last of them from its disk."""
        before = self.written
        self.write()
        self.broker.wait_until(
            lambda: self.local_start() > before, "the new records to be in the tier alone"
        )

    def wait_until_all_is_tiered(self) -> None:
        """Nothing is copied from here on, until more is written."""
        self.broker.wait_until(
            lambda: len(self.broker.segment_files(TOPIC, 0)) == 1,
            "all sealed segments to be in the tier alone",
        )

    def read_all(self) -> None:
        records = consume_all(self.broker.bootstrap, TOPIC, 0)
        assert [record.offset for record in records] == list(range(self.first, self.written))
        for record in records:
            assert record.value is not None
            assert record.value[:8] == b"%08d" % record.offset

    def phase(self) -> str:
        return str(PLAIN.get(f"{self.node.url}/v1/migration").json()["phase"])

    def switch_is_told(self, report: Path) -> None:
        """With all that was compared."""
        told = json.loads(report.read_text())
        assert told["phase"] == self.phase() == "quorum"
        (compared,) = told["comparison"]["topic"]
        assert compared["partitions"] == 1
        assert compared["segments"]["COPY_SEGMENT_FINISHED"] >= len(self.starts()) > 0
        assert compared["highest_offset"] == self.local_start() - 1

    def has_what_kafkas_manager_has(self, folder: Path) -> None:
        """The node's segments and look-ups are those of Kafka's own class, which reads the topic
        that the node keeps up.
        """
        url = f"{self.node.url}/v1/topics/{TOPIC}/partitions/0"
        rows = self.listed(url)
        tip = TopicIdPartition(TOPIC, Uuid.parse(rows[0]["topic_id"]), 0)
        folder.mkdir()
        read = read_by_kafkas_manager(self.broker.bootstrap, folder, METADATA_PARTITIONS, [tip])
        kafkas = read[TOPIC, 0]
        assert kafkas.segments == {row_of(each) for each in rows}
        ends: dict[int, int] = {}
        for row in kafkas.segments:
            of_row = [*row.epochs, (-1, row.end_offset + 1)]
            for (epoch, _), (_, behind) in pairwise(of_row):
                if row.state == "COPY_SEGMENT_FINISHED":
                    ends[epoch] = max(behind - 1, ends.get(epoch, -1))
        assert {epoch: kafkas.highest[epoch] for epoch in ends} == ends  # it forgets no epoch
        for epoch, ids in kafkas.by_epoch.items():
            assert ids == {each["segment_id"] for each in self.listed(url, epoch=epoch)}
        for (epoch, offset), id_ in kafkas.found.items():
            at = {"epoch": epoch, "offset": offset}
            found = PLAIN.get(f"{url}/segments/lookup", params=at).json()
            assert found["segment"]["segment_id"] == id_, (at, found)
        highest = {"epoch": max(ends), "offset": ends[max(ends)]}
        told = PLAIN.get(f"{url}/offsets", params={"timestamp": "latest-tiered"}).json()
        assert {"epoch": told["leader_epoch"], "offset": told["offset"]} == highest

    def listed(self, url: str, **asked: int) -> list[dict[str, Any]]:
        """Segments that the node lists."""
        found = PLAIN.get(f"{url}/segments", params={"limit": 1_000, **asked}).json()
        return list(found["segments"])

    def starts(self) -> list[int]:
        """First offsets of the finished segments that the node has, ascending. A copy that a
        restart of the broker ended is none.
        """
        found = PLAIN.get(f"{self.node.url}/v1/topics/{TOPIC}/partitions/0/segments").json()
        finished = (each for each in found["segments"] if each["state"] == "COPY_SEGMENT_FINISHED")
        return sorted(each["start_offset"] for each in finished)


@pytest.mark.parametrize("version", [KAFKA_VERSION, pytest.param("4.4.0", marks=pytest.mark.soak)])
def test_a_broker_moves_goes_back_and_moves_for_good(tmp_path: Path, version: str) -> None:
    with moving_site(tmp_path, version) as (broker, node):
        site = Moved(broker, node)
        broker.create_topic(TOPIC, config=topic_config(version))
        site.write_until_tiered()
        site.command("migrate", "start", code=ExitCode.CONFLICT)
        site.command("quorum", "finalize", "2")
        site.command("migrate", "start", "--why", "a test")
        kept = tmp_path / "dry run.json"
        dry = ("migrate", "switch", "--dry-run", "--report", kept)
        site.command(*dry, code=ExitCode.INCOMPLETE)
        assert (
            "no node gets requests of its bridge" in json.loads(kept.read_text())["in_the_way"][0]
        )
        site.command("migrate", "switch", code=ExitCode.CONFLICT)

        broker.restart(overrides=of_bridge(node.url))
        site.write_until_tiered()
        site.read_all()
        assert site.phase() == "kafka"
        site.wait_until_nothing_is_in_the_way()
        begun = time.monotonic()
        nowhere = tmp_path / "no folder" / "switch.json"
        site.command("migrate", "switch", "--report", nowhere, code=ExitCode.USAGE)
        assert site.phase() == "kafka", "what can't be told is not begun"
        site.command("migrate", "switch", "--report", tmp_path / "switch.json")
        site.switch_is_told(tmp_path / "switch.json")
        print(f"the switch took {time.monotonic() - begun:.1f} s")
        assert site.starts()
        site.read_all()
        site.write_until_tiered()
        site.read_all()

        site.wait_until_all_is_tiered()
        assert "found equal: " in site.command("migrate", "back")
        assert site.phase() == "kafka"
        site.has_what_kafkas_manager_has(tmp_path / "behind the way back")
        site.write_until_tiered()
        site.read_all()
        broker.restart(overrides=of_kafka(tmp_path / "kafkas"))
        site.write_until_tiered()
        site.read_all()

        broker.restart(overrides=of_bridge(node.url))
        site.wait_until_nothing_is_in_the_way()
        assert "acts by" in site.command("migrate", "status")
        site.command("migrate", "switch")
        site.wait_until_nothing_is_in_the_way(to="finish")
        site.command("migrate", "finish", "--why", "it works")
        assert site.phase() == "quorum", "it has no way back, so it asks for --yes"
        site.command("migrate", "finish", "--yes", "--dry-run")
        assert site.phase() == "quorum"
        site.command("migrate", "finish", "--yes", "--why", "it works")
        assert site.phase() == "done"
        site.write_until_tiered()
        site.read_all()
        site.command("migrate", "back", code=ExitCode.CONFLICT)


@pytest.mark.soak
def test_a_switch_of_a_topic_that_is_not_right_goes_back_with_the_reason(tmp_path: Path) -> None:
    """Settings that lose records, two switches at once, and records that nobody can read."""
    with moving_site(tmp_path) as (broker, node):
        site = Moved(broker, node)
        broker.create_topic(TOPIC, config=topic_config(KAFKA_VERSION))
        site.write_until_tiered()
        site.command("quorum", "finalize", "2")
        site.command("migrate", "start")
        broker.restart(overrides=of_bridge(node.url))
        site.wait_until_nothing_is_in_the_way()

        broker.alter_topic(METADATA_TOPIC, {"retention.ms": "604800000"})
        said = site.command("migrate", "switch", code=ExitCode.INCOMPLETE)
        assert "retention.ms=604800000 instead of -1" in said
        assert site.phase() == "kafka"
        broker.alter_topic(METADATA_TOPIC, {"retention.ms": "-1"})

        body = {"phase": "switching", "why": "", "dry_run": False}
        assert PLAIN.put(f"{node.url}/v1/migration", json=body).status_code == 200
        site.command("migrate", "switch", code=ExitCode.CONFLICT)
        broker.wait_until(lambda: site.phase() == "quorum", "the first of the two")
        site.write_until_tiered()
        site.command("migrate", "back")

        site.read_all()
        # Kafka's own consumer of the topic ends with such a record: nothing is tiered behind it.
        produce(broker.bootstrap, METADATA_TOPIC, 0, [NewRecord(b"hello")])
        said = site.command("migrate", "switch", code=ExitCode.INCOMPLETE)
        assert "every record can be decoded" in said
        assert site.phase() == "kafka"


OTHERS = ("gone-in-quorum", "gone-in-kafka")


class KafkasStore:
    """The folder of Kafka's LocalTieredStorage."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def starts(self, topic: str) -> list[int]:
        """First offsets of the topic's segments, ascending."""
        logs = [path for path in self.root.rglob("*.log") if path.parent.name.startswith(topic)]
        return sorted(int(path.name.split("-")[0]) for path in logs)


def switch_with_others(site: Moved, store: KafkasStore) -> None:
    """To QUORUM, with segments of all topics in the tier."""
    for topic in (TOPIC, *OTHERS):
        site.broker.create_topic(topic, config=topic_config(KAFKA_VERSION))
    for topic in OTHERS:
        for at in range(4):
            produce(site.broker.bootstrap, topic, 0, [NewRecord(b"%d" % at * 8_000)] * 3)
    site.write_until_tiered()
    site.command("quorum", "finalize", "2")
    site.command("migrate", "start")
    site.broker.restart(overrides=of_bridge(site.node.url))
    site.write_until_tiered()
    assert all(store.starts(topic) for topic in OTHERS)
    site.wait_until_nothing_is_in_the_way()
    site.command("migrate", "switch")


@pytest.mark.soak
def test_expiry_and_deletion_go_on_in_every_phase(tmp_path: Path) -> None:
    """What DeleteRecords, retention and topic deletion take is gone from Kafka's storage, whoever
    has the metadata; and what the node has of it is what is there.
    """
    with moving_site(tmp_path) as (broker, node):
        site, store = Moved(broker, node), KafkasStore(tmp_path / "kafkas")
        switch_with_others(site, store)

        def deleted_below(offset: int) -> None:
            before = store.starts(TOPIC)
            assert before[0] < offset
            broker.delete_records(TOPIC, 0, offset)
            last = max(start for start in before if start <= offset)
            broker.wait_until(
                lambda: store.starts(TOPIC)[0] == last, f"{TOPIC} to be gone below {offset}"
            )
            site.first = offset

        def topic_gone(topic: str) -> None:
            broker.delete_topic(topic)
            broker.wait_until(lambda: store.starts(topic) == [], f"{topic} to be gone")

        deleted_below(15)
        topic_gone(OTHERS[0])
        broker.wait_until(lambda: site.starts() == store.starts(TOPIC), "the node to have the same")
        site.write_until_tiered()
        site.read_all()

        site.wait_until_all_is_tiered()
        site.has_what_kafkas_manager_has(tmp_path / "in quorum")
        site.command("migrate", "back")
        site.has_what_kafkas_manager_has(tmp_path / "behind the way back")
        deleted_below(40)
        topic_gone(OTHERS[1])
        site.write_until_tiered()
        broker.restart(overrides=of_kafka(tmp_path / "kafkas"))
        deleted_below(80)
        site.write_until_tiered()
        site.read_all()

        broker.restart(overrides=of_bridge(node.url))
        site.wait_until_nothing_is_in_the_way()
        site.command("migrate", "switch")
        assert site.starts() == store.starts(TOPIC)
        held = store.starts(TOPIC)
        broker.alter_topic(TOPIC, {"retention.bytes": str(20 * RECORD_BYTES)})
        broker.wait_until(lambda: store.starts(TOPIC)[0] > held[0], "retention to take the oldest")
        broker.wait_until(lambda: site.starts() == store.starts(TOPIC), "the node to have the same")
        records = consume_all(broker.bootstrap, TOPIC, 0)
        assert records[0].offset > 80
        assert [each.offset for each in records] == list(range(records[0].offset, site.written))


@pytest.mark.soak
def test_a_broker_with_kafkas_own_class_in_quorum_stops_deletes_until_the_move_ends(
    tmp_path: Path,
) -> None:
    """It copies past the metadata log. That is told, nothing leaves the tier, and there is no way
    back: the topic has a segment that the log lacks.
    """
    with moving_site(tmp_path) as (broker, node):
        site, store = Moved(broker, node), KafkasStore(tmp_path / "kafkas")
        switch_with_others(site, store)
        broker.restart(overrides=of_kafka(tmp_path / "kafkas"))
        site.write_until_tiered()
        told = "that no node of this cluster wrote"
        broker.wait_until(lambda: told in site.command("status", "--json"), "the alarm")

        broker.restart(overrides=of_bridge(node.url))
        before = store.starts(TOPIC)
        broker.delete_records(TOPIC, 0, 15)
        refused = "a foreign program writes to Kafka's metadata topic"
        log = tmp_path / "broker" / "server.log"
        broker.wait_until(lambda: refused in log.read_text(), "a delete to be refused")
        broker.wait_until(
            lambda: invoke("migrate", "back", "--dry-run", "--url", node.url).exit_code == 0,
            "nothing to be in the way",
        )
        said = site.command("migrate", "back", code=ExitCode.INCOMPLETE)
        assert site.phase() == "quorum"
        assert f"{TOPIC}-0" in said
        assert store.starts(TOPIC) == before, "something was deleted"
        site.command("migrate", "finish", "--yes")
        broker.wait_until(lambda: store.starts(TOPIC)[0] > before[0], "deletes to go on")
