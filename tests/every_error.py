"""One error of every kind of the tree, with all that it can carry."""

from __future__ import annotations

from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    Fenced,
    InternalError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    Refused,
    RetryLater,
    StrandlineError,
)

INTERNAL = InternalError("secret detail")
EVERY_ERROR: tuple[StrandlineError, ...] = (
    RetryLater("the disk is slow", retry_after_ms=1_500),
    OutcomeUnknown("it may stand"),
    Fenced("a newer leader"),
    NotFound("no such topic"),
    Conflict("not now", reason="GAP"),
    AlreadyExists("it is there"),
    InvalidRequest("must be at least 0", field="offset"),
    CorruptData("CRC differs", source="a/b.log", position=4_711),
    Refused("role read may not"),
    INTERNAL,
)
