"""Bytes from the tier: a segment's log and indexes, and records across segments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.http.admission import Context
from api.http.api_limits import RECORDS_BYTES_DEFAULT, RECORDS_BYTES_MAX
from api.http.byte_range import parse_range
from api.http.direct_answer import DirectAnswer, Head, lend_of
from api.http.streaming import StreamAnswer, open_stream
from api.http.validation import OffsetNumber, Whole
from api.routes.path_parameters import FoundPartition, FoundSegment
from kafka_formats.errors import InvalidRequest
from rlm.data_plane.read_request import Isolation, RecordFormat, RecordsEnd, RecordsRequest
from rlm.format.manifest import IndexType
from rlmm.partition_state import PartitionState
from rsm_backends.streams import closing_stream

router = APIRouter(prefix="/topics/{topic}/partitions/{partition}", tags=["contents"])

BINARY = "application/octet-stream"
JSON_LINES = "application/x-ndjson"

INDEX_NAMES = {index.name.lower().replace("_", "-"): index for index in IndexType}
MEDIA_TYPES = {RecordFormat.BATCHES: BINARY, RecordFormat.JSON_LINES: JSON_LINES}

LOST_RANGES = "Strandline-Lost-Ranges"
LOST_RANGES_SHOWN_MAX = 20

_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


def _streamed(what: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": what, "content": {BINARY: _BYTES}}}


@router.get(
    "/segments/{segment_id}/log",
    summary="A segment's .log file, whole or a range",
    response_class=StreamAnswer,
    responses={
        **_streamed("The whole file, of verified bytes only."),
        206: {"description": "The requested range.", "content": {BINARY: _BYTES}},
        416: {"description": "range_not_satisfiable"},
    },
)
async def segment_log(
    request: Request,
    context: Context,
    segment: FoundSegment,
    range_header: Annotated[
        str | None,
        Header(alias="Range", max_length=200, description="One byte range, e.g. bytes=0-1023."),
    ] = None,
    if_range: Annotated[str | None, Header(alias="If-Range", max_length=200)] = None,
) -> Response:
    """Segments never change: the ETag is the segment id."""
    etag = f'"{segment.uuid}"'
    wanted = range_header if if_range in (None, etag) else None
    part = parse_range(wanted, segment.metadata.size_bytes)
    lend = lend_of(request.scope, part.end - part.start)
    if lend is not None:
        return DirectAnswer(
            context.reads.waiting_log(segment.uuid, part.start, part.end),
            lend,
            context.streams,
            context.limits,
            Head(206 if part.partial else 200, {**part.headers(), "ETag": etag}, BINARY),
            part.end - part.start,
        )
    return await open_stream(
        request.scope,
        context.streams.limited(
            context.reads.open_log(segment.uuid, part.start, part.end), context.limits
        ),
        context.limits,
        status_code=206 if part.partial else 200,
        headers={**part.headers(), "ETag": etag},
        media_type=BINARY,
    )


@router.get(
    "/segments/{segment_id}/indexes/{index_type}",
    summary="One of a segment's indexes",
    response_class=StreamAnswer,
    responses=_streamed("The whole index, of verified bytes only."),
)
async def segment_index(
    request: Request,
    context: Context,
    segment: FoundSegment,
    index_type: Annotated[
        str,
        Path(
            max_length=100,
            description=f"One of {', '.join(sorted(INDEX_NAMES))}.",
            examples=["offset"],
        ),
    ],
) -> StreamAnswer:
    """404 if the segment has no such index, often so for a transaction index."""
    index = INDEX_NAMES.get(index_type)
    if index is None:
        raise InvalidRequest(
            f"{index_type[:40]!r} is not one of {', '.join(sorted(INDEX_NAMES))}",
            field="index_type",
        )
    return await open_stream(
        request.scope,
        context.streams.limited(context.reads.open_index(segment.uuid, index), context.limits),
        context.limits,
        headers={"ETag": f'"{segment.uuid}"'},
        media_type=BINARY,
    )


async def asked_records(
    offset: Annotated[OffsetNumber, Query(description="Offset to begin at.")],
    max_bytes: Annotated[
        int,
        Field(ge=1, le=RECORDS_BYTES_MAX),
        Whole,
        Query(description="The most stored bytes to read; at least one batch is returned."),
    ] = RECORDS_BYTES_DEFAULT,
    isolation: Annotated[
        Isolation, Query(description="read_committed leaves out aborted transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    record_format: Annotated[
        RecordFormat | None,
        Query(alias="format", description="Left out: as the Accept header requests."),
    ] = None,
    accept: Annotated[str, Header(max_length=1_000)] = "*/*",
) -> RecordsRequest:
    """The request, from the query and the Accept header."""
    wanted = negotiated(accept) if record_format is None else record_format
    return RecordsRequest(offset, max_bytes, isolation, wanted)


@router.get(
    "/records",
    summary="Records from an offset on, across segments",
    response_class=StreamAnswer,
    responses={
        200: {
            "description": "Record batches exactly as stored, or one line with a JSON object for "
            "each record.",
            "content": {BINARY: _BYTES, JSON_LINES: {"schema": {"type": "string"}}},
            "headers": {
                LOST_RANGES: {
                    "description": "Lost offsets (inclusive) at or after the requested one; the "
                    "answer skips them. `3-4, 10-20`; at most the first "
                    f"{LOST_RANGES_SHOWN_MAX} ranges. Missing if there are none.",
                    "schema": {"type": "string"},
                }
            },
        },
        406: {"description": "not_acceptable"},
    },
)
async def records(
    request: Request,
    context: Context,
    tip: FoundPartition,
    asked: Annotated[RecordsRequest, Depends(asked_records)],
    end: Annotated[
        bool,
        Query(
            description="JSON lines only: add a last line with the next offset and what was left "
            "out: `next_offset`, `at_end`, `lost` and `undecided_records` in an object `end`."
        ),
    ] = False,
) -> StreamAnswer:
    """Batches: the first one contains the offset, so it may begin lower. JSON: no line means that
    the tier has nothing readable at or after the offset.
    """
    if not end:
        chunks = context.reads.records(tip, asked)
    elif asked.format is RecordFormat.JSON_LINES:
        ends: list[RecordsEnd] = []
        chunks = _with_end(context.reads.records(tip, asked, ends.append), ends)
    else:
        raise InvalidRequest("is for JSON lines only: add format=json_lines", field="end")
    return await open_stream(
        request.scope,
        context.streams.limited(chunks, context.limits),
        context.limits,
        headers={
            "Vary": "Accept",
            **_lost_header(context.manager.partition_state(tip), asked.offset),
        },
        media_type=MEDIA_TYPES[asked.format],
    )


async def _with_end(
    chunks: AsyncIterator[bytes], ends: Sequence[RecordsEnd]
) -> AsyncGenerator[bytes]:
    async with closing_stream(chunks) as lines:
        async for piece in lines:
            yield piece
    (end,) = ends
    summary = {
        "next_offset": end.next_offset,
        "at_end": end.at_end,
        "lost": [{"start": first, "end": last} for first, last in end.lost],
        "undecided_records": end.undecided_records,
    }
    yield orjson.dumps({"end": summary}, option=orjson.OPT_APPEND_NEWLINE)


def _lost_header(state: PartitionState | None, offset: int) -> dict[str, str]:
    lost = [] if state is None else [each for each in state.lost_ranges if each.end >= offset]
    told = ", ".join(f"{each.start}-{each.end}" for each in lost[:LOST_RANGES_SHOWN_MAX])
    return {LOST_RANGES: told} if told else {}


def negotiated(accept: str) -> RecordFormat:
    """Choose one of the two media types by the weights of the Accept header (RFC 9110, 12.5.1)."""
    weights = [_weight(accept, media_type) for media_type in (BINARY, JSON_LINES)]
    if max(weights) <= 0:
        raise HTTPException(406, f"Accept: request {BINARY} or {JSON_LINES}")
    return RecordFormat.BATCHES if weights[0] >= weights[1] else RecordFormat.JSON_LINES


def _weight(accept: str, media_type: str) -> float:
    """The weight of the most specific media range that matches; 0 if none does."""
    ranges = (media_type, media_type.partition("/")[0] + "/*", "*/*")
    best = (len(ranges), 0.0)
    for part in accept.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        if name in ranges:
            best = min(best, (ranges.index(name), _quality(parameters)))
    return best[1]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            digits = value.strip()
            return float(digits) if digits.replace(".", "", 1).isdecimal() else 0.0
    return 1.0
