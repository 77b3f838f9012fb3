"""A partition's place in a broker's log directory: checked, filled beside, and given its name.

The segments are written into a folder of a name that no broker takes: one that is started in the
middle says so and ends. Only when the log is whole does it get the partition's name, by one rename.
A partition that has records is never touched.
"""

from __future__ import annotations

import errno
import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, offset_checkpoint
from kafka_formats.errors import Conflict, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
)
from kafka_formats.offset_checkpoint import LOG_START_FILE
from kafka_formats.properties import encode_partition_metadata, parse_partition_metadata
from pipeline.restore.log_directory_plan import RestoredLog
from pipeline.restore.log_segment import (
    NOTE_SUFFIX,
    UNFINISHED_SUFFIX,
    write_durably,
)
from rlmm.synced_path import sync_path

STAGING_PREFIX = ".strandline-restore-"
PLAN_FILE = f"plan{NOTE_SUFFIX}"
LOCK_FILE = ".lock"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition goes. `topic_id` is the one it has for the brokers it goes to."""

    log_dir: Path
    topic: str
    partition: int
    topic_id: Uuid

    @property
    def directory(self) -> Path:
        """What the broker will read."""
        return self.log_dir / f"{self.topic}-{self.partition}"

    @property
    def staging(self) -> Path:
        """Where it is written until it is whole."""
        return self.log_dir / f"{STAGING_PREFIX}{self.topic}-{self.partition}"


def find_place(
    log_dirs: Sequence[Path], topic: str, partition: int, topic_id: Uuid | None
) -> Place:
    """Where the broker made the partition, empty; else the first directory, if the id is known.

    Conflict: there are records, or it is another topic's. InvalidRequest: nothing tells the id.
    """
    found = [each for each in log_dirs if (each / f"{topic}-{partition}").exists()]
    if len(found) > 1:
        raise Conflict(f"{topic}-{partition} is in {found[0]} and in {found[1]}")
    if not found:
        if topic_id is None:
            raise InvalidRequest(
                f"{topic}-{partition} is in none of the log directories, so its topic id is not "
                "known: make the topic on the (stopped) broker's cluster first, or say --topic-id",
                field="--topic-id",
            )
        return Place(log_dirs[0], topic, partition, topic_id)
    directory = found[0] / f"{topic}-{partition}"
    check_empty(directory)
    metadata = directory / PARTITION_METADATA_FILE
    if not metadata.exists():
        raise Conflict(f"{metadata} is missing: let the broker start and stop once")
    known = parse_partition_metadata(metadata.read_bytes(), source=str(metadata))
    if topic_id not in (None, known):
        raise Conflict(f"{directory} belongs to the topic id {known}, not to {topic_id}")
    return Place(found[0], topic, partition, known)


def check_empty(directory: Path) -> None:
    """Conflict if the partition has a single byte of a log."""
    for path in directory.glob(f"*{LOG_SUFFIX}"):
        if path.stat().st_size:
            raise Conflict(
                f"{directory} holds a log ({path.name} has {path.stat().st_size} bytes): a restore "
                "never writes where records are. Choose an empty topic or another --topic-as",
                reason="HOLDS_A_LOG",
            )


@contextmanager
def no_broker_in(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Hold the lock that a broker takes of a log directory. Conflict: one is running there."""
    with ExitStack() as stack:
        for log_dir in log_dirs:
            if not log_dir.is_dir():
                raise InvalidRequest(f"{log_dir} is no folder", field="--into-log-dirs")
            if not (log_dir / META_PROPERTIES_FILE).exists():
                continue  # no broker's (yet): nobody to lock out
            lock = stack.enter_context((log_dir / LOCK_FILE).open("ab"))
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                raise Conflict(
                    f"a broker is running on {log_dir}: stop it first, start it after the restore",
                    reason="BROKER_RUNS",
                ) from None
        yield


def prepare(place: Place, plan: str) -> None:
    """Make the folder that the segments are written into. One of an earlier run is gone on with if
    that had the same `plan`; files of another range must not come into this one.
    """
    note = place.staging / PLAN_FILE
    if place.staging.exists() and (not note.exists() or note.read_text() != plan):
        shutil.rmtree(place.staging)
    place.staging.mkdir(exist_ok=True)
    write_durably(note, plan.encode())


def publish(place: Place, log: RestoredLog) -> None:
    """Give the whole log its name. Every file is on the disk before that."""
    staging = place.staging
    write_durably(
        staging / LEADER_EPOCH_CHECKPOINT_FILE, leader_epoch_checkpoint.encode(log.epochs)
    )
    write_durably(staging / PARTITION_METADATA_FILE, encode_partition_metadata(place.topic_id))
    for path in staging.iterdir():
        if path.suffix in (NOTE_SUFFIX, UNFINISHED_SUFFIX):
            path.unlink()
    sync_path(staging)
    _set_log_start(place, log)
    if place.directory.exists():
        check_empty(place.directory)
        shutil.rmtree(place.directory)
    staging.rename(place.directory)
    sync_path(place.log_dir)


def _set_log_start(place: Place, log: RestoredLog) -> None:
    """Before the log has its name: what the log start hides must never be served."""
    path = place.log_dir / LOG_START_FILE
    offsets = {}
    if path.exists():
        offsets = offset_checkpoint.parse(path.read_bytes(), source=str(path))
    name = (place.topic, place.partition)
    if log.log_start_offset > log.base_offset:
        offsets[name] = log.log_start_offset
    elif offsets.pop(name, None) is None:
        return
    write_durably(path, offset_checkpoint.encode(offsets))
