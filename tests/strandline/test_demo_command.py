"""The demo as `make demo KEEP=1` runs it: every line it offers to paste has an answer."""

from __future__ import annotations

import re
import shlex
import signal
from itertools import pairwise

import httpx
import pytest

from tests.strandline.command import started

DEADLINE_S = 60


@pytest.mark.timeout(180)
def test_every_line_that_the_demo_offers_to_paste_is_answered() -> None:
    process = started("demo", "--keep")
    assert process.stdout is not None
    try:
        printed: list[str] = []
        for line in process.stdout:
            printed.append(line)
            if "running until Ctrl-C" in line:
                break
        offered = [line.strip() for line in printed if line.startswith("  curl -s ")]
        assert len(offered) == 6, "".join(printed)
        for line in offered:
            words = shlex.split(line.partition("|")[0])
            headers = dict(
                word.split(": ", 1) for before, word in pairwise(words) if before == "-H"
            )
            (url,) = (word for word in words if word.startswith("http://"))
            answer = httpx.get(url, headers=headers, timeout=DEADLINE_S)
            assert answer.status_code == 200, (line, answer.text)
        assert sum("identical" in line for line in printed) == 5
        assert any(re.match(r"^41 segments, .* copied", line) for line in printed)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.wait()
