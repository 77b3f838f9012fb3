"""A server as a child process: wait until it is healthy, stop it for sure, show why it failed."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_DEADLINE_S = 20
HEALTH_POLL_S = 0.1


class ServerProcess:
    """Started at once; its output goes to `log_path`."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], cwd: Path, log_path: Path
    ) -> None:
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=dict(environment), cwd=cwd, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_until_healthy(self, url: str, *, deadline_s: float) -> None:
        """Poll `url` until it answers 200; a dead or slow server raises with the end of its log."""
        ends_at = time.monotonic() + deadline_s
        while time.monotonic() < ends_at:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server exited {self._process.returncode}: {self._log()}")
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass  # not up yet
            time.sleep(HEALTH_POLL_S)
        self.stop()
        raise RuntimeError(f"{url} was not healthy within {deadline_s} s: {self._log()}")

    def stop(self) -> None:
        """Ask it to end, then insist. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)

    def kill(self) -> None:
        """End it without notice, as a power cut would."""
        self._process.kill()
        self._process.wait(STOP_DEADLINE_S)

    def _log(self) -> str:
        return self._log_path.read_text(errors="replace")[-4000:]
