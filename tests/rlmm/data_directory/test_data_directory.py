"""A data directory is formatted once, opened by one process, and counts its boots."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    InvalidRequest,
    Refused,
    RetryLater,
    StrandlineError,
)
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.properties import parse_meta_properties, parse_partition_metadata
from rlmm.data_directory.data_directory import (
    BOOT_COUNTER,
    CLUSTER_FILE,
    META_PROPERTIES,
    NewDirectory,
    format_data_directory,
    metadata_topic_id,
    open_data_directory,
)
from rlmm.log.disk import OsDisk
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.segment import Incarnation

CLUSTER_ID = Uuid(b"cluster-one.....")
DIRECTORY_ID = Uuid(b"directory-one...")
VOTERS = (Voter(3, DIRECTORY_ID, (Endpoint("QUORUM", "host", 1234),)),)


def format_(
    path: Path,
    *,
    cluster_id: Uuid = CLUSTER_ID,
    kafka_cluster_id: str = "kafka-one",
    node_id: int = 3,
    directory_id: Uuid = DIRECTORY_ID,
    voters: tuple[Voter, ...] = VOTERS,
    boots: int = 0,
    disk: OsDisk | None = None,
) -> None:
    format_data_directory(
        path,
        NewDirectory(cluster_id, kafka_cluster_id, node_id, directory_id, voters),
        boots=boots,
        disk=disk,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "data"
    format_(path)
    return path


def test_starts_are_counted_on_from_what_the_format_says(tmp_path: Path) -> None:
    path = tmp_path / "data"
    format_(path, boots=1_700_000_000)
    for number in (1, 2):
        with open_data_directory(path) as directory:
            assert directory.boot_counter == 1_700_000_000 + number


def test_what_was_formatted_is_what_is_opened(data: Path) -> None:
    with open_data_directory(data) as directory:
        assert directory.cluster_id == CLUSTER_ID
        assert directory.kafka_cluster_id == "kafka-one"
        assert directory.incarnation == Incarnation(3, DIRECTORY_ID, 1)
        assert (directory.node_id, directory.boot_counter) == (3, 1)
        assert directory.directory_id == DIRECTORY_ID
        assert directory.initial_voters == VOTERS
        assert directory.metadata_path == data / "metadata"
        assert directory.view_path == data / "view"


def test_kafkas_files_are_kafkas(data: Path) -> None:
    meta = parse_meta_properties((data / META_PROPERTIES).read_bytes(), source="meta.properties")
    assert (meta.version, meta.cluster_id, meta.node_id) == (1, str(CLUSTER_ID), 3)
    assert meta.directory_id == DIRECTORY_ID
    partition = data / "metadata" / "__remote_log_metadata-0"
    topic_id = parse_partition_metadata(
        (partition / "partition.metadata").read_bytes(), source="partition.metadata"
    )
    assert topic_id == metadata_topic_id(CLUSTER_ID)


def test_the_metadata_topic_id_is_the_clusters_and_a_legal_one() -> None:
    assert metadata_topic_id(CLUSTER_ID) == metadata_topic_id(Uuid(bytes(CLUSTER_ID)))
    assert metadata_topic_id(CLUSTER_ID) != metadata_topic_id(DIRECTORY_ID)
    assert metadata_topic_id(CLUSTER_ID)[6] >> 4 == 4


def test_every_open_is_one_more_boot(data: Path) -> None:
    for boot in (1, 2, 3):
        with open_data_directory(data) as directory:
            assert directory.boot_counter == boot


def test_a_second_process_is_refused_and_counts_no_boot(data: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from rlmm.data_directory.data_directory import "
        "open_data_directory;"
        "open_data_directory(Path(sys.argv[1]))"
    )
    with open_data_directory(data):
        other = subprocess.run(
            [sys.executable, "-c", script, str(data)], capture_output=True, text=True, timeout=60
        )
    assert "is in use by another running node" in other.stderr
    with open_data_directory(data) as directory:
        assert directory.boot_counter == 2


def test_the_same_process_is_refused_as_well(data: Path) -> None:
    with open_data_directory(data), pytest.raises(Conflict, match="in use"):
        open_data_directory(data)


def test_formatting_twice_is_refused_and_changes_nothing(data: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    with pytest.raises(AlreadyExists, match="formatted already"):
        format_(data)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_directory_with_other_content_is_not_formatted(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(Conflict, match="'orders-0'"):
        format_(tmp_path)


def test_an_interrupted_format_is_repeated(tmp_path: Path) -> None:
    class PowerCutError(Exception):
        pass

    class Dying(OsDisk):
        def __init__(self, operations: int) -> None:
            self.left = operations

        def rename(self, old: Path, new: Path) -> None:
            if not self.left:
                raise PowerCutError
            self.left -= 1
            super().rename(old, new)

    for operations in range(5):
        path = tmp_path / str(operations)
        with pytest.raises(PowerCutError):
            format_(path, disk=Dying(operations))
        with pytest.raises(InvalidRequest, match="not formatted"):
            open_data_directory(path)
        format_(path)
        open_data_directory(path).close()


@pytest.mark.parametrize("content", ["missing", "empty", "file"])
def test_what_is_not_formatted_is_refused_with_the_command_to_run(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "data"
    if content == "empty":
        path.mkdir()
    if content == "file":
        path.write_text("not a directory")
    with pytest.raises(InvalidRequest, match="data_directory"):
        open_data_directory(path)
    if content != "file":
        assert list(tmp_path.rglob(BOOT_COUNTER)) == []


def test_another_clusters_or_nodes_directory_is_refused_without_a_boot(data: Path) -> None:
    with pytest.raises(Refused, match="cluster id"):
        open_data_directory(data, cluster_id=Uuid(b"cluster-two....."))
    with pytest.raises(Refused, match="Kafka cluster id kafka-one"):
        open_data_directory(data, kafka_cluster_id="kafka-two")
    with pytest.raises(Refused, match="node id 3, this node is configured for 4"):
        open_data_directory(data, node_id=4)
    with open_data_directory(
        data, cluster_id=CLUSTER_ID, kafka_cluster_id="kafka-one", node_id=3
    ) as directory:
        assert directory.boot_counter == 1


def test_a_count_without_its_checksum_is_no_boot_counter(data: Path) -> None:
    with open_data_directory(data):
        pass
    (data / BOOT_COUNTER).write_bytes(
        (data / BOOT_COUNTER).read_bytes().replace(b"\n1\n", b"\n0\n")
    )
    with pytest.raises(CorruptData, match="checksum"):
        open_data_directory(data)


def test_lost_partition_metadata_is_made_again(data: Path) -> None:
    path = data / "metadata" / "__remote_log_metadata-0" / "partition.metadata"
    whole = path.read_bytes()
    path.write_bytes(b"damaged")
    open_data_directory(data).close()
    assert path.read_bytes() == whole
    path.unlink()
    open_data_directory(data).close()
    assert path.read_bytes() == whole


def test_a_directory_mixed_from_two_clusters_is_refused(tmp_path: Path, data: Path) -> None:
    other = tmp_path / "other"
    format_(other, cluster_id=Uuid(b"cluster-two....."))
    (data / CLUSTER_FILE).write_bytes((other / CLUSTER_FILE).read_bytes())
    with pytest.raises(Refused, match="mixes two owners"):
        open_data_directory(data)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (BOOT_COUNTER, b""),
        (BOOT_COUNTER, b"0\n-1\n"),
        (BOOT_COUNTER, b"0\nx\n"),
        (BOOT_COUNTER, b"1\n7\n"),
        (BOOT_COUNTER, b"\xff"),
        (BOOT_COUNTER, None),
        (CLUSTER_FILE, b"{"),
        (CLUSTER_FILE, b"[]"),
        (CLUSTER_FILE, b"{}"),
        (CLUSTER_FILE, b'{"version": 9, "clusterId": "x", "kafkaClusterId": "y"}'),
        (CLUSTER_FILE, None),
        (META_PROPERTIES, b""),
        (META_PROPERTIES, b"version=1\ncluster.id=x\nnode.id=3\n"),
        (
            META_PROPERTIES,
            b"version=1\ncluster.id=x\nnode.id=3\ndirectory.id=ZGlyZWN0b3J5LW9uZS4uLg\n",
        ),
        ("metadata/__remote_log_metadata-0/" + "0" * 20 + "-" + "0" * 10 + ".checkpoint", b"x"),
        ("metadata/__remote_log_metadata-0/" + "0" * 20 + "-" + "0" * 10 + ".checkpoint", None),
    ],
)
def test_a_damaged_file_is_corrupt_data_and_the_lock_is_let_go(
    data: Path, name: str, content: bytes | None
) -> None:
    if content is None:
        (data / name).unlink()
    else:
        (data / name).write_bytes(content)
    for _ in range(2):
        with pytest.raises(CorruptData, match=Path(name).name):
            open_data_directory(data)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"cluster_id": ZERO_UUID}, "cluster_id"),
        ({"directory_id": ZERO_UUID}, "directory_id"),
        ({"kafka_cluster_id": ""}, "kafka_cluster_id"),
        ({"kafka_cluster_id": "a\nb"}, "kafka_cluster_id"),
        ({"kafka_cluster_id": "x" * 65}, "kafka_cluster_id"),
        ({"node_id": -1}, "node_id"),
        ({"node_id": 2**31}, "node_id"),
        ({"voters": VOTERS * 2}, "voters"),
        ({"voters": (Voter(3, CLUSTER_ID),)}, "voters"),
    ],
)
def test_a_wrong_identity_is_an_invalid_request_and_makes_nothing(
    tmp_path: Path, arguments: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        format_(tmp_path / "data", **arguments)  # type: ignore[arg-type]  # one field at a time
    assert caught.value.field == field
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(13, "Permission denied"), Refused),
        (OSError(30, "Read-only file system"), Refused),
        (NotADirectoryError(20, "Not a directory"), InvalidRequest),
        (OSError(28, "No space left on device"), RetryLater),
    ],
)
def test_disk_errors_become_instructions(
    tmp_path: Path, error: OSError, kind: type[StrandlineError]
) -> None:
    class Failing(OsDisk):
        def rename(self, old: Path, new: Path) -> None:
            raise error

    with pytest.raises(kind, match=os.strerror(error.errno or 0)):
        format_(tmp_path / "data", disk=Failing())
