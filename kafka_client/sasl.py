"""The client's half of SASL PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802, RFC 7677).

Pure: each mechanism takes the server's messages and returns the client's; a connection sends them
in SaslAuthenticate requests. Kafka uses no channel binding and does not normalise names or
passwords (ScramFormatter.normalize is plain UTF-8), so neither is done here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kafka_formats.errors import InvalidRequest, Refused

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 1_000_000  # more would let a false broker keep this node busy
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_GS2_HEADER = "n,,"


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """One of `MECHANISMS`, a user name, a password."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise InvalidRequest(
                f"{self.mechanism!r} is not one of {', '.join(MECHANISMS)}", field="sasl_mechanism"
            )
        for name, value in (("sasl_username", self.username), ("sasl_password", self.password)):
            if not value or "\0" in value:
                raise InvalidRequest("must not be empty or contain a zero byte", field=name)


class SaslClient(Protocol):
    """One authentication, start to end. Refused: the server is wrong, or rejects the login."""

    def first_message(self) -> bytes:
        """The client's first message."""

    def answer(self, challenge: bytes, /) -> bytes | None:
        """The answer to a message of the server; None at the end. May take milliseconds (SCRAM)."""


def sasl_client(credentials: SaslCredentials, new_nonce: Callable[[], str]) -> SaslClient:
    """A client of the credentials' mechanism. `new_nonce`: unguessable printable text, no comma."""
    if credentials.mechanism == "PLAIN":
        return _Plain(credentials)
    return _Scram(credentials, new_nonce())


class _Plain:
    def __init__(self, credentials: SaslCredentials) -> None:
        self._credentials = credentials

    def first_message(self) -> bytes:
        return f"\0{self._credentials.username}\0{self._credentials.password}".encode()

    def answer(self, _challenge: bytes, /) -> bytes | None:
        return None


class _Scram:
    def __init__(self, credentials: SaslCredentials, nonce: str) -> None:
        self._credentials = credentials
        self._hash = _HASHES[credentials.mechanism]
        self._nonce = nonce
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature: bytes | None = None

    def first_message(self) -> bytes:
        return (_GS2_HEADER + self._first_bare).encode()

    def answer(self, challenge: bytes, /) -> bytes | None:
        if self._server_signature is None:
            return self._final_message(challenge)
        self._check_server(challenge)
        return None

    def _final_message(self, challenge: bytes) -> bytes:
        fields = self._fields(challenge)
        nonce, salt, iterations = self._server_first(fields)
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._credentials.password.encode(), salt, iterations
        )
        client_key = self._hmac(salted, b"Client Key")
        channel = base64.b64encode(_GS2_HEADER.encode()).decode()
        without_proof = f"c={channel},r={nonce}"
        signed = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _server_first(self, fields: dict[str, str]) -> tuple[str, bytes, int]:
        """Nonce, salt and iteration count, each checked before it is used."""
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._refused("the server's nonce does not continue ours")
        salt = base64_bytes(fields.get("s", ""))
        if not salt:
            raise self._refused("the server's salt is not base64")
        count = fields.get("i", "")
        iterations = int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise self._refused(
                f"the server asks for {count[:20]!r} iterations, and only {ITERATIONS_MIN} to "
                f"{ITERATIONS_MAX} are accepted"
            )
        return nonce, salt, iterations

    def _check_server(self, message: bytes) -> None:
        fields = self._fields(message)
        if "e" in fields:
            raise self._refused(f"the server says {fields['e'][:200]!r}")
        assert self._server_signature is not None
        if not hmac.compare_digest(base64_bytes(fields.get("v", "")), self._server_signature):
            raise self._refused(
                "the server does not prove that it knows the password: it may not be the broker"
            )

    def _fields(self, message: bytes) -> dict[str, str]:
        try:
            parts = message.decode("utf-8").split(",")
        except UnicodeDecodeError as error:
            raise self._refused("the server's message is not UTF-8") from error
        return {part[:1]: part[2:] for part in parts if part[1:2] == "="}

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _refused(self, why: str) -> Refused:
        name = self._credentials.username
        return Refused(f"{self._credentials.mechanism} as {name!r} failed: {why}")


def base64_bytes(text: str) -> bytes:
    """The decoded bytes; empty if the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
