"""Offsets that can't be copied: skipped, or declared legal gaps."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt, StrictStr

from api.http.validation import INT64_MAX
from api.models.base import PartitionName, Wire

Reason = Annotated[
    StrictStr,
    Field(min_length=1, max_length=300, description="Reason; it is recorded with your name."),
]
RANGES_MAX = 1_000
OffsetIn = Annotated[StrictInt, Field(ge=0, le=INT64_MAX)]


class OffsetRangeIn(Wire):
    """A range of offsets, both inclusive."""

    first_offset: OffsetIn
    last_offset: OffsetIn


class SkipRequest(Wire):
    """Offsets to skip: `ranges` as a dry run showed them, or `first_offset` to `last_offset`. A dry
    run without offsets shows all offsets that the damaged segment lacks at which copying stopped.
    """

    reason: Reason
    ranges: Annotated[
        list[OffsetRangeIn] | None,
        Field(
            max_length=RANGES_MAX,
            description="`ranges` of a dry run: 409 if different offsets are missing by now.",
        ),
    ] = None
    first_offset: OffsetIn | None = None
    last_offset: Annotated[
        OffsetIn | None,
        Field(description="Inclusive; required with `first_offset`, and only then."),
    ] = None
    dry_run: StrictBool = True


class OffsetRangeView(Wire):
    """A range of offsets, both inclusive."""

    first_offset: int
    last_offset: int


class SkipView(PartitionName):
    """Offsets that were or would be skipped."""

    ranges: list[OffsetRangeView]
    offsets: Annotated[int, Field(description="Number of offsets in all ranges.")]
    why: Annotated[
        str,
        Field(
            description="The damage, and each replica's answer; empty: no damage stops the "
            "partition."
        ),
    ]
    changed: bool
    dry_run: bool
    text: str


class AllowGapsRequest(Wire):
    """Treat offsets without a batch as legal from now on."""

    reason: Reason
    dry_run: StrictBool = True


class AllowGapsView(PartitionName):
    """The state of the permission for gaps."""

    gaps_allowed: Annotated[
        str | None, Field(description="Why gaps are legal; null: they are treated as damage.")
    ]
    changed: bool
    dry_run: bool
    text: str
