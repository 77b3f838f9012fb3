"""Calls of the broker's plug-in; docs/BROKER_PROTOCOL.md describes their bodies and headers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive

from api.http.admission import PRINCIPAL_SCOPE_KEY, Context, context_in, require_broker
from api.http.audited_change import audited
from api.http.direct_answer import DirectAnswer, Head, lend_of
from api.http.streaming import StreamAnswer, next_chunk, open_stream
from api.http.tokens import Principal
from kafka_formats.errors import InternalError, InvalidRequest, RetryLater, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.control.audit import AuditAction
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.sent_files import SentBody
from rlm.delegated.sessions import Made, SessionRefused
from rlm.delegated.wire import (
    HEARTBEAT,
    MEDIA_TYPE,
    PROTOCOL,
    SEND_FILES,
    decode_copy,
    decode_delete_partition,
    decode_fetch,
    decode_index,
    encode_copied,
    encode_copy_failed,
)
from rlm.format.manifest import IndexType
from rlmm.segment import PartitionDeleteState

T = TypeVar("T")

router = APIRouter(prefix="/broker", tags=["broker"])

READ_DEADLINE_S = 0.8
ANNOUNCE_DEADLINE_S = 9.0
WRITE_DEADLINE_S = 14.5
DELETE_DEADLINE_S = 5.0
PHASE_DEADLINE_S = 2.5
CHUNK_DEADLINE_S = 1.8
HEARTBEAT_S = 1.0
SESSION_CHARACTERS_MAX = 60
HEADER_CHARACTERS_MAX = 10
SEGMENT_BYTES = "Strandline-Segment-Bytes"
SESSION = "Strandline-Session"
PROTOCOL_HEADER = "Strandline-Broker-Protocol"
LIST_CHANGES = "Strandline-List-Changes"
APPLIED = "Strandline-Applied"
APPLIED_CHARACTERS_MAX = 20
INDEXES = (
    IndexType.OFFSET,
    IndexType.TIMESTAMP,
    IndexType.PRODUCER_SNAPSHOT,
    IndexType.TRANSACTION,
    IndexType.LEADER_EPOCH,
)
"""The indexes in the order of Kafka's numbers (RemoteStorageManager.IndexType)."""
OF_A_FOLLOWER = frozenset({IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH})
"""The indexes that a follower requests. It continues after the segment row that it names, and gets
no index from before a cut of the lineage, nor before its leader's claim.
"""

_log = logging.getLogger("strandline.api")

_BODY: dict[str, Any] = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}


class Call(StrEnum):
    """Calls that are answered with one body."""

    ANNOUNCE = "announce"
    READY = "ready"
    LOOK_UP = "lookup"
    HIGHEST = "highest"
    LIST = "list"
    ADD = "add"
    UPDATE = "update"
    DELETE_PARTITION = "delete-partition"
    DELETE = "delete"
    PHASE = "phase"


WITHOUT_SESSION = frozenset({Call.ANNOUNCE, Call.DELETE, Call.PHASE})
DEADLINES_S = {
    Call.ANNOUNCE: ANNOUNCE_DEADLINE_S,
    Call.ADD: WRITE_DEADLINE_S,
    Call.UPDATE: WRITE_DEADLINE_S,
    Call.DELETE_PARTITION: WRITE_DEADLINE_S,
    Call.DELETE: DELETE_DEADLINE_S,
    Call.PHASE: PHASE_DEADLINE_S,
}
"""The deadline of each call other than a read. Each is shorter than the plug-in's own."""
DELETE_STEPS = {
    PartitionDeleteState.DELETE_PARTITION_MARKED: AuditAction.PARTITION_MARKED,
    PartitionDeleteState.DELETE_PARTITION_STARTED: AuditAction.PARTITION_DELETE_STARTED,
}
"""The steps of a partition's deletion that change something; the node itself records the
last step.
"""
BY_PLUGIN = "by a call of the broker's plug-in, without a grace period"


