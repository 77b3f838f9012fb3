"""Stages of a job with time and CPU, and the peak memory of its processes.

The driver of a local session is two processes: Python, and the JVM, in which tasks run, too. Python
code of tasks runs in workers, which are the JVM's grandchildren.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from pyspark.sql import SparkSession

from bench.node_process import cpu_s, peak_mib
from bench.table import Measure
from pipeline.jobs.job import JobContext


@dataclass(frozen=True)
class MeasuredContext(JobContext):
    """Measures where a job would draw a bar."""

    stages: dict[str, Measure] = field(default_factory=dict)
    most_mib: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def bar(self, what: str) -> Iterator[None]:
        """A stage; two of one name are two lines."""
        began, before = perf_counter(), self._cpu_s()
        yield
        took = perf_counter() - began
        name = f"{len(self.stages) // 2 + 1}. {what}"
        used = {kind: total - before[kind] for kind, total in self._cpu_s().items()}
        told = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in used.items())
        self.stages[name] = Measure(name, "s", [took])
        self.stages[f"{name}: CPU"] = Measure(f"{name}: CPU ({told})", "s", [sum(used.values())])
        for kind, processes in self._processes().items():
            most = max(map(peak_mib, processes), default=0.0)
            self.most_mib[kind] = max(most, self.most_mib.get(kind, 0.0))

    def measures(self) -> list[Measure]:
        """All of it as lines of a table."""
        memory = [
            Measure(f"{kind}, memory, the most of a process", "MiB", [most])
            for kind, most in self.most_mib.items()
        ]
        return [*self.stages.values(), *memory]

    def _cpu_s(self) -> dict[str, float]:
        return {kind: sum(map(cpu_s, those)) for kind, those in self._processes().items()}

    def _processes(self) -> dict[str, list[int]]:
        jvm = jvm_pid(self.spark)
        return {"the driver's Python": [os.getpid()], "JVM": [jvm], "workers": _below(jvm)}


def jvm_pid(spark: SparkSession) -> int:
    """The pid of the JVM of a session that runs."""
    pid: int = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    return pid


def _below(pid: int) -> list[int]:
    """A process's children, and theirs: a thread starts them, whichever it is."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *_below(child)]
    return found
