"""Connections for blocking calls on which no answer takes longer than its deadline.

A socket's time limit counts from the last byte. The library reads the lines of an answer (status,
headers, interim answers, sizes of chunks and trailers) one after another for as long as bytes come:
a server that sends a byte at intervals, or one interim answer after another, would block a reader
for ever.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from http.client import HTTPResponse
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)


class Deadlines:
    """The time by which the answer that a thread reads must end; each thread has its own."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._own = threading.local()

    def begin(self, within_s: float) -> None:
        """Start this thread's deadline for the next answer: `within_s` seconds from now."""
        self._own.ends_at = self._monotonic() + within_s

    def check(self) -> None:
        """Raise TimeoutError once this thread's deadline has passed."""
        if self._monotonic() >= getattr(self._own, "ends_at", float("inf")):
            raise TimeoutError("the answer did not end within the deadline")


def keep_deadlines(session: Any, deadlines: Deadlines) -> None:
    """Make botocore's `session` use such connections from now on."""

    class Reader(io.BufferedReader):
        """Reader of an answer that checks the deadline after each received part of a line."""

        def readline(self, size: int | None = -1, /) -> bytes:
            limit = 2**31 if size is None or size < 0 else size
            line = b""
            while len(line) < limit:
                held = self.peek()[: limit - len(line)]
                deadlines.check()
                end = held.find(b"\n") + 1
                line += self.read(end or len(held))
                if end or not held:
                    break
            return line

    class Answer(HTTPResponse):
        def __init__(self, sock: Any, *arguments: Any, **named: Any) -> None:
            super().__init__(sock, *arguments, **named)
            whole: Any = self.fp
            self.fp = Reader(whole.detach())

    class Connection(AWSHTTPConnection):
        response_class: Any = Answer

    class SecureConnection(AWSHTTPSConnection):
        response_class: Any = Answer

    class Pool(AWSHTTPConnectionPool):
        ConnectionCls = Connection

    class SecurePool(AWSHTTPSConnectionPool):
        ConnectionCls = SecureConnection

    pools = {"http": Pool, "https": SecurePool}
    session._pool_classes_by_scheme = pools
    session._manager.pool_classes_by_scheme = pools
