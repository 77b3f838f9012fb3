"""Programs that print keys (`credential_process`), ended at a deadline with all their children.

botocore waits for such a program for ever, and does not end it when its caller stops waiting.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from typing import Any

END_DEADLINE_S = 1.0
"""The time for a killed program to end; one that hangs in the kernel takes longer."""
_OF_PROFILE, _OF_ROLE = "custom-process", "assume-role"


def end_helpers_at(session: Any, deadline_s: float, *, blocking: bool) -> None:
    """End the programs that a session starts for keys: botocore's (`blocking`) after `deadline_s`,
    aiobotocore's when their caller is cancelled.
    """
    started = partial(_Blocking, deadline_s=deadline_s) if blocking else _started
    # botocore creates these providers itself, with its own way to start a program: one for the
    # profile in use, and one each time a role's keys come from a `source_profile`.
    resolver = session.get_component("credential_provider")
    resolver.get_provider(_OF_PROFILE)._popen = started
    builder = resolver.get_provider(_OF_ROLE)._profile_provider_builder
    made = builder._create_process_provider

    def make(profile_name: str) -> Any:
        provider = made(profile_name)
        provider._popen = started
        return provider

    builder._create_process_provider = make


class _Blocking(subprocess.Popen[bytes]):
    def __init__(self, command: list[str], *, deadline_s: float, **pipes: Any) -> None:
        super().__init__(command, start_new_session=True, **pipes)
        self._deadline_s = deadline_s

    def communicate(
        self, input: bytes | None = None, timeout: float | None = None
    ) -> tuple[bytes, bytes]:
        """Wait for the program. TimeoutError at the deadline, once the program is killed."""
        try:
            return super().communicate(input, timeout or self._deadline_s)
        except subprocess.TimeoutExpired:
            _kill(self.pid)
            with suppress(subprocess.TimeoutExpired):
                self.wait(END_DEADLINE_S)
            for pipe in (self.stdout, self.stderr):
                if pipe is not None:
                    pipe.close()
            raise TimeoutError(
                f"credential_process printed no keys in {self._deadline_s:g} s, and was ended"
            ) from None


class _Started:
    """The parts of `asyncio.subprocess.Process` that aiobotocore uses."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def returncode(self) -> int | None:
        """The exit code of the program; None while it runs."""
        return self._process.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Return the program's output and errors. It is killed if the caller is cancelled."""
        try:
            return await self._process.communicate()
        finally:
            if self._process.returncode is None:
                _kill(self._process.pid)  # the event loop waits for its end


async def _started(*command: str, **pipes: Any) -> _Started:
    return _Started(await asyncio.create_subprocess_exec(*command, start_new_session=True, **pipes))


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
