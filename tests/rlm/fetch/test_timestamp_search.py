"""A search by time meets a segment that is deleted meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest

from kafka_formats.errors import CorruptData, NotFound, RetryLater, StrandlineError
from rlm.fetch.timestamp_search import TimestampSearch
from rlmm.rows.served_ranges import ServedRange
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.planner_facts import PARTITION, segment_row

ROW = segment_row(1, 0, 9)
GONE = [NotFound("its row is gone"), CorruptData("its object is gone", source="s", position=0)]


def search_of(error: StrandlineError, row: RemoteLogSegmentMetadata | None) -> TimestampSearch:
    """A search whose segment's index can't be read, and whose row is this one then."""
    reader = Mock()
    served = ServedRange(0, 9, ROW.segment_id.id), ROW
    reader.served_from.side_effect = lambda _tip, offset: served if offset <= 9 else None
    reader.piece.return_value.first_offset = 0
    reader.open_index.side_effect = error
    reader.metadata.find_segment.return_value = row
    return TimestampSearch(reader, PARTITION, AsyncMock(), 1 << 20)


@pytest.mark.parametrize("error", GONE)
@pytest.mark.parametrize("row", [None, replace(ROW, state=SegmentState.DELETE_SEGMENT_STARTED)])
def test_a_segment_that_went_meanwhile_is_no_answer(
    error: StrandlineError, row: RemoteLogSegmentMetadata | None
) -> None:
    search = search_of(error, row)
    with pytest.raises(RetryLater, match="deleted while it was searched"):
        asyncio.run(search.first_at_or_after(0))
    with pytest.raises(RetryLater, match="deleted while it was searched"):
        asyncio.run(search.with_max_timestamp())


@pytest.mark.parametrize("error", GONE)
def test_what_is_missing_of_a_segment_that_is_there_is_told(error: StrandlineError) -> None:
    with pytest.raises(type(error)):
        asyncio.run(search_of(error, ROW).first_at_or_after(0))
