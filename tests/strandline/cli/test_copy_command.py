"""`strandline copy --once` on real captured segments, as a user runs it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from rlmm.data_directory.data_directory import open_data_directory
from strandline.cli.exit_codes import ExitCode
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS, invoke, started, strandline


def copy(home: Path, *more: object, log_dir: Path = CAPTURED) -> tuple[object, ...]:
    return (
        "copy", "--once", "--log-dir", log_dir,
        "--store", f"file://{home}/tier", "--data-dir", home / "data", *more,
    )  # fmt: skip


def stored_logs(home: Path) -> dict[tuple[str, str, str], bytes]:
    """(topic, partition, base offset) -> bytes of every finished `.log` object."""
    found: dict[tuple[str, str, str], bytes] = {}
    for manifest in (home / "tier").rglob("*.rsm-manifest"):
        fields = json.loads(manifest.read_text())["remoteLogSegmentMetadata"]
        topic = fields["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]["topic"]
        key = (topic, manifest.parent.name, manifest.name[:20])
        assert key not in found, f"two finished copies of {key}"
        found[key] = manifest.with_suffix(".log").read_bytes()
    return found


def assert_tier_equals_disk(home: Path) -> None:
    stored = stored_logs(home)
    assert len(stored) == CAPTURED_SEGMENTS
    for (topic, partition, base), data in stored.items():
        assert data == (CAPTURED / f"{topic}-{partition}" / f"{base}.log").read_bytes()


def test_one_pass_copies_every_sealed_stable_segment_and_a_second_has_nothing_left(
    tmp_path: Path,
) -> None:
    first = strandline(*copy(tmp_path, "--json"))
    report = json.loads(first.stdout)
    assert len(report["copied"]) == CAPTURED_SEGMENTS, first.stderr
    assert "copied  " not in first.stderr  # a script reads the report
    assert report["failed"] == []
    # One captured partition ends in an open transaction: that segment may not be copied.
    assert [p["why_not"] for p in report["partitions"] if not p["complete"]] == ["waiting_for_lso"]
    assert first.returncode == 8
    assert_tier_equals_disk(tmp_path)

    second = json.loads(strandline(*copy(tmp_path, "--json")).stdout)
    assert second["copied"] == []
    assert_tier_equals_disk(tmp_path)


def test_a_topic_with_the_longest_name_is_copied_and_listed(tmp_path: Path) -> None:
    topic = "t" * 249
    shutil.copytree(CAPTURED / "orders-0", tmp_path / "disk" / f"{topic}-0")
    shutil.copy(CAPTURED / "meta.properties", tmp_path / "disk")
    for name in ("replication", "recovery-point", "log-start"):
        checkpoint = f"{name}-offset-checkpoint"
        text = (CAPTURED / checkpoint).read_text().replace("orders 0 ", f"{topic} 0 ")
        (tmp_path / "disk" / checkpoint).write_text(text)
    run = strandline(*copy(tmp_path, "--json", log_dir=tmp_path / "disk"))
    report = json.loads(run.stdout)
    assert report["failed"] == [], run.stderr
    assert len(report["copied"]) == len(stored_logs(tmp_path)) > 0
    for (name, partition, base), data in stored_logs(tmp_path).items():
        assert (name, partition) == (topic, "0")
        assert data == (CAPTURED / "orders-0" / f"{base}.log").read_bytes()


@pytest.fixture(scope="module")
def orders_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One topic copied, and what the command said; `orders_copied` gives each test its own."""
    home = tmp_path_factory.mktemp("orders")
    return home, strandline(*copy(home, "--topic", "orders"))


