"""One HTTP client for all questions of the tests: making one costs as much as many questions."""

from __future__ import annotations

from typing import Final

import httpx

DEADLINE_S: Final = 60
PLAIN: Final = httpx.Client(
    verify=False,  # a test's certificate is its own authority, and others' cost time to load
    timeout=DEADLINE_S,
    limits=httpx.Limits(max_keepalive_connections=0),  # nodes are killed between two questions
)
