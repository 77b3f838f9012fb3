"""A node's answers become the error tree again: the right kind, the right words, nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.http.errors import PROBLEM_KINDS, Problem, problem_of
from kafka_formats.errors import (
    InternalError,
    InvalidRequest,
    NotFound,
    RetryLater,
    StrandlineError,
)
from strandline.cli.client import NodeClient
from strandline.cli.exit_codes import ExitCode, exit_code_for
from tests.every_error import EVERY_ERROR, INTERNAL
from tests.real.ports import free_ports

Respond = Callable[[BaseHTTPRequestHandler], None]


class Script:
    """A server that answers every GET as the test says."""

    url: str
    respond: Respond

    def problem(self, problem: Problem) -> NodeClient:
        """A client whose next question meets `problem`, told as the node tells it."""
        return self.body(problem.row.status, problem.body("request-1"))

    def body(self, status: int, body: bytes) -> NodeClient:
        def respond(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        self.respond = respond
        return NodeClient(self.url, None)


@pytest.fixture
def script() -> Iterator[Script]:
    told = Script()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.respond(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield told
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    "error",
    [error for error in EVERY_ERROR if error is not INTERNAL],
    ids=lambda error: error.kind,
)
def test_each_error_of_the_tree_comes_back_as_itself(
    script: Script, error: StrandlineError
) -> None:
    with pytest.raises(StrandlineError) as caught:
        script.problem(problem_of(error)).get("/v1/cluster")
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    for name in ("reason", "source", "position", "retry_after_ms"):
        assert getattr(caught.value, name, None) == getattr(error, name, None)


def test_an_error_of_the_nodes_own_names_the_request_to_report(script: Script) -> None:
    with pytest.raises(InternalError, match="request-1"):
        script.problem(problem_of(INTERNAL)).get("/v1/cluster")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("unauthenticated", ExitCode.REFUSED),
        ("no_such_route", ExitCode.USAGE),
        ("method_not_allowed", ExitCode.USAGE),
        ("not_acceptable", ExitCode.USAGE),
        ("request_timeout", ExitCode.RETRY_LATER),
        ("body_too_large", ExitCode.USAGE),
        ("unsupported_media_type", ExitCode.USAGE),
        ("range_not_satisfiable", ExitCode.USAGE),
        ("headers_too_large", ExitCode.USAGE),
    ],
)
def test_a_refusal_of_the_http_layer_is_never_called_a_bug(
    script: Script, kind: str, code: ExitCode
) -> None:
    with pytest.raises(StrandlineError, match="as told") as caught:
        script.problem(Problem(PROBLEM_KINDS[kind], "as told")).get("/v1/cluster")
    assert exit_code_for(caught.value) == code


def test_every_kind_of_the_interface_is_a_known_one_here(script: Script) -> None:
    for row in PROBLEM_KINDS.values():
        with pytest.raises(StrandlineError) as caught:
            script.problem(Problem(row, "as told")).get("/v1/cluster")
        assert isinstance(caught.value, InternalError) == (row.kind == "internal"), row.kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"<html>not found</html>", InvalidRequest),
        (200, b"<html>hello</html>", InvalidRequest),
        (502, b"bad gateway", RetryLater),
        (400, b"[]", InvalidRequest),
    ],
)
def test_another_program_at_that_address_is_not_taken_for_a_node(
    script: Script, status: int, body: bytes, kind: type[StrandlineError]
) -> None:
    with pytest.raises(kind, match="not as a Strandline node does"):
        script.body(status, body).get("/v1/cluster")


def test_a_stream_that_breaks_off_is_not_taken_for_the_whole(script: Script) -> None:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"half")

    script.respond = respond
    received: list[bytes] = []
    with pytest.raises(RetryLater, match="broke off after 4 bytes"):
        received.extend(NodeClient(script.url, None).stream("/records", accept="*/*"))
    assert b"".join(received) == b"half"


def test_a_stream_that_is_refused_raises_before_its_first_byte(script: Script) -> None:
    client = script.problem(problem_of(NotFound("no such topic")))
    with pytest.raises(NotFound, match="no such topic"):
        list(client.stream("/records", accept="*/*"))


def test_all_pages_are_asked_for_with_the_same_filter(script: Script) -> None:
    asked: list[str] = []

    def respond(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        last = "cursor=next" in handler.path
        page: dict[str, Any] = {
            "items": [{"number": len(asked)}],
            "next_cursor": None if last else "next",
        }
        body = orjson.dumps(page)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    script.respond = respond
    assert list(NodeClient(script.url, None).pages("/all", "items", state="X")) == [
        {"number": 1},
        {"number": 2},
    ]
    assert asked == ["/all?state=X", "/all?cursor=next&state=X"]


def test_nobody_listening_says_how_to_name_another_node() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(RetryLater, match="is the node running"):
        NodeClient(url, None).get("/v1/cluster")


@pytest.mark.parametrize("url", ["http://[", "gopher://127.0.0.1", "127.0.0.1:9480", ""])
def test_an_address_that_is_none_is_wrong_usage(url: str) -> None:
    with pytest.raises(InvalidRequest, match="--url"):
        NodeClient(url, None).get("/v1/cluster")


@pytest.mark.parametrize("text", ["", "two words", "ünïcode"])
def test_a_token_file_that_holds_no_token_is_wrong_usage(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match="--token-file"):
        NodeClient("http://127.0.0.1", path)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Request that a proxy of the environment gets."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
    yield asked
    server.shutdown()
    server.server_close()


def test_a_node_on_this_machine_is_asked_directly(script: Script, proxy: list[str]) -> None:
    """The proxy would be told the token."""
    port = script.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost"):
        script.body(200, b'{"node": 1}')
        with NodeClient(f"http://{host}:{port}", None) as client:
            assert client.get("/v1/node") == {"node": 1}
    assert proxy == []


def test_a_node_elsewhere_is_asked_as_the_environment_says(
    script: Script, proxy: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with NodeClient("http://node.example:9480", None) as client:
        assert client.get("/v1/node") == {}
    assert proxy == ["http://node.example:9480/v1/node"]
    monkeypatch.setenv("no_proxy", "node.example")
    with NodeClient("http://node.example:9480", None) as client, pytest.raises(RetryLater):
        client.get("/v1/node")
    assert len(proxy) == 1
