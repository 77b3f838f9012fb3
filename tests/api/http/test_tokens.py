"""Tokens: the file, its mistakes, and who is who."""

from __future__ import annotations

import hashlib
import hmac
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from api.http import tokens
from api.http.tokens import TOKEN_FILE_BYTES_MAX, Principal, Role, TokenBook
from kafka_formats.errors import InvalidRequest
from tests.api.fakes import write_tokens

DIGEST = hashlib.sha256(b"secret").hexdigest()


def test_a_token_names_its_holder(tmp_path: Path) -> None:
    book = write_tokens(tmp_path / "tokens")
    assert book.principal("boss-token") == Principal("boss", Role.ADMIN)
    assert book.principal("reader-token") == Principal("reader", Role.READ)
    assert book.principal("nobody") is None
    assert book.principal("") is None
    assert len(book) == 4
    plugin = book.principal("broker-token")
    assert plugin is not None
    assert (plugin.role, plugin.speaks_for_broker) == (Role.READ, True)
    speaks = {each: Principal("x", each).speaks_for_broker for each in Role}
    assert speaks == {Role.READ: False, Role.OPERATE: True, Role.ADMIN: True}


def test_a_book_without_a_file_knows_nobody() -> None:
    assert TokenBook().principal("x") is None


def test_comments_blank_lines_and_two_tokens_of_one_name_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    other = hashlib.sha256(b"other").hexdigest()
    path.write_text(f"# who\n\nci read {DIGEST}  # old\nci operate {other}\n")
    book = TokenBook(path)
    assert book.principal("secret") == Principal("ci", Role.READ)
    assert book.principal("other") == Principal("ci", Role.OPERATE)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ci read", "2 words"),
        (f"ci read {DIGEST} more", "4 words"),
        (f"c/i read {DIGEST}", "the name is wrong"),
        (f"ci root {DIGEST}", "read, broker, operate or admin"),
        ("ci read secret", "64 lower-case"),
        (f"ci read {DIGEST.upper()}", "64 lower-case"),
        (f"a read {DIGEST}\nb admin {DIGEST}", "the same token twice"),
        ("#" * (TOKEN_FILE_BYTES_MAX + 1), "larger than"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line_and_never_shows_a_secret(
    tmp_path: Path, text: str, hint: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=hint) as caught:
        TokenBook(path)
    assert caught.value.field == "tokens_file"
    assert DIGEST not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="No such file"):
        TokenBook(tmp_path / "none")
    path = tmp_path / "tokens"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        TokenBook(path)


def test_reload_takes_the_new_file_or_keeps_the_old_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"ci read {DIGEST}\n")
    book = TokenBook(path)
    path.write_text("nonsense\n")
    with pytest.raises(InvalidRequest):
        book.reload()
    assert book.principal("secret") is not None
    path.write_text(f"ci admin {DIGEST}\n")
    book.reload()
    assert book.principal("secret") == Principal("ci", Role.ADMIN)
    path.write_text("")
    book.reload()
    assert book.principal("secret") is None


def test_every_token_is_compared_in_constant_time_whichever_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the code's path, not by a clock: all entries, digests of one length, one comparison."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return hmac.compare_digest(first, second)

    book = write_tokens(tmp_path / "tokens")
    monkeypatch.setattr(tokens, "hmac", SimpleNamespace(compare_digest=compare))
    for token in ("reader-token", "boss-token", "no such token", "", "x" * 2_000):
        compared.clear()
        book.principal(token)
        assert len(compared) == len(book)
        assert {len(digest) for pair in compared for digest in pair} == {32}
        assert {second for _, second in compared} == {sha256(token.encode()).digest()}


def test_a_token_of_any_text_is_only_wrong() -> None:
    assert TokenBook().principal("\ud800") is None
