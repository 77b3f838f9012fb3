"""Requests handed on: the node that can answer does, by the asked node's word about the caller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.api_limits import ApiLimits
from api.http.forwarded_requests import (
    ForwardedRequest,
    Reply,
    Vouched,
    encode_reply,
    encode_request,
    encode_vouched,
)
from api.http.tokens import Principal, Role, TokenBook
from api.http.vouched_requests import VouchedRequests
from kafka_formats.errors import Conflict
from kafka_formats.kafka_uuid import Uuid
from rlmm.quorum.envelopes import ENVELOPE_BYTES_MAX, Envelope
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.records.node_facts import NodeFacts
from rlmm.rows.nodes import RegisteredNode
from tests.api.fake_audit import FakeAudit
from tests.api.fakes import FakeNode, make_node, write_tokens

TRANSFER, CAN_STOP = "/v1/quorum/transfer", "/v1/quorum/can-stop/1"
TO = {"node_id": None}
AT = ("n2", 9481)
NO_ROLES = TokenBook()


def not_leader(node_id: int | None = 2) -> Conflict:
    return Conflict("this node does not lead", reason="NOT_LEADER", ask_node=node_id)


class TwoNodes:
    """Node 1, which is asked, and node 2, which leads and knows no token and no anonymous role."""

    def __init__(self, tokens: TokenBook | None = None, limits: ApiLimits | None = None) -> None:
        self.asked = make_node(
            tokens=tokens, limits=limits, anonymous_role=None if tokens else Role.ADMIN
        )
        self.leads = make_node(anonymous_role=None, tokens=NO_ROLES)
        self.asked.quorum.error = not_leader()
        self.register(http="https://n2:9480", quorum="n2:9481")
        identity = replace(self.leads.context.identity, node_id=2)
        self.leads.context = replace(self.leads.context, identity=identity)
        self.leads.manager.applied_offset = 77
        self.cluster = identity.cluster_id
        self.vouched = VouchedRequests(self.leads.app(), identity)
        self.sent: list[Envelope] = []
        self.answers: Callable[[Envelope], Awaitable[bytes]] = self.vouched.answer
        self.asked.context.envelopes.send = self._send

    def register(self, http: str | None, quorum: str | None) -> None:
        facts = NodeFacts(http=http, quorum=quorum)
        for each in (self.asked, self.leads):
            each.manager.nodes = tuple(
                RegisteredNode(id_, Uuid(b"a directory.... "), 1, 1, 1, 1, facts=facts)
                for id_ in (1, 2)
            )

    async def _send(self, address: tuple[str, int], envelope: Envelope, deadline_s: float) -> bytes:
        assert address == AT
        assert deadline_s == self.asked.context.limits.hand_on_deadline_s
        self.sent.append(envelope)
        return await self.answers(envelope)

    async def ask(
        self, method: str, path: str, json: Any = None, token: str | None = None
    ) -> httpx.Response:
        async with self.asked.client(token=token) as client:
            return await client.request(method, path, json=json)

    def counted(self, outcome: str, of: FakeNode | None = None) -> float | None:
        registry = (of or self.asked).context.metrics.registry
        return registry.get_sample_value("strandline_http_handed_on_total", {"outcome": outcome})


async def test_the_leader_makes_the_change_by_the_callers_role(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = TwoNodes(write_tokens(tmp_path / "tokens"))
    with caplog.at_level(logging.INFO, "strandline.api"):
        answer = await nodes.ask("POST", TRANSFER, TO, token="boss-token")
    assert (answer.status_code, nodes.leads.quorum.asked) == (200, [("transfer", None)])
    assert answer.headers["Strandline-Metadata-Offset"] == "77"
    assert answer.headers["Strandline-Answered-By"] == "2"
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["applied_offset"] == 77
    assert "'/v1/quorum/transfer' of boss, for node 2: answered" in caplog.text
    assert "of boss by way of node 1, role admin: 200" in caplog.text
    audit = nodes.leads.context.audit
    assert isinstance(audit, FakeAudit)
    changed = (each for each in audit.lines if each.action == "quorum_changed")
    assert [each.by for each in changed] == ["boss by way of node 1"]
    assert nodes.counted("answered") == 1
    assert b"boss-token" not in nodes.sent[0].request + nodes.sent[0].principal


async def test_questions_query_and_head_go_on_too_and_so_do_refusals() -> None:
    nodes = TwoNodes()
    answer = await nodes.ask("GET", CAN_STOP)
    assert answer.json()["allowed"] is True
    headed = await nodes.ask("HEAD", CAN_STOP)
    assert (headed.status_code, headed.content) == (200, b"")
    assert headed.headers["Content-Length"] == answer.headers["Content-Length"]
    directory = str(Uuid(b"directory-four.."))
    await nodes.ask("DELETE", f"/v1/quorum/voters/4?directory_id={directory}")
    assert nodes.leads.quorum.asked[-1] == ("remove", 4, directory)
    nodes.leads.quorum.error = Conflict("too few", reason="TOO_FEW_WOULD_REMAIN")
    refused = await nodes.ask("DELETE", "/v1/quorum/voters/4")
    assert (refused.status_code, refused.json()["reason"]) == (409, "TOO_FEW_WOULD_REMAIN")


async def test_a_role_that_does_not_suffice_is_refused_where_it_is_asked_and_where_it_goes(
    tmp_path: Path,
) -> None:
    nodes = TwoNodes(write_tokens(tmp_path / "tokens"))
    assert (await nodes.ask("POST", TRANSFER, TO, token="operator-token")).status_code == 403
    assert nodes.sent == []
    reply = await vouch(nodes, Role.OPERATE)
    assert (reply.status_code, nodes.leads.quorum.asked) == (403, [])
    assert "somebody by way of node 1 has the role operate" in reply.json()["detail"]


async def vouch(nodes: TwoNodes, role: Role = Role.ADMIN, **changes: Any) -> httpx.Response:
    """Node 1's caller gets the reply to an envelope of the test's own."""
    request = ForwardedRequest(
        nodes.cluster, 2, "POST", TRANSFER, b"", ((b"content-type", b"application/json"),), b"{}"
    )
    principal = encode_vouched(Vouched(Principal("somebody", role), 1))
    envelope = Envelope(encode_request(replace(request, **changes)), principal)

    async def answered(_: Envelope) -> bytes:
        return await nodes.vouched.answer(envelope)

    nodes.answers = answered
    nodes.asked.context = replace(nodes.asked.context, anonymous_role=Role.ADMIN)
    return await nodes.ask("POST", TRANSFER, TO)


async def test_no_header_of_a_client_passes_for_another_nodes_word() -> None:
    node = make_node(anonymous_role=None)
    headers = {"strandline.vouched": "boss", "Strandline-Vouched": "boss", "Via": "1.1 node 1"}
    async with node.client() as client:
        assert (await client.post(TRANSFER, json=TO, headers=headers)).status_code == 401
    nodes = TwoNodes()
    sneaked = ((b"authorization", b"Bearer boss-token"), (b"host", b"127.0.0.1"))
    reply = await vouch(nodes, Role.READ, headers=sneaked, method="GET", path=CAN_STOP, body=b"")
    assert reply.status_code == 200  # by the role read: the token was left out


async def test_one_hop_and_no_more() -> None:
    nodes = TwoNodes()
    nodes.leads.quorum.error = not_leader(1)
    nodes.leads.context.envelopes.send = nodes.asked.context.envelopes.send
    answer = await nodes.ask("POST", TRANSFER, TO)
    assert (answer.status_code, answer.json()["reason"]) == (409, "NOT_LEADER")
    assert answer.json()["ask_node"] == 1
    assert "Node 1 forwarded the request to this one, and it is not forwarded" in answer.text
    assert (len(nodes.sent), nodes.counted("refused", nodes.leads)) == (1, 1)


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize(("method", "path"), [("POST", TRANSFER), ("GET", CAN_STOP)])
async def test_without_an_answer_a_change_is_unknown_only_if_it_was_sent_and_sent_once(
    method: str, path: str, sent: bool
) -> None:
    nodes = TwoNodes()

    async def lost(_: Envelope) -> bytes:
        raise PeerFailedError("n2:9481: the connection was lost", sent=sent)

    nodes.answers = lost
    answer = await nodes.ask(method, path, TO if method == "POST" else None)
    unknown = sent and method == "POST"
    kind = "outcome_unknown" if unknown else "retry_later"
    assert (answer.status_code, answer.json()["kind"]) == (504 if unknown else 503, kind)
    assert ("nothing was changed" in answer.json()["detail"]) is not sent
    assert "n2:9481: the connection was lost" in answer.json()["detail"]
    assert (len(nodes.sent), nodes.counted("unknown" if sent else "not_reached")) == (1, 1)


@pytest.mark.parametrize("garbage", [b"", b"\0\1", b"\0\0\0\x63" + b"\0" * 40])
async def test_a_reply_that_can_not_be_read_leaves_the_outcome_unknown(garbage: bytes) -> None:
    nodes = TwoNodes()

    async def garbled(_: Envelope) -> bytes:
        return garbage

    nodes.answers = garbled
    assert (await nodes.ask("POST", TRANSFER, TO)).json()["kind"] == "outcome_unknown"


async def test_a_change_that_the_gate_cuts_off_while_it_is_handed_on_is_unknown() -> None:
    nodes = TwoNodes(limits=ApiLimits(answer_deadline_s=0.01))
    nodes.leads.quorum.never_answers = True
    answer = await nodes.ask("POST", TRANSFER, TO)
    assert (answer.status_code, answer.json()["kind"]) == (504, "outcome_unknown")
    assert nodes.counted("unknown") == 1


async def test_only_so_many_are_handed_on_at_once() -> None:
    nodes = TwoNodes(limits=ApiLimits(forwarded_parallel_max=1))
    nodes.leads.quorum.never_answers = True
    app = nodes.asked.app()  # one layer, which counts
    async with nodes.asked.client(app=app) as client:
        first = asyncio.create_task(client.post(TRANSFER, json=TO))
        while not nodes.sent:
            await asyncio.sleep(0)
        second = await client.post(TRANSFER, json=TO)
        first.cancel()
        await asyncio.wait({first})
    assert (second.status_code, second.json()["kind"]) == (503, "retry_later")
    assert "1 forwarded requests are under way" in second.json()["detail"]


HTTP, QUORUM = "https://n2:9480", "n2:9481"
HERE = f"{HTTP}/v1/quorum/voters/4?directory_id=%5AGlyZWN0b3J5LWZvdXIuLg"


@pytest.mark.parametrize(
    ("http", "quorum", "location"),
    [
        (HTTP, None, HERE),
        (HTTP, "0.0.0.0:9481", HERE),
        (HTTP, "[::]:9481", HERE),
        (HTTP, "n2:nine", HERE),
        ("https://who:secret@n2:9480/path", None, HERE),
        (None, None, None),
        ("http://0.0.0.0:9480", None, None),
        ("ftp://n2", "", None),
    ],
)
async def test_without_a_way_there_the_caller_is_told_the_registered_address(
    http: str | None, quorum: str | None, location: str | None
) -> None:
    nodes = TwoNodes()
    nodes.register(http, quorum)
    nodes.asked.quorum.error = None
    nodes.asked.quorum.remove_voter = _raise  # type: ignore[method-assign]
    answer = await nodes.ask("DELETE", "/v1/quorum/voters/4?directory_id=%5AGlyZWN0b3J5LWZvdXIuLg")
    assert answer.status_code == (409 if location is None else 307)
    assert answer.headers.get("location") == location
    problem = answer.json()
    assert (problem["kind"], problem["reason"], problem["ask_node"]) == (
        "conflict", "NOT_LEADER", 2,
    )  # fmt: skip
    assert problem["status"] == answer.status_code
    assert (nodes.sent, nodes.counted("redirected")) == ([], 1)


async def _raise(*_: object, **__: object) -> None:
    raise not_leader()


async def test_an_older_release_is_told_of_and_so_is_a_body_too_large_to_hand_on() -> None:
    nodes = TwoNodes(limits=ApiLimits(body_bytes_max=2 * ENVELOPE_BYTES_MAX))
    spaces = b" " * ENVELOPE_BYTES_MAX
    async with nodes.asked.client() as client:
        large = await client.post(
            TRANSFER, content=b'{"node_id": null}' + spaces,
            headers={"content-type": "application/json"},
        )  # fmt: skip
    assert (large.status_code, nodes.sent) == (307, [])

    async def older(_: Envelope) -> bytes:
        raise PeerFailedError("older", unsupported_version=True, sent=False)

    nodes.answers = older
    answer = await nodes.ask("POST", TRANSFER, TO)
    assert (answer.status_code, answer.headers["location"]) == (307, f"{HTTP}{TRANSFER}")


@pytest.mark.parametrize("node_id", [None, 1, 9])
async def test_nobody_this_node_itself_and_an_unregistered_node_are_not_asked(
    node_id: int | None,
) -> None:
    nodes = TwoNodes()
    nodes.asked.quorum.error = not_leader(node_id)
    answer = await nodes.ask("POST", TRANSFER, TO)
    assert (answer.status_code, answer.json().get("ask_node")) == (409, node_id)
    assert nodes.sent == []


async def test_an_address_that_leads_to_another_node_does_nothing_there() -> None:
    nodes = TwoNodes()
    reply = await vouch(nodes, to_node=3)
    assert (reply.status_code, reply.json()["reason"]) == (409, "OTHER_NODE")
    assert "but the request is for node 3 of" in reply.json()["detail"]
    assert nodes.leads.quorum.asked == []


async def test_an_address_that_leads_to_another_cluster_does_nothing_there() -> None:
    """It may have the same secret, and a node of the same id."""
    nodes = TwoNodes()
    reply = await vouch(nodes, cluster_id="bm90LXRoaXMtY2x1c3Rlcg")
    assert (reply.status_code, reply.json()["reason"]) == (409, "OTHER_NODE")
    assert f"this is node 2 of cluster {nodes.cluster}, but" in reply.json()["detail"]
    assert nodes.leads.quorum.asked == []


async def test_an_encoded_path_is_handed_on_as_the_routes_read_it() -> None:
    assert (await TwoNodes().ask("POST", "/%76%31/quorum/transfer", TO)).status_code == 200


@pytest.mark.parametrize("name", ["", "boss\nnode 2 stops", "\x1b[2J", "b" * 65])
async def test_a_name_that_no_token_has_is_not_vouched_for(name: str) -> None:
    nodes = TwoNodes()
    request = encode_request(ForwardedRequest(nodes.cluster, 2, "POST", TRANSFER, b"", (), b"{}"))
    principal = encode_vouched(Vouched(Principal(name, Role.ADMIN), 1))
    assert b"UNREADABLE" in await nodes.vouched.answer(Envelope(request, principal))
    assert nodes.leads.quorum.asked == []


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, 7, ((b"content-type", b"text/plain\r\nSet-Cookie: a=b"),), b"{}"),
        Reply(200, 7, ((b"retry-after", b"1\0"),), b"{}"),
        Reply(204, 7, (), b"HTTP/1.1 200 OK\r\n\r\n"),
        Reply(304, 7, (), b""),
        Reply(101, 7, (), b""),
    ],
)
async def test_no_reply_of_a_node_becomes_two_answers(reply: Reply) -> None:
    nodes = TwoNodes()

    async def split(_: Envelope) -> bytes:
        return encode_reply(reply)

    nodes.answers = split
    answer = await nodes.ask("POST", TRANSFER, TO)
    assert (answer.status_code, answer.json()["kind"]) == (504, "outcome_unknown")
    assert "set-cookie" not in answer.headers


async def test_who_asked_by_tls_is_sent_nowhere_without() -> None:
    """A client that follows would show its token to everybody on the way."""
    nodes = TwoNodes()
    nodes.register("http://n2:9480", None)
    for base, status in (("https://127.0.0.1", 409), ("http://127.0.0.1", 307)):
        async with nodes.asked.client() as client:
            answer = await client.post(f"{base}{TRANSFER}", json=TO)
        assert (answer.status_code, answer.json()["ask_node"]) == (status, 2)
        assert ("location" in answer.headers) is (status == 307)


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "/metrics"}, {"path": "/v1/broker/add"}, {"path": "/v1/\u00fc"},
        {"path": "http://elsewhere/v1/"}, {"method": "CONNECT"}, {"path": "/v1/broker%2Fadd"},
        {"path": "/v1/%62roker/add"}, {"path": "/%6detrics"}, {"path": "v1/quorum/transfer"},
        {"path": "/v1/nowhere", "query": b"\xff"},
    ],
)  # fmt: skip
async def test_what_no_node_hands_on_is_not_done(changes: dict[str, Any]) -> None:
    nodes = TwoNodes()
    reply = await vouch(nodes, Role.ADMIN, **changes)
    assert (reply.status_code, reply.json()["reason"]) == (409, "UNREADABLE")


async def test_no_made_up_role_is_taken_and_no_cut_off_caller() -> None:
    nodes, good = TwoNodes(), encode_vouched(Vouched(Principal("x", Role.ADMIN), 1))
    request = encode_request(ForwardedRequest(nodes.cluster, 2, "POST", TRANSFER, b"", (), b"{}"))
    for principal in (good[:-2] + b"\x09" + good[-1:], good[:-1], b"", good + b"\0"):
        assert b"UNREADABLE" in await nodes.vouched.answer(Envelope(request, principal))
    assert nodes.leads.quorum.asked == []


async def test_an_answer_that_is_too_long_or_breaks_off_leaves_the_outcome_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = TwoNodes()
    monkeypatch.setattr("api.http.vouched_requests.ENVELOPE_BYTES_MAX", 10)
    assert (await nodes.ask("POST", TRANSFER, TO)).json()["kind"] == "outcome_unknown"

    async def breaks_off(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ConnectionAbortedError

    nodes.answers = VouchedRequests(breaks_off, nodes.leads.context.identity).answer
    assert (await nodes.ask("POST", TRANSFER, TO)).json()["kind"] == "outcome_unknown"
