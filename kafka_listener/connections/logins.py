"""Logins of clients at their brokers: relayed unchanged, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_client.frame_check import FrameError
from kafka_formats.errors import CorruptData, RetryLater
from kafka_listener.access import login as logins
from kafka_listener.access.login import End, Login, Pass, RefuseMechanism, Terms
from kafka_listener.access.users import parse_user
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.client import Client
from kafka_listener.connections.read_counts import ReadCounts
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import (
    Head,
    decode_request,
    decode_response,
    encode_response,
    sized,
)
from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.authorisation import is_loopback
from rlmm.wire.server_connection import DisconnectError

WITH_A_CERTIFICATE = (
    "uses SASL, but this listener identifies clients by certificate: set security.protocol=SSL "
    "in the client"
)
NOBODY_LOGS_IN = (
    "uses SASL, but this node takes no logins (read.authentication): set "
    'security.protocol=PLAINTEXT (or SSL) in the client, or read.authentication = "sasl" in the '
    "node's settings"
)


@dataclass(frozen=True, slots=True)
class Logins:
    """The logins of a node's clients. `mechanisms` None: clients do not log in, for the reason
    `why_not`.
    """

    brokers: Brokers
    counts: ReadCounts
    mechanisms: tuple[str, ...] | None = None
    why_not: str = NOBODY_LOGS_IN

    @property
    def are_wanted(self) -> bool:
        return self.mechanisms is not None

    def new(self) -> Login | None:
        """The login of a new connection."""
        return Login(self.brokers.monotonic()) if self.are_wanted else None

    def check(self, client: Client, head: Head) -> None:
        """Check that a request outside a login may pass. DisconnectError: the client is not logged
        in, or its session has ended.
        """
        if client.login is not None:
            _, action = self._asked(client, client.login, head)
            if action is not Pass.SERVE:
                raise DisconnectError(
                    f"sent a message of a login in version {head.version}, which is not supported"
                )

    async def answer(self, client: Client, head: Head, frame: bytes) -> bytes:
        """The broker's answer to SaslHandshake and SaslAuthenticate. DisconnectError: none, the
        connection has to end.
        """
        try:
            if client.login is None:
                return self._refused(client, head, RefuseMechanism((), self.why_not))
            if head.api_key == Api.SASL_AUTHENTICATE:
                self._asked(client, client.login, head)
                return await self._authenticate(client, head, frame)
            return await self._handshake(client, client.login, head, frame)
        except FrameError as error:
            raise DisconnectError(f"sent a malformed message of a login: {error}") from error

    async def _handshake(self, client: Client, login: Login, head: Head, frame: bytes) -> bytes:
        mechanism = decode_request(frame).body["mechanism"]
        login, action = logins.handshake(
            login, mechanism, await self._terms(client), self.brokers.monotonic()
        )
        client.login, client.claimed_user = login, None
        if isinstance(action, End):
            raise DisconnectError(action.why or "")
        if isinstance(action, RefuseMechanism):
            return self._refused(client, head, action)
        answer = await self._relay(client, frame)
        code = decode_response(head, answer)["error_code"]
        client.login = logins.handshake_answered(login, code, self.brokers.monotonic())
        return sized(answer)

    async def _authenticate(self, client: Client, head: Head, frame: bytes) -> bytes:
        assert client.login is not None
        if client.claimed_user is None:
            message = decode_request(frame).body["auth_bytes"] or b""
            client.claimed_user = parse_user(client.login.mechanism, message)
        sent_at = self.brokers.monotonic()
        answer = await self._relay(client, frame)
        body = decode_response(head, answer)
        client.login = logins.answered(
            client.login,
            body["error_code"],
            body["auth_bytes"],
            body.get("session_lifetime"),
            sent_at,
        )
        client.is_peer = client.login.is_logged_in
        if client.login.phase is logins.Phase.IN:
            client.user = client.claimed_user
        client.rights.clear()  # a further login may bring different rights
        return sized(answer)

    def _asked(self, client: Client, login: Login, head: Head) -> tuple[Login, logins.Action]:
        client.login, action = logins.asked(login, head.api_key, self.brokers.monotonic())
        if isinstance(action, End):
            raise DisconnectError(action.why or "")
        return client.login, action

    async def _terms(self, client: Client) -> Terms:
        try:
            twin = await client.twin()
        except RetryLater as error:
            # An error in the answer would be final: the client would not try again.
            raise DisconnectError(f"can't log in just now: {error}") from error
        is_private = twin.is_encrypted or is_loopback(twin.peer_host)
        assert self.mechanisms is not None
        return Terms(self.mechanisms, is_private and client.connection.is_private)

    async def _relay(self, client: Client, frame: bytes) -> bytes:
        try:
            return await client.relay(frame, deadline_s=logins.LOGIN_DEADLINE_S)
        except (RetryLater, CorruptData) as error:
            raise DisconnectError(f"can't log in just now: {error}") from error

    def _refused(self, client: Client, head: Head, refusal: RefuseMechanism) -> bytes:
        self.counts.refused(client.name, refusal.why)
        if head.api_key != Api.SASL_HANDSHAKE:
            raise DisconnectError(
                "sent SaslAuthenticate before SaslHandshake had chosen a mechanism"
            )
        body = {
            "error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "mechanisms": list(refusal.accepted),
        }
        return encode_response(head, body)

    async def tick(self, clients: Iterable[Client]) -> None:
        """Close connections whose login took too long, and those whose broker closed the twin.
        Called once a second.
        """
        waiting = [each for each in clients if each.login is not None]
        lost = {each.broker_id for each in waiting if each.is_peer and each.twin_is_lost}
        reached = dict(
            zip(lost, await asyncio.gather(*map(self.brokers.answers, lost)), strict=True)
        )
        now = self.brokers.monotonic()
        for client in waiting:
            assert client.login is not None
            end = logins.ticked(
                client.login,
                now,
                twin_is_lost=client.twin_is_lost,
                broker_answers=reached.get(client.broker_id, False),
            )
            if end is not None:
                client.connection.end(end.why)
