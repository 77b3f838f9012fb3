"""A login step by step, and whatever order of requests and answers there may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.access import login as logins
from kafka_listener.access.login import (
    FAILED_FOR_S,
    LOGIN_DEADLINE_S,
    MECHANISMS,
    REQUESTS_MAX,
    End,
    Login,
    Pass,
    Phase,
    RefuseMechanism,
    Terms,
)
from kafka_listener.protocol.apis import Api

LAST = {"PLAIN": b"", "SCRAM-SHA-256": b"v=c2ln", "SCRAM-SHA-512": b"v=c2ln", "OAUTHBEARER": b""}
NOT_LAST = {
    "SCRAM-SHA-256": b"r=nonce,s=salt,i=4096",
    "SCRAM-SHA-512": b"r=nonce,s=salt,i=4096",
    "OAUTHBEARER": b'{"status":"invalid_token"}',
}


@dataclass
class Connection:
    """A connection's login, and the actions so far."""

    terms: Terms = field(default_factory=Terms)
    now: float = 0.0
    login: Login = field(default_factory=lambda: Login(0.0))

    def ask(self, api: int) -> logins.Action:
        self.login, action = logins.asked(self.login, api, self.now)
        return action

    def choose(self, mechanism: str, error: int = 0) -> logins.Action:
        self.login, action = logins.handshake(self.login, mechanism, self.terms, self.now)
        if action is Pass.RELAY:
            self.login = logins.handshake_answered(self.login, error, self.now)
        return action

    def send(
        self, answer: bytes = b"", error: int = 0, lifetime_ms: int | None = 0
    ) -> logins.Action:
        action = self.ask(Api.SASL_AUTHENTICATE)
        if action is Pass.RELAY:
            self.login = logins.answered(self.login, error, answer, lifetime_ms, self.now)
        return action

    def log_in(self, mechanism: str = "PLAIN", lifetime_ms: int | None = 0) -> None:
        assert self.choose(mechanism) is Pass.RELAY
        if mechanism in NOT_LAST and mechanism != "OAUTHBEARER":
            assert self.send(NOT_LAST[mechanism]) is Pass.RELAY
        assert self.send(LAST[mechanism], lifetime_ms=lifetime_ms) is Pass.RELAY
        assert self.login.phase is Phase.IN


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_ends_with_the_brokers_last_message(mechanism: str) -> None:
    one = Connection()
    assert one.ask(Api.API_VERSIONS) is Pass.SERVE
    one.log_in(mechanism)
    assert one.ask(Api.FETCH) is Pass.SERVE
    assert one.login.session_ends == inf


@pytest.mark.parametrize("mechanism", NOT_LAST)
def test_a_message_in_between_is_no_login(mechanism: str) -> None:
    one = Connection()
    one.choose(mechanism)
    one.send(NOT_LAST[mechanism])
    assert one.login.phase is Phase.EXCHANGE
    assert isinstance(one.ask(Api.METADATA), End)


@pytest.mark.parametrize("api", [Api.METADATA, Api.FETCH, Api.SASL_AUTHENTICATE, 19, 999])
def test_before_a_login_nothing_is_served_but_versions(api: int) -> None:
    assert isinstance(Connection().ask(api), End)


def test_versions_in_the_middle_of_a_login_end_it_as_at_a_broker() -> None:
    one = Connection()
    one.choose("PLAIN")
    assert isinstance(one.ask(Api.API_VERSIONS), End)


def test_an_error_of_the_broker_is_final() -> None:
    for handshake, authenticate in ((33, 0), (0, 58)):
        one = Connection()
        one.choose("PLAIN", handshake)
        one.send(error=authenticate)
        assert one.login.phase is Phase.FAILED
        assert isinstance(one.ask(Api.API_VERSIONS), End)
        assert isinstance(one.choose("PLAIN"), End)


@pytest.mark.parametrize(
    ("mechanism", "terms", "taken", "why"),
    [
        ("GSSAPI", Terms(), MECHANISMS, "a broker's own host name"),
        ("SCRAM-SHA-1" * 90, Terms(), MECHANISMS, "Accepted mechanisms: PLAIN, SCRAM"),
        ("PLAIN", Terms(is_private=False), MECHANISMS[1:3], "an eavesdropper could use"),
        ("OAUTHBEARER", Terms(is_private=False), MECHANISMS[1:3], "an eavesdropper could use"),
        ("PLAIN", Terms(("SCRAM-SHA-512",)), ("SCRAM-SHA-512",), "mechanisms: SCRAM-SHA-512"),
        ("", Terms((), is_private=False), (), "Accepted mechanisms: none"),
    ],
)
def test_a_mechanism_that_is_not_taken_is_refused_with_those_that_are(
    mechanism: str, terms: Terms, taken: tuple[str, ...], why: str
) -> None:
    one = Connection(terms)
    refusal = one.choose(mechanism)
    assert isinstance(refusal, RefuseMechanism)
    assert refusal.accepted == taken
    assert why in refusal.why
    assert len(refusal.why) < 400
    assert one.login.phase is Phase.FAILED


