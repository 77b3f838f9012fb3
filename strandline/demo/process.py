"""Child processes of the demo, which end with it; their errors contain the end of their output."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from kafka_formats.errors import InternalError
from strandline.node import ambient

POLL_S = 0.05
STOP_DEADLINE_S = 10
SHOWN_LOG_CHARACTERS = 3_000
OUR_VARIABLES = "STRANDLINE_"

T = TypeVar("T")


class DemoProcess:
    """A command that can be started again and again, with its output in `log`."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = tuple(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None before the start and after a stop."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process without the `STRANDLINE_` variables, which would override its
        settings.
        """
        kept = {k: v for k, v in os.environ.items() if not k.startswith(OUR_VARIABLES)}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - commands of the demo's own
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=kept,
                process_group=0,  # Ctrl-C must reach only the demo itself
            )

    def stop(self) -> None:
        """Stop the process with SIGTERM, then SIGKILL if it has not ended in STOP_DEADLINE_S."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_DEADLINE_S)
        self.kill()

    def kill(self) -> None:
        """Stop the process with SIGKILL if it runs. A node's workers end when their node has."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def check(self) -> None:
        """Raise InternalError with the end of the output if the process ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise self.failed("ended by itself")

    def failed(self, what: str) -> InternalError:
        """The error to raise: the process's name, `what`, and the end of its output."""
        output = self._log.read_text(errors="replace")[-SHOWN_LOG_CHARACTERS:]
        return InternalError(f"{self.name} {what}; the end of its output:\n{output}")


async def wait_until(
    look: Callable[[], Awaitable[T | None]],
    what: str,
    *,
    processes: Sequence[DemoProcess],
    deadline_s: float,
) -> T:
    """Call `look` until its result is not None, and return that. Raises InternalError if one of the
    processes ends first, or after `deadline_s`.
    """
    try:
        async with asyncio.timeout(deadline_s):
            while (found := await look()) is None:
                for each in processes:
                    each.check()
                await ambient.sleep(POLL_S)
            return found
    except TimeoutError:
        raise InternalError(f"{what}: waited in vain for {deadline_s:.0f} s") from None
