"""Offsets that can't be copied: given up, or declared legal."""

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
    """Offsets to give up: `ranges` as a dry run showed them, or those of `first_offset` and
    `last_offset`. A dry run without offsets shows all that the damaged segment in the way lacks.
    """

    reason: Reason
    ranges: Annotated[
        list[OffsetRangeIn] | None,
        Field(
            max_length=RANGES_MAX,
            description="`ranges` of a dry run: 409 where others are missing by now.",
        ),
    ] = None
    first_offset: OffsetIn | None = None
    last_offset: Annotated[
        OffsetIn | None, Field(description="Inclusive; with `first_offset`, or not at all.")
    ] = None
    dry_run: StrictBool = True


class OffsetRangeView(Wire):
    """A range of offsets, both inclusive."""

    first_offset: int
    last_offset: int


class SkipView(PartitionName):
    """Offsets that are, or would be, given up."""

    ranges: list[OffsetRangeView]
    offsets: Annotated[int, Field(description="Number of offsets in all ranges.")]
    why: Annotated[
        str,
        Field(description="The damage, and what each replica answered; empty: none stops it."),
    ]
    changed: bool
    dry_run: bool
    text: str


class AllowGapsRequest(Wire):
    """Offsets without a batch are legal from now on."""

    reason: Reason
    dry_run: StrictBool = True


class AllowGapsView(PartitionName):
    """State of the permission for gaps."""

    gaps_allowed: Annotated[
        str | None, Field(description="Why gaps are legal; null: they count as damage.")
    ]
    changed: bool
    dry_run: bool
    text: str
