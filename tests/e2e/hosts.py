"""Three hosts of an operator's recipes: `strand-1` to `strand-3`, each a folder with a node in it.

A recipe runs as typed, in a shell in one host's folder. The names are loopback addresses of their
own, by a hosts file that only these processes see (a mount namespace, which needs root). `ssh`,
`scp` and `systemctl` are small programs on the PATH that do on these hosts what they say; nodes and
the `strandline` command are forked, by a `tests.real.fork_server` that sees the same names.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import httpx

from tests.e2e.http import PLAIN
from tests.real.toolbox import REPOSITORY, missing

NUMBERS = (1, 2, 3)
HTTP_PORT = 9480
QUORUM_PORT = 9481
RECIPE_DEADLINE_S = 240
STOP_DEADLINE_S = 30
POLL_S = 0.1
_PROGRAMS = {
    "ssh": 'cd "$HOSTS/$1" && shift && exec sh -c "$*"\n',
    "scp": 'cp "$1" "$HOSTS/${2%%:*}/"\n',
    "systemctl": """
case "$1" in stop|restart)
  if pid=$(cat node.pid 2>/dev/null); then
    kill -TERM "$pid"; while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done; rm node.pid
  fi;;
esac
case "$1" in start|restart)
  start-node node --config strandline.toml >> node.log 2>&1;;
esac
""",
}
_FORKED = """#!{python} -S
import socket, sys

sys.path.insert(0, "{repository}")
from tests.real.fork_server import NUMBER, ask_to_start

def next_number():
    return NUMBER.unpack(told.recv(NUMBER.size))[0]

with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
    server.connect({address!r})
    told = ask_to_start(server, ["strandline", *sys.argv[1:]], 1, 2)
pid = next_number()
"""
_START_NODE = """
with open("node.pid", "w") as file:
    file.write(str(pid))
"""
_END_AS_IT_ENDS = """
sys.exit(next_number())
"""
_WITH_NAMES = (
    *("unshare", "--mount", "sh", "-c"),
    *('mount --bind "$NAMES" /etc/hosts && exec "$@"', "sh"),
)
_RECIPE = re.compile(
    r"^ *<!-- recipe: (?P<name>.+?) -->\n *```\n(?P<text>.*?)^ *```\n", re.DOTALL | re.MULTILINE
)


def recipes() -> dict[str, str]:
    """The shell texts of docs/OPERATIONS.md that have a name."""
    text = (REPOSITORY / "docs" / "OPERATIONS.md").read_text()
    return {found["name"]: dedent(found["text"]) for found in _RECIPE.finditer(text)}


class Hosts:
    """As a context manager; the nodes that recipes started are ended with it."""

    def __init__(self, home: Path) -> None:
        if os.geteuid() != 0:
            missing("root, to give three hosts names of their own")
        self._home = home
        self._programs = home / "bin"
        self._names = home / "hosts"
        for number in NUMBERS:
            self.folder(number).mkdir(parents=True)
        self._programs.mkdir()
        for name, text in _PROGRAMS.items():
            self._write_program(name, f"#!/bin/sh\n{text}")
        self._names.write_text(
            "127.0.0.1 localhost\n"
            + "".join(f"{self.address(each)} {self.name(each)}\n" for each in NUMBERS)
        )

    def folder(self, number: int) -> Path:
        """Where the shell of this host begins."""
        return self._home / self.name(number)

    @staticmethod
    def name(number: int) -> str:
        return f"strand-{number}"

    @staticmethod
    def address(number: int) -> str:
        """Its own among the loopback addresses, so that each host has all ports."""
        return f"127.0.0.{number + 1}"

    def add_program(self, name: str, program: Path) -> None:
        """`program` under this name on every host's PATH."""
        (self._programs / name).symlink_to(program)

    def type(
        self, number: int, text: str, *, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the text in a shell of this host; the exit code is the caller's to judge."""
        with (self._home / "typed.log").open("a+") as output:
            begins = output.tell()
            done = subprocess.run(
                [*_WITH_NAMES, "sh", "-c", text],
                cwd=self.folder(number),
                env=self._environment() | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=RECIPE_DEADLINE_S,
            )
            output.seek(begins)
            return subprocess.CompletedProcess(text, done.returncode, output.read())

    def typed(self, number: int, text: str, **options: Mapping[str, str]) -> str:
        """The same for what must end well; what it printed."""
        done = self.type(number, text, **options)
        assert done.returncode == 0, f"{text}\n{done.stdout}{self.logs()}"
        return done.stdout

    def pid(self, number: int) -> int:
        """The node's process, 0 where none was started."""
        file = self.folder(number) / "node.pid"
        return int(file.read_text()) if file.exists() else 0

    def kill(self, number: int) -> None:
        """SIGKILL to the node: its machine is gone."""
        os.kill(self.pid(number), signal.SIGKILL)
        (self.folder(number) / "node.pid").unlink()

    def get(self, number: int, path: str) -> httpx.Response:
        """One question to the host's node with the first host's token."""
        token = (self.folder(1) / "token").read_text().strip()
        return PLAIN.get(
            f"http://{self.address(number)}:{HTTP_PORT}{path}",
            headers={"Authorization": f"Bearer {token}"},
        )

    def wait_until(self, holds: Callable[[], bool], what: str, *, deadline_s: float = 60) -> None:
        """Look again and again; a node that does not answer yet does not hold."""
        end = time.monotonic() + deadline_s
        while not self._holds(holds):
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {deadline_s} s. {self.logs()}")
            time.sleep(POLL_S)

    def ready(self, number: int) -> bool:
        return self.get(number, "/readyz").status_code == 200

    def logs(self) -> str:
        """The end of every node's log."""
        files = [self.folder(number) / "node.log" for number in NUMBERS]
        return "\n".join(f"{file}: {file.read_text()[-2_000:]}" for file in files if file.exists())

    def __enter__(self) -> Hosts:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
            control.bind("")  # the system chooses a name
            self._fork_server = subprocess.Popen(
                [
                    *(*_WITH_NAMES, sys.executable, "-m", "tests.real.fork_server"),
                    *(str(control.fileno()), "tests.real.node_program"),
                ],
                cwd=REPOSITORY,
                env=self._environment(),
                pass_fds=[control.fileno()],
            )
            forked = _FORKED.format(
                python=sys.executable, repository=REPOSITORY, address=control.getsockname()
            )
        self._write_program("start-node", forked + _START_NODE)
        self._write_program("strandline", forked + _END_AS_IT_ENDS)
        return self

    def __exit__(self, *_: object) -> None:
        """A node that died by itself is why the test failed: it keeps no other one running."""
        for number in NUMBERS:
            if self.pid(number):
                with suppress(ProcessLookupError):
                    self.kill(number)
        self._fork_server.kill()
        self._fork_server.wait()

    def _write_program(self, name: str, text: str) -> None:
        program = self._programs / name
        program.write_text(text)
        program.chmod(0o755)

    def _environment(self) -> dict[str, str]:
        """Of a host's shells and nodes."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        path = f"{self._programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return kept | {"HOSTS": str(self._home), "NAMES": str(self._names), "PATH": path}

    @staticmethod
    def _holds(holds: Callable[[], bool]) -> bool:
        try:
            return holds()
        except httpx.TransportError:
            return False
