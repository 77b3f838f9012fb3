"""Data directories are lost; a new cluster goes on from an older snapshot and the store.

Real node processes, captured Kafka segments, a store of files.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.properties import parse_meta_properties
from strandline.cli.exit_codes import ExitCode
from strandline.node import ambient
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.e2e.node_quorum import COPIER_ID, NodeQuorum
from tests.e2e.tier_client import TierClient
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS, invoke, strandline
from tests.strandline.conftest import copied_segments, sections

DEADLINE_S = 120
SETTLE_S = 0.1
FIRST_TOPIC = "codecs"


def settings(tier: Path, *topics: str) -> dict[str, dict[str, object]]:
    return sections(tier) | {
        "topics": {"include": list(topics)},
        "metadata": {"snapshot_upload_check_s": 0.2},
        "copier": {"interval_s": 0.5, "takeover_settle_s": SETTLE_S},
    }


def partitions(url: str) -> list[tuple[str, int]]:
    topics = PLAIN.get(f"{url}/v1/topics").json()["topics"]
    return [(each["topic"], number) for each in topics for number in range(each["partitions"])]


def finished(url: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Topic, partition and row of every segment that is copied."""
    return [
        (topic, partition, row)
        for topic, partition in partitions(url)
        for row in TierClient(url, topic, partition).segments()
        if row["state"] == "COPY_SEGMENT_FINISHED"
    ]


def segments(url: str) -> dict[str, dict[str, Any]]:
    """Finished segments by id, with the SHA-256 of what is read of each `.log`."""
    found = {}
    for topic, partition, row in finished(url):
        base = f"{url}/v1/topics/{topic}/partitions/{partition}/segments/{row['segment_id']}"
        data = PLAIN.get(f"{base}/log")
        assert data.status_code == 200, data.text
        found[row["segment_id"]] = {
            "topic": topic,
            "partition": partition,
            "start": row["start_offset"],
            "end": row["end_offset"],
            "objects": row["objects"],
            "sha256": hashlib.sha256(data.content).hexdigest(),
        }
    return found