async def broker_calls(
    request: Request,
    context: Context,
    _: Annotated[Principal, Depends(require_broker())],
    protocol: Annotated[
        str, Header(alias=PROTOCOL_HEADER, max_length=HEADER_CHARACTERS_MAX, description="1.")
    ] = "",
) -> BrokerCalls:
    """The implementation of the plug-in's calls, if the request speaks its protocol."""
    if request.headers.get("content-type") != MEDIA_TYPE:
        raise HTTPException(
            415, f"the body of a broker's call has to have the media type {MEDIA_TYPE}"
        )
    if protocol != str(PROTOCOL):
        raise SessionRefused(
            f"this node speaks protocol {PROTOCOL} with brokers' plug-ins, not {protocol!r}: use "
            "a plug-in of the node's version",
            reason="PROTOCOL",
        )
    if context.broker is None:
        raise RetryLater(
            "this node serves no broker: call the node beside the broker, or set kafka.broker here"
        )
    return context.broker


Calls = Annotated[BrokerCalls, Depends(broker_calls)]


_ASKED: dict[str, Any] = {"requestBody": {"required": True, "content": _BODY}}


def _streamed(what: str) -> dict[str, Any]:
    return {
        "response_class": StreamAnswer,
        "responses": {200: {"description": what, "content": _BODY}},
        "openapi_extra": _ASKED,
    }


@router.post(
    "/copy", summary="Copy a segment for the broker", **_streamed("Heartbeats, then the outcome.")
)
async def broker_copy(
    request: Request,
    context: Context,
    calls: Calls,
    sends_files: Annotated[
        str,
        Header(
            alias="Strandline-Copy-Files",
            max_length=10,
            description="1: the plug-in sends the files by `copy-files` if the answer asks for it.",
        ),
    ] = "",
) -> Response:
    """Needs the role broker. The copy ends when the client disconnects."""
    files = decode_copy(await request.body())
    if not calls.copies.sees_disk:
        calls.copies.check_may_receive(files, sends_files=sends_files == "1")
        return Response(SEND_FILES, media_type=MEDIA_TYPE)
    return await open_stream(
        request.scope, _heartbeats(calls.copy(files)), context.limits, headers={},
        media_type=MEDIA_TYPE,
    )  # fmt: skip


class _FilesAnswer(StreamAnswer):
    """An answer that begins before the whole body was read; only after that a disconnect can be
    noticed.
    """

    body_was_read: asyncio.Event

    async def _gone(self, receive: Receive) -> None:
        await self.body_was_read.wait()
        await super()._gone(receive)


@router.post(
    "/copy-files",
    summary="Copy a segment whose files are the body",
    **_streamed("Heartbeats, a byte 3 once the files may come, then the outcome."),
)
async def broker_copy_files(request: Request, context: Context, calls: Calls) -> StreamAnswer:
    """Needs the role broker. For a node that does not see the broker's disk."""
    go, was_read = asyncio.Event(), asyncio.Event()
    body = SentBody(_files(request, was_read))
    chunks = _heartbeats(calls.receive(body, go), go)
    first = await next_chunk(chunks, context.limits.chunk_deadline_s)
    answer = _FilesAnswer(first, chunks, context.limits, headers={}, media_type=MEDIA_TYPE)
    answer.body_was_read = was_read
    return answer


async def _files(request: Request, was_read: asyncio.Event) -> AsyncGenerator[bytes]:
    try:
        async for chunk in request.stream():
            yield chunk
        was_read.set()
    except (ClientDisconnect, HTTPException):
        raise RetryLater("the broker disconnected, or sent nothing for too long") from None


