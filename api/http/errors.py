"""The table of error kinds: HTTP status, Java exception, and the problem document.

Kinds of `kafka_formats.errors` keep their names. The remaining kinds are refusals of the HTTP layer
alone; routes raise them as Starlette's `HTTPException`, and the table finds the kind by the status.
`kind` is stable, and clients decide by it: two kinds may share a status. Problem documents follow
RFC 9457.

The Java column is the exception of the broker plug-in (KIP-405, storage-api of Kafka 4.2) for
writes; docs/BROKER_PROTOCOL.md has those of look-ups and reads. These are never answered with
`fenced`, for which a broker's fetcher would give up the partition.
`RetriableRemoteStorageException` means "ask again, clean nothing up"; a plug-in for older brokers,
and every metadata look-up, throws `ReplicaNotAvailableException` instead.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_formats.errors import (
    Conflict,
    CorruptData,
    InternalError,
    InvalidRequest,
    RetryLater,
    StrandlineError,
)

PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_TYPE_PREFIX = "urn:strandline:problem:"
DETAIL_CHARACTERS_MAX = 1_000
REQUEST_URN_PREFIX = "urn:strandline:request:"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """One row: kind, status and title for callers, exception for the broker plug-in."""

    kind: str
    status: int
    title: str
    java_exception: str


_RETRY = "RetriableRemoteStorageException"
_STORAGE = "RemoteStorageException"
_ABSENT = "RemoteResourceNotFoundException"
_ARGUMENT = "IllegalArgumentException"

_ROWS = (
    # Kinds of kafka_formats.errors.
    ProblemKind("retry_later", 503, "Not possible now; repeat later", _RETRY),
    ProblemKind(
        "outcome_unknown", 504, "It may or may not have happened; read, then decide", _RETRY
    ),
    ProblemKind("fenced", 409, "A newer leader is in charge; stop", "FencedLeaderEpochException"),
    ProblemKind("not_found", 404, "It does not exist", _ABSENT),
    ProblemKind("conflict", 409, "The state is not what the request expected", _STORAGE),
    ProblemKind("already_exists", 409, "It exists already", _STORAGE),
    ProblemKind("invalid_request", 400, "The request is wrong", _ARGUMENT),
    ProblemKind("corrupt_data", 502, "Stored bytes fail their check and are not served", _STORAGE),
    ProblemKind("refused", 403, "Not allowed", _STORAGE),
    ProblemKind("internal", 500, "An error of Strandline's own; report it", _STORAGE),
    # Refusals of the HTTP layer.
    ProblemKind("unauthenticated", 401, "A valid bearer token is needed", _STORAGE),
    ProblemKind("no_such_route", 404, "There is nothing at this path", _STORAGE),
    ProblemKind("method_not_allowed", 405, "This path does not take this method", _STORAGE),
    ProblemKind("not_acceptable", 406, "None of the accepted media types is offered", _ARGUMENT),
    ProblemKind("request_timeout", 408, "The request did not arrive in time", _RETRY),
    ProblemKind("body_too_large", 413, "The request body is too large", _ARGUMENT),
    ProblemKind("unsupported_media_type", 415, "The body's media type is not taken", _ARGUMENT),
    ProblemKind("range_not_satisfiable", 416, "The range lies outside of the bytes", _ARGUMENT),
    ProblemKind("headers_too_large", 431, "The request's headers are too large", _ARGUMENT),
)

PROBLEM_KINDS: Mapping[str, ProblemKind] = {row.kind: row for row in _ROWS}
"""Every kind by name."""

HTTP_LAYER_KINDS: Mapping[int, ProblemKind] = {
    row.status: row for row in _ROWS[_ROWS.index(PROBLEM_KINDS["unauthenticated"]) :]
}
"""Kinds of the HTTP layer by status; for a status without a row the kind is invalid_request."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem document, and the headers that go with it."""

    row: ProblemKind
    detail: str
    field: str | None = None
    reason: str | None = None
    extra: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def body(self, request_id: str) -> bytes:
        """The document as JSON in ASCII, so that any text in it is printable."""
        document: dict[str, int | str] = {
            "type": PROBLEM_TYPE_PREFIX + self.row.kind,
            "title": self.row.title,
            "status": self.row.status,
            "detail": self.detail,
            "instance": REQUEST_URN_PREFIX + request_id,
            "kind": self.row.kind,
        }
        if self.field is not None:
            document["field"] = self.field
        if self.reason is not None:
            document["reason"] = self.reason
        return json.dumps(document | dict(self.extra)).encode("ascii")

    def as_headers(self) -> dict[str, str]:
        """Kind, reason and detail as headers, for a client that reads no JSON; the detail is one
        ASCII line.
        """
        line = " ".join(self.detail.split())[:DETAIL_CHARACTERS_MAX]
        headers = {
            "Strandline-Kind": self.row.kind,
            "Strandline-Detail": line.encode("ascii", "replace").decode("ascii"),
        }
        return headers if self.reason is None else {**headers, "Strandline-Reason": self.reason}


class RedirectedError(Conflict):
    """A request for a different node to which it could not be forwarded: `location` is its address
    there.
    """

    def __init__(self, refused: Conflict, location: str) -> None:
        super().__init__(str(refused), reason=refused.reason, ask_node=refused.ask_node)
        self.location = location


def problem_of(error: StrandlineError) -> Problem:
    """The problem document of a StrandlineError; the detail of an internal error stays in
    the log.
    """
    row = PROBLEM_KINDS.get(error.kind, PROBLEM_KINDS[InternalError.kind])
    match error:
        case RetryLater():
            return Problem(
                row,
                str(error),
                reason=error.reason or None,
                extra={"retry_after_ms": error.retry_after_ms},
                headers={"Retry-After": str(max(1, -(-error.retry_after_ms // 1_000)))},
            )
        case InvalidRequest():
            return Problem(row, str(error), field=error.field)
        case CorruptData():
            return Problem(
                row, str(error), extra={"source": error.source, "position": error.position}
            )
        case Conflict() if error.ask_node is not None:
            extra, headers = {"ask_node": error.ask_node}, dict[str, str]()
            if isinstance(error, RedirectedError):
                row, headers = dataclasses.replace(row, status=307), {"Location": error.location}
            return Problem(row, str(error), reason=error.reason, extra=extra, headers=headers)
        case _ if row.kind == InternalError.kind:
            return internal_problem()
        case _:
            return Problem(row, str(error), reason=error.reason or None)


def internal_problem() -> Problem:
    """The problem document of a bug, which only says where to look for the cause."""
    return Problem(
        PROBLEM_KINDS["internal"],
        "The node failed at this request. Find the cause in its log by the id in `instance`.",
    )


def http_problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    """The problem document of a refusal of the HTTP layer; an unknown status is an
    invalid request.
    """
    row = HTTP_LAYER_KINDS.get(status, PROBLEM_KINDS["invalid_request"])
    return Problem(row, detail, headers=headers or {})
