"""A command under measurement: wall time, CPU of it and all it started, and peak memory."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_INTERVAL_S = 0.05
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Measured:
    """`cpu_s` is user + system of the process and every child it waited for.

    `resident_bytes` is the largest sum over the process and its descendants, sampled.
    """

    wall_s: float
    cpu_s: float
    resident_bytes: int
    output: str


def measured(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, deadline_s: float = 600
) -> Measured:
    """Run to the end; RuntimeError with the output when it fails."""
    began_at = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    sampler = _Sampler(process.pid)
    killer = threading.Timer(deadline_s, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began_at
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        killer.cancel()
        sampler.stop()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {output[-4000:]}")
    return Measured(wall_s, usage.ru_utime + usage.ru_stime, sampler.resident_bytes, output)


class _Sampler:
    """Adds up the resident memory of a process tree, again and again."""

    def __init__(self, pid: int) -> None:
        self.resident_bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_INTERVAL_S):
            self.resident_bytes = max(self.resident_bytes, _tree_bytes(self._pid))


def _tree_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [
            int(child)
            for task in os.listdir(f"/proc/{pid}/task")
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0
    return pages * _PAGE_BYTES + sum(_tree_bytes(child) for child in children)
