"""Segments of a partition between two offsets, at a cost that does not grow with their number."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query

from api.http.admission import Context
from api.http.api_limits import SCAN_ITEMS_PER_SLICE
from api.http.context import ApiContext
from api.http.validation import OffsetNumber, Whole
from api.models.base import LostRangeView, name_of
from api.models.partition_rows import StripPiece, StripView
from api.routes.path_parameters import FoundPartition
from kafka_formats.errors import InvalidRequest, NotFound
from rlmm.partition_state import PartitionState
from rlmm.rows.queries import ServedSegment

router = APIRouter(prefix="/topics/{topic}/partitions/{partition}", tags=["segments"])

POINTS_DEFAULT, POINTS_MAX = 200, 500


@router.get("/strip", summary="Segments that the tier serves between two offsets, to draw them")
async def strip(
    context: Context,
    tip: FoundPartition,
    first_offset: Annotated[
        OffsetNumber | None, Query(description="Left out: the first offset of the tier.")
    ] = None,
    last_offset: Annotated[
        OffsetNumber | None, Query(description="Inclusive; left out: the last offset of the tier.")
    ] = None,
    points: Annotated[
        int, Query(ge=2, le=POINTS_MAX, description="The most pieces in the answer."), Whole
    ] = POINTS_DEFAULT,
) -> StripView:
    """The pieces, which are readable ranges of segments: all if there are at most `points`, else
    those at `points` evenly spaced offsets.
    """
    state = context.manager.partition_state(tip)
    if state is None:
        raise NotFound(f"{tip} is not in the metadata")
    highest = -1 if state.highest_copied is None else state.highest_copied[0]
    first = max(0, state.log_start_offset) if first_offset is None else first_offset
    last = max(first, highest) if last_offset is None else last_offset
    if last < first:
        raise InvalidRequest("must not be below `first_offset`", field="last_offset")
    metadata_offset = context.manager.applied_offset
    served = list(islice(context.manager.served_segments(state, first, last), points + 1))
    whole = len(served) <= points
    if not whole:
        served = await _at_places(context, state, first, last, points)
    return StripView(
        **name_of(tip),
        first_offset=first,
        last_offset=last,
        whole=whole,
        pieces=[StripPiece.of_served(each) for each in served],
        lost_ranges=LostRangeView.all_of(
            tuple(each for each in state.lost_ranges if each.end >= first and each.start <= last)
        ),
        metadata_offset=metadata_offset,
    )


async def _at_places(
    context: ApiContext, state: PartitionState, first: int, last: int, points: int
) -> list[ServedSegment]:
    """The piece at or after each of `points` places, without duplicates."""
    found: dict[int, ServedSegment] = {}
    for number in range(points):
        if number % SCAN_ITEMS_PER_SLICE == 0:
            await context.sleep(0)
        place = first + (last - first) * number // (points - 1)
        at = next(context.manager.served_segments(state, place, last), None)
        if at is None:
            break
        # Two places may be in the same piece; two pieces may be of one segment that surrounds a
        # different one.
        found.setdefault(at[0].last_offset, at)
    return [found[last] for last in sorted(found)]
