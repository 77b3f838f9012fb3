"""Compares a leader-epoch-checkpoint with the batches on either side of its borders.

The file has no checksum, and much depends on it: a claim truncates the recorded lineage by it, and
segments outside the lineage are deleted. Each batch has its leader's epoch too (KIP-101).
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
    """A batch has a different epoch than the checkpoint gives its offset."""


def check_epochs(directory: Path, bases: Sequence[int], epochs: Epochs) -> bool:
    """Compare the first batches of the log and those next to each border between two epochs in it.
    `bases` are the base offsets of its segments, ascending. Blocks.

    Returns False if no batch follows the last border yet: check again later.
    EpochsContradictedError; OSError. A batch that can't be read proves nothing here: the copy of
    its segment reports it.
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
    """Raise EpochsContradictedError if `nearest`, at most two batches next to a border on one side
    of it, contradict the checkpoint. Where the checkpoint gives both one epoch and only one batch
    differs, that batch may be damaged (the CRC does not cover its epoch). It counts nevertheless if
    it is the nearest and has the epoch of the border's other side: then the border is wrong.
    """
    told = [epoch_for_offset(epochs, each.base_offset) for each in nearest]
    alike = [each for each, epoch in zip(nearest, told, strict=True) if epoch == told[0]]
    wrong = [each for each in alike if not _agrees(each, epochs)]
    if wrong and wrong[0] is nearest[0] and (
        len(wrong) == len(alike) or wrong[0].partition_leader_epoch == other_side
    ):  # fmt: skip
        raise EpochsContradictedError(
            f"offset {wrong[0].base_offset} is of epoch "
            f"{epoch_for_offset(epochs, wrong[0].base_offset)} by the checkpoint, but its batch "
            f"has epoch {wrong[0].partition_leader_epoch}"
        )


def _agrees(batch: BatchHeader, epochs: Epochs) -> bool:
    return epoch_for_offset(epochs, batch.base_offset) in (None, batch.partition_leader_epoch)


class _Beside:
    """The batches next to `border`, at most two on each side, the nearest first: those that begin
    below it (`below`), and those that begin at or above it (`behind`).
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
            else:  # too many batches from here to the border to read at every scan
                self.reached_behind = True
        except CorruptData:
            self.reached_behind = True
        finally:
            os.close(descriptor)


def _place(index: Path, relative: int) -> int:
    """The position of a batch well below the offset, from the second-last index entry below it; 0
    if there is none. The entries of a live index end at the first one that is all zeros.

    Like `OffsetIndex.lookup`, but without reading the whole file for each partition that has a new
    leader.
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
    """The entry of this number; zeros past the end of the file, which the broker trims when it
    rolls the segment.
    """
    data = os.pread(descriptor, _INDEX_ENTRY.size, number * _INDEX_ENTRY.size)
    offset, position = _INDEX_ENTRY.unpack(data.ljust(_INDEX_ENTRY.size, b"\0"))
    return offset, max(position, 0)
