"""`leader-epoch-checkpoint`: where each leader epoch began, and Kafka's arithmetic on it.

Text: version, count, then `epoch startOffset` a line. Sources: Kafka's LeaderEpochCheckpointFile
and LeaderEpochFileCache. All functions are pure and keep both columns strictly ascending.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from kafka_formats.checkpoint_text import encode_entries, parse_entries, parse_number
from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, InvalidRequest

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
_EPOCH_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1


class EpochEntry(NamedTuple):
    """`epoch` began at `start_offset` and lasts until the next entry's start."""

    epoch: int
    start_offset: int


Epochs = tuple[EpochEntry, ...]
"""A lineage: entries in ascending order of epoch and of start offset."""


def parse(data: Buffer, *, source: str) -> Epochs:
    """Read a checkpoint; an empty file has no entries, anything malformed is CorruptData."""
    epochs: list[EpochEntry] = []
    for position, (epoch_text, offset_text) in parse_entries(data, fields=2, source=source):
        entry = EpochEntry(
            parse_number(epoch_text, source=source, position=position, largest=_EPOCH_MAX),
            parse_number(offset_text, source=source, position=position, largest=_OFFSET_MAX),
        )
        if epochs and not _ascends(epochs[-1], entry):
            raise CorruptData(
                f"epoch {entry.epoch} from offset {entry.start_offset} follows epoch "
                f"{epochs[-1].epoch} from offset {epochs[-1].start_offset}",
                source=source,
                position=position,
            )
        epochs.append(entry)
    return tuple(epochs)


def _ascends(before: EpochEntry, after: EpochEntry) -> bool:
    return before.epoch < after.epoch and before.start_offset < after.start_offset


def encode(epochs: Epochs) -> bytes:
    """Write a checkpoint, byte for byte as Kafka does."""
    return encode_entries(f"{entry.epoch} {entry.start_offset}" for entry in epochs)


def epoch_for_offset(epochs: Epochs, offset: int) -> int | None:
    """The epoch in which `offset` was written; None before the first entry."""
    slot = bisect_right(epochs, offset, key=_start_offset)
    return epochs[slot - 1].epoch if slot else None


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset


def end_offset_for(epochs: Epochs, epoch: int, log_end_offset: int) -> tuple[int, int]:
    """(epoch, end offset): where the greatest known epoch at or below `epoch` ends.

    (-1, -1) if that is not known: `epoch` is -1 or above the latest. Before the first entry the
    answer is `epoch` itself and where the first entry begins.
    """
    if not epochs or epoch == UNDEFINED_EPOCH:
        return UNDEFINED_EPOCH, UNDEFINED_OFFSET
    if epoch == epochs[-1].epoch:
        return epoch, log_end_offset
    slot = bisect_right(epochs, epoch, key=lambda entry: entry.epoch)
    if slot == len(epochs):
        return UNDEFINED_EPOCH, UNDEFINED_OFFSET
    return epochs[slot - 1].epoch if slot else epoch, epochs[slot].start_offset


def truncate_from_start(epochs: Epochs, offset: int) -> Epochs:
    """Cut the head: the epoch that holds `offset` now starts there, and earlier ones are gone."""
    slot = bisect_right(epochs, offset, key=_start_offset)
    if not slot:
        return epochs
    return (EpochEntry(epochs[slot - 1].epoch, offset), *epochs[slot:])


def truncate_from_end(epochs: Epochs, offset: int) -> Epochs:
    """Remove the epochs that start at or above `offset`. Below 0 nothing is removed."""
    if offset < 0:
        return epochs
    return tuple(entry for entry in epochs if entry.start_offset < offset)


def append_entry(epochs: Epochs, epoch: int, start_offset: int) -> Epochs:
    """`epoch` begins at `start_offset`; entries that this contradicts are gone.

    No change if `epoch` is the latest already and did not begin later.
    """
    if epoch < 0 or start_offset < 0:
        raise InvalidRequest(f"epoch {epoch} cannot begin at offset {start_offset}", field="epoch")
    if epochs and epoch == epochs[-1].epoch and start_offset >= epochs[-1].start_offset:
        return epochs
    kept = (entry for entry in epochs if entry.epoch < epoch and entry.start_offset < start_offset)
    return (*kept, EpochEntry(epoch, start_offset))


def entries_in_range(epochs: Epochs, start: int, end: int) -> Epochs:
    """The lineage of offsets [start, end); a negative `start` keeps the head as it is."""
    if start >= 0:
        epochs = truncate_from_start(epochs, start)
    return truncate_from_end(epochs, end)
