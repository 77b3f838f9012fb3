"""A partition's place in a broker's log directory: checks it, fills a folder beside it, renames it.

The segments are written into a folder whose name no broker accepts: a broker started meanwhile
reports it and ends. Only a complete log gets the partition's name, by one rename. A partition with
records is never touched.

A complete log gets a note of that before any further step, and keeps it: wherever a run is killed,
the next one recognises the log as its own and does the remaining steps.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, offset_checkpoint
from kafka_formats.errors import Conflict, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    parse_segment_file_name,
)
from kafka_formats.offset_checkpoint import LOG_START_FILE
from kafka_formats.properties import encode_partition_metadata, parse_partition_metadata
from pipeline.restore.log_directory_plan import RestoredLog
from pipeline.restore.log_segment import (
    NOTE_SUFFIX,
    UNFINISHED_SUFFIX,
    write_durably,
)
from pipeline.restore.restore_note import Begun, parse_begun
from rlmm.log.disk import sync_path

STAGING_PREFIX = ".strandline-restore-"
FILE_NAME_BYTES_MAX = 255
"""Limit of Linux's file systems. A partition's directory may need all, as topics have up to 249."""
PLAN_FILE = f"plan{NOTE_SUFFIX}"
FINISHED_FILE = f"strandline{NOTE_SUFFIX}"
"""The name of the file in a finished directory. Brokers ignore files with other suffixes than their
own, and delete them with the partition.
"""

LOCK_FILE = ".lock"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a partition. `topic_id` is the topic's id in the target cluster."""

    log_dir: Path
    topic: str
    partition: int
    topic_id: Uuid

    @property
    def directory(self) -> Path:
        """The directory that the broker will read."""
        return self.log_dir / f"{self.topic}-{self.partition}"

    @property
    def staging(self) -> Path:
        """The folder for the log until it is complete."""
        return staging_of(self.directory)


def staging_of(directory: Path) -> Path:
    """The staging folder beside a partition's directory. The longest topic names leave no room for
    the prefix: then it has the hash of the name.
    """
    name = f"{STAGING_PREFIX}{directory.name}"
    if len(name) > FILE_NAME_BYTES_MAX:
        name = STAGING_PREFIX + hashlib.sha256(directory.name.encode()).hexdigest()
    return directory.with_name(name)


@dataclass(frozen=True, slots=True)
class FinishedLog:
    """The note of a complete log in its folder. `segments` counts those with wanted batches."""

    restore: str
    topic_id: str
    segments: int
    log: RestoredLog

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def finished_log(folder: Path) -> FinishedLog | None:
    """The note in a folder; None if no restore completed this log."""
    try:
        found = json.loads((folder / FINISHED_FILE).read_bytes())
        log = found.pop("log")
        epochs = tuple(EpochEntry(*entry) for entry in log.pop("epochs"))
        return FinishedLog(**found, log=RestoredLog(**log, epochs=epochs))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def find_place(
    log_dirs: Sequence[Path],
    topic: str,
    partition: int,
    topic_id: Uuid | None,
    restore: Begun,
) -> Place:
    """The place where the broker created the partition, empty, or where `restore` put or left it;
    otherwise in the first directory, if the id is known.

    Conflict if it has other records or belongs to another topic. InvalidRequest if the topic id is
    unknown.
    """
    name = f"{topic}-{partition}"
    found = [each for each in log_dirs if (each / name).exists()]
    if len(found) > 1:
        raise Conflict(f"{name} is in {found[0]} and in {found[1]}: remove the empty one")
    # A run killed while it published may have removed the broker's directory, wholly or in part.
    left = [each for each in log_dirs if finished_log(staging_of(each / name)) is not None]
    if not found and not left:
        if topic_id is None:
            raise InvalidRequest(
                f"{name} is in none of the log directories, so its topic id is unknown: create the "
                "topic on the (stopped) broker's cluster first, or give --topic-id",
                field="--topic-id",
            )
        return Place(log_dirs[0], topic, partition, topic_id)
    log_dir = (found or left)[0]
    directory = log_dir / name
    done = finished_log(directory)
    if done is None or not restore.goes_on(parse_begun(done.restore)):
        check_empty(directory, restore.end_offset)
    known = _known_topic_id(directory, staging_of(directory))
    if topic_id not in (None, known):
        raise Conflict(
            f"{directory} belongs to the topic id {known}, not to {topic_id}: leave --topic-id "
            "out, or choose a different --topic-as"
        )
    return Place(log_dir, topic, partition, known)


def _known_topic_id(directory: Path, staging: Path) -> Uuid:
    """The topic id, from the broker's directory, else from the complete log that replaces it."""
    metadata = directory / PARTITION_METADATA_FILE
    if metadata.exists():
        return parse_partition_metadata(metadata.read_bytes(), source=str(metadata))
    left = finished_log(staging)
    if left is None:
        raise Conflict(f"{metadata} is missing: let the broker start and stop once")
    return Uuid.parse(left.topic_id)


