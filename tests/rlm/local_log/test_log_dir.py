"""Partitions in log directories: Kafka's own, and every kind of trouble."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import pytest

from kafka_formats.errors import InvalidRequest, Refused
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from rlm.local_log import replica_directory
from rlm.local_log.log_dir import LogDirScan, ProblemKind, find_partitions
from tests.rlm.broker_files import (
    CAPTURED,
    CLUSTER_ID,
    ReplicaWriter,
    write_checkpoint,
    write_log_dir,
)

HW_FILE = "replication-offset-checkpoint"
START_FILE = "log-start-offset-checkpoint"


def find(*log_dirs: Path, cluster: str | None = CLUSTER_ID) -> LogDirScan:
    return find_partitions(log_dirs, kafka_cluster_id=cluster)


def two_segments(log_dir: Path, topic: str = "orders") -> ReplicaWriter:
    replica = ReplicaWriter(log_dir, topic=topic)
    replica.append(10)
    replica.roll()
    replica.append(5)
    replica.flush()
    return replica


def test_a_captured_log_directory_is_found_as_the_broker_says() -> None:
    scan = find(CAPTURED / "log-dir", cluster=None)
    assert scan.problems == ()
    assert scan.node_id == 1
    expected = json.loads((CAPTURED / "expected" / "partitions.json").read_text())
    found = {f"{p.partition.topic}-{p.partition.partition}": p for p in scan.partitions}
    assert found.keys() - expected.keys() == {"__consumer_offsets-0"}
    for name, offsets in expected.items():
        partition = found[name]
        assert partition.high_watermark == offsets["log_end_offset"]
        assert partition.local_log_start_offset == offsets["log_start_offset"]
        assert partition.last_stable_offset_bound == offsets["last_stable_offset"]
        for segment, following in zip(partition.segments, partition.segments[1:], strict=False):
            assert segment.next_base_offset == following.base_offset
            assert segment.size_bytes == segment.log_path.stat().st_size
        assert partition.segments[-1].next_base_offset is None


def test_epochs_and_checkpoint_are_given_as_they_stand(tmp_path: Path) -> None:
    replica = two_segments(write_log_dir(tmp_path))
    replica.new_epoch(3)
    (partition,) = find(tmp_path).partitions
    assert partition.leader_epochs == (EpochEntry(0, 0), EpochEntry(3, 15))
    assert partition.checkpoint_bytes == b"0\n2\n0 0\n3 15\n"
    assert partition.producer_snapshots == (10,)
    assert (partition.high_watermark, partition.log_start_offset) == (None, None)
    assert partition.last_stable_offset_bound == 0


def test_several_directories_are_one_broker(tmp_path: Path) -> None:
    two_segments(write_log_dir(tmp_path / "a"), "alpha")
    two_segments(write_log_dir(tmp_path / "b"), "beta")
    scan = find(tmp_path / "b", tmp_path / "a", tmp_path / "a", cluster=None)
    assert [partition.partition.topic for partition in scan.partitions] == ["alpha", "beta"]
    assert scan.cluster_id == CLUSTER_ID


def test_only_live_replicas_are_taken(tmp_path: Path) -> None:
    write_log_dir(tmp_path)
    two_segments(tmp_path)
    for name in (
        f"gone-0.{'0' * 32}-delete",
        f"moving-0.{'0' * 32}-future",
        f"lost-0.{'0' * 32}-stray",
        "__cluster_metadata-0",
        "remote-log-index-cache",
        "not-a-partition-",
        "lost+found",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").write_bytes(b"")
    scan = find(tmp_path)
    assert [str(p.partition.topic) for p in scan.partitions] == ["orders"]
    assert scan.problems == ()


def test_a_path_that_is_no_log_directory_is_an_invalid_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(InvalidRequest, match=r"log_dirs: .*no meta\.properties"):
            find(path)
    with pytest.raises(InvalidRequest, match="at least one"):
        find()


def test_another_clusters_directory_is_refused(tmp_path: Path) -> None:
    write_log_dir(tmp_path / "a")
    write_log_dir(tmp_path / "b", cluster_id="another-cluster")
    with pytest.raises(Refused, match="another-cluster"):
        find(tmp_path / "b")
    with pytest.raises(Refused, match="another-cluster"):
        find(tmp_path / "a", tmp_path / "b", cluster=None)


def test_another_brokers_directory_is_refused(tmp_path: Path) -> None:
    write_log_dir(tmp_path / "a")
    write_log_dir(tmp_path / "b", node_id=2)
    with pytest.raises(Refused, match="broker 2"):
        find(tmp_path / "a", tmp_path / "b")


def test_a_directory_whose_identity_is_damaged_is_left_alone(tmp_path: Path) -> None:
    two_segments(write_log_dir(tmp_path / "a"), "alpha")
    two_segments(write_log_dir(tmp_path / "b"), "beta")
    (tmp_path / "b" / "meta.properties").write_bytes(b"version=1\n")
    scan = find(tmp_path / "a", tmp_path / "b")
    assert [p.partition.topic for p in scan.partitions] == ["alpha"]
    assert [(p.path.name, p.kind) for p in scan.problems] == [
        ("meta.properties", ProblemKind.CORRUPT)
    ]


def test_the_same_partition_in_two_directories_is_taken_from_neither(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        two_segments(write_log_dir(tmp_path / name))
    two_segments(tmp_path / "a", "alpha")
    scan = find(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert [p.partition.topic for p in scan.partitions] == ["alpha"]
    assert [(p.topic, p.partition, p.kind) for p in scan.problems] == [
        ("orders", 0, ProblemKind.DUPLICATE)
    ] * 3


def test_one_partitions_trouble_never_hides_the_others(tmp_path: Path) -> None:
    write_log_dir(tmp_path)
    for topic in ("a", "b", "c", "d", "e"):
        two_segments(tmp_path, topic)
    (tmp_path / "a-0" / "partition.metadata").unlink()
    (tmp_path / "b-0" / "partition.metadata").write_bytes(b"version: 7\ntopic_id: x\n")
    (tmp_path / "c-0" / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n")
    for path in (tmp_path / "d-0").glob("*.log"):
        path.unlink()
    scan = find(tmp_path)
    assert [p.partition.topic for p in scan.partitions] == ["e"]
    assert {p.topic: p.kind for p in scan.problems} == {
        "a": ProblemKind.NO_TOPIC_ID,
        "b": ProblemKind.CORRUPT,
        "c": ProblemKind.CORRUPT,
        "d": ProblemKind.NO_SEGMENTS,
    }
    assert "Kafka 3.0" in next(p.message for p in scan.problems if p.topic == "a")


def test_an_unreadable_file_is_a_problem_of_its_partition(tmp_path: Path) -> None:
    write_log_dir(tmp_path)
    two_segments(tmp_path, "a")
    two_segments(tmp_path, "b")
    checkpoint = tmp_path / "a-0" / "leader-epoch-checkpoint"
    checkpoint.unlink()
    checkpoint.mkdir()  # root reads everything, but nobody reads a directory
    scan = find(tmp_path)
    assert [p.partition.topic for p in scan.partitions] == ["b"]
    assert [(p.topic, p.kind) for p in scan.problems] == [("a", ProblemKind.UNREADABLE)]
    assert "user" in scan.problems[0].message


def test_a_damaged_checkpoint_of_the_directory_is_told_and_counts_as_absent(
    tmp_path: Path,
) -> None:
    write_log_dir(tmp_path)
    two_segments(tmp_path)
    (tmp_path / HW_FILE).write_bytes(b"0\n1\n")
    (tmp_path / START_FILE).mkdir()
    scan = find(tmp_path)
    assert [(p.path.name, p.kind) for p in scan.problems] == [
        (HW_FILE, ProblemKind.CORRUPT),
        (START_FILE, ProblemKind.UNREADABLE),
    ]
    assert scan.partitions[0].high_watermark is None


def test_the_time_at_which_the_high_watermarks_were_written_is_never_later_than_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker writes them anew amid the look."""
    two_segments(write_log_dir(tmp_path))
    assert find(tmp_path).partitions[0].high_watermark_written_ns is None
    write_checkpoint(tmp_path, HW_FILE, {("orders", 0): 10})
    os.utime(tmp_path / HW_FILE, ns=(7, 7))
    assert find(tmp_path).partitions[0].high_watermark_written_ns == 7
    read = replica_directory.read_small

    def written_first(path: Path) -> bytes:
        if path.name == HW_FILE:
            write_checkpoint(tmp_path, HW_FILE, {("orders", 0): 15})
        return read(path)

    monkeypatch.setattr("rlm.local_log.log_dir.read_small", written_first)
    (partition,) = find(tmp_path).partitions
    assert (partition.high_watermark, partition.high_watermark_written_ns) == (15, 7)


