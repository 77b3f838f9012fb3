"""A node's answers become the error tree again: the right kind, the right words, nothing else."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import orjson
import pytest

from api.http.errors import PROBLEM_KINDS, Problem, RedirectedError, problem_of
from kafka_formats.errors import (
    Conflict,
    InternalError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    RetryLater,
    StrandlineError,
)
from strandline.cli.client import NodeClient, authorities_for
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
        cursor = None if last else "next"
        body = orjson.dumps({"items": [{"number": len(asked)}], "next_cursor": cursor})
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    script.respond = respond
    found = NodeClient(script.url, None).pages("/all", "items", state="X")
    assert list(found) == [{"number": 1}, {"number": 2}]
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


def test_authorities_are_left_out_where_no_tls_can_be_spoken_alone() -> None:
    trusted = authorities_for("http://127.0.0.1:9480")
    assert isinstance(trusted, ssl.SSLContext)
    assert trusted.verify_mode is ssl.CERT_REQUIRED
    assert trusted.get_ca_certs() == []  # so a TLS connection would be refused, never trusted
    assert authorities_for("https://127.0.0.1:9480") is True
    assert authorities_for("http://node.example:9480") is True  # the proxy there may speak TLS


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


NOWHERE = "http://127.0.0.1:1"


class Node:
    """A server that answers as a test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.tokens: list[str | None] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.leads_to = NOWHERE
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                node.asked.append((self.command, self.path))
                node.tokens.append(self.headers.get("Authorization"))
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body = node.answers.get(f"{self.command} {self.path}", (200, b"{}"))
                if status == 0:
                    return  # it dies
                self.send_response(status)
                self.send_header("Location", f"{node.leads_to}{self.path}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - the library's name

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def two_nodes() -> Iterator[tuple[Node, Node]]:
    found = Node(), Node()
    yield found
    for node in found:
        node.close()


def not_leader(ask_node: int, location: str | None = None) -> tuple[int, bytes]:
    error = Conflict("ask another", reason="NOT_LEADER", ask_node=ask_node)
    problem = problem_of(error if location is None else RedirectedError(error, location))
    return problem.row.status, problem.body("request-1")


def test_addresses_are_tried_in_turn_and_the_one_that_answers_is_kept(
    two_nodes: tuple[Node, Node],
) -> None:
    first, second = two_nodes
    second.answers["GET /metrics"] = (200, b"text")
    with NodeClient(f"{NOWHERE}, {second.url},{first.url}", None) as client:
        assert client.get("/v1/a") == client.change("POST", "/v1/b") == {}
        assert b"".join(client.stream("/metrics", accept="text/plain")) == b"text"
    assert second.asked == [("GET", "/v1/a"), ("POST", "/v1/b"), ("GET", "/metrics")]
    assert first.asked == []
    with NodeClient(f"{NOWHERE},http://127.0.0.1:2", None) as client:
        told = r"no answer from .*:[12] .*; no answer from .*:[12] .*are the nodes running"
        with pytest.raises(RetryLater, match=told):
            client.get("/v1/a")
        with pytest.raises(RetryLater, match=told):
            client.change("POST", "/v1/b")


def test_a_question_goes_on_to_the_next_address_and_a_change_that_may_be_made_does_not(
    two_nodes: tuple[Node, Node],
) -> None:
    first, second = two_nodes
    first.answers = {"GET /v1/a": (0, b""), "POST /v1/a": (0, b"")}
    url = f"{first.url},{second.url}"
    with NodeClient(url, None) as client:
        assert client.get("/v1/a") == {}
    with NodeClient(url, None) as client, pytest.raises(OutcomeUnknown, match="may or may not"):
        client.change("POST", "/v1/a")
    assert second.asked == [("GET", "/v1/a")]


def test_pages_of_one_node_come_from_the_one_asked_first(two_nodes: tuple[Node, Node]) -> None:
    first, second = two_nodes
    first.answers = {
        "GET /v1/audit": (200, b'{"lines": [], "next_cursor": "3"}'),
        "GET /v1/audit?cursor=3": (0, b""),
    }
    with NodeClient(f"{NOWHERE},{first.url},{second.url}", None) as client:
        with pytest.raises(RetryLater, match="which only that node can answer"):
            list(client.pages_of_node("/v1/audit", "lines"))
        first.answers["GET /v1/audit?cursor=3"] = (200, b'{"lines": [{}], "next_cursor": null}')
        assert list(client.pages_of_node("/v1/audit", "lines")) == [{}]
    assert second.asked == []


def test_a_change_follows_the_node_that_is_named_once(two_nodes: tuple[Node, Node]) -> None:
    first, second = two_nodes
    first.answers = {
        "POST /v1/b": not_leader(3),
        "GET /v1/nodes/3": (200, orjson.dumps({"http": second.url})),
    }
    with NodeClient(first.url, None) as client:
        assert client.change("POST", "/v1/b") == {}
        assert second.asked == [("POST", "/v1/b")]
        second.answers["POST /v1/b"] = not_leader(3)
        second.answers["GET /v1/nodes/3"] = first.answers["GET /v1/nodes/3"]
        with pytest.raises(Conflict, match="ask another"):
            client.change("POST", "/v1/b")
    assert first.asked == [("POST", "/v1/b"), ("GET", "/v1/nodes/3")]


def test_a_redirection_is_followed_as_the_list_of_nodes_says_and_never_as_itself_does(
    two_nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    first, second = two_nodes
    token = tmp_path / "token"
    token.write_text("secret")
    first.leads_to = second.url
    first.answers = {
        "POST /v1/b": not_leader(3, f"{second.url}/v1/b"),
        "GET /v1/nodes/3": (200, orjson.dumps({"http": "http://n3.example:9480"})),
        "POST /v1/c": (307, b"of a proxy"),
    }
    with NodeClient(first.url, token) as client:
        with pytest.raises(Conflict, match="ask another"):
            client.change("POST", "/v1/b")  # the token would leave this machine in the clear
        with pytest.raises(InvalidRequest, match="not as a Strandline node does"):
            client.change("POST", "/v1/c")
        assert second.asked == []
        first.answers["GET /v1/nodes/3"] = (200, orjson.dumps({"http": second.url}))
        assert client.change("POST", "/v1/b") == {}
    assert second.asked == [("POST", "/v1/b")]


@pytest.mark.parametrize("body", [{"http": None}, {"http": 7}, {}])
def test_a_node_without_an_address_is_not_followed(
    two_nodes: tuple[Node, Node], body: dict[str, object]
) -> None:
    first, _ = two_nodes
    first.answers = {"POST /v1/b": not_leader(3), "GET /v1/nodes/3": (200, orjson.dumps(body))}
    with NodeClient(first.url, None) as client, pytest.raises(Conflict, match="ask another"):
        client.change("POST", "/v1/b")


def following(url: str, registered: str, tmp_path: Path) -> list[tuple[str, str | None]]:
    """Requests of a change that node 3 at `registered` has to make, each with its token."""
    token = tmp_path / "token"
    token.write_text("secret")
    client, sent = NodeClient(url, token), []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((str(request.url), request.headers.get("Authorization")))
        if request.url.host == "down" and request.method == "GET":
            raise httpx.ReadError("it died")
        if request.method == "GET":
            return httpx.Response(200, json={"http": registered})
        status, body = not_leader(3)
        return httpx.Response(status, content=body)

    def mocked(url: str) -> httpx.Client:
        return httpx.Client(
            base_url=url, headers=client._headers, transport=httpx.MockTransport(answer)
        )

    client._clients = {each: mocked(each) for each in client._clients}
    client._client = mocked  # type: ignore[method-assign]
    with client, pytest.raises(Conflict, match="ask another"):
        client.change("POST", "/v1/b")
    return sent


@pytest.mark.parametrize(
    "url",
    [
        "https://node.example",
        "HTTPS://node.example",
        "https://down,http://node.example",
        "http://127.0.0.1:9480",
    ],
)
def test_a_token_that_went_by_tls_or_stayed_here_goes_no_further_in_the_clear(
    url: str, tmp_path: Path
) -> None:
    sent = following(url, "http://other.example", tmp_path)
    assert sent
    assert not [each for each in sent if "other.example" in each[0]]


@pytest.mark.parametrize(
    ("url", "registered"),
    [
        ("http://node.example", "http://other.example"),
        ("https://node.example", "https://other.example"),
        ("https://node.example,http://other.example", "http://other.example"),
    ],
)
def test_a_token_goes_where_it_is_as_safe_and_where_its_user_sends_it(
    url: str, registered: str, tmp_path: Path
) -> None:
    assert following(url, registered, tmp_path)[-1] == (f"{registered}/v1/b", "Bearer secret")


def test_what_a_node_registered_that_is_no_address_is_not_followed(tmp_path: Path) -> None:
    assert len(following("http://node.example", "http://[", tmp_path)) == 2


def test_an_answer_is_followed_once_whatever_the_question_for_the_address_meets(
    two_nodes: tuple[Node, Node],
) -> None:
    first, _ = two_nodes
    first.answers = {"POST /v1/b": not_leader(3), "GET /v1/nodes/3": not_leader(3)}
    with NodeClient(first.url, None) as client, pytest.raises(Conflict, match="ask another"):
        client.change("POST", "/v1/b")
    assert first.asked == [("POST", "/v1/b"), ("GET", "/v1/nodes/3")]


def _at(url: str) -> bytes:
    return orjson.dumps({"http": url})


def test_what_is_about_one_node_takes_one_address_and_goes_nowhere_else(
    two_nodes: tuple[Node, Node],
) -> None:
    first, second = two_nodes
    with (
        NodeClient(f"{first.url},{second.url}", None) as client,
        pytest.raises(InvalidRequest, match="this changes one node"),
    ):
        client.change_node("POST", "/v1/quorum/accept-cut")
    assert first.asked == second.asked == []
    first.answers = {"POST /v1/b": not_leader(3), "GET /v1/nodes/3": (200, _at(second.url))}
    with NodeClient(first.url, None) as client:
        with pytest.raises(Conflict, match="ask another"):
            client.change_node("POST", "/v1/b")
        assert client.change("POST", "/v1/b") == {}
        assert client.change_node("POST", "/v1/c") == {}, "one address was named"