@pytest.fixture
def orders_copied(
    orders_run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> Path:
    home = tmp_path / "home"
    shutil.copytree(orders_run[0], home)
    return home


def test_one_topic_alone_ends_with_success_and_a_table(
    orders_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run = orders_run[1]
    assert run.returncode == 0, run.stderr
    assert "27 segments" in run.stdout
    assert "no pattern in topics.include names payments" in run.stdout
    assert run.stderr.count("copied  orders-") == 27


@pytest.mark.timeout(300)
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("lines_seen", [1, 7])
def test_a_run_that_is_stopped_anywhere_is_finished_by_the_next(
    tmp_path: Path, signal_number: signal.Signals, lines_seen: int
) -> None:
    process = started(*copy(tmp_path))
    assert process.stderr is not None
    seen = 0
    for line in process.stderr:
        seen += line.startswith("copied")
        if seen == lines_seen:
            process.send_signal(signal_number)
            break
    process.communicate(timeout=60)
    if signal_number is not signal.SIGKILL:
        assert process.returncode == 130

    after = json.loads(strandline(*copy(tmp_path, "--json")).stdout)
    assert after["failed"] == []
    assert_tier_equals_disk(tmp_path)


def other_cluster(tmp_path: Path) -> Path:
    log_dir = tmp_path / "other"
    shutil.copytree(CAPTURED, log_dir)
    properties = (log_dir / "meta.properties").read_text()
    cluster_id = next(
        line for line in properties.splitlines() if line.startswith("cluster.id=")
    ).removeprefix("cluster.id=")
    (log_dir / "meta.properties").write_text(
        properties.replace(cluster_id, "AAAAAAAAQACAAAAAAAAAAQ")
    )
    return log_dir


def test_a_directory_that_is_no_log_directory_is_refused_and_nothing_is_made(
    tmp_path: Path,
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    run = invoke(*copy(tmp_path, log_dir=empty))
    assert run.exit_code == ExitCode.USAGE
    assert "is not a Kafka log directory" in run.stderr
    assert not (tmp_path / "data").exists()


def test_a_log_directory_of_another_cluster_is_refused(orders_copied: Path, tmp_path: Path) -> None:
    run = strandline(*copy(orders_copied, log_dir=other_cluster(tmp_path)))
    assert run.returncode == ExitCode.REFUSED, run.stderr
    assert "cluster" in run.stderr


def test_a_store_that_belongs_to_another_cluster_is_refused(orders_copied: Path) -> None:
    before = stored_logs(orders_copied)
    shutil.rmtree(orders_copied / "data")
    run = strandline(*copy(orders_copied))
    assert run.returncode == ExitCode.REFUSED, run.stderr
    assert "cluster" in run.stderr
    assert stored_logs(orders_copied) == before


def test_a_folder_that_is_gone_at_a_later_run_is_not_made_anew(orders_copied: Path) -> None:
    (orders_copied / "tier").rename(orders_copied / "unmounted")
    run = strandline(*copy(orders_copied))
    assert run.returncode in (ExitCode.NOT_FOUND, ExitCode.USAGE), run.stderr
    assert str(orders_copied / "tier") in run.stderr
    assert not (orders_copied / "tier").exists()


def test_two_at_once_on_one_data_directory_are_refused(orders_copied: Path) -> None:
    with open_data_directory(orders_copied / "data"):
        run = strandline(*copy(orders_copied))
    assert run.returncode == ExitCode.CONFLICT, run.stderr
    assert "in use" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["copy"], "--once"),
        (["copy", "--once"], "--log-dir"),
        (["copy", "--once", "--log-dir", CAPTURED], "--store"),
        (
            ["copy", "--once", "--log-dir", CAPTURED, "--store", "gopher://x"],
            "is not the address of a store",
        ),
        (
            ["copy", "--once", "--log-dir", CAPTURED, "--store", "file://x/y"],
            "is not the address of a store",
        ),
        (["copy", "--once", "--log-dir", "/none", "--store", "file:///none/x"], "log_dirs"),
        (["node", "--config", "/nonexistent.toml"], "can't be read"),
        (["format", "--node-id", "1"], "--kafka-cluster-id"),
        (["format"], "--node-id, --kafka-cluster-id"),
    ],
)
def test_wrong_usage_says_what_to_give(
    tmp_path: Path, arguments: list[object], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = invoke(*arguments)
    assert run.exit_code == ExitCode.USAGE, run.stderr
    assert complaint in run.stderr
    assert list(tmp_path.iterdir()) == []
