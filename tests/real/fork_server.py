"""A process that has imported a program and forks it.

`python -m tests.real.fork_server SOCKET_FD MODULE` imports the module, then forks a process that
calls its `main` for each `Start` on the socket, until that is closed. Between the server and each
process stands a keeper, its parent. It sends the process id over the request's own socket, and the
exit code as `subprocess.Popen` gives it, each as NUMBER; it collects the process once that socket
is closed: until then its id is no other's. Of a socket that is closed before, the process is an
orphan. `tests.real.forked` is the other side.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Self

START_BYTES_MAX = 128 * 1024
NUMBER = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Start:
    """The program's sys.argv, and where it runs. Its output, its errors and the keeper's socket are
    the descriptors that come along.
    """

    arguments: Sequence[str]
    directory: str
    environment: Mapping[str, str]

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        return cls(**json.loads(data))


def ask_to_start(
    control: socket.socket,
    arguments: Sequence[str],
    output: int,
    errors: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> socket.socket:
    """The server at the other end of `control` starts its program, in the caller's directory.
    Its errors go to its output by default. Returns the socket on which the keeper tells of it.
    """
    start = Start(arguments, os.getcwd(), dict(environment))
    ours, theirs = socket.socketpair()
    with theirs:
        descriptors = [output, output if errors is None else errors, theirs.fileno()]
        socket.send_fds(control, [start.to_bytes()], descriptors)
    return ours


def serve(control: socket.socket) -> bool:
    """Returns True in each process in which the program has to run, False once all is done."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, START_BYTES_MAX, 3)
        _collect_keepers()
        if not request:
            return False
        assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork would lose a thread"
        *writes, told = descriptors
        if os.fork() == 0:
            control.close()
            return _kept(Start.from_bytes(request), writes, socket.socket(fileno=told))
        for descriptor in descriptors:
            os.close(descriptor)


def _collect_keepers() -> None:
    """Those that have ended: then their CPU time, and their programs', counts as the tests'."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _kept(start: Start, writes: Sequence[int], told: socket.socket) -> bool:
    """Returns in the program's process; the keeper ends here, and leaves it if nobody listens."""
    pid = os.fork()
    if pid == 0:
        told.close()
        _become(start, writes)
        return True
    for descriptor in writes:
        os.close(descriptor)
    with suppress(ConnectionError):
        told.sendall(NUMBER.pack(pid))
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        by_itself = ended.si_code == os.CLD_EXITED
        told.sendall(NUMBER.pack(ended.si_status if by_itself else -ended.si_status))
        told.recv(1)
        os.waitpid(pid, 0)
    os._exit(0)


def _become(start: Start, writes: Sequence[int]) -> None:
    for number, descriptor in enumerate(writes, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(start.directory)
    os.environ.clear()
    os.environ.update(start.environment)
    sys.argv = list(start.arguments)
    gc.enable()


def main() -> None:
    """A forked program runs from here, and ends as it would by itself."""
    descriptor, module = sys.argv[1:]
    gc.disable()
    program: Callable[[], object] = import_module(module).main
    gc.freeze()
    if serve(socket.socket(fileno=int(descriptor))):
        program()


if __name__ == "__main__":
    main()
