"""Answers requests that other nodes forward, with this node's own application: its gate, its
bounds, its roles. Only nodes of the cluster can send them (`rlmm/wire/listener_answers.py`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from api.http.admission import VOUCHED_SCOPE_KEY
from api.http.context import NodeIdentity
from api.http.errors import PROBLEM_MEDIA_TYPE, problem_of
from api.http.forwarded_requests import (
    REPLY_HEADERS,
    UNREADABLE,
    ForwardedRequest,
    Reply,
    Vouched,
    decode_request,
    decode_vouched,
    encode_reply,
    picked,
)
from api.http.gate import METADATA_OFFSET_HEADER
from kafka_formats.errors import Conflict, CorruptData, OutcomeUnknown, StrandlineError
from rlmm.quorum.envelopes import ENVELOPE_BYTES_MAX, Envelope

_log = logging.getLogger("strandline.api")


@dataclass(slots=True)
class _Collected:
    """The messages of an answer, with at most `ENVELOPE_BYTES_MAX` bytes of its body."""

    start: Message = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    is_whole: bool = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            return
        if len(self.body) <= ENVELOPE_BYTES_MAX:
            self.body += message.get("body", b"")
        self.is_whole = not message.get("more_body", False)

    def reply(self) -> Reply:
        """The collected reply. OutcomeUnknown: it is incomplete, or too long."""
        if not self.is_whole or len(self.body) > ENVELOPE_BYTES_MAX:
            raise OutcomeUnknown(
                "the answer broke off, or is too long to be forwarded: ask this node directly"
            )
        headers = tuple(self.start["headers"])
        offset = dict(headers)[METADATA_OFFSET_HEADER.lower().encode()]
        return Reply(
            self.start["status"], int(offset), picked(headers, REPLY_HEADERS), bytes(self.body)
        )


class VouchedRequests:
    """Carries out requests for which other nodes vouch, on the node `identity`; `app` is its whole
    application.
    """

    def __init__(self, app: ASGIApp, identity: NodeIdentity) -> None:
        self._app = app
        self._identity = identity

    async def answer(self, envelope: Envelope) -> bytes:
        """The encoded reply, also to a request that can't be decoded."""
        try:
            reply = await self._reply(envelope)
        except StrandlineError as error:
            problem = problem_of(error)
            _log.warning("a request forwarded to this node is not answered: %s", error)
            headers = ((b"content-type", PROBLEM_MEDIA_TYPE.encode()),)
            reply = Reply(problem.row.status, -1, headers, problem.body("none"))
        return encode_reply(reply)

    async def _reply(self, envelope: Envelope) -> Reply:
        try:
            request, vouched = decode_request(envelope.request), decode_vouched(envelope.principal)
        except CorruptData as error:
            raise Conflict(
                "the forwarded request cannot be decoded, as the other node's release may be "
                f"newer: upgrade this node ({error})",
                reason=UNREADABLE,
            ) from error
        me = self._identity
        if (request.cluster_id, request.to_node) != (me.cluster_id, me.node_id):
            raise Conflict(
                f"this is node {me.node_id} of cluster {me.cluster_id}, but the request is for "
                f"node {request.to_node} of {request.cluster_id[:40]!r}, which registered this "
                "node's address: correct quorum.advertised there",
                reason="OTHER_NODE",
            )
        asked, collected = asyncio.Queue[Message](), _Collected()
        asked.put_nowait({"type": "http.request", "body": request.body, "more_body": False})
        try:
            await self._app(_scope(request, vouched), asked.get, collected.send)
        except ConnectionAbortedError:
            raise OutcomeUnknown("the answer broke off: read the present state first") from None
        reply = collected.reply()
        _log.log(
            logging.DEBUG if request.method == "GET" else logging.INFO,
            "%s %r of %s, role %s: %d", request.method, request.path[:200],
            vouched.principal.name, vouched.principal.role.name.lower(), reply.status,
        )  # fmt: skip
        return reply


def _scope(request: ForwardedRequest, vouched: Vouched) -> Scope:
    length = (b"content-length", b"%d" % len(request.body))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(request.path),
        "raw_path": request.path.encode("ascii"),
        "query_string": request.query,
        "root_path": "",
        "headers": [*request.headers, length],
        "client": None,
        "server": None,
        VOUCHED_SCOPE_KEY: vouched,
    }