def stored(tier: Path) -> dict[str, str]:
    """Objects in the store, but for our own folder: key and SHA-256."""
    return {
        str(path.relative_to(tier)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in tier.rglob("*")
        if path.is_file() and not path.relative_to(tier).parts[0].startswith((".", "_strandline"))
    }


def snapshots(tier: Path) -> list[Path]:
    return sorted(tier.glob("_strandline/snapshots/*/*.checkpoint"))


def reconcile(config: Path, *options: object) -> dict[str, Any]:
    done = strandline("reconcile", "--config", config, "--json", *options)
    if done.returncode == ExitCode.RETRY_LATER and "was taken over a moment ago" in done.stderr:
        time.sleep(SETTLE_S)
        done = strandline("reconcile", "--config", config, "--json", *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def check_shut_out(node: NodeProcess, home: Path, predecessor: str) -> None:
    """A node that comes back from before the disaster does not start."""
    config = re.sub(r"port = \d+", "port = 0", node.config.read_text())
    old = home / "old.toml"
    old.write_text(config.replace(str(home / "data"), str(home / "lost")))
    refused = strandline("node", "--config", old)
    assert refused.returncode == ExitCode.REFUSED
    assert f"took this prefix over from {predecessor}" in refused.stderr


@pytest.mark.integration
def test_all_is_read_again_after_the_data_directory_was_lost(tmp_path: Path) -> None:
    home, tier = tmp_path / "node", tmp_path / "tier"
    with NodeProcess(home, settings(tier, FIRST_TOPIC)) as node:
        node.wait_until(lambda: bool(snapshots(tier)), "a snapshot", deadline_s=DEADLINE_S)
        node.stop()
        (snapshot,) = snapshots(tier)
        # From here on the store gets ahead of the snapshot.
        config = node.config.read_text()
        node.config.write_text(config.replace(f'["{FIRST_TOPIC}"]', '["*"]'))
        node.start()
        node.wait_until(
            lambda: len(stored(tier)) == 3 * CAPTURED_SEGMENTS, "all copies", deadline_s=DEADLINE_S
        )
        node.wait_until(
            lambda: copied_segments(node.url) >= CAPTURED_SEGMENTS - 3,
            "rows",
            deadline_s=DEADLINE_S,
        )
        before, objects = segments(node.url), stored(tier)
        assert len(before) == CAPTURED_SEGMENTS
        node.kill()
        (home / "data").rename(home / "lost")
        assert snapshots(tier) == [snapshot]

        done = invoke("format", "--config", node.config, "--from-snapshot", "latest", "--yes")
        assert done.exit_code == 0, done.stderr
        assert "strandline reconcile" in done.stdout
        marker = json.loads((tier / "_strandline" / "cluster.json").read_text())
        assert marker["predecessorClusterIds"] == [snapshot.parent.name]

        audit = (home / "data" / "audit").glob("*.jsonl")
        (line,) = (json.loads(path.read_text()) for path in audit)
        assert (line["action"], line["by"]) == ("prefix_taken_over", "node 1, format")
        assert snapshot.parent.name in line["why"]

        report = reconcile(node.config)
        assert (report["missing"], report["reconciled"]) == ([], False)
        assert report["whole"] + report["unknown"] + report["unfinished"] == CAPTURED_SEGMENTS
        assert report["unknown"] >= CAPTURED_SEGMENTS - 3
        assert reconcile(node.config, "--apply")["reconciled"] is True

        node.start()
        node.wait_until(
            lambda: (
                node.log.count("segments of ")
                >= len({(s["topic"], s["partition"]) for s in before.values()})
            ),
            "adoptions",
            deadline_s=DEADLINE_S,
        )
        assert segments(node.url) == before
        assert copied_segments(node.url) == 0  # nothing was copied a second time
        assert stored(tier) == objects

        check_shut_out(node, home, snapshot.parent.name)
        assert stored(tier) == objects
        node.stop()
    assert reconcile(node.config)["unknown"] == 0


@pytest.mark.integration
def test_a_leader_change_since_the_snapshot_is_known_from_the_copies(tmp_path: Path) -> None:
    """Local retention has cut the new epoch's start off the broker's checkpoint."""
    home, tier = tmp_path / "node", tmp_path / "tier"
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, 20, end=25)
    given = settings(tier, "orders") | {"kafka": {"log_dirs": [str(orders.log_dir)]}}
    with NodeProcess(home, given) as node:
        node.wait_until(lambda: bool(snapshots(tier)), "a snapshot", deadline_s=DEADLINE_S)
        node.wait_until(lambda: len(finished(node.url)) == 2, "copies", deadline_s=DEADLINE_S)
        node.stop()
        (snapshot,) = snapshots(tier)
        orders.write(20, 30, 40, end=45, epoch=1)
        orders.set_epochs((0, 0), (1, 20))
        node.start()
        node.wait_until(lambda: len(finished(node.url)) == 4, "copies", deadline_s=DEADLINE_S)
        before = segments(node.url)
        node.kill()
        (home / "data").rename(home / "lost")
        for base in (0, 10, 20, 30):
            orders.delete_segment(base)
        orders.set_epochs((1, 40))

        done = invoke("format", "--config", node.config, "--from-snapshot", snapshot, "--yes")
        assert done.exit_code == 0, done.stderr
        assert reconcile(node.config, "--apply")["reconciled"] is True
        node.start()
        node.wait_until(lambda: "segments of orders" in node.log, "adoption", deadline_s=DEADLINE_S)
        assert segments(node.url) == before
        page = PLAIN.get(f"{node.url}/v1/topics/orders/partitions/0").json()
        assert page["lost_ranges"] == [], page
        assert copied_segments(node.url) == 0


def lose(quorum: NodeQuorum) -> None:
    """Every data directory is somewhere else now."""
    for node in quorum.running.values():
        node.kill()
    swap(quorum, "data", "lost")


def swap(quorum: NodeQuorum, there: str, aside: str) -> None:
    for node in quorum.nodes.values():
        home = node.config.parent
        (home / there).rename(home / aside)


def copy_all(node: NodeProcess) -> None:
    """From its next start on every topic is named in its settings."""
    if node.running:
        node.stop()
    config = node.config.read_text()
    node.config.write_text(config.replace(f'["{FIRST_TOPIC}"]', '["*"]'))


def check_majority_shut_out(quorum: NodeQuorum, predecessor: str) -> None:
    """All old nodes at once, at their old addresses: nobody is in their way but the marker."""
    for node in quorum.running.values():
        node.stop()
    swap(quorum, "data", "new")
    swap(quorum, "lost", "data")
    configs = [node.config for node in quorum.nodes.values()]
    with ThreadPoolExecutor(len(configs)) as threads:
        ends = list(threads.map(lambda each: strandline("node", "--config", each), configs))
    for end in ends:
        assert end.returncode == ExitCode.REFUSED, end.stderr
        assert f"took this prefix over from {predecessor}" in end.stderr
    swap(quorum, "data", "lost")
    swap(quorum, "new", "data")


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_all_is_read_again_after_all_three_nodes_were_lost(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    meta = (CAPTURED / "meta.properties").read_bytes()
    kafka_cluster_id = parse_meta_properties(meta, source="captured").cluster_id
    given = settings(tier, FIRST_TOPIC)
    with NodeQuorum(tmp_path, str(kafka_cluster_id), given, CAPTURED) as quorum:
        copier = quorum.nodes[COPIER_ID]
        quorum.wait_until(lambda: bool(snapshots(tier)), "a snapshot", deadline_s=DEADLINE_S)
        (snapshot,) = snapshots(tier)
        copy_all(copier)
        copier.start()
        quorum.wait_until(
            lambda: len(finished(copier.url)) == CAPTURED_SEGMENTS, "copies", deadline_s=DEADLINE_S
        )
        before, objects = segments(copier.url), stored(tier)
        lose(quorum)
        assert snapshots(tier) == [snapshot]

        quorum.format("--from-snapshot", str(snapshot), "--yes")
        copy_all(copier)
        others = [each for each in quorum.nodes if each != COPIER_ID]
        quorum.start(*others)  # a majority of the new cluster, which the record needs
        assert segments(quorum.nodes[others[0]].url).items() < before.items()
        report = reconcile(copier.config, "--apply")
        assert (report["missing"], report["reconciled"]) == ([], True)
        assert report["unknown"] > 0

        quorum.start(COPIER_ID)
        urls = [node.url for node in quorum.nodes.values()]
        quorum.wait_until(
            lambda: all(len(finished(url)) == len(before) for url in urls),
            "adoptions",
            deadline_s=DEADLINE_S,
        )
        assert [segments(url) for url in urls] == [before] * len(urls)
        assert copied_segments(copier.url) == 0  # nothing was copied a second time
        assert stored(tier) == objects

        check_majority_shut_out(quorum, snapshot.parent.name)
        assert stored(tier) == objects
        quorum.start(*quorum.nodes)
        assert segments(copier.url) == before


@pytest.fixture(scope="module")
def lost_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that copied a topic and then lost its directory, and its store."""
    home = tmp_path_factory.mktemp("lost")
    tier = home / "tier"
    with NodeProcess(home / "node", settings(tier, FIRST_TOPIC)) as node:
        node.wait_until(lambda: bool(snapshots(tier)), "a snapshot", deadline_s=DEADLINE_S)
        node.stop()
    (home / "node" / "data").rename(home / "node" / "lost")
    return home


@pytest.fixture
def lost(lost_node: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The settings file and the store of a copy of it."""
    home = tmp_path / "copy"
    shutil.copytree(lost_node, home)
    config = home / "node" / "strandline.toml"
    config.write_text(config.read_text().replace(str(lost_node), str(home)))
    return config, home / "tier"


def format_from(config: Path, source: object, *options: object) -> tuple[int, str]:
    done = invoke("format", "--config", config, "--from-snapshot", source, "--yes", *options)
    return done.exit_code, done.stderr


def check_refused(done: tuple[int, str], code: int, words: str) -> None:
    assert done[0] == code
    assert words in done[1]


@pytest.mark.integration
def test_a_restart_that_can_not_be_changes_nothing(lost: tuple[Path, Path], tmp_path: Path) -> None:
    config, tier = lost
    marker = tier / "_strandline" / "cluster.json"
    before = marker.read_bytes()
    (snapshot,) = snapshots(tier)

    unconfirmed = invoke("format", "--config", config, "--from-snapshot", "latest")
    assert unconfirmed.exit_code == ExitCode.USAGE
    for word in (snapshot.parent.name, "last uploaded a snapshot", "give --yes"):
        assert word in unconfirmed.stderr
    assert not (config.parent / "data").exists()
    needless = invoke("format", "--config", config, "--yes")
    assert (needless.exit_code, "--from-snapshot" in needless.stderr) == (ExitCode.USAGE, True)

    strange = tmp_path / "backup.bin"
    strange.write_bytes(snapshot.read_bytes())
    check_refused(format_from(config, strange), ExitCode.USAGE, "is not a snapshot")
    damaged = tmp_path / snapshot.name
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    check_refused(format_from(config, damaged), ExitCode.CORRUPT, "damaged")
    damaged.write_bytes(snapshot.read_bytes()[:-80])
    check_refused(format_from(config, damaged), ExitCode.CORRUPT, str(damaged))
    code, _ = format_from(config, tmp_path / "none" / snapshot.name)
    assert code != ExitCode.OK
    joins = format_from(config, "latest", "--no-initial-voters", "--cluster-id", "x" * 22)
    assert joins[0] == ExitCode.USAGE
    assert marker.read_bytes() == before
    # Nothing of it is in the way of one that can.
    assert format_from(config, snapshot)[0] == ExitCode.OK
    assert json.loads(marker.read_bytes())["predecessorClusterIds"] == [snapshot.parent.name]
    check_refused(format_from(config, "latest"), ExitCode.CONFLICT, "is formatted already")


@pytest.mark.integration
def test_an_interrupted_restart_may_be_repeated(lost: tuple[Path, Path]) -> None:
    config, tier = lost
    (snapshot,) = snapshots(tier)
    assert format_from(config, "latest")[0] == ExitCode.OK
    first = json.loads((tier / "_strandline" / "cluster.json").read_bytes())["clusterId"]
    # The marker is replaced before the last file is written, and the audit begun behind it: this is
    # what a crash between them leaves.
    (config.parent / "data" / "meta.properties").unlink()
    shutil.rmtree(config.parent / "data" / "audit")
    assert format_from(config, "latest")[0] == ExitCode.OK
    marker = json.loads((tier / "_strandline" / "cluster.json").read_bytes())
    assert marker["predecessorClusterIds"] == [first, snapshot.parent.name]
    assert reconcile(config)["reconciled"] is False


@pytest.mark.integration
def test_missing_segments_are_recorded_only_by_their_number(lost: tuple[Path, Path]) -> None:
    config, tier = lost
    for path in tier.glob("codecs-*/0/*"):
        path.unlink()
    assert format_from(config, "latest")[0] == ExitCode.OK
    missing = reconcile(config)["missing"]
    assert missing
    assert {each["topic"] for each in missing} == {FIRST_TOPIC}
    for wrong in ([], ["--accept-missing", len(missing) + 1]):
        refused = strandline("reconcile", "--config", config, "--apply", *wrong)
        assert refused.returncode == ExitCode.CONFLICT, refused.stderr
        assert f"--accept-missing {len(missing)}" in refused.stderr
    done = reconcile(config, "--apply", "--accept-missing", len(missing))
    assert done["reconciled"] is True
    assert reconcile(config)["missing"] == []
    audit = (config.parent / "data" / "audit").glob("*.jsonl")
    lines = [json.loads(line) for path in audit for line in path.read_text().splitlines()]
    assert [line["action"] for line in lines] == [
        "prefix_taken_over", *["segment_missing"] * len(missing), "reconciled"
    ]  # fmt: skip
    assert {line["segment_id"] for line in lines[1:-1]} == {each["segment_id"] for each in missing}
    assert {line["by"] for line in lines[1:]} == {"node 1, reconcile"}


@pytest.mark.integration
def test_nothing_is_recorded_while_a_store_of_the_snapshot_is_not_named(
    lost: tuple[Path, Path], tmp_path: Path
) -> None:
    config, tier = lost
    assert format_from(config, "latest")[0] == ExitCode.OK
    other = tmp_path / "other" / "_strandline" / "cluster.json"
    other.parent.mkdir(parents=True)
    marker = json.loads((tier / "_strandline" / "cluster.json").read_bytes())
    other.write_text(json.dumps(marker | {"store": "other"}))
    named = config.read_text()
    moved = named.replace("[stores.main]", "[stores.other]").replace(
        str(tier), str(tmp_path / "other")
    )
    config.write_text('default_store = "other"\n' + moved)
    unlisted = reconcile(config)["unlisted"]
    assert unlisted["main"] > 0
    refused = strandline("reconcile", "--config", config, "--apply")
    assert refused.returncode == ExitCode.CONFLICT, refused.stderr
    assert f"{unlisted['main']} segments are in the store 'main'" in refused.stderr
    config.write_text(named)
    assert reconcile(config)["reconciled"] is False


@pytest.mark.integration
def test_nothing_is_recorded_by_a_clock_that_differs_from_the_stores(
    lost: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour ahead the takeover would seem settled."""
    config, _ = lost
    assert format_from(config, "latest")[0] == ExitCode.OK
    now_ms = ambient.now_ms
    monkeypatch.setattr(ambient, "now_ms", lambda: now_ms() + 3_600_000)
    refused = invoke("reconcile", "--config", config, "--apply")
    assert refused.exit_code == ExitCode.RETRY_LATER, refused.stderr
    assert "set the node's clock" in refused.stderr
    assert reconcile(config)["reconciled"] is False


def test_a_cluster_that_began_empty_has_nothing_to_reconcile(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", settings(tmp_path / "tier", FIRST_TOPIC)) as node:
        running = strandline("reconcile", "--config", node.config)
        assert running.returncode == ExitCode.CONFLICT, running.stderr
        assert "in use by another running node" in running.stderr
        node.stop()
    assert reconcile(node.config)["restarted_at"] is None
    refused = strandline("reconcile", "--config", node.config, "--apply")
    assert refused.returncode == ExitCode.USAGE, refused.stderr
    assert "nothing to record" in refused.stderr
