"""A change that may have been made has a line in the audit, also if nobody heard of the outcome."""

from __future__ import annotations

import asyncio

import pytest

from api.http.audited_change import audited
from api.http.tokens import Principal, Role
from kafka_formats.errors import (
    Conflict,
    InternalError,
    InvalidRequest,
    OutcomeUnknown,
    RetryLater,
)
from rlm.control.audit import AuditAction
from tests.api.fake_audit import FakeAudit
from tests.api.fakes import make_node

EVE = Principal("eve", Role.ADMIN)


async def lines_of(end: BaseException | None) -> list[str]:
    """Lines of a change that ends so."""
    context = make_node().context
    assert isinstance(context.audit, FakeAudit)
    before = len(context.audit.lines)
    try:
        with audited(context, None, AuditAction.MODE_SET, "paused", EVE):
            if end is not None:
                raise end
    except BaseException as error:
        if error is not end:
            raise
    return [line.why for line in context.audit.lines[before:]]


@pytest.mark.parametrize(
    "end", [OutcomeUnknown("late"), asyncio.CancelledError(), InternalError("a bug"), KeyError()]
)
async def test_an_end_that_tells_no_outcome_is_noted_as_unknown(end: BaseException) -> None:
    assert await lines_of(end) == ["paused; the outcome is unknown"]


@pytest.mark.parametrize("end", [Conflict("no"), InvalidRequest("no"), RetryLater("no leader")])
async def test_a_change_that_was_surely_refused_has_no_line(end: BaseException) -> None:
    assert await lines_of(end) == []
    assert await lines_of(None) == ["paused"]
