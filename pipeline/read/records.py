"""The records of segments as Arrow: what data source, export and restore do in their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kafka_formats.errors import InternalError
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from rsm_backends.store_config import StoreConfig

if TYPE_CHECKING:
    import pyarrow as pa


def read_slices(
    slices: Iterable[SegmentSlice],
    stores: Mapping[str, StoreConfig],
    settings: ReadSettings,
    *,
    on_lost: Callable[[SegmentSlice, int], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of `slices`, in their order, in batches of about 2 MB with `settings.columns`.

    Runs in a task: blocks, and opens stores of its own, which it closes at its end. CorruptData
    names object and position; NotFound the segment that was deleted since the plan, its topic and
    offsets, unless `settings.fail_on_data_loss` is off: then `on_lost(slice, from_offset)` is told
    that the slice's offsets from `from_offset` on are lost, and the next slice follows. RetryLater,
    Refused: the store. Conflict (TRANSACTIONS_UNKNOWN): read_committed, and the tier cannot tell
    which transactions were aborted.
    """
    raise InternalError(f"not read yet: {slices}, {sorted(stores)}, {settings}, {on_lost}")
