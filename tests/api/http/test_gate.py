"""The gate: ids, bounds, deadlines, and no error without its document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from starlette.types import Message

from api.http.api_limits import ApiLimits
from rlm.reconcile.collector import CollectionRequest
from rlm.reconcile.erasure_plan import Scope
from rlm.reconcile.erasure_request import ErasureRequest
from rlm.repair.repair_run import RepairRequest
from tests.api.fake_audit import FakeAudit
from tests.api.fake_collector import JOB_ID, FakeCollector
from tests.api.fake_erasures import FakeErasures
from tests.api.fake_repairs import FakeRepairs
from tests.api.fakes import BASE, make_node, openapi, segment_uuid

POLICY = "/v1/topics/payments/policy"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/", 404, "no_such_route"),
        ("GET", "/v2/cluster", 404, "no_such_route"),
        ("GET", "/v1/cluster/", 404, "no_such_route"),
        ("GET", "/docs", 404, "no_such_route"),
        ("GET", "/v1/topics//policy", 404, "no_such_route"),
        ("DELETE", "/v1/cluster", 405, "method_not_allowed"),
        ("PATCH", POLICY, 405, "method_not_allowed"),
        ("OPTIONS", "/v1/topics", 405, "method_not_allowed"),
        ("POST", "/metrics", 405, "method_not_allowed"),
    ],
)
async def test_wrong_paths_and_methods_are_problems_too(
    method: str, path: str, status: int, kind: str
) -> None:
    async with make_node().client() as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["kind"]) == (status, kind)
    assert answer.headers["content-type"] == "application/problem+json"
    if status == 404:
        assert "GET /v1/openapi.json lists all paths" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        (POLICY, "GET, HEAD, PUT"),
        (f"{BASE}/leader-transition", "GET, HEAD, POST"),
        ("/v1/cluster", "GET, HEAD"),
    ],
)
async def test_a_405_lists_all_methods_of_the_path(path: str, allow: str) -> None:
    async with make_node().client() as client:
        assert (await client.request("DELETE", path)).headers["Allow"] == allow


@pytest.mark.parametrize("path", ["/v1/cluster", BASE, "/healthz", "/metrics", "/v1/openapi.json"])
async def test_head_answers_as_get_without_a_body(path: str) -> None:
    async with make_node().client() as client:
        got, headed = await client.get(path), await client.head(path)
    assert headed.status_code == got.status_code == 200
    assert headed.content == b""
    assert headed.headers["content-type"] == got.headers["content-type"]
    if path != "/metrics":
        assert headed.headers["content-length"] == got.headers["content-length"]


async def test_each_request_has_an_id_and_an_unexpected_error_shows_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = make_node()
    node.manager.error = RuntimeError("the secret of the house")
    async with node.client() as client:
        answer = await client.get(BASE)
    problem = answer.json()
    assert (answer.status_code, problem["kind"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    request_id = problem["instance"].rpartition(":")[2]
    assert request_id == answer.headers["Strandline-Request-Id"]
    logged = [record for record in caplog.records if request_id in record.getMessage()]
    assert len(logged) == 1
    assert logged[0].exc_info is not None
    assert "the secret of the house" in caplog.text


async def test_a_timeout_of_something_below_is_our_failure_and_not_a_late_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = make_node()
    node.manager.error = TimeoutError()
    async with node.client() as client:
        assert (await client.get(BASE)).json()["kind"] == "internal"


async def test_an_answer_that_does_not_start_in_time_is_retry_later() -> None:
    node = make_node(limits=ApiLimits(answer_deadline_s=0.01, min_offset_wait_s=60))
    node.manager.never_applies = True
    async with node.client() as client:
        headers = {"Strandline-Min-Metadata-Offset": "99"}
        answer = await client.get("/v1/cluster", headers=headers)
    assert (answer.status_code, answer.json()["kind"]) == (503, "retry_later")


async def test_a_write_that_is_not_answered_in_time_may_have_happened() -> None:
    node = make_node(limits=ApiLimits(answer_deadline_s=0.01))
    node.manager.never_applies = True
    body = {
        "retention_ms": None,
        "retention_bytes": None,
        "copy_paused": True,
        "delete_paused": False,
    }
    async with node.client() as client:
        answer = await client.put(POLICY, json=body)
    assert (answer.status_code, answer.json()["kind"]) == (504, "outcome_unknown")
    assert isinstance(node.context.audit, FakeAudit)
    assert node.context.audit.lines[-1].why.endswith("; the outcome is unknown")


async def test_too_many_requests_at_once_are_turned_away() -> None:
    node = make_node(limits=ApiLimits(requests_parallel_max=1, min_offset_wait_s=60))
    node.manager.never_applies = True
    app = node.app()
    async with node.client(app=app) as client:
        waits = asyncio.create_task(
            client.get("/v1/cluster", headers={"Strandline-Min-Metadata-Offset": "99"})
        )
        while not node.manager.waited_for:
            await asyncio.sleep(0)
        answer = await client.get("/v1/cluster")
        assert (answer.status_code, answer.json()["kind"]) == (503, "retry_later")
        assert (await client.get("/healthz")).status_code == 200, "a busy node is not restarted"
        waits.cancel()
        await asyncio.wait({waits})
        assert (await client.get("/v1/cluster")).status_code == 200


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_an_oversized_body_is_refused_however_it_comes() -> None:
    node = make_node(limits=ApiLimits(body_bytes_max=1000))
    async with node.client() as client:
        declared = await client.put(POLICY, content=b"x" * 1001)
        chunked = await client.put(POLICY, content=pieces(b"x" * 600, b"x" * 600))
        huge = await client.put(POLICY, headers={"Content-Length": "9" * 25})
        wrong = await client.put(POLICY, headers={"Content-Length": "-5"})
        fits = await client.put(POLICY, content=pieces(b"x" * 600, b"x" * 400))
    for answer in (declared, chunked, huge):
        assert (answer.status_code, answer.json()["kind"]) == (413, "body_too_large")
    assert declared.headers["Connection"] == "close"
    assert (wrong.status_code, wrong.json()["field"]) == (400, "Content-Length")
    assert (fits.status_code, fits.json()["kind"]) == (400, "invalid_request")
    assert node.manager.policies == {}


async def test_a_body_that_does_not_arrive_is_a_request_timeout() -> None:
    node = make_node(limits=ApiLimits(body_deadline_s=0.01))

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with node.client() as client:
        answer = await client.put(POLICY, content=never())
    assert (answer.status_code, answer.json()["kind"]) == (408, "request_timeout")


async def call(app: Any, scope: dict[str, Any], messages: list[dict[str, Any]]) -> None:
    """Run an application by hand; the client stays silent."""

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        messages.append(dict(message))

    await app(scope, receive, send)


def http_scope(path: str, **extra: Any) -> dict[str, Any]:
    """Answer of a server to a GET from this machine."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        **extra,
    }


