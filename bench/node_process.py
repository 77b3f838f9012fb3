"""A `strandline node` process, timed and weighed from outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

START_DEADLINE_S = 120
STOP_DEADLINE_S = 60
POLL_S = 0.005
MIB = 2**20


@dataclass(slots=True)
class NodeProcess:
    """A node that answered /readyz, `ready_s` seconds after its process was started."""

    process: subprocess.Popen[bytes]
    port: int
    ready_s: float

    def processes(self) -> list[int]:
        """The supervisor and its workers."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def cpu_s(self) -> float:
        """CPU seconds of supervisor and workers so far."""
        return sum(map(cpu_s, self.processes()))

    def resident_mib(self) -> float:
        """Resident memory of the supervisor."""
        return resident_mib(self.process.pid)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int | str = "self") -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def peak_mib(pid: int) -> float:
    """The most resident memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


@contextmanager
def node_process(
    home: Path,
    data: Path,
    *,
    log_dir: Path | None = None,
    main_store: str | None = None,
    more_settings: str = "",
) -> Iterator[NodeProcess]:
    """Run a node over the data directory until the block ends; it must then stop by itself.

    `log_dir`: a standalone log directory, of which it counts as leader. `main_store`: the settings
    of `[stores.main]`, a folder by default. `more_settings` are sections of the settings file.
    """
    port = _free_port()
    config, log, store = home / "strandline.toml", home / "node.log", home / "store"
    store.mkdir(exist_ok=True)
    folder = f'kind = "filesystem"\npath = "{store}"'
    kafka = f'[kafka]\nlog_dirs = ["{log_dir}"]\n[topics]\ninclude = ["*"]\n' if log_dir else ""
    config.write_text(
        f'[node]\ndata_dir = "{data}"\n[http]\nport = {port}\nanonymous_role = "read"\n{kafka}'
        f"[stores.main]\n{main_store or folder}\n{more_settings}"
    )
    program = Path(sys.executable).with_name("strandline")
    with log.open("ab") as output:
        begun = perf_counter()
        process = subprocess.Popen(
            [str(program), "node", "--config", str(config)], stdout=output, stderr=output
        )
        try:
            _wait_until_ready(process, port, log)
            yield NodeProcess(process, port, perf_counter() - begun)
            process.terminate()
            if process.wait(STOP_DEADLINE_S) != 0:
                raise RuntimeError(f"the node failed: {log.read_text()[-2_000:]}")
        finally:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = perf_counter() + START_DEADLINE_S
    while not _is_ready(port):
        if process.poll() is not None or perf_counter() > end:
            raise RuntimeError(f"the node did not start: {log.read_text()[-2_000:]}")
        sleep(POLL_S)


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return connection.recv(200).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
