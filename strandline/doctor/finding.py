"""A finding of `strandline doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `detail` is what was found or, if not `ok`, what to do."""

    check: str
    ok: bool
    detail: str
