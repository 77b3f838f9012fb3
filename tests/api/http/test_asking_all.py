"""Views of the whole cluster: every node is asked, and one without a part is named."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from api.http.tokens import Principal, Role
from kafka_formats.errors import RetryLater
from rlm.node_files.audit_log import AuditPage
from rlmm.quorum.envelopes import Envelope
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.records.node_facts import NodeFacts
from rlmm.rows.nodes import Liveness
from tests.api.fake_audit import FakeAudit
from tests.api.fake_cluster import Answers, FakeCluster, liveness
from tests.api.fakes import write_tokens
from tests.rlm.virtual_time import run_virtually

AUDIT = "/v1/cluster/audit"
EMPTY = {"cursor": "c", "lines": [], "unreadable": 0, "next_cursor": None}


async def hung(_: Envelope) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError("never")


def fails(**why: bool) -> Answers:
    async def failed(_: Envelope) -> bytes:
        raise PeerFailedError("n2:9481: it is gone", **why)

    return failed


def replies(status: int, body: object) -> Answers:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def replied(_: Envelope) -> bytes:
        return encode_reply(Reply(status, 7, (), data))

    return replied


async def garbage(_: Envelope) -> bytes:
    return b"\0\x63"


def part(of: Any, node: int) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in of["nodes"] if each["node"] == node)
    return found


async def test_every_node_has_its_part_and_the_asked_one_needs_no_network() -> None:
    cluster = FakeCluster()
    view = await cluster.ask(AUDIT, asked=2, limit=1_000)
    assert [(each["node"], each["answered"], each["reason"]) for each in view["nodes"]] == [
        (1, True, None), (2, True, None), (3, True, None),
    ]  # fmt: skip
    assert [each["metadata_offset"] for each in view["nodes"]] == [101, 102, 103]
    assert {each["as_of_ms"] for each in view["nodes"]} == {1_000}
    assert sorted(cluster.sent) == [1, 3]
    assert (cluster.counted("answered", asked=2), cluster.counted("timeout", asked=2)) == (2, 0)
    alone = FakeCluster(1)
    assert [each["node"] for each in (await alone.ask(AUDIT))["nodes"]] == [1]
    assert alone.sent == []


@pytest.mark.parametrize(
    ("answers", "reason", "text"),
    [
        (fails(sent=False), "unreachable", "it is gone"),
        (fails(late=True), "timeout", "it is gone"),
        (fails(sent=False, late=True), "timeout", "it is gone"),
        (fails(), "failed", "it is gone"),
        (fails(unsupported_version=True, sent=False), "other_release", "it is gone"),
        (garbage, "other_release", "this release reads version 0"),
        (replies(403, {"detail": "no role"}), "refused", "it answered 403: no role"),
        (replies(409, {"detail": "not me", "reason": "OTHER_NODE"}), "refused", "409: not me"),
        (replies(409, {"detail": "?", "reason": "UNREADABLE"}), "other_release", "409: ?"),
        (replies(404, {"detail": "no such path"}), "other_release", "no such path"),
        (replies(503, b"busy"), "failed", "it answered 503: None"),
        (replies(500, ["?"]), "failed", "it answered 500: None"),
        (replies(500, b"[" * 100_000), "failed", "it answered 500: None"),
        (replies(500, {"detail": "\ud800"}), "failed", "it answered 500: None"),
        (replies(200, {"lines": 7}), "other_release", "cannot be decoded: cursor: "),
        (replies(200, b"<html>"), "other_release", "cannot be decoded: : Invalid JSON"),
        (replies(200, EMPTY | {"cursor": "c" * 101}), "other_release", "decoded: cursor: "),
        (replies(200, EMPTY | {"cursor": "c,3:"}), "other_release", "decoded: cursor: "),
        (replies(200, EMPTY | {"next_cursor": ""}), "other_release", "decoded: next_cursor: "),
    ],
)  # fmt: skip
async def test_a_node_without_a_part_is_named_with_the_reason(
    answers: Answers, reason: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster()
    cluster.answers[2] = answers
    with caplog.at_level(logging.INFO, "strandline.api"):
        for _ in range(2):
            view = await cluster.ask(AUDIT)
        del cluster.answers[2]
        await cluster.ask(AUDIT)
    silent = part(view, 2)
    assert (silent["answered"], silent["reason"]) == (False, reason)
    assert text in silent["text"]
    assert (silent["as_of_ms"], silent["metadata_offset"]) == (None, None)
    assert part(view, 3)["answered"]
    assert (cluster.counted(reason), cluster.counted("answered")) == (2, 4)
    said = [each.getMessage() for each in caplog.records if "of the cluster" in each.getMessage()]
    assert said[0].startswith(f"node 2 is missing in views of the cluster: {reason}: ")
    assert said[1:] == ["node 2 takes part in views of the cluster again"]


async def test_nodes_that_are_known_to_be_silent_are_named_and_not_asked() -> None:
    cluster = FakeCluster(5)
    cluster.register(
        n2=liveness(Liveness.FENCED), n3=liveness(Liveness.STOPPED), n4=liveness(Liveness.REMOVED),
        n5={"facts": NodeFacts(quorum="0.0.0.0:9481")},
    )  # fmt: skip
    view = await cluster.ask(AUDIT)
    assert [(each["node"], each["reason"]) for each in view["nodes"]] == [
        (1, None), (2, "fenced"), (3, "stopped"), (5, "unreachable"),
    ]  # fmt: skip
    assert cluster.sent == []
    cluster.nodes[1].context.envelopes.send = None
    cluster.register()
    assert part(await cluster.ask(AUDIT), 2)["reason"] == "unreachable"


def test_a_hung_node_costs_its_deadline_and_holds_up_no_other() -> None:
    """Eight views at once, more than may be with one node: all have the part of the third."""

    async def scenario() -> None:
        limits = ApiLimits(view_deadline_s=3.0, view_asks_per_node_max=2)
        cluster = FakeCluster(limits=limits)
        cluster.answers[2] = hung
        views = await asyncio.gather(*(cluster.ask(AUDIT) for _ in range(8)))
        for view in views:
            assert (part(view, 2)["reason"], part(view, 3)["answered"]) == ("timeout", True)
            assert part(view, 2)["text"] == "no answer within 3 s"
        assert cluster.sent.count(2) == 2
        assert asyncio.get_running_loop().time() == 3.0

    run_virtually(scenario)


def test_only_so_many_views_are_made_at_once() -> None:
    """Each has the parts of all nodes in memory."""

    async def scenario() -> None:
        cluster = FakeCluster(limits=ApiLimits(views_parallel_max=2))
        cluster.answers[2] = hung
        answers = await asyncio.gather(*(cluster.answer(AUDIT) for _ in range(5)))
        assert sorted(each.status_code for each in answers) == [200, 200, 503, 503, 503]
        refused = next(each.json() for each in answers if each.status_code == 503)
        assert (refused["kind"], refused["detail"][:28]) == (
            "retry_later",
            "2 views of the whole cluster",
        )
        assert (await cluster.answer(AUDIT)).status_code == 200

    run_virtually(scenario)


async def test_only_so_many_nodes_are_asked_at_once() -> None:
    cluster = FakeCluster(9, limits=ApiLimits(view_nodes_parallel_max=3))
    at_once, most = 0, 0

    def counted(answer: Answers) -> Answers:
        async def answered(envelope: Envelope) -> bytes:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            reply = await answer(envelope)
            at_once -= 1
            return reply

        return answered

    cluster.answers = {id_: counted(each.answer) for id_, each in cluster.vouched.items()}
    view = await cluster.ask(AUDIT)
    assert (all(each["answered"] for each in view["nodes"]), len(view["nodes"])) == (True, 9)
    assert most == 3


async def test_the_callers_role_is_vouched_for_and_no_token_goes_along(tmp_path: Path) -> None:
    cluster = FakeCluster(tokens=write_tokens(tmp_path / "tokens"))
    seen: list[Envelope] = []

    async def answered(envelope: Envelope) -> bytes:
        seen.append(envelope)
        return await cluster.vouched[2].answer(envelope)

    cluster.answers[2] = answered
    assert part(await cluster.ask(AUDIT, token="reader-token"), 2)["answered"]
    assert b"reader-token" not in seen[0].request + seen[0].principal
    assert b"reader" in seen[0].principal
    assert (await cluster.answer(AUDIT)).status_code == 401


async def test_a_view_that_a_node_hands_on_is_refused() -> None:
    """So that no two nodes can ask each other for ever."""
    cluster = FakeCluster()
    request = encode_request(ForwardedRequest("cluster", 2, "GET", AUDIT, b"", (), b""))
    envelope = Envelope(request, encode_vouched(Vouched(Principal("x", Role.ADMIN), 1)))
    assert b"ONE_HOP" in await cluster.vouched[2].answer(envelope)
    assert cluster.sent == []


async def test_what_a_later_release_adds_to_its_part_is_left_out() -> None:
    cluster = FakeCluster(2)

    async def later(envelope: Envelope) -> bytes:
        line = (await cluster.ask("/v1/audit", asked=2))["lines"][0]
        body = {
            "lines": [line | {"mood": "x"}], "cursor": "c", "unreadable": 1, "next_cursor": None,
            "more": 1,
        }  # fmt: skip
        return await replies(200, body)(envelope)

    cluster.answers[2] = later
    view = await cluster.ask(AUDIT)
    assert (part(view, 2)["answered"], view["unreadable"]) == (True, 1)
    assert "mood" not in json.dumps(view)


async def test_a_node_whose_own_part_fails_shows_those_of_the_others() -> None:
    cluster = FakeCluster()

    class Unreadable(FakeAudit):
        async def newest(self, *_: object) -> AuditPage:
            raise RetryLater("the audit can't be read: I/O error")

    node = cluster.nodes[1]
    node.context = replace(node.context, audit=Unreadable())
    view = await cluster.ask(AUDIT)
    assert (part(view, 1)["reason"], part(view, 1)["answered"]) == ("failed", False)
    assert "I/O error" in part(view, 1)["text"]
    assert {line["node"] for line in view["lines"]} == {2, 3}


async def test_a_wrong_question_is_the_callers_and_goes_to_nobody() -> None:
    cluster = FakeCluster()
    answer = await cluster.answer(AUDIT, cursor="AAAA")
    assert (answer.status_code, answer.json()["field"]) == (400, "cursor")
    assert cluster.sent == []