async def _heartbeats(
    copying: Coroutine[Any, Any, bytes], go: asyncio.Event | None = None
) -> AsyncGenerator[bytes]:
    """A byte each second while the copy is under way, one when `go` is set, then the copy's
    outcome.
    """
    copy = asyncio.create_task(copying, name="copy for the broker")
    asked = None if go is None else asyncio.create_task(go.wait())
    try:
        while True:
            yield HEARTBEAT
            waits = {copy} if asked is None else {copy, asked}
            await asyncio.wait(waits, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if copy.done():
                break
            if asked is not None and asked.done():
                asked = None
                yield SEND_FILES
        yield _outcome(copy)
    finally:
        copy.cancel()
        if asked is not None:
            asked.cancel()
        # Once the copy has ended, no further byte of the segment can arrive.
        await asyncio.gather(copy, return_exceptions=True)


def _outcome(copy: asyncio.Task[bytes]) -> bytes:
    try:
        return encode_copied(copy.result())
    except StrandlineError as error:
        _log.warning("a copy for the broker failed: %s", error)
        return encode_copy_failed(error.kind, error.reason, str(error))
    except Exception:  # noqa: BLE001 - the top of a copy: logged, answered as internal
        _log.exception("a copy for the broker failed")
        return encode_copy_failed(InternalError.kind, "", "find the cause in the node's log")


@router.post("/fetch", summary="Bytes of a segment", **_streamed("Exactly the requested bytes."))
async def broker_fetch(request: Request, context: Context, calls: Calls) -> Response:
    """Needs the role broker."""
    asked = decode_fetch(await request.body())
    row = calls.segment_to_read(asked.row)
    readable_bytes = await _in_time(calls.reads.check_size(row, asked.row))
    if not 0 <= asked.start <= asked.end <= readable_bytes:
        raise InvalidRequest(
            f"{asked.start} to {asked.end} is not within the {readable_bytes} readable bytes of "
            "the segment",
            field="end",
        )
    size_bytes, id_ = asked.end - asked.start, row.segment_id.id
    headers = {"Content-Length": str(size_bytes), SEGMENT_BYTES: str(readable_bytes)}
    lend = lend_of(request.scope, size_bytes)
    if lend is not None:
        opening = calls.reads.reads.waiting_log(id_, asked.start, asked.end)
        head = Head(200, headers, MEDIA_TYPE)
        return DirectAnswer(
            opening, lend, context.streams, context.limits, head, size_bytes,
            store_deadline_s=CHUNK_DEADLINE_S,
        )  # fmt: skip
    chunks = calls.reads.reads.open_log(id_, asked.start, asked.end)
    limits = replace(context.limits, chunk_deadline_s=CHUNK_DEADLINE_S)
    return await open_stream(
        request.scope, context.streams.limited(chunks, limits), limits, headers=headers,
        media_type=MEDIA_TYPE,
    )  # fmt: skip


@router.post("/index", summary="An index of a segment", **_streamed("The whole index."))
async def broker_index(request: Request, context: Context, calls: Calls) -> Response:
    """Needs the role broker. `not_found` with the reason NO_SUCH_INDEX is answered only when the
    verified manifest says that the segment has no such index.
    """
    asked = decode_index(await request.body())
    if not 0 <= asked.index < len(INDEXES):
        raise InvalidRequest(
            f"{asked.index} is not the number of an index: use 0 to {len(INDEXES) - 1}",
            field="index",
        )
    row, index = calls.segment_to_read(asked.row), INDEXES[asked.index]
    if index in OF_A_FOLLOWER:
        await _in_time(calls.reads.check_follower(row, asked.row))
    chunks = calls.reads.index(row, index)
    data = await _in_time(_whole(context.streams.limited(chunks, context.limits)))
    return Response(data, media_type=MEDIA_TYPE)


async def _whole(chunks: AsyncIterable[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def _in_time(answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(CHUNK_DEADLINE_S):
            return await answer
    except TimeoutError:
        raise RetryLater(
            f"the store sent nothing within {CHUNK_DEADLINE_S:g} s: try again"
        ) from None


@router.post(
    "/{call}",
    summary="A call of the broker's plug-in",
    response_class=Response,
    responses={200: {"description": "The call's answer.", "content": _BODY}},
    openapi_extra=_ASKED,
)
async def broker_call(
    request: Request,
    calls: Calls,
    call: Call,
    session: Annotated[
        str,
        Header(
            alias=SESSION,
            max_length=SESSION_CHARACTERS_MAX,
            description="Session and announcement, `UUID;SEQ`; `announce`, `delete` and `phase` "
            "have none.",
        ),
    ] = "",
    list_changes: Annotated[
        str,
        Header(
            alias=LIST_CHANGES,
            max_length=HEADER_CHARACTERS_MAX,
            description="1: a `list` may be answered with the changes since its tag.",
        ),
    ] = "",
    applied: Annotated[
        str,
        Header(
            alias=APPLIED,
            max_length=APPLIED_CHARACTERS_MAX,
            description="Metadata offset of the last answer before this call; -1: none.",
        ),
    ] = "",
) -> Response:
    """Needs the role broker. Bodies are binary. An error is also in the headers Strandline-Kind,
    Strandline-Reason and Strandline-Detail.
    """
    takes_changes, body = list_changes == "1", await request.body()
    with _audited(request, calls, call, body):
        answer = await answered(calls, call, session, body, applied, takes_changes=takes_changes)
    return Response(answer, media_type=MEDIA_TYPE)


@contextmanager
def _audited(request: Request, calls: BrokerCalls, call: Call, body: bytes) -> Iterator[None]:
    """Write an audit line for the deletion of a partition: it takes effect at once, without any
    trash, and Kafka's brokers never request it.
    """
    if call is not Call.DELETE_PARTITION:
        yield
        return
    put = decode_delete_partition(body)
    state, action = calls.metadata.partition_state(put.partition), DELETE_STEPS.get(put.state)
    if state is None or action is None or state.delete_state is put.state:
        yield
        return
    by: Principal = request.scope[PRINCIPAL_SCOPE_KEY]
    with audited(
        context_in(request), put.partition, action, BY_PLUGIN, by, size_bytes=state.size_bytes
    ):
        yield


async def answered(
    calls: BrokerCalls,
    call: Call,
    session: str,
    body: bytes,
    applied: str = "",
    *,
    takes_changes: bool = False,
) -> bytes:
    """The answer's body, within the call's deadline. `session` and `applied` are as in the
    headers.
    """
    deadline_s = DEADLINES_S.get(call, READ_DEADLINE_S)
    try:
        async with asyncio.timeout(deadline_s):
            made = Made(0)
            if call not in WITHOUT_SESSION:
                id_, seq = _session(session)
                calls.plugin.call(id_, seq)
                made = Made(seq, _applied(applied))
            return await _answer(calls, call, body, made, takes_changes=takes_changes)
    except TimeoutError:
        raise RetryLater(f"no answer to {call.value} within {deadline_s:g} s: ask again") from None


async def _answer(
    calls: BrokerCalls, call: Call, body: bytes, made: Made, *, takes_changes: bool
) -> bytes:
    match call:
        case Call.ANNOUNCE:
            return calls.announce(body)
        case Call.READY:
            return calls.ready(body)
        case Call.LOOK_UP:
            return await calls.look_up(body)
        case Call.HIGHEST:
            return await calls.highest(body)
        case Call.LIST:
            return await calls.list_segments(body, takes_changes=takes_changes)
        case Call.ADD:
            return await calls.add(body, made)
        case Call.UPDATE:
            return await calls.update(body, made)
        case Call.DELETE_PARTITION:
            return await calls.delete_partition(body)
        case Call.DELETE:
            return await calls.delete_objects(body)
        case Call.PHASE:
            return await calls.phases.answer(body)


def _session(text: str) -> tuple[Uuid, int]:
    id_, _, seq = text.partition(";")
    if not (seq.isascii() and seq.isdecimal() and len(seq) < 19):
        raise InvalidRequest("has to be UUID;SEQ", field="Strandline-Session")
    return Uuid.parse(id_), int(seq)


def _applied(text: str) -> int | None:
    """Parse the offset that a plug-in has applied; None: an older plug-in sends none."""
    digits = text.removeprefix("-")
    if not text:
        return None
    if not (digits.isascii() and digits.isdecimal()):
        raise InvalidRequest("has to be a metadata offset", field=APPLIED)
    return int(text)
