"""The login of one connection at its broker. Pure: events in, the next state and an action out.

A client's messages and the broker's answers are relayed unchanged; the broker alone decides whether
a login succeeds. This module decides when a message may pass: before and during a login only its
own messages (and ApiVersions before it), and after the end of a session nothing but a further
login. Sources: Kafka's SaslServerAuthenticator; KIP-152 (SaslAuthenticate), KIP-368 (sessions and
further logins).
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
"""Mechanisms whose messages are enough for an eavesdropper to log in."""
LOGIN_DEADLINE_S = 10.0
REQUESTS_MAX = 16
"""The most requests of one login, versions and mechanism included: SCRAM takes four."""
FAILED_FOR_S = 1.0
"""The time after which a connection whose login failed is closed, unless the client closes it
first: long enough for the broker's answer to reach it.
"""
SHOWN_CHARACTERS_MAX = 40


class Phase(Enum):
    """The phase of a login. BEFORE: no mechanism is agreed on. EXCHANGE: the messages of a login,
    first or further, are under way. IN: logged in. FAILED: the login failed; the connection ends.
    """

    BEFORE = "before"
    EXCHANGE = "exchange"
    IN = "in"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Login:
    """The state of one connection's login. `begun_at`: when the connection was opened, when a
    further login began, or when the login failed. `session_ends` is the end that the broker
    reported; `end_is_known` is False if its version of the protocol reports none. `is_first` until
    a login succeeded.
    """

    begun_at: float
    phase: Phase = Phase.BEFORE
    mechanism: str = ""
    requests: int = 0
    session_ends: float = inf
    end_is_known: bool = True
    is_first: bool = True

    @property
    def is_logged_in(self) -> bool:
        """True if a login succeeded and none failed since: such a connection is not closed to make
        room for others.
        """
        return not self.is_first and self.phase is not Phase.FAILED


@dataclass(frozen=True, slots=True)
class Terms:
    """The mechanisms that the settings accept. `is_private`: no other machine can eavesdrop, since
    the client's connection and its twin are each encrypted or stay on this machine.
    """

    mechanisms: tuple[str, ...] = MECHANISMS
    is_private: bool = True

    @property
    def accepted(self) -> tuple[str, ...]:
        return tuple(each for each in self.mechanisms if self.is_private or each not in READABLE)


class Pass(Enum):
    """The treatment of a request that may pass. SERVE: it is answered as any other. RELAY: it is
    sent to the twin unchanged.
    """

    SERVE = "serve"
    RELAY = "relay"


@dataclass(frozen=True, slots=True)
class RefuseMechanism:
    """Answer UNSUPPORTED_SASL_MECHANISM with the accepted mechanisms; `why` is for the log."""

    accepted: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """Close the connection and log `why`. None: without a log line, which only `ticked`
    asks for.
    """

    why: str | None


Action = Pass | RefuseMechanism | End


def asked(login: Login, api_key: int, now: float) -> tuple[Login, Action]:
    """Handle a request other than SaslHandshake."""
    counted = replace(login, requests=login.requests + 1)
    if login.phase is Phase.FAILED:
        return login, End(
            "sent a request after its login had failed: close the connection and log in again"
        )
    if login.phase is Phase.IN and api_key != Api.SASL_AUTHENTICATE:
        if now >= login.session_ends:
            return login, End(
                "sent a request after its session had ended: the client has to log in again "
                "(KIP-368)"
            )
        return login, Pass.SERVE
    if counted.requests > REQUESTS_MAX:
        return login, End(f"took more than {REQUESTS_MAX} requests to log in")
    if api_key == Api.SASL_AUTHENTICATE and login.phase is Phase.EXCHANGE:
        return counted, Pass.RELAY
    if api_key == Api.API_VERSIONS and login.phase is Phase.BEFORE:
        return counted, Pass.SERVE
    name = Api(api_key).name if api_key in set(Api) else f"API key {api_key}"
    return login, End(
        f"sent {name} before its login was complete: set security.protocol to SASL_PLAINTEXT or "
        "SASL_SSL in the client, as for the brokers"
    )


def handshake(login: Login, mechanism: str, terms: Terms, now: float) -> tuple[Login, Action]:
    """Handle a SaslHandshake: the first one, or the beginning of a further login."""
    if login.phase in (Phase.EXCHANGE, Phase.FAILED):
        return login, End("sent SaslHandshake in the middle of a login")
    requests = login.requests + 1 if login.is_first else 1
    if requests > REQUESTS_MAX:
        return login, End(f"took more than {REQUESTS_MAX} requests to log in")
    begun_at = login.begun_at if login.is_first else now
    if mechanism not in terms.accepted:
        failed = replace(login, phase=Phase.FAILED, begun_at=now)
        return failed, RefuseMechanism(terms.accepted, _why_refused(mechanism, terms))
    chosen = replace(
        login, phase=Phase.EXCHANGE, mechanism=mechanism, requests=requests, begun_at=begun_at
    )
    return chosen, Pass.RELAY


def handshake_answered(login: Login, error_code: int, now: float) -> Login:
    """Handle the broker's answer to a SaslHandshake."""
    if error_code != ErrorCode.NONE:
        return replace(login, phase=Phase.FAILED, begun_at=now)
    return login


def answered(
    login: Login, error_code: int, message: bytes, session_lifetime_ms: int | None, now: float
) -> Login:
    """Handle the broker's answer to a SaslAuthenticate. `now` is when the request was sent: the
    broker counts the session's lifetime from a later moment. Version 0 has no lifetime (None).
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
        end_is_known=session_lifetime_ms is not None,
        requests=0,
        is_first=False,
    )


def ticked(login: Login, now: float, *, twin_is_lost: bool, broker_answers: bool) -> End | None:
    """Check a login once a second; return an End if the connection has to be closed. If the twin is
    lost because its broker is unreachable, the connection stays open: the client may go on reading
    the tier, if the end of its session is known. `broker_answers` matters for a lost twin only.
    """
    waited_s = now - login.begun_at
    match login.phase:
        case Phase.FAILED:
            return End(None) if twin_is_lost or waited_s >= FAILED_FOR_S else None
        case Phase.IN:
            if twin_is_lost and (broker_answers or not login.end_is_known):
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
            "uses SASL mechanism GSSAPI, which this listener cannot relay, as its ticket is for "
            f"a broker's own host name. Accepted mechanisms: {_listed(terms.accepted)}"
        )
    if mechanism in terms.mechanisms:
        return (
            f"uses SASL mechanism {mechanism}, whose messages an eavesdropper could use: the "
            "connections to this listener and from it to the brokers have to use TLS, or stay "
            f"on the machine. Accepted mechanisms: {_listed(terms.accepted)}"
        )
    return f"uses SASL mechanism {shown!r}. Accepted mechanisms: {_listed(terms.accepted)}"


def _listed(mechanisms: Iterable[str]) -> str:
    return ", ".join(mechanisms) or "none"
