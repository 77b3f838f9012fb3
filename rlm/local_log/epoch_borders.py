"""Compares a leader-epoch-checkpoint with the batches on either side of its borders.

The file has no checksum, and much follows from it: a claim cuts the recorded lineage by it, and
what lies outside is deleted. Each batch names its leader's epoch, too (KIP-101).
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.log_names import INDEX_SUFFIX, LOG_SUFFIX, segment_file_name
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, parse_header

BATCHES_MAX = 100_000
"""Headers read from the place that the index names; an index has an entry every few KiB."""

_INDEX_ENTRY = struct.Struct(">ii")


class EpochsContradictedError(Exception):
    """A batch names another epoch than the checkpoint."""


def check_epochs(directory: Path, bases: Sequence[int], epochs: Epochs) -> bool:
    """Compare the first batches of the log and those beside each border inside of it. `bases` are
    the base offsets of its segments, ascending. Blocks.

    False: behind the last border is no batch yet, so look again. EpochsContradictedError; OSError.
    A batch that can't be read proves nothing here: its copy will tell.
    """
    first = bases[0]
    _compare(_Beside(directory, bases, first).behind, epochs, epoch_for_offset(epochs, first))
    settled = True
    for before, entry in pairwise(epochs):
        if entry.start_offset <= first:
            continue
        beside = _Beside(directory, bases, entry.start_offset)
        for batch in beside.below[:1]:
            if batch.base_offset + batch.last_offset_delta >= entry.start_offset:
                raise EpochsContradictedError(
                    f"epoch {entry.epoch} begins inside the batch at offset {batch.base_offset}"
                )
        _compare(beside.below, epochs, entry.epoch)
        _compare(beside.behind, epochs, before.epoch)
        settled = beside.reached_behind
    return settled


def _compare(nearest: Sequence[BatchHeader], epochs: Epochs, other_side: int | None) -> None:
    """`nearest` are the two batches next to a border on one side of it, or fewer. Of two in one
    epoch one alone may be damaged itself, as the CRC leaves its epoch out; not so if the border is
    what is elsewhere.
    """
    told = [epoch_for_offset(epochs, each.base_offset) for each in nearest]
    alike = [each for each, epoch in zip(nearest, told, strict=True) if epoch == told[0]]
    wrong = [each for each in alike if not _agrees(each, epochs)]
    if wrong and wrong[0] is nearest[0] and (
        len(wrong) == len(alike) or wrong[0].partition_leader_epoch == other_side
    ):  # fmt: skip
        raise EpochsContradictedError(
            f"offset {wrong[0].base_offset} is of epoch "
            f"{epoch_for_offset(epochs, wrong[0].base_offset)} by the checkpoint, and its batch "
            f"names epoch {wrong[0].partition_leader_epoch}"
        )


def _agrees(batch: BatchHeader, epochs: Epochs) -> bool:
    return epoch_for_offset(epochs, batch.base_offset) in (None, batch.partition_leader_epoch)


class _Beside:
    """The batches next to `border`, at most two on each side, the nearest first: those that begin
    below it, and those that begin at it or behind.
    """

    def __init__(self, directory: Path, bases: Sequence[int], border: int) -> None:
        self.below: list[BatchHeader] = []
        self.behind: list[BatchHeader] = []
        self.reached_behind = False
        at = bisect_left(bases, border)
        for base in bases[max(at - 1, 0) : at + 1]:
            if not self.reached_behind:
                self._read(directory, base, border)

    def _read(self, directory: Path, base: int, border: int) -> None:
        path = directory / segment_file_name(base, LOG_SUFFIX)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            index = directory / segment_file_name(base, INDEX_SUFFIX)
            position = _place(index, border - base)
            size = os.fstat(descriptor).st_size
            for _ in range(BATCHES_MAX):
                if position >= size or len(self.behind) == 2:
                    break
                data = os.pread(descriptor, HEADER_BYTES, position)
                batch = parse_header(data, source=str(path), position=position)
                if batch.base_offset >= border:
                    self.behind.append(batch)
                    self.reached_behind = True
                else:
                    self.below = [batch, *self.below[:1]]
                position += batch.size_bytes
            else:  # too far from the border for every look
                self.reached_behind = True
        except CorruptData:
            self.reached_behind = True
        finally:
            os.close(descriptor)


def _place(index: Path, relative: int) -> int:
    """The position of a batch well below the offset, by the entry before the last one that is
    below; 0 without. The entries of a live index end at the first of zeros.

    As `OffsetIndex.lookup`, without reading the whole file of each partition that has a new leader.
    """
    try:
        descriptor = os.open(index, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        low, high = 0, os.fstat(descriptor).st_size // _INDEX_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if (entry := _entry(descriptor, middle)) != (0, 0) and entry[0] < relative:
                low = middle + 1
            else:
                high = middle
        return _entry(descriptor, low - 2)[1] if low >= 2 else 0
    finally:
        os.close(descriptor)


def _entry(descriptor: int, number: int) -> tuple[int, int]:
    """Zeros also behind the end: the broker cuts the file when it rolls the segment."""
    data = os.pread(descriptor, _INDEX_ENTRY.size, number * _INDEX_ENTRY.size)
    offset, position = _INDEX_ENTRY.unpack(data.ljust(_INDEX_ENTRY.size, b"\0"))
    return offset, max(position, 0)
