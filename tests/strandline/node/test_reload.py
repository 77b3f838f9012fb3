"""Words of the log after a SIGHUP: what was read again, and that there was nothing to read."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from api.http.tokens import TokenBook
from rsm_backends.key_rounds import current_round
from strandline.node.reading import ReadReplica
from strandline.node.running import NOTHING_TO_READ, _reload
from strandline.node.serving import HttpInterface


def a_node(*, tls: bool = False) -> Any:
    return SimpleNamespace(pool=Mock(), quorum_tls=SimpleNamespace(reload=lambda: tls))


def interface(tokens: Path | None, *, tls: bool) -> HttpInterface:
    server = cast(Any, SimpleNamespace(reload_tls=lambda: tls))
    return HttpInterface("http://node", TokenBook(tokens), server)


@pytest.mark.parametrize(
    ("has_tokens", "tls", "said"),
    [
        (False, False, NOTHING_TO_READ),
        (True, False, "tokens were read again"),
        (False, True, "certificates were read again"),
        (True, True, "tokens and certificates were read again"),
    ],
)
def test_only_what_is_configured_was_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_tokens: bool, tls: bool, said: str
) -> None:
    tokens = tmp_path / "tokens" if has_tokens else None
    if tokens is not None:
        tokens.write_text(f"somebody read {'0' * 64}\n")
    caplog.set_level(logging.INFO)
    node, before = a_node(), current_round()
    _reload(interface(tokens, tls=tls), ReadReplica(), node)
    assert current_round() == before + 1, "the stores' keys, too"
    node.pool.look_for_keys.assert_called_once_with()
    assert [record.getMessage() for record in caplog.records][-1] == said


def test_the_certificates_of_the_quorum_are_read_again_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    _reload(interface(None, tls=False), ReadReplica(), a_node(tls=True))
    assert caplog.records[-1].getMessage() == "certificates of the quorum were read again"


def test_a_wrong_tokens_file_keeps_the_old_tokens_and_says_so_and_the_rest_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"somebody read {'0' * 64}\n")
    http = interface(tokens, tls=True)
    tokens.write_text("this is no tokens file at all\n")
    caplog.set_level(logging.INFO)
    _reload(http, ReadReplica(), a_node())
    kept, read = [record.getMessage() for record in caplog.records][-2:]
    assert kept.startswith("kept the old tokens: ")
    assert read == "certificates were read again"
    assert len(http.tokens) == 1
