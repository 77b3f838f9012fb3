"""A finding of `strandline doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `detail` says what was found and, if not `ok`, what to do."""

    check: str
    ok: bool
    detail: str