def test_a_log_without_batches_has_no_epochs(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    (replica.directory / "leader-epoch-checkpoint").unlink()
    (partition,) = find(tmp_path).partitions
    assert (partition.leader_epochs, partition.checkpoint_bytes) == ((), b"")
    assert [segment.next_base_offset for segment in partition.segments] == [None]


@pytest.mark.parametrize(
    ("epochs", "start"),
    [
        pytest.param(b"0\n1\n0 7\n", 7, id="not written down yet"),
        pytest.param(b"0\n1\n0 2\n", 2, id="truncated since below the log start"),
        pytest.param(b"0\n0\n", 4, id="without epochs the checkpoint alone tells"),
    ],
)
def test_after_delete_records_the_epochs_tell_the_log_start(
    tmp_path: Path, epochs: bytes, start: int
) -> None:
    replica = two_segments(write_log_dir(tmp_path))
    write_checkpoint(tmp_path, START_FILE, {("orders", 0): 4})
    (replica.directory / "leader-epoch-checkpoint").write_bytes(epochs)
    (partition,) = find(tmp_path).partitions
    assert (partition.log_start_offset, partition.local_log_start_offset) == (4, start)


class TestLastStableOffsetBound:
    """Reference: newest snapshot at or below the high watermark, and what it shows as open."""

    def bound(self, log_dir: Path, high_watermark: int) -> int:
        write_checkpoint(log_dir, HW_FILE, {("orders", 0): high_watermark})
        (partition,) = find(log_dir).partitions
        return partition.last_stable_offset_bound

    def test_nothing_open_means_the_snapshots_own_offset(self, tmp_path: Path) -> None:
        replica = two_segments(write_log_dir(tmp_path))
        replica.roll()
        assert self.bound(tmp_path, 15) == 15
        assert self.bound(tmp_path, 14) == 10
        assert self.bound(tmp_path, 9) == 0

    def test_an_open_transaction_holds_it_back(self, tmp_path: Path) -> None:
        replica = two_segments(write_log_dir(tmp_path))
        replica.append(3, producer_id=5, transactional=True)
        replica.roll()
        replica.append(1)
        replica.roll()
        assert self.bound(tmp_path, 100) == 15
        replica.end_transaction(5, commit=True)
        replica.roll()
        assert self.bound(tmp_path, 100) == 20

    def test_a_damaged_snapshot_makes_it_lower_and_is_told(self, tmp_path: Path) -> None:
        replica = two_segments(write_log_dir(tmp_path))
        replica.roll()
        replica.path(15, ".snapshot").write_bytes(b"")
        write_checkpoint(tmp_path, HW_FILE, {("orders", 0): 100})
        scan = find(tmp_path)
        assert scan.partitions[0].last_stable_offset_bound == 10
        assert [(p.topic, p.kind) for p in scan.problems] == [("orders", ProblemKind.CORRUPT)]


class TestChangesWhileListing:
    """A directory is not listed at one instant."""

    def list_with(self, steps: Sequence[Callable[[], object]]) -> AbstractContextManager[object]:
        """Patch the listing: a callable runs after the n-th listing was taken."""
        real = replica_directory._list
        left = list(steps)

        def listing(directory: Path) -> replica_directory._Listing:
            found = real(directory)
            if left:
                left.pop(0)()
            return found

        return patch.object(replica_directory, "_list", listing)

    def test_a_segment_rolled_meanwhile_is_seen(self, tmp_path: Path) -> None:
        replica = two_segments(write_log_dir(tmp_path))
        with self.list_with([replica.roll]):
            (partition,) = find(tmp_path).partitions
        assert [segment.base_offset for segment in partition.segments] == [0, 10, 15]

    def test_a_directory_that_never_rests_is_a_problem(self, tmp_path: Path) -> None:
        replica = two_segments(write_log_dir(tmp_path))

        def roll() -> None:
            replica.append(1)
            replica.roll()

        with self.list_with([roll] * 20):
            scan = find(tmp_path)
        assert scan.partitions == ()
        assert [p.kind for p in scan.problems] == [ProblemKind.CHANGING]

    def test_a_deleted_replica_is_no_problem(self, tmp_path: Path) -> None:
        replica = two_segments(write_log_dir(tmp_path))
        gone = tmp_path / f"orders-0.{'a' * 32}-delete"
        with self.list_with([lambda: replica.directory.rename(gone)]):
            scan = find(tmp_path)
        assert (scan.partitions, scan.problems) == ((), ())

    def test_a_topic_made_anew_is_told_from_the_old_one(self, tmp_path: Path) -> None:
        replica = two_segments(write_log_dir(tmp_path))
        metadata = replica.directory / "partition.metadata"
        new = Uuid(b"another-topic-id")

        def recreate() -> None:
            metadata.write_text(f"version: 0\ntopic_id: {new}")

        with self.list_with([recreate]):
            (partition,) = find(tmp_path).partitions
        assert partition.partition.topic_id == new

    def test_a_log_unlinked_after_the_listing_is_looked_for_again(self, tmp_path: Path) -> None:
        replica = two_segments(write_log_dir(tmp_path))
        with self.list_with([lambda: replica.cut_head(10)]):
            (partition,) = find(tmp_path).partitions
        assert [segment.base_offset for segment in partition.segments] == [10]


def test_one_path_that_is_no_log_directory_stops_no_other(tmp_path: Path) -> None:
    two_segments(write_log_dir(tmp_path / "a"), "alpha")
    (tmp_path / "not mounted").mkdir()
    for paths in (("a", "not mounted"), ("not mounted", "a")):
        scan = find(*(tmp_path / path for path in paths))
        assert [p.partition.topic for p in scan.partitions] == ["alpha"]
        assert [(p.path.parent.name, p.kind) for p in scan.problems] == [
            ("not mounted", ProblemKind.NOT_A_LOG_DIRECTORY)
        ]


def test_a_log_file_missing_in_the_middle_is_a_problem_and_named(tmp_path: Path) -> None:
    replica = two_segments(write_log_dir(tmp_path))
    replica.roll()
    replica.path(10, ".log").unlink()
    scan = find(tmp_path)
    assert [each.removed_logs for each in scan.partitions] == [(10,)]
    assert [(p.topic, p.kind) for p in scan.problems] == [("orders", ProblemKind.CORRUPT)]
    assert "00000000000000000010.log is missing" in scan.problems[0].message


def test_indexes_of_removed_segments_before_and_after_the_log_are_no_problem(
    tmp_path: Path,
) -> None:
    replica = two_segments(write_log_dir(tmp_path))
    replica.roll()
    for base in (0, 15):
        replica.path(base, ".log").unlink()
    scan = find(tmp_path)
    assert [each.base_offset for each in scan.partitions[0].segments] == [10]
    assert scan.problems == ()


def test_a_link_that_leads_nowhere_hides_no_other_partition(tmp_path: Path) -> None:
    two_segments(write_log_dir(tmp_path))
    (tmp_path / "loop-0").symlink_to(tmp_path / "loop-0")
    (tmp_path / "broken-0").symlink_to(tmp_path / "nothing")
    scan = find(tmp_path)
    assert [p.partition.topic for p in scan.partitions] == ["orders"]
    assert [(p.topic, p.kind) for p in scan.problems] == [("loop", ProblemKind.UNREADABLE)]


@pytest.mark.parametrize(
    "name",
    ["..-0", ".-0", "a b-0", "caf\u00e9-0", "x\ny-0", "%2e%2e-0", "\udcff-0", "a-99999999999",
     "-0", "t" * 250 + "-0", "orders-0.future", "orders-0-delete"],
)  # fmt: skip
def test_a_hostile_directory_name_is_no_partition(tmp_path: Path, name: str) -> None:
    replica = two_segments(write_log_dir(tmp_path))
    shutil.copytree(replica.directory, os.path.normpath(f"{tmp_path}/{name}"))
    scan = find(tmp_path)
    assert [p.partition.topic for p in scan.partitions] == ["orders"]


def test_an_unlistable_directory_is_a_problem_of_it_alone(tmp_path: Path) -> None:
    two_segments(write_log_dir(tmp_path / "a"), "alpha")
    two_segments(write_log_dir(tmp_path / "b"), "beta")
    real = os.scandir

    def scandir(path: Path) -> object:
        if Path(path) == tmp_path / "b":
            raise OSError(5, "Input/output error", str(path))
        return real(path)

    with patch.object(os, "scandir", scandir):
        scan = find(tmp_path / "a", tmp_path / "b")
    assert [p.partition.topic for p in scan.partitions] == ["alpha"]
    assert [p.kind for p in scan.problems] == [ProblemKind.UNREADABLE]


def test_a_segment_is_sealed_when_it_was_rolled_not_when_it_was_last_written(
    tmp_path: Path,
) -> None:
    replica = two_segments(write_log_dir(tmp_path))
    replica.append(1)
    replica.roll()
    files = {
        replica.path(0, ".log"): 1_000,
        replica.path(10, ".snapshot"): 3_000,  # the roll, long after the last record
        replica.path(10, ".log"): 5_000,
        replica.path(16, ".snapshot"): 9_000,
    }
    for path, at_s in files.items():
        os.utime(path, (at_s, at_s))

    def sealed() -> list[int | None]:
        return [each.sealed_at_ms for each in find(tmp_path).partitions[0].segments]

    assert sealed() == [3_000_000, 9_000_000, None]
    os.utime(replica.path(10, ".snapshot"), (8_000, 8_000))
    assert sealed()[0] == 5_000_000, "a recovery that writes the snapshot anew makes it no younger"
    replica.path(10, ".snapshot").unlink()
    assert sealed()[0] == 1_000_000, "the last write is all that is known"


def test_named_replicas_are_found_as_among_all_and_no_other_is_read(tmp_path: Path) -> None:
    a, b = write_log_dir(tmp_path / "a"), write_log_dir(tmp_path / "b")
    two_segments(a, "alpha")
    two_segments(b, "beta")
    two_segments(a, "gamma")
    (a / "gamma-0" / "partition.metadata").unlink()
    (a / "__cluster_metadata-0").mkdir()
    (a / "file-0").touch()
    write_checkpoint(a, HW_FILE, {("alpha", 0): 15})
    both = {("alpha", 0), ("beta", 0), ("nowhere", 0), ("__cluster_metadata", 0), ("file", 0)}
    some = find_partitions((a, b), kafka_cluster_id=CLUSTER_ID, only=both)
    assert some.partitions == find(a, b).partitions
    assert some.problems == ()
    (gamma,) = find_partitions((a, b), kafka_cluster_id=CLUSTER_ID, only={("gamma", 0)}).problems
    assert gamma.kind is ProblemKind.NO_TOPIC_ID


def test_a_named_replica_in_two_directories_is_none(tmp_path: Path) -> None:
    a, b = write_log_dir(tmp_path / "a"), write_log_dir(tmp_path / "b")
    two_segments(a)
    two_segments(b)
    scan = find_partitions((a, b), kafka_cluster_id=CLUSTER_ID, only=[("orders", 0)])
    assert scan.partitions == ()
    assert {each.kind for each in scan.problems} == {ProblemKind.DUPLICATE}
