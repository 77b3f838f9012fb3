"""What one check of `strandline doctor` found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One check; `detail` is what was found or, when it is not `ok`, what to do."""

    check: str
    ok: bool
    detail: str
