"""What apply decided about a record, as an error for who proposed it."""

from __future__ import annotations

from kafka_formats.errors import Conflict, Fenced, InvalidRequest
from rlmm.apply.outcome import Outcome, Verdict


def raise_unless_done(outcome: Outcome, offset: int) -> None:
    """ACCEPTED and NO_EFFECT (a repetition) are success."""
    verdict = outcome.verdict
    if verdict in (Verdict.ACCEPTED, Verdict.NO_EFFECT):
        return
    message = f"{outcome.message} (metadata offset {offset})"
    if verdict is Verdict.FENCED:
        raise Fenced(message)
    if verdict is Verdict.INVALID:
        raise InvalidRequest(message)
    raise Conflict(message, reason=verdict.name)
