"""Checks of numbers, names and ids in requests, and the problem document of a failed check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BeforeValidator, Field

from api.http.api_limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from api.http.cursors import CURSOR_CHARACTERS_MAX
from api.http.errors import PROBLEM_KINDS, Problem
from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_INTEGER = re.compile(r"-?[0-9]{1,40}")


def plain_integer(value: object) -> object:
    """Refuse text that is not decimal digits with an optional minus: no spaces, dots, exponents,
    NaN.
    """
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        raise ValueError("must be a whole number in decimal digits")
    return value


Whole = BeforeValidator(plain_integer)
"""Put it after the bounds in an annotation, which then check the number."""

OffsetNumber = Annotated[int, Field(ge=0, le=INT64_MAX), Whole]
"""An offset, or a time in milliseconds, in a path, query or header."""
EpochNumber = Annotated[int, Field(ge=0, le=INT32_MAX), Whole]
"""A leader epoch, or a partition number."""

PartitionNumber = Annotated[EpochNumber, Path(description="Partition number.", examples=[0])]
TopicName = Annotated[str, Path(max_length=1_000, description="Topic name.", examples=["payments"])]
SegmentIdText = Annotated[
    str,
    Path(
        max_length=1_000,
        description="Remote log segment id: a Kafka Uuid, 22 characters.",
        examples=["Qv4tWmyKTtqkvgMfJ9dZ3Q"],
    ),
]
PageLimit = Annotated[
    int,
    Field(ge=1, le=PAGE_ITEMS_MAX),
    Whole,
    Query(description="The most items in a page."),
]
PageCursor = Annotated[
    str | None,
    Query(max_length=CURSOR_CHARACTERS_MAX, description="`next_cursor` of the previous page."),
]
PAGE_LIMIT_DEFAULT = PAGE_ITEMS_DEFAULT


def parse_uuid(text: str, field: str) -> Uuid:
    """Parse a Kafka Uuid; InvalidRequest names `field`."""
    try:
        return Uuid.parse(text)
    except InvalidRequest:
        raise InvalidRequest(
            f"{text[:40]!r} is not a Kafka Uuid (22 characters of URL-safe base64)", field=field
        ) from None


def validation_problem(error: RequestValidationError) -> Problem:
    """The first error with its field's name, and the number of further ones."""
    complaints: Sequence[Any] = error.errors()
    first = complaints[0]
    place = first["loc"]
    where = str(place[0]) if place else "request"
    inner = ".".join(str(part) for part in place[1:])[:200]
    name = where if first["type"] == "json_invalid" or not inner else inner
    message = str(first["msg"]).removeprefix("Value error, ")
    more = f" ({len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return Problem(
        PROBLEM_KINDS["invalid_request"],
        f"{name}: {message}{_where(where)}{more}",
        field=name,
    )


def _where(place: str) -> str:
    return {
        "query": " (query parameter)",
        "path": " (path)",
        "header": " (header)",
        "body": " (request body)",
    }.get(place, "")
