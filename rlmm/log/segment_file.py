"""One segment of the metadata log: the places of its batches, and the intact part of its file.

The index is in memory only: every start reads the retained log anyway, to find damage.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs, append_entry, epoch_for_offset
from kafka_formats.record_batch import BatchHeader, check_crc, parse_header
from rlmm.damaged_replica import REPLACE_REPLICA

INDEX_INTERVAL_BYTES = 4 * 1024


@dataclass(slots=True)
class SegmentFile:
    """A `.log` file. `end_offset` is exclusive; one thread changes it, others may read it."""

    base_offset: int
    path: Path
    size_bytes: int = 0
    end_offset: int = -1
    _index: list[tuple[int, int]] = field(default_factory=list)
    _indexed_bytes: int = -INDEX_INTERVAL_BYTES

    def __post_init__(self) -> None:
        if self.end_offset < 0:
            self.end_offset = self.base_offset

    def note(self, base_offset: int, last_offset: int, size_bytes: int) -> None:
        """Note a batch that was appended."""
        if self.size_bytes - self._indexed_bytes >= INDEX_INTERVAL_BYTES:
            self._index.append((base_offset, self.size_bytes))
            self._indexed_bytes = self.size_bytes
        self.size_bytes += size_bytes
        self.end_offset = last_offset + 1

    def border_before(self, offset: int) -> tuple[int, int]:
        """Offset and position of a batch at or before the one that holds `offset`."""
        index = self._index
        at = bisect_right(index, offset, key=_offset) - 1
        return index[at] if at >= 0 else (self.base_offset, 0)

    def cut(self, offset: int, position: int) -> None:
        """Forget everything from `offset` (a batch border, at `position`) on."""
        # Replaced, not shortened: a reader in another thread may be looking something up.
        self._index = self._index[: bisect_right(self._index, offset - 1, key=_offset)]
        self._indexed_bytes = self._index[-1][1] if self._index else -INDEX_INTERVAL_BYTES
        self.size_bytes, self.end_offset = position, offset


def _offset(entry: tuple[int, int]) -> int:
    return entry[0]


@dataclass(slots=True)
class SegmentScan:
    """The intact batches from a file's start, and the damage that ends them, if any."""

    segment: SegmentFile
    epochs: Epochs
    damage: CorruptData | None = None
    file_bytes: int = 0


def scan_segment(
    path: Path, base_offset: int, data: bytes, epochs: Epochs, expected_epochs: Epochs | None
) -> SegmentScan:
    """Check every batch of a whole file: header, CRC, offsets without a gap, epochs ascending.

    `epochs` is the history up to this file and comes back with this file's. Offset and epoch of a
    batch lie outside its CRC, so they are compared with their neighbours and, if it exists, the
    epoch checkpoint (`expected_epochs`), which is durable before an epoch's first batch.

    CorruptData: an intact batch contradicts the checkpoint. A crash does not cause that, so it is
    unknown which of the two is wrong.
    """
    scan = SegmentScan(SegmentFile(base_offset, path), epochs, file_bytes=len(data))
    segment, source = scan.segment, str(path)
    while segment.size_bytes < len(data):
        at = segment.size_bytes
        try:
            header = parse_header(data, at, source=source, position=at)
            check_crc(data, at, header, source=source, position=at)
            check_place(header, segment.end_offset, source, at)
            _check_epoch_rises(header, scan.epochs, source, at)
        except CorruptData as damage:
            scan.damage = damage
            break
        if expected_epochs is not None:
            _check_epoch(header, expected_epochs, source, at)
        if not scan.epochs or header.partition_leader_epoch != scan.epochs[-1].epoch:
            scan.epochs = append_entry(
                scan.epochs, header.partition_leader_epoch, header.base_offset
            )
        segment.note(header.base_offset, header.last_offset, header.size_bytes)
    return scan


def check_place(header: BatchHeader, next_offset: int, source: str, position: int) -> None:
    """Raise CorruptData unless the batch starts at `next_offset`. The CRC does not cover its
    offset.
    """
    if header.base_offset != next_offset:
        raise CorruptData(
            f"the batch starts at offset {header.base_offset}, expected {next_offset}",
            source=source,
            position=position,
        )


def _check_epoch_rises(header: BatchHeader, epochs: Epochs, source: str, position: int) -> None:
    epoch = header.partition_leader_epoch
    if epoch < (epochs[-1].epoch if epochs else 0):
        raise CorruptData(
            f"the batch at offset {header.base_offset} has epoch {epoch}, lower than the one "
            "before",
            source=source,
            position=position,
        )


def _check_epoch(header: BatchHeader, expected: Epochs, source: str, position: int) -> None:
    epoch, offset = header.partition_leader_epoch, header.base_offset
    wanted = epoch_for_offset(expected, offset)
    if epoch != wanted:
        raise CorruptData(
            f"the batch at offset {offset} has epoch {epoch}, the leader epoch checkpoint beside "
            f"it says {wanted}: one of the two files is damaged; nothing was changed. If it is "
            "the checkpoint alone, remove that file: it is made again from the batches. "
            f"What to do: {REPLACE_REPLICA}",
            source=source,
            position=position,
        )
