"""The server's half of SASL PLAIN and SCRAM-SHA-512, for one user: the quorum's secret. Pure.

With SCRAM the secret is never sent, and the server proves that it knows it too. Sources:
`kafka_client/sasl.py`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_client.sasl import base64_bytes
from kafka_formats.errors import Refused

PEER_USER = "strandline-peer"
PLAIN = "PLAIN"
SCRAM = "SCRAM-SHA-512"
ITERATIONS = 4_096
"""The number of SCRAM's iterations. They do not make a short secret safe: `strandline` generates
long ones.
"""

_HASH = "sha512"
_GS2_HEADER = "n,,"
_MESSAGE_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class SecretVerifier:
    """The values that the server derives from the secret."""

    plain_digest: bytes
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, secret: str, salt: bytes) -> SecretVerifier:
        """Derive the values; `salt` is random. Computes for some milliseconds."""
        salted = hashlib.pbkdf2_hmac(_HASH, secret.encode(), salt, ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", _HASH)
        return cls(
            hashlib.sha512(secret.encode()).digest(),
            salt,
            hashlib.sha512(client_key).digest(),
            hmac.digest(salted, b"Server Key", _HASH),
        )


class SaslServer:
    """One authentication. Refused at any step ends it; `done` once the client is authenticated."""

    def __init__(
        self, verifier: SecretVerifier | None, new_nonce: Callable[[], str], *, plain_allowed: bool
    ) -> None:
        self.mechanisms: tuple[str, ...] = ()
        if verifier is not None:
            self.mechanisms = (SCRAM, PLAIN) if plain_allowed else (SCRAM,)
        self.done = False
        self._verifier = verifier
        self._new_nonce = new_nonce
        self._mechanism: str | None = None
        self._first: tuple[str, str, str, bool] | None = None

    def choose(self, mechanism: str) -> bool:
        """Use this mechanism from now on. False if it is not offered."""
        self._first = None
        self._mechanism = mechanism if mechanism in self.mechanisms else None
        return self._mechanism is not None

    def answer(self, message: bytes) -> bytes:
        """The answer to a client's message. Refused: it is wrong, and ends the authentication."""
        try:
            return self._answer(message)
        except Refused:
            self.mechanisms, self._mechanism = (), None
            raise

    def _answer(self, message: bytes) -> bytes:
        if self._verifier is None or self._mechanism is None:
            raise Refused("no SASL mechanism was agreed on")
        if len(message) > _MESSAGE_BYTES_MAX:
            raise Refused(f"a SASL message of {len(message)} bytes")
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise Refused("a SASL message that is not UTF-8") from error
        if self._mechanism == PLAIN:
            return self._plain(text, self._verifier)
        if self._first is None:
            return self._scram_first(text, self._verifier)
        return self._scram_final(text, self._first, self._verifier)

    def _plain(self, text: str, verifier: SecretVerifier) -> bytes:
        parts = text.split("\0")
        if len(parts) != 3:
            raise Refused("a PLAIN message that is not three texts")
        _, user, secret = parts
        told = hashlib.sha512(secret.encode()).digest()
        if not hmac.compare_digest(told, verifier.plain_digest) or user != PEER_USER:
            raise _wrong(user)
        self.done = True
        return b""

    def _scram_first(self, text: str, verifier: SecretVerifier) -> bytes:
        bare = text.removeprefix(_GS2_HEADER)
        fields = _fields(bare)
        client_nonce = fields.get("r", "")
        if bare == text or not client_nonce or "n" not in fields:
            raise Refused("a malformed first SCRAM message (channel binding is not supported)")
        nonce = client_nonce + self._new_nonce()
        salt = base64.b64encode(verifier.salt).decode()
        server_first = f"r={nonce},s={salt},i={ITERATIONS}"
        self._first = (bare, server_first, nonce, fields["n"] == PEER_USER)
        return server_first.encode()

    def _scram_final(
        self, text: str, first: tuple[str, str, str, bool], verifier: SecretVerifier
    ) -> bytes:
        client_first, server_first, nonce, user_known = first
        self._first = self._mechanism = None
        fields = _fields(text)
        without_proof = text.rpartition(",p=")[0]
        channel = base64.b64encode(_GS2_HEADER.encode()).decode()
        if without_proof != f"c={channel},r={nonce}":
            raise Refused("a last SCRAM message that does not continue the first")
        signed = f"{client_first},{server_first},{without_proof}".encode()
        signature = hmac.digest(verifier.stored_key, signed, _HASH)
        proof = base64_bytes(fields.get("p", ""))
        if len(proof) != len(signature):
            raise _wrong(_fields(client_first).get("n", ""))
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        matches = hmac.compare_digest(hashlib.sha512(client_key).digest(), verifier.stored_key)
        if not matches or not user_known:
            raise _wrong(_fields(client_first).get("n", ""))
        self.done = True
        return b"v=" + base64.b64encode(hmac.digest(verifier.server_key, signed, _HASH))


def _wrong(user: str) -> Refused:
    return Refused(
        f"user {user[:40]!r} or its secret is wrong: peers log in as {PEER_USER!r} with the secret "
        "of the quorum's secret file, which is the same on every node"
    )


def _fields(text: str) -> Mapping[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}