async def test_a_client_that_takes_no_bytes_is_cut_off() -> None:
    node = make_node(limits=ApiLimits(chunk_deadline_s=0.01))
    cut: list[bool] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        await asyncio.Event().wait()

    extensions = {"strandline.abort": lambda: cut.append(True)}
    await node.app()(http_scope("/v1/cluster", extensions=extensions), receive, send)
    assert cut == [True]


async def test_paths_are_logged_escaped(caplog: pytest.LogCaptureFixture) -> None:
    node = make_node()
    node.manager.error = RuntimeError("boom")
    messages: list[dict[str, Any]] = []
    # A partition number is checked before the manager is asked, so the newline goes in the query.
    await call(node.app(), http_scope(BASE, query_string=b"topic_id=%0Aroot"), messages)
    await call(node.app(), http_scope("/v1/topics/a\nb"), messages)
    assert "\nroot" not in caplog.text


async def test_other_protocols_than_http_pass_by() -> None:
    messages: list[dict[str, Any]] = []
    app = make_node().app()
    scope = http_scope("/v1/cluster", type="websocket", subprotocols=[])
    await call(app, scope, messages)
    assert messages[0]["type"] == "websocket.close"


async def test_everything_runs_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the managers belong to the event loop")

    monkeypatch.setattr(anyio.to_thread, "run_sync", refuse)
    document = openapi()
    values = {
        "topic": "payments",
        "partition": "0",
        "index_type": "offset",
        "node_id": "1",
        "job_id": str(JOB_ID),
    }
    query = {
        "offset": "0",
        "epoch": "0",
        "timestamp": "0",
        "fetch_offset": "0",
        "leader_epoch": "2",
        "name": "payments",
        "tiered": "true",
    }
    collector = FakeCollector()
    collector.start(CollectionRequest(), "somebody")
    node = make_node(limits=ApiLimits(event_stream_s=0.0))
    repairs = FakeRepairs()
    repairs.start(RepairRequest("payments"), "somebody")
    erasures = FakeErasures()
    await erasures.start(ErasureRequest(Scope("payments"), False, 1.0, "why"), "somebody")
    node = replace(
        node,
        context=replace(node.context, collector=collector, repairs=repairs, erasures=erasures),
    )
    async with node.client() as client:
        for path, operations in document["paths"].items():
            if "get" not in operations:
                continue
            needed = {
                parameter["name"]: query[parameter["name"]]
                for parameter in operations["get"].get("parameters", [])
                if parameter["in"] == "query" and parameter.get("required")
            }
            filled = path.format(segment_id=segment_uuid(0), **values)
            assert (await client.get(filled, params=needed)).status_code == 200, path
