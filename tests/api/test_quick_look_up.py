"""The quick look-up answers what FastAPI would, byte for byte, and leaves the rest to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.gate import Gate
from api.http.tokens import Role, TokenBook
from api.metrics.metrics import NodeMetrics
from api.quick_look_up import QuickLookUp
from kafka_formats.errors import CorruptData, RetryLater
from tests.api.fakes import TOPIC_ID, FakeNode, make_node, shared_routes, write_tokens
from tests.api.test_hostile_input import BAD_NUMBERS

_, _INNER, ROUTES = shared_routes()
assert isinstance(_INNER, QuickLookUp)
QUICK: QuickLookUp = _INNER
LOOKUP = "/v1/topics/payments/partitions/0/segments/lookup"


@dataclass(frozen=True)
class Asked:
    """A request as the server hands it on."""

    path: str = LOOKUP
    query: bytes = b"epoch=2&offset=150"
    headers: tuple[tuple[bytes, bytes], ...] = ((b"host", b"localhost"),)
    method: str = "GET"
    address: str = "127.0.0.1"


async def answers(node: FakeNode, inner: ASGIApp, asked: Asked) -> tuple[list[Message], list[Any]]:
    """Everything visible of an answer: bytes sent, waits, metrics."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": asked.path,
        "raw_path": asked.path.encode("utf-8", "surrogatepass"),
        "query_string": asked.query,
        "root_path": "",
        "headers": list(asked.headers),
        "client": (asked.address, 4711),
        "server": ("127.0.0.1", 9480),
        "extensions": {},
    }
    metrics = NodeMetrics()
    context = replace(node.context, metrics=metrics)
    await Gate(inner, context, ROUTES)(scope, receive, send)
    requests = [
        (sample.name, sample.labels, sample.value)
        for family in metrics.registry.collect()
        if family.name.startswith("strandline_http")
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    return sent, [*node.manager.waited_for, *requests]


async def must_not_be_asked(scope: Scope, receive: Receive, send: Send) -> None:
    """In the place of FastAPI."""
    raise AssertionError("a request that can be answered here was passed on")


def only_quick() -> ASGIApp:
    """The quick look-up with nothing behind it."""
    alone = QuickLookUp.__new__(QuickLookUp)
    alone.__dict__.update(vars(QUICK), general=must_not_be_asked)
    return alone


NUMBERS = ["0", "2", "150", "-1", "41", "42", "-0", "007", "2147483648", *BAD_NUMBERS]
TEXTS = [str(TOPIC_ID), "true", "1", "on", "no", "maybe", "x" * 101, "payments", "é", "a b", ".."]
VALUES = st.sampled_from([*NUMBERS, *TEXTS]) | st.text(max_size=4)
HEADERS = {
    "host": [b"evil.example", b"", b"[::1]:9480", b"10.1.2.3"],
    "strandline-min-metadata-offset": [b"-1", b"9", b"42", b"-2", b"x", b"", b"\xb2", b"1.0"],
    "authorization": [b"Bearer reader-token", b"bearer x", b"Basic eDp5", b"Bearer", b"\xff", b""],
    "x-forwarded-for": [b"10.0.0.1"],
    "content-length": [b"0", b"5", b"x"],
}

KINDS = ["query", "query", "query", "path", "header", "header", "rest"]
NAMES = ["epoch", "epoch", "offset", "offset", "with_txn_index", "topic_id", "Epoch", ""]
MOSTLY = st.sampled_from([True, True, True, False])
OTHERS: list[dict[str, Any]] = [
    {"method": "HEAD"},
    {"method": "POST"},
    {"method": "get"},
    {"address": "10.1.2.3"},
    {"query": b""},
    {"query": b"epoch=%ff&offset"},
]


def with_query(name: str, value: str, *, replaced: bool = True) -> Asked:
    """The good request with another value, or one more."""
    pairs = {"epoch": "2", "offset": "150"}
    more = [] if replaced or name not in pairs else [f"{name}={quote(pairs[name])}"]
    pairs[name] = value
    text = [f"{key}={quote(each, errors='surrogatepass')}" for key, each in pairs.items()]
    return Asked(query="&".join([*text, *more]).encode())


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    """The good request with up to three things about it otherwise."""
    asked = Asked()
    for kind in draw(st.lists(st.sampled_from(KINDS), max_size=3)):
        if kind == "query":
            name = draw(st.sampled_from(NAMES))
            changed = with_query(name, draw(VALUES), replaced=draw(MOSTLY))
            asked = replace(asked, query=changed.query)
        elif kind == "path":
            topic, partition = draw(
                st.sampled_from([("payments", draw(VALUES)), (draw(VALUES), "0")])
            )
            end = draw(st.sampled_from(["", "", "", "/", "x"]))
            asked = replace(
                asked, path=f"/v1/topics/{topic}/partitions/{partition}/segments/lookup{end}"
            )
        elif kind == "header":
            header = draw(st.sampled_from(sorted(HEADERS)))
            given = (header.encode(), draw(st.sampled_from(HEADERS[header])))
            kept = tuple(
                each for each in asked.headers if each[0] != given[0] or draw(st.booleans())
            )
            asked = replace(asked, headers=(*kept, given))
        else:
            other = draw(st.sampled_from(OTHERS))
            asked = replace(asked, **other)
    return asked


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    asked=requests(),
    anonymous=st.sampled_from([Role.READ] * 4 + [None]),
    ready=st.booleans(),
    error=st.sampled_from(
        [None] * 8 + [RetryLater("x"), CorruptData("x", source="y", position=1), ValueError("x")]
    ),
)
async def test_the_answer_is_that_of_the_general_way(
    asked: Asked, anonymous: Role | None, ready: bool, error: Exception | None, book: TokenBook
) -> None:
    def node() -> FakeNode:
        made = make_node(anonymous_role=anonymous, tokens=book)
        made.manager.ready, made.manager.error = ready, error
        return made

    got = await answers(node(), QUICK, asked)
    assert got == await answers(node(), QUICK.general, asked)
    assert got[0], "nothing was answered"


