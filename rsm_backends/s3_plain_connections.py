"""Connections for plain calls on which no answer takes longer than its deadline, however it comes.

A time limit of a socket counts from the last byte. The library reads the lines of an answer (its
status, headers, interim answers, the sizes of chunks and what follows them) one after another for
as long as bytes come: a server that sends one now and then, or one interim answer after another,
would hold a reader for ever.
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
    """Until when the answer that a thread reads may take; each thread has its own."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._own = threading.local()

    def begin(self, within_s: float) -> None:
        """What this thread reads from now on ends within so many seconds."""
        self._own.ends_at = self._monotonic() + within_s

    def check(self) -> None:
        """TimeoutError once the time is over."""
        if self._monotonic() >= getattr(self._own, "ends_at", float("inf")):
            raise TimeoutError("the answer did not end within the deadline")


def keep_deadlines(session: Any, deadlines: Deadlines) -> None:
    """botocore's `session` makes its connections so, from now on."""

    class Reader(io.BufferedReader):
        """Of an answer: asks for the time after each receipt of a part of a line."""

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
