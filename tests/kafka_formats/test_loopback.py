"""Which addresses are this machine itself, whichever way they are written."""

from __future__ import annotations

import pytest

from kafka_formats.loopback import is_loopback


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST", "localhost.", "node.localhost", "[::1]",
        "[::ffff:127.0.0.1]", "0.0.0.0", "[::]",
    ],
)  # fmt: skip
def test_no_proxy_is_asked_for_this_machine(host: str) -> None:
    assert is_loopback(f"http://{host}:9480")
    assert is_loopback(f"https://alice:secret@{host}/v1")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost.example.com", "http://10.0.0.1:9480", "http://[::ffff:10.0.0.1]",
        "http://[fe80::1]", "http://127.0.0.1.example.com", "http://", "127.0.0.1:9480", "http://[",
    ],
)  # fmt: skip
def test_anything_else_is_asked_as_the_environment_says(url: str) -> None:
    assert not is_loopback(url)
