"""The quick calls of a broker's plug-in answer what FastAPI would, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from api.http.tokens import Role, TokenBook
from api.quick_broker_calls import QuickBrokerCalls
from kafka_formats.errors import CorruptData, RetryLater
from rlm.delegated.sessions import SessionRefused
from rlm.delegated.wire import MEDIA_TYPE
from tests.api.fakes import FakeNode, make_node, write_tokens
from tests.api.test_quick_look_up import QUICK as QUICK_LOOK_UP
from tests.api.test_quick_look_up import Asked, answers

assert isinstance(QUICK_LOOK_UP.general, QuickBrokerCalls)
QUICK: QuickBrokerCalls = QUICK_LOOK_UP.general
SESSION = b"AAAAAAAAAAAAAAAAAAAAAQ;7"
GOOD = (
    (b"host", b"localhost"),
    (b"content-type", MEDIA_TYPE.encode()),
    (b"strandline-broker-protocol", b"1"),
    (b"strandline-session", SESSION),
)
PATHS = [f"/v1/broker/{name}" for name in ("lookup", "list", "ready", "fetch")]
OTHER_PATHS = [f"/v1/broker/{name}" for name in ("highest", "index", "Lookup", "lookup/", "")]
HEADERS = {
    b"host": [b"evil.example", b"[::1]:9480"],
    b"content-type": [b"", b"application/json", MEDIA_TYPE.upper().encode()],
    b"strandline-broker-protocol": [b"", b"2", b"01", b"1" * 11, b"\xff"],
    b"strandline-session": [b"", b"x", b"x;y", b"x" * 61, SESSION + b"8", b"\xb2"],
    b"strandline-list-changes": [b"1", b"0", b"1" * 11],
    b"strandline-min-metadata-offset": [b"-1", b"9", b"42", b"-2", b"x"],
    b"authorization": [
        b"Bearer reader-token",
        b"Bearer operator-token",
        b"Bearer broker-token",
        b"Basic eDp5",
        b"",
    ],
    b"origin": [b"http://evil.example"],
    b"x-forwarded-for": [b"10.0.0.1"],
    b"content-length": [b"0", b"5"],
}


@dataclass
class FakePlugin:
    """Sessions, of which one is known."""

    def call(self, session: object, seq: int) -> None:
        if seq != 7:
            raise SessionRefused("announce first", reason="ANNOUNCE")


@dataclass
class FakeCalls:
    """Says what it was asked, or fails."""

    error: Exception | None = None
    plugin: FakePlugin = field(default_factory=FakePlugin)

    def ready(self, body: bytes) -> bytes:
        return self._answer("ready", body)

    async def look_up(self, body: bytes) -> bytes:
        return self._answer("look-up", body)

    async def list_segments(self, body: bytes, *, takes_changes: bool) -> bytes:
        return self._answer(f"list {takes_changes}", body)

    def _answer(self, name: str, body: bytes) -> bytes:
        if self.error is not None:
            raise self.error
        return name.encode() + body


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    """A good request with up to three things about it otherwise."""
    path = draw(st.sampled_from([*PATHS, *PATHS, *OTHER_PATHS]))
    asked = Asked(path=path, query=b"", headers=GOOD, method="POST")
    for kind in draw(st.lists(st.sampled_from(["header"] * 4 + ["rest"]), max_size=3)):
        if kind == "header":
            name = draw(st.sampled_from(sorted(HEADERS)))
            given = (name, draw(st.sampled_from(HEADERS[name])))
            kept = tuple(each for each in asked.headers if each[0] != name)
            asked = replace(asked, headers=(*kept, given))
        else:
            others: list[dict[str, Any]] = [
                {"method": "GET"},
                {"method": "HEAD"},
                {"address": "10.1.2.3"},
                {"query": b"a=1"},
            ]
            asked = replace(asked, **draw(st.sampled_from(others)))
    return asked


def node_of(calls: FakeCalls | None, anonymous: Role | None, book: TokenBook | None) -> FakeNode:
    made = make_node(anonymous_role=anonymous)
    if book is not None:
        made.context = replace(made.context, tokens=book)
    made.context = replace(made.context, broker=calls)  # type: ignore[arg-type]  # a fake
    return made


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    asked=requests(),
    anonymous=st.sampled_from([Role.OPERATE] * 4 + [Role.READ, None]),
    serves=st.sampled_from([True] * 8 + [False]),
    error=st.sampled_from(
        [None] * 8 + [RetryLater("x"), CorruptData("x", source="y", position=1), ValueError("x")]
    ),
)
async def test_the_answer_is_that_of_the_general_way(
    asked: Asked, anonymous: Role | None, serves: bool, error: Exception | None, book: TokenBook
) -> None:
    def node() -> FakeNode:
        return node_of(FakeCalls(error) if serves else None, anonymous, book)

    got = await answers(node(), QUICK, asked)
    assert got == await answers(node(), QUICK.general, asked)
    assert got[0], "nothing was answered"


async def must_not_be_asked(scope: Scope, receive: Receive, send: Send) -> None:
    """In the place of FastAPI."""
    raise AssertionError("a request that can be answered here was passed on")


@pytest.mark.parametrize("path", PATHS)
async def test_a_good_call_never_reaches_fastapi(path: str) -> None:
    alone = QuickBrokerCalls(must_not_be_asked)
    asked = Asked(path=path, query=b"", headers=GOOD, method="POST")
    sent, _ = await answers(node_of(FakeCalls(), Role.OPERATE, None), alone, asked)
    assert sent[0]["status"] == (400 if path.endswith("fetch") else 200)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> TokenBook:
    path: Path = tmp_path_factory.mktemp("tokens") / "tokens"
    return write_tokens(path)
