"""Turns a problem document (RFC 9457) from a node back into the error it was made from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

_KINDS: Mapping[str, type[StrandlineError]] = {
    **{kind.kind: kind for kind in (Fenced, NotFound, OutcomeUnknown, Refused)},
    "unauthenticated": Refused,
}


def error_of_problem(problem: object, status: int) -> StrandlineError | None:
    """Our error for a problem document; None if the document is not one of ours. A refusal by the
    HTTP layer itself becomes InvalidRequest.
    """
    if not isinstance(problem, dict) or "kind" not in problem:
        return None
    detail = problem.get("detail") or problem.get("title")
    return None if detail is None else _error_of(str(problem["kind"]), str(detail), problem, status)


def _error_of(kind: str, detail: str, problem: Mapping[str, Any], status: int) -> StrandlineError:
    match kind:
        case "corrupt_data":
            source = str(problem.get("source", "the tier"))
            position = _number(problem, "position", 0)
            # The detail is the error's own text, which begins with source and position.
            told = detail.removeprefix(f"{source} at byte {position}: ")
            return CorruptData(told, source=source, position=position)
        case "conflict":
            ask_node = _number(problem, "ask_node", -1)
            return Conflict(
                detail,
                reason=str(problem.get("reason", "CONFLICT")),
                ask_node=None if ask_node < 0 else ask_node,
            )
        case "already_exists":
            return AlreadyExists(detail)
        case "retry_later":
            return RetryLater(detail, retry_after_ms=_number(problem, "retry_after_ms", 1_000))
        case "request_timeout":
            return RetryLater(detail)
        case _ if kind in _KINDS:
            return _KINDS[kind](detail)
        case _ if 400 <= status < 500:
            return InvalidRequest(detail)
        case _:
            return InternalError(f"{detail} ({problem.get('instance', 'no request id')})")


def _number(problem: Mapping[str, Any], name: str, default: int) -> int:
    value = problem.get(name)
    return value if isinstance(value, int) else default
