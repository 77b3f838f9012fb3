"""Roles of tokens, local clients, unknown parameters, and the metadata offset to wait for."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest

from api.http.admission import is_local
from api.http.api_limits import ApiLimits
from api.http.tokens import TOKEN_BYTES_MAX, Role
from tests.api.fakes import BASE, TOKENS, make_node, write_tokens

POLICY = "/v1/topics/payments/policy"
POLICY_BODY = {
    "retention_ms": None,
    "retention_bytes": None,
    "copy_paused": False,
    "delete_paused": False,
}
TRANSITION_BODY = {
    "leader_epoch": 2,
    "leader_epoch_checkpoint": [{"epoch": 2, "start_offset": 150}],
    "local_log_start_offset": 150,
    "log_end_offset": 300,
}
NEEDED = [
    ("GET", "/v1/cluster", Role.READ),
    ("GET", "/v1/topics", Role.READ),
    ("GET", BASE, Role.READ),
    ("GET", f"{BASE}/records?offset=0", Role.READ),
    ("GET", POLICY, Role.READ),
    ("POST", f"{BASE}/leader-transition", Role.READ),
    ("GET", "/metrics", Role.READ),
    ("PUT", POLICY, Role.ADMIN),
]
OPEN = ["/healthz", "/readyz", "/v1/openapi.json"]


async def send(client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """One request with the body that its path takes."""
    body = {"PUT": POLICY_BODY, "POST": TRANSITION_BODY}.get(method)
    return await client.request(method, path, json=body)


@pytest.mark.parametrize("holder", TOKENS)
async def test_each_role_may_do_what_it_may_and_no_more(tmp_path: Path, holder: str) -> None:
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token=f"{holder}-token", address="10.0.0.9") as client:
        for method, path, needed in NEEDED:
            answer = await send(client, method, path)
            if TOKENS[holder] >= needed:
                assert answer.status_code == 200, (method, path, answer.text)
            else:
                assert (answer.status_code, answer.json()["kind"]) == (403, "refused")
                assert f"use a token of role {needed.name.lower()}" in answer.text


@pytest.mark.parametrize("token", [None, "wrong", "boss", "x" * (TOKEN_BYTES_MAX + 1)])
async def test_without_a_valid_token_everything_but_health_is_closed(
    tmp_path: Path, token: str | None
) -> None:
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token=token, address="10.0.0.9") as client:
        for method, path, _ in NEEDED:
            answer = await send(client, method, path)
            assert (answer.status_code, answer.json()["kind"]) == (401, "unauthenticated")
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        for path in OPEN:
            assert (await client.get(path)).status_code == 200
    assert node.manager.policies == {}


async def test_a_wrong_token_does_not_fall_back_to_the_anonymous_role() -> None:
    async with make_node(anonymous_role=Role.ADMIN).client(token="wrong") as client:
        assert (await client.get("/v1/cluster")).status_code == 401
        answer = await client.get("/v1/cluster", headers={"Authorization": "Basic YTpi"})
        assert answer.status_code == 401


async def test_the_anonymous_role_is_all_that_a_local_caller_has() -> None:
    async with make_node(anonymous_role=Role.READ).client() as client:
        assert (await client.get("/v1/cluster")).status_code == 200
        refused = await client.put(POLICY, json=POLICY_BODY)
        assert refused.status_code == 403
        detail = refused.json()["detail"]
        assert detail.startswith("without a token the role is read, but this requires admin")
        assert "--token-file" in detail
        assert "STRANDLINE_TOKEN_FILE" in detail


@pytest.mark.parametrize(
    "from_a_page",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_web_page_changes_nothing_without_a_token(
    tmp_path: Path, from_a_page: dict[str, str]
) -> None:
    node = make_node(anonymous_role=Role.ADMIN, tokens=write_tokens(tmp_path / "tokens"))
    as_text = {**from_a_page, "Content-Type": "text/plain"}
    async with node.client() as client:
        for path in ("/v1/quorum/accept-cut", f"{BASE}/leader-transition"):
            refused = await client.post(path, content=b"{}", headers=as_text)
            assert (refused.status_code, refused.json()["kind"]) == (403, "refused")
            assert "web page" in refused.json()["detail"]
            assert "--token-file" in refused.json()["detail"]
        refused = await client.put(POLICY, json=POLICY_BODY, headers=from_a_page)
        assert refused.status_code == 403
        assert (await client.get("/v1/cluster", headers=from_a_page)).status_code == 200
    assert node.manager.policies == {}
    # A browser asks first whether it may send a token, and the node says no such thing.
    async with node.client(token="boss-token") as client:
        taken = await client.put(POLICY, json=POLICY_BODY, headers=from_a_page)
        assert taken.status_code == 200


async def test_a_browser_without_a_page_and_a_program_are_taken() -> None:
    node = make_node(anonymous_role=Role.ADMIN)
    async with node.client() as client:
        for headers in ({}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin"}):
            taken = await client.put(POLICY, json=POLICY_BODY, headers=headers)
            assert taken.status_code == 200


@pytest.mark.parametrize(
    ("address", "host", "extra", "local"),
    [
        ("127.0.0.1", "127.0.0.1:9480", {}, True),
        ("127.8.8.8", "localhost", {}, True),
        ("::1", "[::1]:9480", {}, True),
        ("10.0.0.9", "127.0.0.1:9480", {}, False),
        ("127.0.0.1", "evil.example:9480", {}, False),
        ("127.0.0.1", "localhost.evil.example", {}, False),
        ("127.0.0.1", "", {}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"x-forwarded-for": "127.0.0.1"}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"forwarded": "for=127.0.0.1"}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"x-forwarded-proto": "https"}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"x-forwarded-port": "443"}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"x-forwarded-server": "proxy"}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"x-client-ip": "10.0.0.9"}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"x-envoy-external-address": "10.0.0.9"}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"cf-connecting-ip": "10.0.0.9"}, False),
        ("127.0.0.1", "127.0.0.1:9480", {"x-request-id": "1"}, True),
        ("nonsense", "127.0.0.1:9480", {}, False),
    ],
)
def test_only_a_program_of_this_machine_that_asks_this_machine_is_local(
    address: str, host: str, extra: dict[str, str], local: bool
) -> None:
    headers = [(name.encode(), value.encode()) for name, value in {"host": host, **extra}.items()]
    assert is_local({"client": (address, 1), "headers": headers}) is local


def test_a_caller_without_an_address_is_not_local() -> None:
    assert not is_local({"client": None, "headers": [(b"host", b"localhost")]})


async def test_no_token_reaches_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    node.manager.error = RuntimeError("boom")
    for token in ("boss-token", "a-wrong-token"):
        async with node.client(token=token) as client:
            await client.get(BASE)
    assert "boom" in caplog.text
    assert "-token" not in caplog.text


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/cluster?verbose=1", "verbose"),
        ("/v1/topics?page=2", "page"),
        (f"{BASE}?Topic_id=x", "Topic_id"),
        (f"{BASE}/records?offset=1&maxbytes=5", "maxbytes"),
        (f"{BASE}/records?offset=1&offset=2", "offset"),
        (f"{BASE}/segments?limit=5&limit=5", "limit"),
        ("/healthz?x", "x"),
        ("/metrics?name[]=up", "name[]"),
    ],
)
async def test_unknown_and_repeated_parameters_are_refused_by_name(path: str, field: str) -> None:
    async with make_node().client() as client:
        answer = await client.get(path if "=" in path else f"{path}=")
    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_an_answer_names_the_offset_it_is_true_at() -> None:
    async with make_node().client() as client:
        for path in ("/v1/cluster", "/v1/openapi.json", f"{BASE}/records?offset=0", "/v1/nothing"):
            assert (await client.get(path)).headers["Strandline-Metadata-Offset"] == "41"
        assert "Strandline-Metadata-Offset" not in (await client.get("/healthz")).headers


async def test_a_wished_offset_that_is_applied_is_answered() -> None:
    node = make_node()
    async with node.client() as client:
        for wished in ("-1", "0", "41"):
            headers = {"Strandline-Min-Metadata-Offset": wished}
            assert (await client.get("/v1/cluster", headers=headers)).status_code == 200
    assert node.manager.waited_for == [-1, 0, 41]


async def test_a_wished_offset_that_never_comes_is_retry_later_after_the_deadline() -> None:
    node = make_node(limits=ApiLimits(min_offset_wait_s=0.01))
    headers = {"Strandline-Min-Metadata-Offset": str(2**63 - 1)}
    for never in (False, True):
        node.manager.never_applies = never
        async with node.client() as client:
            answer = await client.get("/v1/cluster", headers=headers)
        assert (answer.status_code, answer.json()["kind"]) == (503, "retry_later")
        assert int(answer.headers["Retry-After"]) >= 1


async def test_who_is_not_admitted_does_not_wait() -> None:
    node = make_node(anonymous_role=None)
    async with node.client() as client:
        headers = {"Strandline-Min-Metadata-Offset": "99"}
        assert (await client.get("/v1/cluster", headers=headers)).status_code == 401
    assert node.manager.waited_for == []