def find_finished(place: Place, restore: Begun) -> FinishedLog | None:
    """The complete log of `restore` at this place, if any, with its final name or not yet."""
    for folder in (place.directory, place.staging):
        found = finished_log(folder)
        if (
            found is not None
            and found.topic_id == str(place.topic_id)
            and restore.goes_on(parse_begun(found.restore))
        ):
            return found
    return None


def check_empty(directory: Path, end_offset: int) -> None:
    """Raise Conflict if the partition has any byte of a log, or has had: the broker names its
    empty segment by the offset that comes next, and no log may end below that. `end_offset` is the
    restored one's (exclusive). OSError if the directory cannot be listed: it may hold a log.
    """
    # Not by `glob`, which takes a directory that it cannot list for an empty one.
    for name in _names(directory):
        path = directory / name
        if not name.endswith(LOG_SUFFIX):
            continue
        if path.stat().st_size:
            raise Conflict(
                f"{directory} holds a log ({path.name} has {path.stat().st_size} bytes): a restore "
                "never writes over records. Choose an empty topic or a different --topic-as",
                reason="HOLDS_A_LOG",
            )
        parsed = parse_segment_file_name(path.name)
        if parsed is not None and parsed[0] > end_offset:
            raise Conflict(
                f"{directory} had records up to {parsed[0]}, and the restored log would end at "
                f"{end_offset}: new records would get the offsets of earlier ones, and consumers "
                "skip them. Choose an empty topic or a different --topic-as",
                reason="HAD_A_LOG",
            )


def _names(directory: Path) -> list[str]:
    """The entries of a directory; none if it does not exist."""
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


@contextmanager
def no_broker_in(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Hold the locks that a broker takes on log directories, also on those that none has used yet:
    two restores would write the same files. Conflict if a broker or a second restore is running.
    """
    with ExitStack() as stack:
        for log_dir in log_dirs:
            if not log_dir.is_dir():
                raise InvalidRequest(
                    f"{log_dir} is not a folder: name a broker's log directory",
                    field="--into-log-dirs",
                )
            lock = stack.enter_context((log_dir / LOCK_FILE).open("ab"))
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                raise Conflict(
                    f"a broker or a second restore is running on {log_dir}: stop it first, start a "
                    "broker after the restore",
                    reason="BROKER_RUNS",
                ) from None
        yield


def prepare(place: Place, plan: str) -> None:
    """Make the folder for the segments. A folder of an earlier run is used again if that had the
    same `plan`; files of a different range must not get into this one.
    """
    staging, note = place.staging, place.staging / PLAN_FILE
    if staging.exists() and (not note.exists() or note.read_text() != plan):
        # The notes go first: a folder removed in part must never be taken for a complete log.
        for path in (staging / FINISHED_FILE, note):
            path.unlink(missing_ok=True)
        sync_path(staging)
        shutil.rmtree(staging)
    staging.mkdir(exist_ok=True)
    write_durably(note, plan.encode())


def seal(place: Place, log: RestoredLog, segments: int, restore: Begun) -> FinishedLog:
    """Note that the log is complete, after all its segments and files are on the disk."""
    staging = place.staging
    write_durably(
        staging / LEADER_EPOCH_CHECKPOINT_FILE, leader_epoch_checkpoint.encode(log.epochs)
    )
    write_durably(staging / PARTITION_METADATA_FILE, encode_partition_metadata(place.topic_id))
    sync_path(staging)
    finished = FinishedLog(restore.text(), str(place.topic_id), segments, log)
    write_durably(staging / FINISHED_FILE, finished.encode())
    sync_path(staging)
    return finished


def publish(place: Place, finished: FinishedLog) -> None:
    """Give the complete log its name. A log that has it already is left alone: a broker may have
    written to it. A run may be killed after any step; the next one repeats the steps.
    """
    staging = place.staging
    if finished_log(place.directory) == finished:
        sync_path(place.log_dir)
        return
    for path in staging.iterdir():
        if path.suffix in (NOTE_SUFFIX, UNFINISHED_SUFFIX) and path.name != FINISHED_FILE:
            path.unlink()
    sync_path(staging)
    _set_log_start(place, finished.log)
    if place.directory.exists():
        check_empty(place.directory, finished.log.end_offset)
        shutil.rmtree(place.directory)
    staging.rename(place.directory)
    sync_path(place.log_dir)


def _set_log_start(place: Place, log: RestoredLog) -> None:
    """Set the log start before the log has its name: records below it must never be served."""
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
    sync_path(place.log_dir)
