"""Which addresses are this machine itself, whichever way they are written."""

from __future__ import annotations

from socket import inet_aton

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.loopback import is_loopback


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST", "localhost.", "node.localhost", "[::1]",
        "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0",
    ],
)  # fmt: skip
def test_no_proxy_is_asked_for_this_machine(host: str) -> None:
    assert is_loopback(f"http://{host}:9480")
    assert is_loopback(f"https://alice:secret@{host}/v1")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost.example.com", "http://10.0.0.1:9480", "http://[::ffff:10.0.0.1]",
        "http://[fe80::1]", "http://10.1", "http://167772161", "http://127.1 x", "http://127.0.0.256",
         "http://127.0.0.1.example.com", "http://", "127.0.0.1:9480", "http://[",
    ],
)  # fmt: skip
def test_anything_else_is_asked_as_the_environment_says(url: str) -> None:
    assert not is_loopback(url)


@given(st.lists(st.integers(0, 2**33), min_size=1, max_size=5), st.lists(st.sampled_from("dox")))
def test_short_forms_are_read_as_a_resolver_reads_them(
    numbers: list[int], bases: list[str]
) -> None:
    written = {"d": "{}", "o": "0{:o}", "x": "0x{:x}"}
    forms = (written[base] for base in [*bases, *"ddddd"])
    host = ".".join(form.format(number) for form, number in zip(forms, numbers, strict=False))
    try:
        first = inet_aton(host)[0]
    except OSError:
        first = -1
    assert is_loopback(f"http://{host}") == (first == 127 or (set(numbers) == {0} and first == 0))
