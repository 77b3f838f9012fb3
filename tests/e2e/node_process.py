"""A node as a process of its own: `strandline format`, then `strandline node`, as users do. For
most of their time these would import: so `format` runs in this process, and the node is forked.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from rlm.format.object_keys import cluster_marker_key
from tests.e2e.http import PLAIN
from tests.real.forked import ForkedProcess
from tests.real.ports import free_ports
from tests.real.process_tree import stop_tree, wake_tree
from tests.strandline.command import invoke

START_DEADLINE_S = 60
STOP_DEADLINE_S = 30
POLL_S = 0.1

Sections = Mapping[str, Mapping[str, object]]


class NodeProcess:
    """One node under `home`; `sections` are its settings but for data_dir and the port. With
    `typed` it is the command as typed in a shell, with its own command line and environment.
    `program`: the sources of another release, which its next start runs.
    """

    def __init__(self, home: Path, sections: Sections, *, typed: bool = False) -> None:
        self._home = home
        self._typed = typed
        self.program: Path | None = None
        self._port = free_ports(1)[0]
        self._sections = {
            **sections,
            "node": {"data_dir": str(home / "data")},
            "http": {"port": self._port, "anonymous_role": "read"} | {**sections.get("http", {})},
        }
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def url(self) -> str:
        """Where its HTTP interface listens."""
        scheme = "https" if "tls_key_file" in self._sections["http"] else "http"
        return f"{scheme}://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._running().pid

    @property
    def config(self) -> Path:
        """Its settings file."""
        return self._config()

    @property
    def spool(self) -> Path:
        """The directory of the segments that its broker sends, if the node has the broker's id."""
        return self._home / "data" / "spool-1"

    @property
    def metadata_log(self) -> Path:
        """The directory with the metadata log's segments and snapshots."""
        return self._home / "data" / "metadata" / "__remote_log_metadata-0"

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log().read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""
        return self._process is not None

    def format(self, *arguments: str) -> None:
        """Write the settings file and make the data directory."""
        self.write_config()
        done = invoke("format", "--config", self._config(), *arguments)
        assert done.exit_code == 0, done.stdout + done.stderr

    def write_config(self) -> None:
        """Write the settings file."""
        self._home.mkdir(parents=True, exist_ok=True)
        self._config().write_text("".join(map(_section, self._sections.items())))

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Start it and return at once: alone, a node of several is not ready."""
        assert self._process is None, "the node runs already"
        command = self._command("node")
        with self._log().open("ab") as output:
            if self.program is not None:
                self._process = _of_release(self.program, self._config(), output.fileno())
            elif self._typed:
                self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            else:
                self._process = forked(command, output.fileno())

    def wait_until_ready(self) -> None:
        """/readyz says so."""
        self.wait_until(
            lambda: self.readiness()[0] == 200, "the node to be ready", deadline_s=START_DEADLINE_S
        )

    def wait_until_marked(self, *stores: Path) -> None:
        """These folders have the cluster's marker: a node answers before it has looked at them."""
        markers = [store / cluster_marker_key("") for store in stores]
        self.wait_until(
            lambda: all(marker.exists() for marker in markers),
            "the stores to have a cluster marker",
            deadline_s=START_DEADLINE_S,
        )

    def readiness(self) -> tuple[int, str]:
        """Status and text of /readyz; (0, "") while nobody answers."""
        try:
            answer = PLAIN.get(f"{self.url}/readyz", timeout=5)
        except httpx.TransportError:
            return 0, ""
        return answer.status_code, answer.text

    def stop(self) -> None:
        """SIGTERM; the node must end by itself, with exit code 0."""
        process, self._process = self._running(), None
        process.terminate()
        try:
            code = process.wait(STOP_DEADLINE_S)
            assert code == 0, f"{_how(code)}: {self._last_output()}"
        finally:
            process.kill()
            process.wait()

    def ends_by_itself(self) -> str:
        """Wait until the node has ended with an error, as after a start that it refuses; what it
        has written.
        """
        process, self._process = self._running(), None
        try:
            assert process.wait(START_DEADLINE_S) != 0, self._last_output()
        finally:
            process.kill()
            process.wait()
        return self.log

    def kill(self) -> None:
        """SIGKILL. Its workers find their socket closed and end by themselves."""
        process, self._process = self._running(), None
        process.kill()
        process.wait()

    def suspend(self) -> None:
        """SIGSTOP, to its workers as well: a machine that hangs."""
        stop_tree(self._running().pid)

    def wake(self) -> None:
        """SIGCONT: it goes on where it was."""
        wake_tree(self._running().pid)

    def wait_until(self, holds: Callable[[], bool], what: str, *, deadline_s: float) -> None:
        """Look again and again until `holds()`; a dead node ends the wait at once."""
        end = time.monotonic() + deadline_s
        while not holds():
            self.assert_alive()
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {deadline_s} s. {self._last_output()}")
            time.sleep(POLL_S)

    def assert_alive(self) -> None:
        """RuntimeError: it runs no more, and nobody stopped or killed it."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise RuntimeError(
                f"node {self._home.name} ended by itself, {_how(code)}. Its last words:\n"
                f"{self._last_output() or '(none)'}"
            )

    def __enter__(self) -> Self:
        self.format()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    def _running(self) -> subprocess.Popen[bytes] | ForkedProcess:
        assert self._process is not None, "the node is not running"
        return self._process

    def _command(self, name: str) -> list[str]:
        program = Path(sys.executable).with_name("strandline")
        return [str(program), name, "--config", str(self._config())]

    def _config(self) -> Path:
        return self._home / "strandline.toml"

    def _log(self) -> Path:
        return self._home / "node.log"

    def _last_output(self) -> str:
        return self._log().read_text(errors="replace")[-6_000:]


def forked(command: Sequence[str], output: int) -> ForkedProcess:
    """`strandline node`; its output goes to a descriptor."""
    return ForkedProcess("tests.real.node_program", command, output)


def _of_release(sources: Path, config: Path, output: int) -> subprocess.Popen[bytes]:
    """`strandline node` of other sources, with the packages of this test's Python."""
    command = [sys.executable, "-m", "strandline", "node", "--config", str(config)]
    environment = os.environ | {"PYTHONPATH": str(sources)}
    return subprocess.Popen(
        command, cwd=sources, env=environment, stdout=output, stderr=subprocess.STDOUT
    )


def _how(code: int) -> str:
    """An exit code in words; a signal, SIGKILL by a machine out of memory among them, by name."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _section(item: tuple[str, Mapping[str, object]]) -> str:
    """TOML takes JSON's strings, numbers, booleans and lists of them."""
    name, values = item
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    return f"[{name}]\n{lines}\n"
