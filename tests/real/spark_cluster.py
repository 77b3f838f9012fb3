"""A standalone Spark cluster on this machine: a master and workers, each a process of its own.

PySpark brings no scripts for them, but their classes. Executors run a Python that has PySpark and
the libraries, and none of our code: that has to be shipped, as on a cluster of somebody else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.real.maven import require_java
from tests.real.ports import free_ports
from tests.real.process_tree import kill_tree
from tests.real.server_process import ServerProcess
from tests.real.spark_jvm import java_options, spark_home

START_DEADLINE_S = 60
EXECUTOR_MB = 700


class SparkCluster:
    """`workers` workers of one core, under `home`; nothing is left elsewhere."""

    def __init__(self, home: Path, *, workers: int = 2) -> None:
        require_java()
        self._home = home
        self._workers_wanted = workers
        self._port, self._page = free_ports(2)
        self._stack = ExitStack()
        self.workers: list[ServerProcess] = []

    @property
    def master(self) -> str:
        """For `--master`."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def python(self) -> Path:
        """The executors' Python."""
        return self._home / "python" / "bin" / "python"

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True, exist_ok=True)
        python_without_us(self._home / "python")
        self._start("Master", "--port", str(self._port), "--webui-port", str(self._page))
        self.wait_until(lambda: bool(self._state()), "the master")
        for number in range(self._workers_wanted):
            work = self._home / f"work-{number}"
            self.workers.append(
                self._start(
                    "Worker",
                    *("--cores", "1", "--memory", f"{EXECUTOR_MB}m", "--webui-port", "0"),
                    *("--work-dir", str(work), self.master),
                )
            )
        self.wait_until(lambda: self.alive_workers() == self._workers_wanted, "the workers")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def alive_workers(self) -> int:
        """As the master sees it."""
        return int(self._state().get("aliveworkers", 0))

    def kill_worker(self, number: int) -> None:
        """SIGKILL of a worker and of the executor it started: a machine that is gone."""
        kill_tree(self.workers[number].pid)
        self.workers[number].kill()

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Look again and again."""
        ends_at = time.monotonic() + START_DEADLINE_S
        while not holds():
            if time.monotonic() > ends_at:
                raise TimeoutError(f"{what}: not within {START_DEADLINE_S} s, see {self._home}")
            time.sleep(0.1)

    def _start(self, what: str, *arguments: str) -> ServerProcess:
        process = ServerProcess(
            [
                str(spark_home() / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{what.lower()}.{what}",
                *("--host", "127.0.0.1", *arguments),
            ],
            environment={
                "PATH": os.environ["PATH"],
                "SPARK_HOME": str(spark_home()),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": java_options(),
                "SPARK_LOCAL_DIRS": str(self._home / "local"),
                "PYSPARK_PYTHON": str(self.python),
            },
            cwd=self._home,
            log_path=self._home / f"{what}.log",
        )
        self._stack.callback(process.stop)
        return process

    def _state(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._page}/json/", timeout=5
            ) as answer:
                found = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def python_without_us(folder: Path) -> None:
    """A Python that has every library of this environment. What is installed here in editable form
    is named by `.pth` files, which are not read a second time.
    """
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60
    )
    libraries = sysconfig.get_path("purelib")
    (own,) = folder.glob("lib/python3*/site-packages")
    (own / "libraries.pth").write_text(f"{libraries}\n")