def test_scram_passes_where_others_can_listen() -> None:
    Connection(Terms(is_private=False)).log_in("SCRAM-SHA-256")


def test_a_session_ends_when_the_broker_said_and_not_where_it_is_renewed() -> None:
    one = Connection()
    one.log_in(lifetime_ms=3_000)
    one.now = 2.9
    assert one.ask(Api.FETCH) is Pass.SERVE
    one.log_in(lifetime_ms=3_000)
    one.now = 5.8
    assert one.ask(Api.FETCH) is Pass.SERVE
    one.now = 5.9
    assert isinstance(one.ask(Api.FETCH), End)


def test_a_login_may_be_renewed_behind_the_end_of_its_session() -> None:
    """As Kafka's brokers take it: the first request behind the end may be a handshake."""
    one = Connection()
    one.log_in(lifetime_ms=3_000)
    one.now = 10.0
    one.log_in("OAUTHBEARER")


def test_while_a_login_is_renewed_nothing_else_passes() -> None:
    one = Connection()
    one.log_in()
    one.choose("PLAIN")
    assert isinstance(one.ask(Api.FETCH), End)


def test_a_login_has_a_number_of_requests_and_a_time() -> None:
    one = Connection()
    one.choose("SCRAM-SHA-512")
    sent = [one.send(b"r=") for _ in range(REQUESTS_MAX)]
    assert [isinstance(each, End) for each in sent] == [False] * (REQUESTS_MAX - 1) + [True]
    assert ticked(one) is None
    one.now = LOGIN_DEADLINE_S
    assert isinstance(ticked(one), End)


def ticked(one: Connection, *, lost: bool = False, answers: bool = False) -> End | None:
    return logins.ticked(one.login, one.now, twin_is_lost=lost, broker_answers=answers)


def test_a_lost_twin_ends_the_client_but_where_its_broker_is_away() -> None:
    one = Connection()
    assert isinstance(ticked(one, lost=True), End), "in the middle of a login"
    one.log_in()
    one.now = 1_000.0
    assert ticked(one) is None
    assert ticked(one, lost=True) is None
    assert isinstance(ticked(one, lost=True, answers=True), End)
    one.choose("PLAIN")
    assert ticked(one) is None, "a further login has its own time"
    assert isinstance(ticked(one, lost=True), End)


def test_a_session_whose_end_was_not_told_ends_with_the_twin() -> None:
    """SaslAuthenticate 0 tells of no lifetime; the broker ends the session all the same."""
    one = Connection()
    one.log_in(lifetime_ms=None)
    assert one.ask(Api.FETCH) is Pass.SERVE
    assert isinstance(ticked(one, lost=True), End)


def test_a_failed_login_is_ended_without_a_word_once_its_answer_has_left() -> None:
    one = Connection()
    one.choose("GSSAPI")
    assert ticked(one) is None
    one.now = FAILED_FOR_S
    assert ticked(one) == End(None)


EVENTS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from([*Api, 19])),
    st.tuples(
        st.just("choose"), st.sampled_from([*MECHANISMS, "GSSAPI"]), st.sampled_from([0, 33])
    ),
    st.tuples(
        st.just("send"),
        st.sampled_from([b"", b"v=", b"r=nonce", b"{}"]),
        st.sampled_from([0, 0, 0, 58]),
        st.sampled_from([0, 2_000]),
    ),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 2.0, 20.0])),
)


@given(st.lists(EVENTS, max_size=40), st.booleans())
def test_nothing_is_served_without_a_login_that_the_broker_took_and_that_holds(
    events: list[tuple[object, ...]], is_private: bool
) -> None:
    """Against the plain statement: the last thing that a broker said about a login was yes, nothing
    of another one was sent since, and its session has not ended.
    """
    one = Connection(Terms(is_private=is_private))
    holds_until: float | None = None
    for event in events:
        action: logins.Action | None = None
        match event:
            case ("wait", seconds):
                one.now += cast(float, seconds)
            case ("ask", api):
                action = one.ask(cast(int, api))
                if action is Pass.SERVE and api != Api.API_VERSIONS:
                    assert holds_until is not None
                    assert one.now < holds_until
            case ("choose", mechanism, error):
                action = one.choose(cast(str, mechanism), cast(int, error))
                holds_until = None
                if not is_private and action is Pass.RELAY:
                    assert mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            case ("send", answer, error, lifetime_ms):
                action = one.send(cast(bytes, answer), cast(int, error), cast(int, lifetime_ms))
                holds_until = None
                if action is Pass.RELAY and error == 0:
                    kind = one.login.mechanism
                    if kind == "PLAIN" or answer == LAST[kind][:2]:
                        holds_until = one.now + (cast(int, lifetime_ms) / 1000 or inf)
        if isinstance(action, End):
            return
