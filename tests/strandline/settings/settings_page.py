"""docs/SETTINGS.md, written from the settings themselves so that the page cannot drift."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from strandline.settings.settings import Settings, StoreSettings

_HEAD = """# Settings

One TOML file a node, named with `--config` or `STRANDLINE_CONFIG`. Every key can be overridden by
an environment variable: `STRANDLINE_` + section + `__` + key in capitals (lists as JSON), for
example `STRANDLINE_COPIER__PARALLEL_MAX=8`. Unknown keys and unknown `STRANDLINE_` variables are
refused. `strandline config` prints the effective values and the source of each. The unit is the
last word of a name: `_s` seconds, `_bytes` bytes, `_max` a bound.

Tiered topics, pauses and rate limits can be set for the whole cluster in the metadata log, which
wins over this file: OPERATIONS, *Settings of the cluster*, has the precedence.

This page is written from `strandline/settings/settings.py` by `make golden`.
"""


def settings_page() -> str:
    """The whole page, as Markdown."""
    lines = [_HEAD, "| Key | Default | Meaning |", "|---|---|---|"]
    lines += [_row(key, field) for key, field in _fields(Settings)]
    lines += ["", "## `[stores.NAME]`", "", "| Key | Default | Meaning |", "|---|---|---|"]
    lines += [_row(name, field) for name, field in StoreSettings.model_fields.items()]
    return "\n".join(lines) + "\n"


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "stores":
            yield f"{prefix}{name}", field


def _row(key: str, field: FieldInfo) -> str:
    return f"| `{key}` | {_default(field.default)} | {field.description} |"


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "(needed)"
    if value is None or value == "":
        return "none"
    if isinstance(value, bool | int | float | list):
        return f"`{json.dumps(value)}`"
    return f"`{value}`"
