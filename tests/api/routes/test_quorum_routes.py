"""The quorum over HTTP: what is asked of the leader, who may, what bad input gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.http.api_limits import ApiLimits
from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    OutcomeUnknown,
    RetryLater,
    StrandlineError,
)
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_records import Endpoint, Voter
from tests.api.fake_audit import FakeAudit
from tests.api.fakes import app_over, make_node, write_tokens

DIRECTORY = Uuid(b"directory-four..")
FOUR: dict[str, Any] = {
    "node_id": 4, "directory_id": str(DIRECTORY), "host": "strand-4", "port": 9481,
}  # fmt: skip
CHANGES = [
    ("POST", "/v1/quorum/voters", FOUR),
    ("DELETE", "/v1/quorum/voters/4", None),
    ("POST", "/v1/quorum/transfer", {"node_id": None}),
    ("POST", "/v1/quorum/feature-level", {"feature_level": 2}),
    ("POST", "/v1/quorum/accept-cut", None),
]


async def test_each_change_reaches_the_quorum_and_answers_with_what_stands_then() -> None:
    node = make_node()
    async with node.client() as client:
        for method, path, body in (
            *CHANGES,
            ("DELETE", f"/v1/quorum/voters/4?directory_id={DIRECTORY}", None),
            ("POST", "/v1/quorum/transfer", {"node_id": 2}),
        ):
            answer = await client.request(method, path, json=body)
            assert answer.status_code == 200, answer.text
            assert [each["node_id"] for each in answer.json()["voters"]] == [1, 2, 3]
    assert node.quorum.asked == [
        ("add", Voter(4, DIRECTORY, (Endpoint("QUORUM", "strand-4", 9481),))),
        ("remove", 4, None),
        ("transfer", None),
        ("feature-level", 2, 1, False),
        ("accept-cut",),
        ("remove", 4, str(DIRECTORY)),
        ("transfer", 2),
    ]
    assert node.manager.finalised == [1, 2]
    assert isinstance(node.context.audit, FakeAudit)
    lines = [each for each in node.context.audit.lines if each.action == "quorum_changed"]
    assert [each.why for each in lines] == [
        f"voter 4, directory {DIRECTORY}, was added",
        "voter 4, directory any, was removed",
        "leadership was handed to a different voter",
        "feature level 2 was finalised after 1",
        "the loss of records that only node 1 had was accepted",
        f"voter 4, directory {DIRECTORY}, was removed",
        "leadership was handed to node 2",
    ]
    assert {each.by for each in lines} == {"anonymous"}


async def test_a_level_that_stands_is_not_written_again_and_one_that_is_refused_not_at_all() -> (
    None
):
    node = make_node()
    async with node.client() as client:
        body: dict[str, Any] = {"feature_level": 1, "observers_upgraded": True}
        answer = await client.post("/v1/quorum/feature-level", json=body)
        assert (answer.status_code, answer.json()["feature_level"]) == (200, 1)
        node.quorum.error = Conflict("node 3 knows 1 to 1", reason="UNSUPPORTED_FEATURE_LEVEL")
        refused = await client.post("/v1/quorum/feature-level", json={"feature_level": 2})
    assert (refused.status_code, refused.json()["reason"]) == (409, "UNSUPPORTED_FEATURE_LEVEL")
    assert node.quorum.asked == [("feature-level", 1, 1, True)]
    assert node.manager.finalised == [1]


async def test_can_stop_gives_its_reason_either_way() -> None:
    async with make_node().client() as client:
        answers = [(await client.get(f"/v1/quorum/can-stop/{each}")).json() for each in (1, 2)]
    assert [each["allowed"] for each in answers] == [True, False]
    assert answers[1]["reason"] == "2 other voters keep up, 2 are needed"


async def test_the_leaders_word_is_asked_of_the_leader_alone() -> None:
    node = make_node()
    address = "/v1/quorum?by_leader=true"
    async with node.client() as client:
        led = await client.get(address)
        assert (led.status_code, led.json()["leader_id"]) == (200, 1)
        for leader, ask_node in ((2, 2), (-1, None)):
            node.manager.leader_id = leader
            refused = await client.get(address)
            assert (refused.status_code, refused.json()["reason"]) == (409, "NOT_LEADER")
            assert refused.json().get("ask_node") == ask_node
            assert (await client.get("/v1/quorum")).status_code == 200


async def test_only_an_admin_changes_the_quorum_and_a_reader_may_look(tmp_path: Path) -> None:
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    for token, status in (("operator-token", 403), ("reader-token", 403), (None, 401)):
        async with node.client(token=token) as client:
            for method, path, body in CHANGES:
                answer = await client.request(method, path, json=body)
                assert answer.status_code == status, answer.text
            if token is not None:
                for path in ("/v1/quorum", "/v1/quorum/can-stop/1"):
                    assert (await client.get(path)).status_code == 200
    assert {asked for asked, *_ in node.quorum.asked} == {"can-stop"}
    async with node.client(token="boss-token") as client:
        assert (await client.post("/v1/quorum/transfer", json={"node_id": 2})).status_code == 200


@pytest.mark.parametrize(
    ("error", "status", "kind", "reason"),
    [
        (
            Conflict("this node does not lead the quorum: ask node 2", reason="NOT_LEADER"),
            409, "conflict", "NOT_LEADER",
        ),
        (AlreadyExists("node 4 is a voter"), 409, "already_exists", "ALREADY_EXISTS"),
        (NotFound("node 4 is not a voter"), 404, "not_found", None),
        (OutcomeUnknown("look at the voters"), 504, "outcome_unknown", None),
        (RetryLater("leadership is moving"), 503, "retry_later", None),
    ],
)  # fmt: skip
async def test_what_the_quorum_refuses_is_told_by_its_kind(
    error: StrandlineError, status: int, kind: str, reason: str | None
) -> None:
    node = make_node()
    node.quorum.error = error
    async with node.client() as client:
        for method, path, body in (*CHANGES, ("GET", "/v1/quorum/can-stop/4", None)):
            answer = await client.request(method, path, json=body)
            problem = answer.json()
            assert (answer.status_code, problem["kind"]) == (status, kind)
            assert (problem.get("reason"), problem["detail"]) == (reason, str(error))


async def test_a_change_that_takes_too_long_has_an_unknown_outcome() -> None:
    node = make_node(limits=ApiLimits(answer_deadline_s=0.02))
    node.quorum.never_answers = True
    async with node.client() as client:
        for method, path, body in CHANGES:
            answer = await client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["kind"]) == (504, "outcome_unknown"), path


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"node_id": -1}, "node_id"),
        ({"node_id": 2**31}, "node_id"),
        ({"node_id": "4"}, "node_id"),
        ({"node_id": 4.0}, "node_id"),
        ({"node_id": True}, "node_id"),
        ({"node_id": None}, "node_id"),
        ({"directory_id": "x"}, "directory_id"),
        ({"directory_id": ""}, "directory_id"),
        ({"directory_id": str(Uuid(bytes(16)))}, "directory_id"),
        ({"directory_id": "A" * 5_000}, "directory_id"),
        ({"directory_id": None}, "directory_id"),
        ({"host": ""}, "host"),
        ({"host": "a" * 256}, "host"),
        ({"host": "a b"}, "host"),
        ({"host": "a\n"}, "host"),
        ({"host": "a/b"}, "host"),
        ({"host": "a..b"}, "host"),
        ({"host": "me@there"}, "host"),
        ({"host": "\u202e"}, "host"),
        ({"host": 7}, "host"),
        ({"port": 0}, "port"),
        ({"port": 65_536}, "port"),
        ({"port": "9481"}, "port"),
        ({"port": 1e400}, "port"),
        ({"extra": 1}, "extra"),
    ],
)
async def test_a_bad_voter_is_refused_by_its_field_and_nobody_is_asked(
    change: dict[str, object], field: str
) -> None:
    node = make_node()
    async with node.client() as client:
        body = {name: value for name, value in (FOUR | change).items() if value != float("inf")}
        answer = await client.post("/v1/quorum/voters", json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
    assert node.quorum.asked == []


@pytest.mark.parametrize(
    ("method", "path", "content", "field"),
    [
        ("POST", "/v1/quorum/feature-level", b"{}", "feature_level"),
        ("POST", "/v1/quorum/feature-level", b'{"feature_level": 0}', "feature_level"),
        ("POST", "/v1/quorum/feature-level", b'{"feature_level": 32768}', "feature_level"),
        (
            "POST",
            "/v1/quorum/feature-level",
            b'{"feature_level": 2, "observers_upgraded": 1}',
            "observers_upgraded",
        ),
        ("POST", "/v1/quorum/transfer", b"{}", "node_id"),
        ("POST", "/v1/quorum/transfer", b'{"node_id": "2"}', "node_id"),
        ("POST", "/v1/quorum/transfer", b'{"node_id": -1}', "node_id"),
        ("POST", "/v1/quorum/transfer", b'{"node_id": 2, "force": true}', "force"),
        ("DELETE", "/v1/quorum/voters/x", b"", "node_id"),
        ("DELETE", "/v1/quorum/voters/-1", b"", "node_id"),
        ("DELETE", f"/v1/quorum/voters/{2**31}", b"", "node_id"),
        ("DELETE", "/v1/quorum/voters/2?directory_id=zz", b"", "directory_id"),
        ("DELETE", "/v1/quorum/voters/2?directory_id=", b"", "directory_id"),
        ("DELETE", "/v1/quorum/voters/2?directory=zz", b"", "directory"),
        ("GET", "/v1/quorum/can-stop/1.5", b"", "node_id"),
        ("POST", "/v1/quorum/accept-cut?force=1", b"", "force"),
    ],
)
async def test_other_bad_requests_are_refused_by_their_field(
    method: str, path: str, content: bytes, field: str
) -> None:
    node = make_node()
    headers = {"Content-Type": "application/json"} if content else {}
    async with node.client() as client:
        answer = await client.request(method, path, content=content, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
    assert node.quorum.asked == []


async def test_a_follower_shows_null_for_what_only_the_leader_knows() -> None:
    node = make_node()
    described = node.manager.describe()
    unknown = tuple(
        replace(each, log_end_offset=-1, last_fetch_ms=-1, last_caught_up_ms=-1)
        for each in described.voters
    )
    context = replace(node.context)
    follower = replace(described, state="follower", leader_id=2, voters=unknown, cut_end_offset=77)
    node.manager.describe = lambda: follower  # type: ignore[method-assign]
    async with node.client(app=app_over(context)) as client:
        answer = (await client.get("/v1/quorum")).json()
    assert (answer["state"], answer["leader_id"], answer["cut_end_offset"]) == ("follower", 2, 77)
    assert {each["lag"] for each in answer["voters"]} == {None}
