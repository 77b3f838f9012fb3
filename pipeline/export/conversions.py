"""Conversions of decoded values for Arrow: to JSON text, to structs. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]
"""Converts a decoded value to one that Arrow accepts; never called with None."""


def json_text(value: Any) -> str | None:
    """The value as JSON, for a value without a column type of its own; None stays None."""
    return None if value is None else json.dumps(value, default=str, ensure_ascii=False)


def struct_of(fields: Mapping[str, tuple[pa.DataType, Convert]]) -> tuple[pa.DataType, Convert]:
    """A struct; a field that a value lacks is NULL."""
    kind = pa.struct([pa.field(name, each) for name, (each, _) in fields.items()])
    converts = {name: convert for name, (_, convert) in fields.items()}

    def convert(value: Any) -> Any:
        return {
            name: None if value.get(name) is None else each(value[name])
            for name, each in converts.items()
        }

    return kind, convert
