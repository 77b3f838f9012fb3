"""Nobody without a role costs the node more than a refusal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from api.http.api_limits import ApiLimits
from api.http.tokens import Role
from tests.api.fakes import BASE, make_node, write_tokens
from tests.api.http.test_admission import TRANSITION_BODY
from tests.api.test_server import connection, problem_in, running

LIMITS = ApiLimits(body_deadline_s=0.2, shutdown_deadline_s=1)
WRITING = [
    ("POST", f"{BASE}/leader-transition"),
    ("POST", "/v1/segments/known"),
    ("POST", "/v1/jobs/collect"),
    ("PUT", "/v1/topics/payments/policy"),
    ("POST", "/v1/broker/copy"),
    ("POST", "/v1/broker/copy-files"),
    ("POST", "/v1/broker/lookup"),
]


@pytest.mark.parametrize(("method", "path"), WRITING)
@pytest.mark.parametrize("length", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
async def test_a_caller_without_a_token_is_refused_before_its_body_is_read(
    method: str, path: str, length: str
) -> None:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n"
        f"Content-Type: application/json\r\n{length}\r\n\r\n"
    )
    async with running(LIMITS) as (_, server), connection(server) as raw:
        await raw.send(head.encode())
        assert problem_in(await raw.rest()) == (401, "unauthenticated")


async def test_what_a_caller_without_a_token_sends_is_not_parsed() -> None:
    node = make_node(anonymous_role=None)
    async with node.client(address="10.0.0.9") as client:
        for method, path in WRITING:
            answer = await client.request(
                method, path, content=b"[{}", headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 401, (method, path, answer.text)
        assert (await client.post("/v1/nothing", content=b"{}")).status_code == 404
        assert (await client.post("/v1/cluster", content=b"{}")).status_code == 405


async def test_a_caller_with_a_role_sends_its_body(tmp_path: Path) -> None:
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token="boss-token", address="10.0.0.9") as client:
        answer = await client.post(f"{BASE}/leader-transition", json=TRANSITION_BODY)
        assert answer.status_code == 200, answer.text


async def test_the_openapi_document_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node(anonymous_role=Role.READ)
    async with node.client() as client:
        first = await client.get("/v1/openapi.json")

        def never(*_: object) -> bytes:
            raise AssertionError("written again")

        monkeypatch.setattr(JSONResponse, "render", never)
        answers = await asyncio.gather(*(client.get("/v1/openapi.json") for _ in range(3)))
    assert {each.content for each in answers} == {first.content}
    assert first.headers["content-type"] == "application/json"
