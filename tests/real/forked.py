"""Processes that are forked with a program of ours imported, by one `tests.real.fork_server` for
each process of the tests and program: real ones in all but their imports, and the command line and
environment that `ps` shows of them.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache

from tests.real.fork_server import NUMBER, ask_to_start
from tests.real.toolbox import REPOSITORY

START_DEADLINE_S = 120


class ForkedProcess:
    """A running program; its methods are those of `subprocess.Popen`."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        output: int,
        errors: int | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Call the module's `main`, with `arguments` as sys.argv; `output` and `errors`, which are
        one by default, are descriptors.
        """
        self._told = ask_to_start(_server(module), arguments, output, errors, environment)
        try:
            self.pid = self._number(START_DEADLINE_S)
        except BaseException:
            self._told.close()
            raise
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; minus the signal's number if one ended it."""
        if self.returncode is None:
            try:
                self.returncode = self._number(timeout)
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from error
            self._told.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens to one that has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _number(self, deadline_s: float | None) -> int:
        self._told.settimeout(deadline_s)
        data = self._told.recv(NUMBER.size)
        assert data, "the fork server or the process's keeper is gone"
        (number,) = NUMBER.unpack(data)
        return int(number)


@cache
def _server(module: str) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.real.fork_server", str(theirs.fileno()), module],
            cwd=REPOSITORY,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours
