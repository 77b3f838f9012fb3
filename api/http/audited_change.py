"""Writes the audit line of a change requested over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from api.http.context import ApiContext
from api.http.tokens import Principal
from kafka_formats.errors import InternalError, OutcomeUnknown, StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import AuditAction, AuditLine


@contextmanager
def audited(
    context: ApiContext,
    partition: TopicIdPartition | None,
    action: AuditAction,
    why: str,
    by: Principal,
    *,
    offsets: tuple[int, int] = (-1, -1),
    size_bytes: int = -1,
) -> Iterator[None]:
    """A context around a change, which writes its audit line; no line if the change was certainly
    refused. The line says so if the outcome is unknown, also for a request that the gate's deadline
    or its client cuts off.
    """

    def note(text: str) -> None:
        context.audit.note(
            AuditLine(
                context.now_ms(), action, partition, None, *offsets, size_bytes, text, by.name
            )
        )

    try:
        yield
    except BaseException as error:
        if not isinstance(error, StrandlineError) or isinstance(
            error, OutcomeUnknown | InternalError
        ):
            note(f"{why}; the outcome is unknown")
        raise
    note(why)
