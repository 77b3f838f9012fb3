"""Values that have no column type of their own, as JSON text. Pure."""

from __future__ import annotations

import json
from typing import Any


def json_text(value: Any) -> str | None:
    """The value as JSON; None stays None."""
    return None if value is None else json.dumps(value, default=str, ensure_ascii=False)
