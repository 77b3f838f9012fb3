"""Offsets that can't be copied: given up, or said to be legal."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt, StrictStr

from api.http.validation import INT64_MAX
from api.models.base import PartitionName, Wire

Reason = Annotated[
    StrictStr,
    Field(min_length=1, max_length=300, description="Why; it is recorded with your name."),
]
OffsetIn = Annotated[StrictInt, Field(ge=0, le=INT64_MAX)]


class SkipRequest(Wire):
    """Which offsets to give up. Without offsets: all that the damaged segment in the way lacks."""

    reason: Reason
    first_offset: OffsetIn | None = None
    last_offset: Annotated[
        OffsetIn | None, Field(description="Inclusive; with `first_offset`, or not at all.")
    ] = None
    dry_run: StrictBool = True


class OffsetRangeView(Wire):
    """Both inclusive."""

    first_offset: int
    last_offset: int


class SkipView(PartitionName):
    """What is given up, or would be."""

    ranges: list[OffsetRangeView]
    offsets: Annotated[int, Field(description="How many, in all ranges.")]
    changed: bool
    dry_run: bool
    text: str


class AllowGapsRequest(Wire):
    """From here on offsets without a batch are copied as they are."""

    reason: Reason
    dry_run: StrictBool = True


class AllowGapsView(PartitionName):
    """Whether gaps are legal, and why."""

    gaps_allowed: Annotated[
        str | None, Field(description="Why they are; null: they count as damage.")
    ]
    changed: bool
    dry_run: bool
    text: str
