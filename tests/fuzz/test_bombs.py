"""Decompression bombs cost no more than the limit and one step of the library, in real memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fuzz.bombs import CODEC_BOMBS, LIMIT_BYTES, RECORD_BOMBS
from tests.real.toolbox import REPOSITORY

MIB = 1 << 20
# What is decompressed, a copy of it as bytes, one step of the library, and what an allocator keeps.
ALLOWED_BYTES = 2 * LIMIT_BYTES + 48 * MIB
BOMB_BYTES_MAX = 24 * MIB


def read_apart(name: str, data: bytes) -> tuple[int, str]:
    """(bytes of resident memory that reading took, how it ended), in a process of its own."""
    out = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bombs", name],
        input=data,
        capture_output=True,
        check=True,
        cwd=REPOSITORY,
        timeout=60,
    ).stdout.decode()
    taken, _, ended = out.strip().partition(" ")
    return int(taken), ended


@pytest.mark.parametrize("name", [*CODEC_BOMBS, *RECORD_BOMBS])
def test_a_bomb_stays_within_the_limit(name: str) -> None:
    data = CODEC_BOMBS[name][1]() if name in CODEC_BOMBS else RECORD_BOMBS[name]()
    assert len(data) < BOMB_BYTES_MAX
    taken, ended = read_apart(name, data)
    assert taken < ALLOWED_BYTES, ended
    assert ended.startswith("refused") or "empty" in name or "of nothing" in name, ended
