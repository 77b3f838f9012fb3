"""Asks every node of the cluster for its part of a view, in parallel, each with a deadline. A node
that gives none is listed with the reason.

Requests to the other nodes go as in `forwarding.py`: over the quorum's connections, and this node
vouches for the caller. One hop: a node that is asked this way asks no further nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from api.http.admission import PRINCIPAL_SCOPE_KEY, VOUCHED_SCOPE_KEY, context_in
from api.http.context import ApiContext
from api.http.forwarded_requests import (
    UNREADABLE,
    ForwardedRequest,
    Reply,
    Vouched,
    decode_reply,
    encode_request,
    encode_vouched,
    quorum_address,
)
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.metrics.metrics import Silence
from kafka_formats.errors import Conflict, CorruptData, RetryLater
from rlmm.quorum.envelopes import Envelope
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.rows.nodes import Liveness, RegisteredNode

Part = TypeVar("Part", bound=BaseModel)

_NOT_ASKED = {
    Liveness.FENCED: (
        Silence.FENCED,
        "it is fenced: the quorum's leader has received nothing from it for too long",
    ),
    Liveness.STOPPED: (Silence.STOPPED, "it announced its stop"),
}
_BY_STATUS = {
    400: Silence.OTHER_RELEASE,
    401: Silence.REFUSED,
    403: Silence.REFUSED,
    404: Silence.OTHER_RELEASE,
    409: Silence.REFUSED,
}
_TEXT_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class NodeAnswer(Generic[Part]):
    """One node's part, or the reason why it has none (`silence`, `text`). `as_of_ms`: when the part
    arrived, by this node's clock.
    """

    node_id: int
    part: Part | None = None
    silence: Silence | None = None
    text: str | None = None
    as_of_ms: int | None = None
    metadata_offset: int | None = None


def parts_of(told: Sequence[NodeAnswer[Part]]) -> list[Part]:
    """The parts of the nodes that answered."""
    return [each.part for each in told if each.part is not None]


class _SilentError(Exception):
    """The node gave no part, for this reason."""

    def __init__(self, silence: Silence, text: str) -> None:
        super().__init__(text[:_TEXT_CHARACTERS_MAX])
        self.silence = silence


@dataclass(frozen=True, slots=True)
class Question(Generic[Part]):
    """A GET of `path` with the query parameters that `query` returns for a node id (parameters of
    None are left out; None: the node is not asked). The answer is a `kind`.
    """

    path: str
    query: Callable[[int], Mapping[str, object] | None]
    kind: type[Part]


async def ask_all(
    request: Request, question: Question[Part], own: Callable[[], Awaitable[Part]]
) -> list[NodeAnswer[Part]]:
    """Every registered node's part, by node id; `own` makes this node's.

    Conflict: the request comes from a different node. RetryLater: too many views are being made; a
    RetryLater of `own` leaves this node without a part. Any other error of `own` is raised.
    """
    context = context_in(request)
    vouched: Vouched | None = request.scope.get(VOUCHED_SCOPE_KEY)
    if vouched is not None:
        raise Conflict(
            f"node {vouched.by_node} forwarded a request for a view of the whole cluster: each "
            "node makes this view itself, so ask that node directly",
            reason="ONE_HOP",
        )
    with context.silent_nodes.view(context.limits.views_parallel_max):
        return await _told(request, question, own)


async def _told(
    request: Request, question: Question[Part], own: Callable[[], Awaitable[Part]]
) -> list[NodeAnswer[Part]]:
    context = context_in(request)
    me = context.identity.node_id
    slots = asyncio.Semaphore(context.limits.view_nodes_parallel_max)
    caller = Vouched(request.scope[PRINCIPAL_SCOPE_KEY], me)
    others = [
        _asked(context, node, question, caller, slots)
        for node in context.manager.registered_nodes()
        if node.node_id != me
        and node.liveness is not Liveness.REMOVED
        and question.query(node.node_id) is not None
    ]
    asked = asyncio.gather(*others)
    try:
        mine = [await _own(request, me, own)] if question.query(me) is not None else []
    except BaseException:
        asked.cancel()
        raise
    return sorted([*mine, *await asked], key=lambda each: each.node_id)


async def _own(request: Request, me: int, own: Callable[[], Awaitable[Part]]) -> NodeAnswer[Part]:
    try:
        part = await own()
    except RetryLater as error:
        return NodeAnswer(me, None, Silence.FAILED, str(error))
    offset = request.scope[
        METADATA_OFFSET_SCOPE_KEY
    ]  # the offset of the facts, which may be kept ones
    return NodeAnswer(me, part, None, None, context_in(request).now_ms(), offset)


async def _asked(
    context: ApiContext,
    node: RegisteredNode,
    question: Question[Part],
    caller: Vouched,
    slots: asyncio.Semaphore,
) -> NodeAnswer[Part]:
    try:
        async with slots:
            reply = await _reply(context, node, question, caller)
            part = _part(reply, question.kind)
    except _SilentError as error:
        context.metrics.http.asked(error.silence)
        context.silent_nodes.tell(node.node_id, f"{error.silence}: {error}")
        return NodeAnswer(node.node_id, None, error.silence, str(error))
    context.metrics.http.asked(None)
    context.silent_nodes.tell(node.node_id, None)
    return NodeAnswer(node.node_id, part, None, None, context.now_ms(), reply.metadata_offset)


async def _reply(
    context: ApiContext, node: RegisteredNode, question: Question[Part], caller: Vouched
) -> Reply:
    if node.liveness in _NOT_ASKED:
        raise _SilentError(*_NOT_ASKED[node.liveness])
    send, address = context.envelopes.send, quorum_address(node)
    if send is None or address is None:
        raise _SilentError(
            Silence.UNREACHABLE,
            "it registered no reachable address of its quorum listener: set quorum.advertised "
            "there",
        )
    deadline_s = context.limits.view_deadline_s
    query = question.query(node.node_id) or {}
    text = urlencode({name: value for name, value in query.items() if value is not None})
    asked = ForwardedRequest(
        context.identity.cluster_id, node.node_id, "GET", question.path, text.encode(), (), b""
    )
    envelope = Envelope(encode_request(asked), encode_vouched(caller))
    try:
        async with (
            asyncio.timeout(deadline_s),
            context.silent_nodes.slot(node.node_id, context.limits.view_asks_per_node_max),
        ):
            return decode_reply(await send(address, envelope, deadline_s))
    except TimeoutError:
        raise _SilentError(Silence.TIMEOUT, f"no answer within {deadline_s:g} s") from None
    except CorruptData as error:
        raise _SilentError(Silence.OTHER_RELEASE, str(error)) from None
    except PeerFailedError as error:
        if error.unsupported_version:
            silence = Silence.OTHER_RELEASE
        elif error.late:
            silence = Silence.TIMEOUT
        else:
            silence = Silence.FAILED if error.sent else Silence.UNREACHABLE
        raise _SilentError(silence, str(error)) from None


def _part(reply: Reply, kind: type[Part]) -> Part:
    if reply.status != 200:
        problem = _problem(reply.body)
        silence = _BY_STATUS.get(reply.status, Silence.FAILED)
        if problem.get("reason") == UNREADABLE:
            silence = Silence.OTHER_RELEASE
        raise _SilentError(silence, f"it answered {reply.status}: {problem.get('detail')}")
    try:
        return kind.model_validate_json(reply.body, extra="ignore")  # fields of a later release
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(each) for each in first["loc"])
        raise _SilentError(
            Silence.OTHER_RELEASE, f"its answer cannot be decoded: {where}: {first['msg']}"
        ) from None


def _problem(body: bytes) -> dict[str, object]:
    try:
        problem = from_json(body)  # refuses half surrogates, which no answer can contain
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}
