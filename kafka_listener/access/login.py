"""The login of one connection at its broker. Pure: events in, the next state and an action out.

A client's messages and the broker's answers pass as they are; the broker alone says whether a login
is good. What is decided here is when to pass what on: nothing but a login before it, no login with
other requests under way, and nothing behind the end of a session. Sources: Kafka's
SaslServerAuthenticator; KIP-152 (SaslAuthenticate), KIP-368 (sessions and further logins).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.error_codes import ErrorCode

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
READABLE = frozenset({PLAIN, OAUTHBEARER})
"""Mechanisms whose messages let anybody who sees them log in."""
LOGIN_DEADLINE_S = 10.0
REQUESTS_MAX = 16
"""The most requests of one login, versions and mechanism included: SCRAM takes four."""
FAILED_FOR_S = 1.0
"""The time after which a connection whose login failed is ended, unless the client is quicker: it
has the broker's answer by then.
"""
SHOWN_CHARACTERS_MAX = 40


class Phase(Enum):
    """The phase of a login. BEFORE: no mechanism is agreed on. EXCHANGE: its messages are under
    way, for the first time or again. IN: logged in. FAILED: for good.
    """

    BEFORE = "before"
    EXCHANGE = "exchange"
    IN = "in"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Login:
    """`begun_at`: when the connection was opened, when a further login began, or when it failed.
    `session_ends` is the broker's word, and `end_is_told` says that there was one; `is_first` until
    a login succeeded.
    """

    begun_at: float
    phase: Phase = Phase.BEFORE
    mechanism: str = ""
    requests: int = 0
    session_ends: float = inf
    end_is_told: bool = True
    is_first: bool = True

    @property
    def is_known(self) -> bool:
        """A login succeeded and none failed since, so it makes no room for others."""
        return not self.is_first and self.phase is not Phase.FAILED


@dataclass(frozen=True, slots=True)
class Terms:
    """The mechanisms that the settings take, and whether nobody can listen: both the client's
    connection and its twin are encrypted, or stay on the machine.
    """

    mechanisms: tuple[str, ...] = MECHANISMS
    is_private: bool = True

    @property
    def taken(self) -> tuple[str, ...]:
        return tuple(each for each in self.mechanisms if self.is_private or each not in READABLE)


class Pass(Enum):
    """The way of a request that passes. SERVE: it is answered as any other. RELAY: it goes to the
    twin as it is.
    """

    SERVE = "serve"
    RELAY = "relay"


@dataclass(frozen=True, slots=True)
class RefuseMechanism:
    """UNSUPPORTED_SASL_MECHANISM, with those that are taken; `why` is for the log."""

    taken: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """The connection ends; None: without a log line, which only a tick leaves out."""

    why: str | None


Action = Pass | RefuseMechanism | End


def asked(login: Login, api_key: int, now: float) -> tuple[Login, Action]:
    """A request other than SaslHandshake."""
    counted = replace(login, requests=login.requests + 1)
    if login.phase is Phase.FAILED:
        return login, End("went on after its login had failed")
    if login.phase is Phase.IN and api_key != Api.SASL_AUTHENTICATE:
        if now >= login.session_ends:
            return login, End("went on after the end of its session, without another login")
        return login, Pass.SERVE
    if counted.requests > REQUESTS_MAX:
        return login, End(f"took more than {REQUESTS_MAX} requests to log in")
    if api_key == Api.SASL_AUTHENTICATE and login.phase is Phase.EXCHANGE:
        return counted, Pass.RELAY
    if api_key == Api.API_VERSIONS and login.phase is Phase.BEFORE:
        return counted, Pass.SERVE
    name = Api(api_key).name if api_key in set(Api) else f"API key {api_key}"
    return login, End(
        f"asked for {name} where its login has to go on: set security.protocol to SASL_PLAINTEXT "
        "or SASL_SSL in the client, as for the brokers"
    )


def handshake(login: Login, mechanism: str, terms: Terms, now: float) -> tuple[Login, Action]:
    """A SaslHandshake: the first one, or the beginning of a further login."""
    if login.phase in (Phase.EXCHANGE, Phase.FAILED):
        return login, End("chose a mechanism in the middle of a login")
    requests = login.requests + 1 if login.is_first else 1
    if requests > REQUESTS_MAX:
        return login, End(f"took more than {REQUESTS_MAX} requests to log in")
    begun_at = login.begun_at if login.is_first else now
    if mechanism not in terms.taken:
        failed = replace(login, phase=Phase.FAILED, begun_at=now)
        return failed, RefuseMechanism(terms.taken, _why_refused(mechanism, terms))
    chosen = replace(
        login, phase=Phase.EXCHANGE, mechanism=mechanism, requests=requests, begun_at=begun_at
    )
    return chosen, Pass.RELAY


def handshake_answered(login: Login, error_code: int, now: float) -> Login:
    """The broker's answer to a SaslHandshake."""
    if error_code != ErrorCode.NONE:
        return replace(login, phase=Phase.FAILED, begun_at=now)
    return login


