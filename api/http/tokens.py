"""Bearer tokens: the name and role of a caller.

The token file has one token a line: `name role sha256-hex-of-token`; `#` begins a comment. Only
hashes are stored, so tokens have to be long random text: the hash of a guessable word can be
guessed. A name may have several lines, so that a token can be replaced without a gap.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from kafka_formats.errors import InvalidRequest

TOKEN_FILE_BYTES_MAX = 1_048_576
TOKEN_BYTES_MAX = 1_024

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Names of callers."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Role(IntEnum):
    """Role of a caller; each role includes those below it."""

    READ = 1
    OPERATE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. `is_broker`: it has the role `broker`, which is `read` plus the
    calls of this node's broker.
    """

    name: str
    role: Role
    is_broker: bool = False

    @property
    def speaks_for_broker(self) -> bool:
        """True if the caller may call `/v1/broker`."""
        return self.is_broker or self.role >= Role.OPERATE


BROKER = "broker"
"""The role of a broker's plug-in: `Role.READ`, plus the calls of this node's broker."""
ANONYMOUS = "anonymous"
"""The name of a caller without a token."""


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: Principal
    digest: bytes


class TokenBook:
    """The known tokens; `reload` replaces all of them, or raises and keeps the old ones."""

    def __init__(self, path: Path | None = None) -> None:
        """Read `path`; None: no token is known. InvalidRequest names the wrong line."""
        self._path = path
        self._entries: tuple[_Entry, ...] = ()
        self.reload()

    def __len__(self) -> int:
        return len(self._entries)

    def reload(self) -> bool:
        """Read the file again; False if there is none. InvalidRequest: the file is wrong, and the
        old tokens stay.
        """
        if self._path is None:
            return False
        self._entries = _read(self._path)
        return True

    def principal(self, token: str) -> Principal | None:
        """The holder of `token`, or None. The time does not depend on which entry matches."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found: Principal | None = None
        for entry in self._entries:  # never stop early: the time would show which entry matched
            if hmac.compare_digest(entry.digest, digest):
                found = entry.principal
        return found


def _read(path: Path) -> tuple[_Entry, ...]:
    try:
        with path.open("rb") as handle:
            raw = handle.read(TOKEN_FILE_BYTES_MAX + 1)
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise InvalidRequest(
            f"cannot read the token file {path} ({why}): check http.tokens_file and the file's "
            "permissions",
            field="tokens_file",
        ) from error
    if len(raw) > TOKEN_FILE_BYTES_MAX:
        raise InvalidRequest(
            f"{path} is larger than {TOKEN_FILE_BYTES_MAX} bytes: remove old tokens",
            field="tokens_file",
        )
    entries: list[_Entry] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            entries.append(_entry(words, f"{path} line {number}"))
    digests = [entry.digest for entry in entries]
    if len(set(digests)) != len(digests):
        raise InvalidRequest(
            f"{path} lists the same token twice: give every line its own token",
            field="tokens_file",
        )
    return tuple(entries)


def _entry(words: list[str], where: str) -> _Entry:
    """Parse a line. Error messages never quote its third word, which may be a token by mistake."""
    if len(words) != 3:
        raise InvalidRequest(
            f"{where} has {len(words)} words, not three: write: name role sha256-hex-of-token",
            field="tokens_file",
        )
    name, role, digest = words
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{where}: the name is wrong: use 1 to 64 of A-Z a-z 0-9 . _ -", field="tokens_file"
        )
    if role not in ("read", BROKER, "operate", "admin"):
        raise InvalidRequest(
            f"{where}: the role of {name} is unknown: use read, broker, operate or admin",
            field="tokens_file",
        )
    if not _DIGEST.fullmatch(digest):
        raise InvalidRequest(
            f"{where}: the third word of {name} is not a SHA-256: write that of the token, 64 "
            "lower-case hexadecimal digits (printf %s TOKEN | sha256sum)",
            field="tokens_file",
        )
    is_broker = role == BROKER
    known = Role.READ if is_broker else Role[role.upper()]
    return _Entry(Principal(name, known, is_broker), bytes.fromhex(digest))
