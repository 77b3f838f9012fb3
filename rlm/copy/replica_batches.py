"""Which of the batches that another replica answered are taken. Pure.

Replicas have the same bytes: a batch with other borders than the hole, another leader epoch than
the lineage has, or a wrong CRC is not that batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, check_crc, parse_header
from rlm.data_plane.segment_survey import is_abort
from rlm.local_log.damage import Run
from rlm.local_log.gap_rule import Offsets


@dataclass(frozen=True, slots=True)
class Taken:
    """Of one answer: the bytes of the batches taken, one behind another, their stretches as
    (first, last, bytes), what the replica has no batch for, where the next question begins, and the
    offsets of abort markers.

    `wrong` is a sentence when it holds something else there: that answers nothing.
    """

    data: bytes
    stretches: tuple[tuple[int, int, int], ...]
    lacking: tuple[Offsets, ...]
    next_offset: int
    aborts: tuple[int, ...]
    wrong: str = ""


def take_batches(
    data: bytes,
    at: int,
    last: int,
    lineage: Epochs | None,
    source: str,
    *,
    free_from: int | None = None,
) -> Taken:
    """The batches of [`at`, `last`] (inclusive) in an answer to `at`. `lineage` None: of any leader
    epoch, where the bytes are judged as a whole.

    A log start lies inside a batch where DeleteRecords put it, and batches come whole: down to
    `free_from`, where this replica has nothing, the first may begin below `at`. None: at `at`.
    """
    asked_at, lowest = at, at if free_from is None else free_from
    taken = bytearray()
    stretches: list[tuple[int, int, int]] = []
    lacking: list[Offsets] = []
    aborts: list[int] = []
    wrong, position = "", 0
    while at <= last and len(data) - position >= HEADER_BYTES:
        try:
            header = parse_header(data, position, source=source, position=position)
            if header.size_bytes > len(data) - position:
                break  # cut off by the answer's limit
            check_crc(data, position, header, source=source, position=position)
        except CorruptData as error:
            wrong = str(error)
            break
        batch = data[position : position + header.size_bytes]
        position += header.size_bytes
        if stretches and lacking and header.base_offset < at:
            # Which of two base offsets is right, nothing tells: a CRC leaves them out.
            wrong = f"a batch at {header.base_offset} stands behind the offset {at - 1}"
            return Taken(b"", (), (), asked_at, (), wrong)
        if header.last_offset < at:
            continue
        if header.base_offset > last:
            lacking.append((at, last))
            at = last + 1
            break
        wrong = _misfit(header, lowest, at, last, lineage)
        if wrong:
            break
        if header.base_offset > at:
            lacking.append((at, header.base_offset - 1))
        if is_abort(header, batch, source):
            aborts.append(header.last_offset)
        taken += batch
        if stretches and stretches[-1][1] + 1 == header.base_offset:
            first, _, size = stretches[-1]
            stretches[-1] = (first, header.last_offset, size + len(batch))
        else:
            stretches.append((header.base_offset, header.last_offset, len(batch)))
        at = lowest = header.last_offset + 1
    return Taken(bytes(taken), tuple(stretches), tuple(lacking), at, tuple(aborts), wrong)


def _misfit(header: BatchHeader, lowest: int, at: int, last: int, lineage: Epochs | None) -> str:
    if header.base_offset < lowest or header.last_offset > last:
        return f"a batch {header.base_offset} to {header.last_offset} does not fit the hole"
    if lineage is None:
        return ""
    epoch = header.partition_leader_epoch
    expected = epoch_for_offset(lineage, max(at, header.base_offset))
    if epoch == expected:
        return ""
    return f"the batch at {header.base_offset} has leader epoch {epoch}, the lineage {expected}"


def as_runs(taken: Taken, path: Path, position: int) -> tuple[Run, ...]:
    """Its stretches as runs of the file at `path`, into which its bytes go at `position`."""
    runs = []
    for first, last, size in taken.stretches:
        runs.append(Run(first, last, path, position, size))
        position += size
    return tuple(runs)
