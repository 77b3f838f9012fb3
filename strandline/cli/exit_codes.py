"""Exit codes, which scripts may rely on (docs/OPERATIONS.md)."""

from __future__ import annotations

from enum import IntEnum

from kafka_formats.errors import (
    Conflict,
    CorruptData,
    Fenced,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    Refused,
    RetryLater,
    StrandlineError,
)
from rlm.control import process_end


class ExitCode(IntEnum):
    """The exit code of a command; 1 and 2 also mean a bug and wrong usage to shells and Typer."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    REFUSED = 5
    CORRUPT = 6
    RETRY_LATER = 7
    INCOMPLETE = 8
    NO = 9
    INTERRUPTED = 130
    OUTPUT_CLOSED = process_end.OUTPUT_CLOSED


_BY_KIND: tuple[tuple[type[StrandlineError], ExitCode], ...] = (
    (InvalidRequest, ExitCode.USAGE),
    (NotFound, ExitCode.NOT_FOUND),
    (Fenced, ExitCode.CONFLICT),
    (Conflict, ExitCode.CONFLICT),
    (Refused, ExitCode.REFUSED),
    (CorruptData, ExitCode.CORRUPT),
    (RetryLater, ExitCode.RETRY_LATER),
    (OutcomeUnknown, ExitCode.RETRY_LATER),
)


def exit_code_for(error: StrandlineError) -> ExitCode:
    """The exit code of an error's kind; INTERNAL for bugs."""
    for kind, code in _BY_KIND:
        if isinstance(error, kind):
            return code
    return ExitCode.INTERNAL