def answered(
    login: Login, error_code: int, message: bytes, session_lifetime_ms: int | None, now: float
) -> Login:
    """The broker's answer to a SaslAuthenticate. `now` is when the request was sent: the broker
    counts the session's lifetime from a later moment. Version 0 does not tell it (None).
    """
    if error_code != ErrorCode.NONE:
        return replace(login, phase=Phase.FAILED, begun_at=now)
    if not _is_last(login.mechanism, message):
        return login
    ends = now + session_lifetime_ms / 1000 if session_lifetime_ms else inf
    return replace(
        login,
        phase=Phase.IN,
        session_ends=ends,
        end_is_told=session_lifetime_ms is not None,
        requests=0,
        is_first=False,
    )


def ticked(login: Login, now: float, *, twin_is_lost: bool, broker_answers: bool) -> End | None:
    """Check a login once a second; returns its end, if it has come. A twin that is lost while its
    broker is out of reach, too, is let go: the client may read on what it reads of the tier, if the
    end of its session is known. `broker_answers` matters for a lost twin only.
    """
    waited_s = now - login.begun_at
    match login.phase:
        case Phase.FAILED:
            return End(None) if twin_is_lost or waited_s >= FAILED_FOR_S else None
        case Phase.IN:
            if twin_is_lost and (broker_answers or not login.end_is_told):
                return End("has to log in again: its broker ended the connection")
            return None
    if twin_is_lost:
        return End("has to log in again: its broker ended the connection in the middle of it")
    if waited_s >= LOGIN_DEADLINE_S:
        return End(f"did not log in within {LOGIN_DEADLINE_S:g} s")
    return None


def _is_last(mechanism: str, message: bytes) -> bool:
    """True if this answer without an error ends the exchange. A broker may answer a wrong
    OAUTHBEARER token with a text first, and with the error after the client's next message.
    """
    if mechanism == PLAIN:
        return True
    return not message if mechanism == OAUTHBEARER else message.startswith(b"v=")


def _why_refused(mechanism: str, terms: Terms) -> str:
    shown = mechanism[:SHOWN_CHARACTERS_MAX]
    if mechanism == "GSSAPI":
        return (
            "wants to log in by GSSAPI: its ticket would have to be for the broker's own name, so "
            f"it can't be passed on. Choose one of {_listed(terms.taken)}"
        )
    if mechanism in terms.mechanisms:
        return (
            f"wants to log in by {mechanism}, which anybody on the way could read: this listener "
            "and the way to the brokers have to be TLS, or stay on the machine. Choose one of "
            f"{_listed(terms.taken)}"
        )
    return f"wants to log in by {shown!r}, and these are taken: {_listed(terms.taken)}"


def _listed(mechanisms: Iterable[str]) -> str:
    return ", ".join(mechanisms) or "none"
