"""Finds records whose timestamps a table can't hold, before they are written.

Kafka accepts any number as a timestamp: a producer that sends microseconds dates its records to the
year 58,000. Days, Delta and Iceberg end with the year 9999, as ISO 8601 does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from pipeline.export.bad_records import OnError, parted, told
from pipeline.export.export_table import ExportTable
from pipeline.export.export_task import Decode, Decoded, ValueDecoding
from pipeline.export.file_writer import DAY_US, EPOCH

FIRST_US = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH).days * DAY_US
"""First timestamp of year 1; Kafka's -1 for "no timestamp" is well after it."""
LAST_US = ((datetime(9999, 12, 31, tzinfo=UTC) - EPOCH).days + 1) * DAY_US - 1


def timestamps_checked(
    table: ExportTable, decoding: ValueDecoding | None, on_error: OnError
) -> ValueDecoding | None:
    """`decoding`, preceded by a check of timestamps if this table needs one."""
    return decoding if table.any_year else _CheckedDecoding(decoding, on_error, table.name)


@dataclass(frozen=True)
class _CheckedDecoding:
    """A decoding that checks timestamps first; picklable, as `decoding` is."""

    decoding: ValueDecoding | None
    on_error: OnError
    table: str

    def start(self) -> Decode:
        decode = Decoded if self.decoding is None else self.decoding.start()
        return _Check(decode, self.on_error, self.table)


@dataclass(frozen=True)
class _Check:
    """Decodes batches; records with a timestamp out of range never reach `decode`."""

    decode: Decode
    on_error: OnError
    table: str

    def __call__(self, batch: pa.RecordBatch) -> Decoded:
        micros = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        outside = (micros < FIRST_US) | (micros > LAST_US)
        if not outside.any():
            return self.decode(batch)
        errors = {
            int(row): told(batch, int(row), self._wrong(int(micros[row])), self.on_error)
            for row in np.flatnonzero(outside)
        }
        rest = Decoded(None) if outside.all() else self.decode(batch.filter(pa.array(~outside)))
        # The dead letters' table can't hold these times either: their errors contain them.
        at = batch.schema.get_field_index("timestamp")
        field = batch.schema.field(at)
        timeless = batch.set_column(at, field, pa.nulls(len(batch), field.type))
        ours = parted(timeless, rest.good, errors, self.on_error)
        dead = [each for each in (ours.dead, rest.dead) if each is not None]
        return Decoded(
            ours.good, pa.concat_batches(dead) if dead else None, ours.skipped + rest.skipped
        )

    def _wrong(self, micros: int) -> str:
        return (
            f"timestamp: {micros // 1000} ms since 1970 is not within the years 1 to 9999, the "
            f"range of {self.table}; check that its producer sends milliseconds"
        )
