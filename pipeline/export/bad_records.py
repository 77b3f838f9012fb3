"""Handles records that can't be exported: fails with an error, skips them or makes dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from kafka_formats.errors import InvalidRequest
from pipeline.export.export_task import Decoded
from pipeline.export.table_schema import dead_letter_schema

OnError = Literal["fail", "skip", "dead-letter"]
ERROR_SHOWN_CHARACTERS_MAX = 1_000


def told(batch: pa.RecordBatch, row: int, wrong: str, on_error: OnError) -> str:
    """The error text for the record's dead letter; InvalidRequest if it fails the run."""
    text = wrong[:ERROR_SHOWN_CHARACTERS_MAX]
    if on_error == "fail":
        where = f"{batch.column('topic')[row]}-{batch.column('partition')[row]}"
        raise InvalidRequest(
            f"the record at offset {batch.column('offset')[row]} of {where} can't be exported: "
            f"{text}. Nothing was committed; --on-error skip or dead-letter continues past such "
            "records"
        )
    return text


def parted(
    batch: pa.RecordBatch,
    good: pa.RecordBatch | None,
    errors: Mapping[int, str],
    on_error: OnError,
) -> Decoded:
    """`good`, together with the rows of `batch` that have `errors`, skipped or as dead letters."""
    if on_error == "skip":
        return Decoded(good, None, len(errors))
    dead = batch.take(pa.array(sorted(errors)))
    texts = pa.array([errors[row] for row in sorted(errors)], pa.string())
    return Decoded(
        good, pa.RecordBatch.from_arrays([*dead.columns, texts], schema=dead_letter_schema())
    )
