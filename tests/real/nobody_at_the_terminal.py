"""Programs whose input stays open and says nothing, as a terminal that nobody sits at."""

from __future__ import annotations

import subprocess
import sys

WAITS_S_MAX = 30


def lines_of(program: str) -> list[str]:
    """Standard output of a Python program, by line. TimeoutExpired: it waits for its input."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        try:
            running.wait(timeout=WAITS_S_MAX)
        finally:
            running.kill()
        return running.stdout.read().splitlines()
