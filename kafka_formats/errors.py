"""Every error Strandline raises, as one tree of few kinds. Each kind is an instruction.

    StrandlineError
    ├── RetryLater            it may work again: wait `retry_after_ms`, then repeat
    ├── OutcomeUnknown        it may or may not have happened: read the row by its id, then decide
    ├── Fenced                somebody newer is in charge: stop all work for that leadership
    ├── NotFound              it does not exist; repeating will not help
    ├── Conflict              the state is not what the request expected: read it, then decide
    │   └── AlreadyExists     a create-only write met an existing object or row
    ├── InvalidRequest        the request is wrong, in `field`; nothing was changed
    ├── CorruptData           stored bytes fail their check, in `source` at `position`; never served
    ├── Refused               not allowed: credentials, permission, or another cluster's data
    └── InternalError         our bug: report it

A new kind is added only if a caller would act differently. Detail goes into the message, which is
not API. The tree stands here because every package may import `kafka_formats`. Only
`api/http/errors.py` maps a kind to an HTTP status.
"""

# ruff: noqa: N818  the kinds are named for what the caller must do, as the API shows them

from __future__ import annotations

from typing import ClassVar


class StrandlineError(Exception):
    """Base of all errors; `kind` is stable and part of the HTTP interface. So is `reason`, an
    upper-case word, where a kind alone doesn't say what to do.
    """

    kind: ClassVar[str] = "internal"
    reason: str = ""


class RetryLater(StrandlineError):
    """A temporary failure. `retry_after_ms` is a hint, in milliseconds."""

    kind = "retry_later"

    def __init__(self, message: str, *, retry_after_ms: int = 1_000) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class OutcomeUnknown(StrandlineError):
    """A write was sent and its answer lost. Never clean up on this: read the row by its id."""

    kind = "outcome_unknown"


class Fenced(StrandlineError):
    """The caller's claim or token is not the current one."""

    kind = "fenced"


class NotFound(StrandlineError):
    """The object, row, topic or partition does not exist."""

    kind = "not_found"


class Conflict(StrandlineError):
    """The present state does not allow the change; `reason` says which one. `ask_node`: the id of
    the node that can make it; None: another one can't either, or is not known.
    """

    kind = "conflict"

    def __init__(
        self, message: str, *, reason: str = "CONFLICT", ask_node: int | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.ask_node = ask_node


class AlreadyExists(Conflict):
    """A create-only write met an existing object or row."""

    kind = "already_exists"

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="ALREADY_EXISTS")


class InvalidRequest(StrandlineError):
    """Bad input; `field` names it. Nothing was changed."""

    kind = "invalid_request"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message if field is None else f"{field}: {message}")
        self.field = field


class CorruptData(StrandlineError):
    """Bytes that fail their check: `source` is a file or object name, `position` a byte offset."""

    kind = "corrupt_data"

    def __init__(self, message: str, *, source: str, position: int = 0) -> None:
        super().__init__(f"{source} at byte {position}: {message}")
        self.source = source
        self.position = position
        self.detail = message

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the keyword arguments when the error crosses a process border."""
        return _restore_corrupt_data, (self.detail, self.source, self.position)


class Refused(StrandlineError):
    """The request is not allowed: wrong credentials, missing permission, or data of another
    cluster.
    """

    kind = "refused"


class InternalError(StrandlineError):
    """A broken invariant of our own."""

    kind = "internal"


def _restore_corrupt_data(detail: str, source: str, position: int) -> CorruptData:
    return CorruptData(detail, source=source, position=position)