async def test_every_value_of_every_parameter_is_answered_as_the_general_way_does() -> None:
    wrong = [with_query(name, value) for name in ("epoch", "offset") for value in NUMBERS]
    wrong += [with_query(name, value) for name in ("topic_id", "with_txn_index") for value in TEXTS]
    wrong += [Asked(path=LOOKUP.replace("/0/", f"/{value}/")) for value in NUMBERS if value]
    wrong += [Asked(path=LOOKUP.replace("payments", value)) for value in TEXTS]
    wrong += [
        Asked(headers=((b"host", b"localhost"), (name.encode(), value)))
        for name, values in HEADERS.items()
        for value in values
    ]
    statuses = set()
    for asked in wrong:
        got = await answers(make_node(), QUICK, asked)
        assert got == await answers(make_node(), QUICK.general, asked), asked
        statuses.add(got[0][0]["status"])
    assert statuses == {200, 400, 401, 404, 503}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> TokenBook:
    path: Path = tmp_path_factory.mktemp("tokens") / "tokens"
    return write_tokens(path)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (Asked(), 200),
        (Asked(query=b"epoch=2&offset=150&with_txn_index=true"), 200),
        (Asked(query=b"epoch=2&offset=150&topic_id=" + str(TOPIC_ID).encode()), 200),
        (Asked(headers=((b"host", b"[::1]:1"), (b"strandline-min-metadata-offset", b"9"))), 200),
        (Asked(method="HEAD"), 200),
        (Asked(query=b"epoch=2&offset=15000"), 404),
        (Asked(address="10.1.2.3"), 401),
        (Asked(query=b"epoch=2&offset=150&offset=151"), 400),
    ],
)
async def test_a_request_with_valid_parameters_is_taken(asked: Asked, status: int) -> None:
    sent, _ = await answers(make_node(), only_quick(), asked)
    assert sent[0]["status"] == status
