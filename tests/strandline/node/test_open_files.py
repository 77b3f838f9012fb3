"""Clients of both listeners, TLS handshakes included, leave the files that log and stores need."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.node.open_files import (
    CONNECTIONS_MIN,
    FILES_BESIDES_CONNECTIONS,
    files_needed,
    within_open_files,
)
from strandline.settings.settings import (
    HttpSettings,
    QuorumSettings,
    Settings,
    StoreSettings,
)

PEM = Path("/etc/strandline/cert.pem")


def settings(
    *,
    http: int = 1_000,
    https: bool = False,
    quorum: int | None = None,
    quorum_tls: bool = False,
    stores: int = 0,
) -> Settings:
    """`quorum` None: no listener."""
    tls = PEM if quorum_tls else None
    return Settings(
        default_store="s0" if stores else "main",
        stores={
            f"s{number}": StoreSettings(kind="filesystem", path=Path("/tier"), connections_max=10)
            for number in range(stores)
        },
        http=HttpSettings(
            connections_max=http,
            tls_certificate_file=PEM if https else None,
            tls_key_file=PEM if https else None,
        ),
        quorum=QuorumSettings(
            listen="" if quorum is None else "127.0.0.1:9499",
            secret_file=PEM,
            connections_max=quorum or 256,
            tls_certificate_file=tls,
            tls_key_file=tls,
        ),
    )


def bounds(given: Settings, files_max: int) -> tuple[int, int]:
    lowered = within_open_files(given, files_max)
    return lowered.http.connections_max, lowered.quorum.connections_max


def test_no_more_connections_are_taken_than_files_may_be_open() -> None:
    alone = settings(stores=1)
    assert within_open_files(alone, 20_000) is alone
    assert bounds(alone, 1_024) == (502, 256), "there is no listener to lower"
    assert bounds(alone, 64) == (16, 256)
    assert bounds(settings(https=True), 1_024) == (256, 256)


def test_both_listeners_share_the_files_with_their_tls_handshakes() -> None:
    assert bounds(settings(quorum=256), 1_024) == (256, 256)
    assert bounds(settings(quorum=256, quorum_tls=True), 1_024) == (256, 128)
    assert bounds(settings(https=True, quorum=256, quorum_tls=True), 1_024) == (128, 128)
    few_http = settings(http=20, quorum=256, quorum_tls=True)
    assert bounds(few_http, 1_024) == (20, 246), "what the other does not need"
    assert bounds(settings(quorum=256, quorum_tls=True), 64) == (16, 16)


@given(
    st.integers(1, 5_000),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 5_000)),
    st.booleans(),
    st.integers(0, 3),
    st.integers(600, 20_000),
)
def test_all_clients_together_fit_into_the_limit(
    http: int, https: bool, quorum: int | None, quorum_tls: bool, stores: int, files_max: int
) -> None:
    asked = settings(http=http, https=https, quorum=quorum, quorum_tls=quorum_tls, stores=stores)
    lowered = within_open_files(asked, files_max)
    assert lowered.http.connections_max <= asked.http.connections_max
    assert lowered.quorum.connections_max <= asked.quorum.connections_max
    least = FILES_BESIDES_CONNECTIONS + 10 * stores + 4 * CONNECTIONS_MIN
    assert files_needed(lowered) <= max(files_max, least)


def test_the_warning_names_the_numbers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "strandline"):
        within_open_files(settings(quorum=256, quorum_tls=True), 1_024)
    assert caplog.messages == [
        "the process may open 1024 files, but up to 2024 are needed: the node accepts at most 256 "
        "HTTP connections instead of 1000, and 128 of the quorum instead of 256; raise the limit "
        "(LimitNOFILE, ulimit -Hn)"
    ]
