"""Segments by the offsets that they serve, for readers of the tier without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from api.http.admission import Context
from api.http.api_limits import COVERAGE_BYTES_PER_CHUNK, SCAN_ITEMS_PER_SLICE
from api.http.context import ApiContext
from api.http.streaming import StreamAnswer, open_stream
from api.http.validation import INT64_MAX, OffsetNumber, parse_uuid
from api.models.coverage import PartitionCoverage, TopicCoverage, coverage_line
from api.routes.contents import JSON_LINES
from api.routes.path_parameters import CheckedTopic, FoundPartition, TopicIdParameter
from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import PartitionState
from rlmm.rows.queries import MetPartition, ServedSegment, newest_incarnation

router = APIRouter(prefix="/topics/{topic}", tags=["segments"])

_LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One line with a JSON object for each range of offsets that one segment "
        "serves, ascending; offsets that no segment serves have no line.",
        "content": {JSON_LINES: {"schema": {"type": "string"}}},
    }
}


@router.get("/coverage", summary="Offsets of a topic that can be read from the tier")
async def topic_coverage(
    context: Context, topic: CheckedTopic, topic_id: TopicIdParameter = None
) -> TopicCoverage:
    """Every partition in the metadata of one topic id."""
    partitions = await _partitions(context, topic, topic_id)
    found = []
    for number, tip in enumerate(partitions, start=1):
        if number % SCAN_ITEMS_PER_SLICE == 0:
            await context.sleep(0)
        if (state := context.manager.partition_state(tip)) is not None:
            found.append(_of_partition(context, state))
    return TopicCoverage(topic=topic, topic_id=str(partitions[0].topic_id), partitions=found)


async def _partitions(
    context: ApiContext, topic: str, topic_id: str | None
) -> list[TopicIdPartition]:
    wanted = None if topic_id is None else parse_uuid(topic_id, "topic_id")
    met: list[MetPartition] = []
    for each in context.manager.met_partitions(topic):
        if len(met) % SCAN_ITEMS_PER_SLICE == 0:
            await context.sleep(0)
        if wanted in (None, each.partition.topic_id):
            met.append(each)
    if not met:
        incarnation = "" if topic_id is None else f" with topic id {topic_id}"
        raise NotFound(f"topic {topic}{incarnation} has no partition in the metadata")
    return newest_incarnation(met)


def _of_partition(context: ApiContext, state: PartitionState) -> PartitionCoverage:
    highest = -1 if state.highest_copied is None else state.highest_copied[0]
    latest = max(highest + 1, state.first_readable_offset)
    first = next(_readable(context, state), None)
    return PartitionCoverage(
        partition=state.partition.partition,
        earliest_offset=latest if first is None else first[0].first_offset,
        latest_offset=latest,
    )


@router.get(
    "/coverage/segments",
    summary="Segments by the offsets that they serve, of all partitions",
    response_class=StreamAnswer,
    responses=_LINES,
)
async def topic_segments(
    request: Request, context: Context, topic: CheckedTopic, topic_id: TopicIdParameter = None
) -> StreamAnswer:
    """The coverage of all partitions of one topic id in one answer, partition after partition."""
    partitions = await _partitions(context, topic, topic_id)
    return await open_stream(
        request.scope,
        context.streams.limited(
            _lines(context, _served_in_all(context, partitions)), context.limits
        ),
        context.limits,
        media_type=JSON_LINES,
    )


def _served_in_all(
    context: ApiContext, partitions: Sequence[TopicIdPartition]
) -> Iterator[ServedSegment]:
    for tip in partitions:
        if (state := context.manager.partition_state(tip)) is not None:
            yield from _readable(context, state)


@router.get(
    "/partitions/{partition}/coverage",
    summary="Segments by the offsets that they serve, of one partition",
    response_class=StreamAnswer,
    responses=_LINES,
)
async def partition_coverage(
    request: Request,
    context: Context,
    tip: FoundPartition,
    first_offset: Annotated[OffsetNumber, Query(description="Lowest offset to include.")] = 0,
    last_offset: Annotated[
        OffsetNumber, Query(description="Highest offset to include (inclusive).")
    ] = INT64_MAX,
) -> StreamAnswer:
    """Each offset is in at most one line: if segments overlap, that of the segment that readers
    use. A line has the range (`first_offset`, `last_offset`, within the requested one) and the
    segment's `segment_id`, `start_offset`, `end_offset`, `leader_epochs`, `size_bytes`,
    `max_timestamp_ms`, `txn_index_empty` and `custom_metadata`, as in the list of segments.
    """
    state = context.manager.partition_state(tip)
    if state is None:
        raise NotFound(f"{tip} is not in the metadata")
    served = _readable(context, state, first_offset, last_offset)
    return await open_stream(
        request.scope,
        context.streams.limited(_lines(context, served), context.limits),
        context.limits,
        media_type=JSON_LINES,
    )


def _readable(
    context: ApiContext, state: PartitionState, first: int = 0, last: int = INT64_MAX
) -> Iterator[ServedSegment]:
    """The served segments without those in the trash."""
    first = max(first, state.first_readable_offset)
    return context.manager.served_segments(state, first, last)


async def _lines(context: ApiContext, served: Iterator[ServedSegment]) -> AsyncIterator[bytes]:
    """Lines in chunks of a useful size; the event loop gets a turn after each slice."""
    held: list[bytes] = []
    size = 0
    for number, each in enumerate(served, start=1):
        if number % SCAN_ITEMS_PER_SLICE == 0:
            await context.sleep(0)
        held.append(coverage_line(each))
        size += len(held[-1])
        if size >= COVERAGE_BYTES_PER_CHUNK:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
