"""A node's data directory: formatted once by `strandline format`, opened by one node at a time.

    <data>/meta.properties     cluster id, node id, directory id (Kafka's file). Written last: with
                               it a directory counts as formatted
    <data>/cluster.json        the Kafka cluster it serves, and a second copy of the ids
    <data>/boot-counter        increased at each start of a node here; part of its incarnation
    <data>/.lock               locked while a node runs
    <data>/metadata/           the metadata log (`rlmm/log`), with the first voters in its bootstrap
                               snapshot
    <data>/view/               the view (`rlmm/view/view.py`)

Each of these files that can't be rebuilt from others has a checksum, or repeats the content of
another one: a flipped bit is an error here, never a different identity or an earlier boot.

Errors: InvalidRequest (not a usable path, or not formatted), Refused (a different cluster's or
node's, or no permission), Conflict (in use, or not empty), CorruptData.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    InvalidRequest,
    Refused,
    RetryLater,
)
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.properties import (
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
    parse_meta_properties,
)
from rlmm.damaged_replica import REPLACE_REPLICA
from rlmm.data_directory.restart_snapshot import write_restart_snapshot
from rlmm.log.disk import TEMPORARY_SUFFIX, Disk, OsDisk, remove_files, replace_file
from rlmm.log.quorum_records import Voter
from rlmm.log.quorum_state_file import QUORUM_STATE
from rlmm.log.recovery import LOG_SUFFIX, PARTITION_DIRECTORY, TOPIC
from rlmm.log.snapshot_files import (
    PART_SUFFIX,
    list_snapshots,
    snapshot_file_name,
    snapshot_voters,
    write_bootstrap_snapshot,
)
from rlmm.metadata_log import SnapshotId
from rlmm.segment import Incarnation

META_PROPERTIES = "meta.properties"
CLUSTER_FILE = "cluster.json"
BOOT_COUNTER = "boot-counter"
LOCK = ".lock"
METADATA = "metadata"
VIEW = "view"
PARTITION_METADATA = "partition.metadata"
FORMAT_VERSION = 1
BOOT_COUNTER_VERSION = 1
BOOT_COUNTER_DIGITS_MAX = 18
NODE_ID_MAX = 2**31 - 1
_OURS = {CLUSTER_FILE, BOOT_COUNTER, LOCK, METADATA}


@dataclass(slots=True)
class DataDirectory:
    """An opened data directory: only this process uses it until `close`."""

    path: Path
    cluster_id: Uuid
    kafka_cluster_id: str
    incarnation: Incarnation
    initial_voters: tuple[Voter, ...]
    _lock: int

    @property
    def node_id(self) -> int:
        return self.incarnation.node_id

    @property
    def directory_id(self) -> Uuid:
        return self.incarnation.directory_id

    @property
    def boot_counter(self) -> int:
        return self.incarnation.boot_counter

    @property
    def metadata_path(self) -> Path:
        """The directory of the metadata log."""
        return self.path / METADATA

    @property
    def view_path(self) -> Path:
        """The directory of the view."""
        return self.path / VIEW

    def close(self) -> None:
        """Release the lock, so that a different process may open it. Idempotent; close log and view
        first.
        """
        descriptor, self._lock = self._lock, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def metadata_topic_id(cluster_id: Uuid) -> Uuid:
    """The metadata topic's id, derived from the cluster id, so that every node has the same."""
    raw = bytearray(hashlib.sha256(TOPIC.encode() + cluster_id).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return Uuid(bytes(raw))


@dataclass(frozen=True, slots=True)
class NewDirectory:
    """The identity of a new data directory. Without `voters` it joins an existing quorum."""

    cluster_id: Uuid
    kafka_cluster_id: str
    node_id: int
    directory_id: Uuid
    voters: tuple[Voter, ...]


def format_data_directory(
    path: Path,
    new: NewDirectory,
    *,
    boots: int = 0,
    snapshot: Path | None = None,
    before_last_step: Callable[[], None] = lambda: None,
    disk: Disk | None = None,
) -> None:
    """Make `path` a data directory of this node. Durable on return.

    `boots` is the number from which starts are counted: the seconds of the clock if a disk may be
    lost and formatted with the same directory id again. The new incarnation is then above the
    former one, which other nodes and recorded claims remember.

    `snapshot` is a snapshot of a different cluster's metadata log, with which this one begins
    (`rlmm/data_directory/restart_snapshot.py`). `before_last_step` is called when all files but the
    last one are written; if it raises, the directory stays unformatted.

    An interrupted format may be repeated. AlreadyExists: it is formatted. Conflict: it has other
    content. Existing files are never overwritten.
    """
    disk = disk or OsDisk()
    _check_identity(new)
    with _disk_errors(path):
        disk.make_directory(path)
        lock = _lock(path)
        try:
            _check_free(disk, path)
            partition = path / METADATA / PARTITION_DIRECTORY
            disk.make_directory(partition)
            _remove_interrupted_format(disk, partition)
            write_bootstrap_snapshot(disk, partition, new.voters)
            if snapshot is not None:
                write_restart_snapshot(disk, partition, snapshot, new.voters)
            replace_file(
                disk,
                partition / PARTITION_METADATA,
                encode_partition_metadata(metadata_topic_id(new.cluster_id)),
            )
            replace_file(disk, path / BOOT_COUNTER, _encode_boot_counter(boots))
            meta = MetaProperties(1, str(new.cluster_id), new.node_id, new.directory_id)
            replace_file(disk, path / CLUSTER_FILE, _encode_cluster(meta, new.kafka_cluster_id))
            before_last_step()
            # Last: with this file the directory counts as formatted.
            replace_file(disk, path / META_PROPERTIES, encode_meta_properties(meta))
        finally:
            os.close(lock)


def open_data_directory(
    path: Path,
    *,
    cluster_id: Uuid | None = None,
    kafka_cluster_id: str | None = None,
    node_id: int | None = None,
    disk: Disk | None = None,
) -> DataDirectory:
    """Lock the directory, check its owner, and count one more boot (durable on return).

    `cluster_id`, `kafka_cluster_id` and `node_id`, if given, must be those of its format.
    """
    disk = disk or OsDisk()
    with _disk_errors(path):
        if META_PROPERTIES not in disk.list_names(path):
            raise InvalidRequest(
                f"{path} is not formatted: run `strandline format` for this node first, or correct "
                "the path. If it ran before, mount the disk; a voter that lost it is replaced",
                field="data_directory",
            )
        lock = _lock(path)
        try:
            return _open_locked(disk, path, lock, cluster_id, kafka_cluster_id, node_id)
        except BaseException:
            os.close(lock)
            raise


def _open_locked(
    disk: Disk,
    path: Path,
    lock: int,
    cluster_id: Uuid | None,
    kafka_cluster_id: str | None,
    node_id: int | None,
) -> DataDirectory:
    with _instructions():
        meta, directory_id, own_cluster = _load_meta(disk, path)
        own_kafka = _load_cluster(disk, path, meta)
    for name, wanted, found in (
        ("cluster id", cluster_id and str(cluster_id), meta.cluster_id),
        ("Kafka cluster id", kafka_cluster_id, own_kafka),
        ("node id", node_id, meta.node_id),
    ):
        if wanted is not None and wanted != found:
            raise Refused(
                f"{path} was formatted with {name} {found}, this node is configured for {wanted}: "
                "correct the configuration or the path; a directory never changes its owner"
            )
    partition = path / METADATA / PARTITION_DIRECTORY
    with _instructions():
        voters = snapshot_voters(disk, partition / snapshot_file_name(SnapshotId(0, 0)))
    _keep_partition_metadata(disk, partition, own_cluster)
    boot_counter = _load_boot_counter(disk, path) + 1
    # Durable before this incarnation does anything: an incarnation is never used twice.
    replace_file(disk, path / BOOT_COUNTER, _encode_boot_counter(boot_counter))
    incarnation = Incarnation(meta.node_id, directory_id, boot_counter)
    return DataDirectory(path, own_cluster, own_kafka, incarnation, voters, lock)


def _load_meta(disk: Disk, path: Path) -> tuple[MetaProperties, Uuid, Uuid]:
    """The content of meta.properties, and its ids of the directory and the cluster."""
    source = str(path / META_PROPERTIES)
    meta = parse_meta_properties(disk.read(path / META_PROPERTIES), source=source)
    if meta.directory_id is None:
        raise CorruptData("directory.id is missing", source=source)
    try:
        return meta, meta.directory_id, Uuid.parse(meta.cluster_id)
    except InvalidRequest as error:
        raise CorruptData(f"cluster.id: {error}", source=source) from error


@contextmanager
def _instructions() -> Iterator[None]:
    """Add to CorruptData the instruction for damage of the directory's identity."""
    try:
        yield
    except CorruptData as error:
        raise CorruptData(
            f"{error.detail}. It is damaged. This file never changes: put back a backup of it "
            f"alone. Without one: {REPLACE_REPLICA}",
            source=error.source,
            position=error.position,
        ) from error


def _check_identity(new: NewDirectory) -> None:
    node_id, directory_id, kafka_id = new.node_id, new.directory_id, new.kafka_cluster_id
    for field, value in (("cluster_id", new.cluster_id), ("directory_id", directory_id)):
        if value == ZERO_UUID:
            raise InvalidRequest("the zero id is reserved", field=field)
    if not kafka_id or not kafka_id.isprintable() or len(kafka_id) > 64:
        raise InvalidRequest(
            "give the id of the Kafka cluster (`kafka-cluster cluster-id` prints it)",
            field="kafka_cluster_id",
        )
    if not 0 <= node_id <= NODE_ID_MAX:
        raise InvalidRequest(f"{node_id} is not between 0 and {NODE_ID_MAX}", field="node_id")
    if len({voter.node_id for voter in new.voters}) != len(new.voters):
        raise InvalidRequest("name each voter once", field="voters")
    for voter in new.voters:
        if voter.node_id == node_id and voter.directory_id != directory_id:
            raise InvalidRequest(
                f"node {node_id} is to be formatted with directory id {directory_id}, but the "
                f"voters name it with {voter.directory_id}: give both the same",
                field="voters",
            )


def _check_free(disk: Disk, path: Path) -> None:
    names = disk.list_names(path)
    if META_PROPERTIES in names:
        raise AlreadyExists(
            f"{path} is formatted already. To start anew, move it away; its metadata is lost then"
        )
    strangers = [
        name for name in names if name not in _OURS and not name.endswith(TEMPORARY_SUFFIX)
    ]
    if strangers:
        raise Conflict(
            f"{path} is not empty (it has {strangers[0]!r}): give a new or an empty directory",
            reason="NOT_EMPTY",
        )


def _remove_interrupted_format(disk: Disk, partition: Path) -> None:
    """Remove the files of an interrupted format. Raises Conflict if a node ran here: its log must
    stay, whatever else is missing.
    """
    names = disk.list_names(partition)
    if any(name.endswith(LOG_SUFFIX) for name in names):
        raise Conflict(
            f"{partition} has a metadata log, although {META_PROPERTIES} is gone: restore that "
            "file from a backup, or give a new directory",
            reason="NOT_EMPTY",
        )
    remove_files(disk, partition, suffix=PART_SUFFIX)
    for each in list_snapshots(disk, partition):
        disk.remove(partition / snapshot_file_name(each))
    disk.remove(partition / QUORUM_STATE)


def _encode_cluster(meta: MetaProperties, kafka_cluster_id: str) -> bytes:
    fields: dict[str, object] = {
        "version": FORMAT_VERSION,
        "clusterId": meta.cluster_id,
        "nodeId": meta.node_id,
        "directoryId": str(meta.directory_id),
        "kafkaClusterId": kafka_cluster_id,
    }
    return json.dumps(fields | {"crc32c": _checksum(fields)}, indent=2).encode() + b"\n"


def _checksum(fields: dict[str, object]) -> str:
    return f"{crc32c(json.dumps(fields).encode()):08x}"


def _load_cluster(disk: Disk, path: Path, meta: MetaProperties) -> str:
    """The Kafka cluster's id. CorruptData, or Refused if the two files name different owners."""
    source = path / CLUSTER_FILE
    try:
        fields = json.loads(disk.read(source))
        version, kafka = fields["version"], fields["kafkaClusterId"]
        if fields.pop("crc32c") != _checksum(fields):
            raise ValueError("the checksum does not fit")
        own = fields["clusterId"], fields["nodeId"], fields["directoryId"]
    except (
        FileNotFoundError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise CorruptData(f"missing or unreadable: {error!r:.200}", source=str(source)) from error
    if version != FORMAT_VERSION or not isinstance(kafka, str):
        raise CorruptData(f"format version {version!r:.20}", source=str(source))
    if own != (found := (meta.cluster_id, meta.node_id, str(meta.directory_id))):
        raise Refused(
            f"{path} mixes two owners: {META_PROPERTIES} says {found}, {CLUSTER_FILE} says {own}. "
            f"What to do: {REPLACE_REPLICA}"
        )
    return kafka


def _keep_partition_metadata(disk: Disk, partition: Path, cluster_id: Uuid) -> None:
    """Write the file for Kafka's tools; its content is derived from the cluster id."""
    data = encode_partition_metadata(metadata_topic_id(cluster_id))
    path = partition / PARTITION_METADATA
    try:
        if disk.read(path) == data:
            return
    except FileNotFoundError:
        pass
    replace_file(disk, path, data)


def _encode_boot_counter(count: int) -> bytes:
    data = f"{BOOT_COUNTER_VERSION}\n{count}\n".encode()
    return data + f"{crc32c(data):08x}\n".encode()


def _load_boot_counter(disk: Disk, path: Path) -> int:
    source = path / BOOT_COUNTER
    try:
        data = disk.read(source)
        version, count, *_ = data.decode("ascii").split("\n")
        if not count.isdigit() or len(count) > BOOT_COUNTER_DIGITS_MAX:
            raise ValueError(f"version {version!r}, count {count[:20]!r}")
        if data != _encode_boot_counter(int(count)):
            raise ValueError("the checksum does not fit")
        return int(count)
    except (FileNotFoundError, ValueError) as error:
        raise CorruptData(
            f"missing or unreadable ({error}). A guessed count could repeat an earlier incarnation "
            "of this node: format it anew as a new replica, or restore the file with a count above "
            "any used so far",
            source=str(source),
        ) from error


def _lock(path: Path) -> int:
    """Take the directory's lock; the descriptor keeps it. Conflict: another process has it."""
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Conflict(
            f"{path} is in use by another running node: stop that one first, or give this one its "
            "own directory",
            reason="IN_USE",
        ) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{path}: {error}"
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            raise Refused(f"{message}. The node's user must be able to write there") from error
        if isinstance(error, NotADirectoryError | FileExistsError | FileNotFoundError):
            raise InvalidRequest(f"{message}. Give a directory", field="data_directory") from error
        raise RetryLater(f"{message}. Check the disk and its free space") from error
