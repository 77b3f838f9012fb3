"""Forwards a request that only one other node can answer: the quorum's leader, or the node that has
the claim of a partition. The routes name that node in their refusal (`Conflict.ask_node`), before
they change anything. One hop: a forwarded request is not forwarded again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.admission import PRINCIPAL_SCOPE_KEY, VOUCHED_SCOPE_KEY
from api.http.context import ApiContext
from api.http.errors import RedirectedError
from api.http.forwarded_requests import (
    HEADERS,
    ForwardedRequest,
    Reply,
    Vouched,
    decode_reply,
    encode_request,
    encode_vouched,
    location,
    may_be_forwarded,
    picked,
    quorum_address,
)
from api.http.gate import CONTEXT_SCOPE_KEY, METADATA_OFFSET_SCOPE_KEY
from api.http.route_table import route_of, writes
from api.http.tokens import Principal
from api.metrics.metrics import ForwardingOutcome
from kafka_formats.errors import Conflict, CorruptData, OutcomeUnknown, RetryLater, StrandlineError
from rlmm.quorum.envelopes import ENVELOPE_BYTES_MAX, Envelope
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.rows.nodes import RegisteredNode

_log = logging.getLogger("strandline.api")


@dataclass(slots=True)
class _Body:
    """The pieces of the request's body, recorded while the routes read it."""

    take: Receive
    pieces: list[bytes] = field(default_factory=list)

    async def receive(self) -> Message:
        message = await self.take()
        if message["type"] == "http.request" and (piece := message.get("body")):
            self.pieces.append(piece)
        return message


class Forwarding:
    """An ASGI layer before the routes, and after the layers that answer the busiest requests."""

    def __init__(self, app: ASGIApp) -> None:
        self.inner = app
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or send the other node's answer."""
        if scope["type"] != "http" or not may_be_forwarded(scope["path"]):
            await self.inner(scope, receive, send)
            return
        body = _Body(receive)
        try:
            await self.inner(scope, body.receive, send)
        except Conflict as refused:
            if refused.ask_node is None:
                raise
            reply = await self._reply(scope, b"".join(body.pieces), refused, refused.ask_node)
            scope[METADATA_OFFSET_SCOPE_KEY] = reply.metadata_offset
            length = (b"content-length", b"%d" % len(reply.body))
            answered_by = (b"strandline-answered-by", b"%d" % refused.ask_node)
            headers = [*reply.headers, length, answered_by]
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body, "more_body": False})

    async def _reply(self, scope: Scope, body: bytes, refused: Conflict, node_id: int) -> Reply:
        """Return the reply of node `node_id`. Raises `refused` if that node can't be asked, or the
        error that explains why there is no reply.
        """
        context: ApiContext = scope[CONTEXT_SCOPE_KEY]
        vouched: Vouched | None = scope.get(VOUCHED_SCOPE_KEY)
        if vouched is not None:
            context.metrics.http.handed_on(ForwardingOutcome.REFUSED)
            raise Conflict(
                f"{refused}. Node {vouched.by_node} forwarded the request to this one, and it is "
                "not forwarded again: the nodes do not agree yet on the right one, ask again",
                reason=refused.reason,
                ask_node=node_id,
            )
        principal: Principal | None = scope.get(PRINCIPAL_SCOPE_KEY)
        node = context.manager.registered_node(node_id)
        if principal is None or node is None or node_id == context.identity.node_id:
            raise refused
        path, query = scope["raw_path"].decode("ascii"), scope["query_string"]
        headers = picked(tuple(scope["headers"]), HEADERS)
        cluster_id = context.identity.cluster_id
        request = ForwardedRequest(cluster_id, node_id, scope["method"], path, query, headers, body)
        elsewhere = location(node, scope["scheme"], path, query)
        redirected = refused if elsewhere is None else RedirectedError(refused, elsewhere)
        vouched = Vouched(principal, context.identity.node_id)
        outcome = ForwardingOutcome.UNKNOWN  # also if the request is cancelled meanwhile
        try:
            reply = await self._sent(context, node, request, vouched)
            outcome = ForwardingOutcome.ANSWERED
        except _NoWayError:
            outcome = ForwardingOutcome.REDIRECTED
            raise redirected from None
        except PeerFailedError as error:
            changes = writes(request.method, route_of(scope).template)
            outcome, told = _failed(node_id, error, changes=changes)
            _log.warning("node %d does not answer a forwarded request: %s", node_id, error)
            raise told from error
        finally:
            context.metrics.http.handed_on(outcome)
            _log.info(
                "%s %r of %s, for node %d: %s",
                request.method, path[:200], principal.name, node_id, outcome.value,
            )  # fmt: skip
        return reply

    async def _sent(
        self, context: ApiContext, node: RegisteredNode, request: ForwardedRequest, vouched: Vouched
    ) -> Reply:
        """Send the request to `node` and return its reply. PeerFailedError: no usable answer.
        _NoWayError: the node accepts no forwarded requests.
        """
        send, address = context.envelopes.send, quorum_address(node)
        if send is None or address is None or len(request.body) > ENVELOPE_BYTES_MAX:
            raise _NoWayError
        if self._under_way >= context.limits.forwarded_parallel_max:
            raise PeerFailedError(
                f"{self._under_way} forwarded requests are under way, which is the most at once: "
                "ask again",
                sent=False,
            )
        self._under_way += 1
        try:
            envelope = Envelope(encode_request(request), encode_vouched(vouched))
            return decode_reply(await send(address, envelope, context.limits.hand_on_deadline_s))
        except CorruptData as error:
            raise PeerFailedError(str(error)) from error
        except PeerFailedError as error:
            if error.unsupported_version:
                raise _NoWayError from error
            raise
        finally:
            self._under_way -= 1


class _NoWayError(Exception):
    """A request can't be forwarded to that node, now or later."""


def _failed(
    node_id: int, error: PeerFailedError, *, changes: bool
) -> tuple[ForwardingOutcome, StrandlineError]:
    """The outcome, and the caller's error. A change that was sent once is never sent again."""
    if not error.sent:
        return ForwardingOutcome.NOT_REACHED, RetryLater(
            f"node {node_id}, which has to do this, can't be reached from this node, and nothing "
            f"was changed ({error}). Start it, or ask again once a different node has taken over"
        )
    what = f"node {node_id}, to which the request was forwarded, gave no usable answer ({error})"
    if changes:
        return ForwardingOutcome.UNKNOWN, OutcomeUnknown(
            f"{what}: the change may or may not have been made. Read the present state before "
            "you repeat it"
        )
    return ForwardingOutcome.UNKNOWN, RetryLater(f"{what}: ask again")
