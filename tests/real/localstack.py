"""LocalStack's S3 as a process of its own, started by the script that users have too.

with LocalStackServer(tmp_path) as server:
    store = await open_store(server.store_config, ...)
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from rsm_backends.store_config import StoreConfig
from tests.real.ports import free_ports
from tests.real.server_process import ServerProcess
from tests.real.toolbox import REPOSITORY, only_one, require_program

INSTALL_DEADLINE_S = 900
START_DEADLINE_S = 120
BUCKET = "strandline-test"
SCRIPTS = REPOSITORY / "localstack"


def install_localstack() -> str:
    """Install it, once a machine. The path of bash, which runs its scripts."""
    bash = require_program("bash")
    with only_one("localstack"):
        subprocess.run([bash, str(SCRIPTS / "install.sh")], check=True, timeout=INSTALL_DEADLINE_S)
    return bash


class LocalStackServer:
    """One server on a free loopback port with a bucket; everything is gone when it stops."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = free_ports(1)[0]
        self._process: ServerProcess | None = None

    @property
    def store_config(self) -> StoreConfig:
        """The bucket. LocalStack takes any credentials."""
        return StoreConfig(
            name="localstack",
            kind="s3",
            bucket=BUCKET,
            endpoint_url=f"http://127.0.0.1:{self._port}",
            access_key_id="test",
            secret_access_key="test",
            addressing_style="path",
        )

    def start(self) -> None:
        """Start it and wait until the start-up script has made the bucket."""
        bash = install_localstack()
        require_program("curl")
        self._home.mkdir(parents=True, exist_ok=True)
        self._process = ServerProcess(
            [bash, str(SCRIPTS / "start.sh"), str(self._port), BUCKET, str(self._home / "data")],
            environment=os.environ,
            cwd=self._home,
            log_path=self._home / "localstack.log",
        )
        self._process.wait_until_healthy(
            f"{self.store_config.endpoint_url}/{BUCKET}?lifecycle", deadline_s=START_DEADLINE_S
        )

    def stop(self) -> None:
        """Stop it. Idempotent."""
        if self._process is not None:
            self._process.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
