"""The demo's broker: captured partition directories of a real one, copied into a log directory step
by step.

Each step adds one segment to every partition, in the order in which a broker rolls: the new
segment's files with the producer snapshot at its base, then the leader epoch history up to its end,
then the high watermark. So the segment before it becomes sealed, as beside a real broker.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, offset_checkpoint
from kafka_formats.errors import NotFound
from kafka_formats.log_names import parse_partition_directory, parse_segment_file_name
from kafka_formats.offset_checkpoint import LOG_START_FILE

_HIGH_WATERMARKS = "replication-offset-checkpoint"
_EPOCHS = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class _CapturedPartition:
    directory: Path
    topic: str
    partition: int
    base_offsets: tuple[int, ...]
    high_watermark: int


class DemoFeed:
    """Copies `source` (a captured log directory) into `target`, which must not exist yet, step by
    step.
    """

    def __init__(self, source: Path, target: Path, topics: Sequence[str]) -> None:
        if not (source / "meta.properties").is_file():
            raise NotFound(
                f"{source} is not a captured log directory: run the demo from a checkout of the "
                "repository, or name a log directory with --log-dir"
            )
        self._target = target
        marks_file = source / _HIGH_WATERMARKS
        marks = offset_checkpoint.parse(marks_file.read_bytes(), source=str(marks_file))
        self._partitions = tuple(
            captured
            for directory in sorted(source.iterdir())
            if (captured := _captured(directory, marks)) is not None and captured.topic in topics
        )
        self.steps = max((len(each.base_offsets) for each in self._partitions), default=0)
        target.mkdir(parents=True)
        shutil.copy(source / "meta.properties", target)
        if (source / LOG_START_FILE).is_file():  # DeleteRecords moved some log starts
            shutil.copy(source / LOG_START_FILE, target)
        for each in self._partitions:
            (target / each.directory.name).mkdir()
            shutil.copy(each.directory / "partition.metadata", target / each.directory.name)

    @property
    def partitions(self) -> tuple[tuple[str, int], ...]:
        """(topic, partition) of each captured partition, in order."""
        return tuple((each.topic, each.partition) for each in self._partitions)

    @property
    def sealed_segments(self) -> int:
        """The number of sealed segments after the last step."""
        return sum(len(each.base_offsets) - 1 for each in self._partitions)

    def active_base(self, topic: str, partition: int) -> int:
        """The base offset of the partition's last segment, which stays active."""
        return next(
            each.base_offsets[-1]
            for each in self._partitions
            if (each.topic, each.partition) == (topic, partition)
        )

    def play(self, step: int) -> None:
        """Make segment number `step` (from 0) of every partition its active segment."""
        for each in self._partitions:
            if step < len(each.base_offsets):
                self._roll(each, step)
        marks = {
            (each.topic, each.partition): _high_watermark(each, step) for each in self._partitions
        }
        _replace(self._target / _HIGH_WATERMARKS, offset_checkpoint.encode(marks))

    def _roll(self, captured: _CapturedPartition, step: int) -> None:
        target = self._target / captured.directory.name
        base = captured.base_offsets[step]
        last = step + 1 == len(captured.base_offsets)
        for file in sorted(captured.directory.iterdir()):
            named = parse_segment_file_name(file.name)
            # The .log is copied last, since a segment exists from then on. The last segment comes
            # with the producer snapshot that the broker took at the log's end when it stopped.
            if named is None or named[1] == ".log":
                continue
            if named[0] == base or (last and named[0] > base):
                shutil.copy(file, target)
        for file in captured.directory.glob(f"{base:020d}.log"):
            shutil.copy(file, target)
        epochs_file = captured.directory / _EPOCHS
        epochs = leader_epoch_checkpoint.parse(epochs_file.read_bytes(), source=str(epochs_file))
        if step + 1 < len(captured.base_offsets):
            epochs = leader_epoch_checkpoint.truncate_from_end(
                epochs, captured.base_offsets[step + 1]
            )
        _replace(target / _EPOCHS, leader_epoch_checkpoint.encode(epochs))


def _captured(directory: Path, marks: dict[tuple[str, int], int]) -> _CapturedPartition | None:
    named = parse_partition_directory(directory.name) if directory.is_dir() else None
    if named is None or (named.topic, named.partition) not in marks:
        return None
    segments = (parse_segment_file_name(file.name) for file in directory.iterdir())
    bases = sorted(found[0] for found in segments if found is not None and found[1] == ".log")
    return _CapturedPartition(
        directory, named.topic, named.partition, tuple(bases), marks[named.topic, named.partition]
    )


def _high_watermark(captured: _CapturedPartition, step: int) -> int:
    """The captured high watermark, limited to the segments that exist after `step`."""
    if step + 1 >= len(captured.base_offsets):
        return captured.high_watermark
    return min(captured.high_watermark, captured.base_offsets[step + 1])


def _replace(path: Path, data: bytes) -> None:
    scratch = path.with_name(path.name + ".tmp")
    scratch.write_bytes(data)
    os.replace(scratch, path)
