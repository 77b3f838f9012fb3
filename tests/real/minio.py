"""MinIO as a process of its own, built once from its Go module into the tools folder.

with MinioServer(tmp_path) as server:
    store = await open_store(server.store_config, ...)
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from rsm_backends.store_config import StoreConfig
from tests.real.ports import free_ports
from tests.real.s3_admin import make_bucket
from tests.real.server_process import ServerProcess
from tests.real.toolbox import only_one, require_program, tools_dir

MINIO_VERSION = "v0.0.0-20250907161309-07c3a429bfed"
BUILD_DEADLINE_S = 1200
START_DEADLINE_S = 60
BUCKET = "strandline-test"


def minio_program() -> Path:
    """The path of the MinIO server; the first call on a machine builds it (some minutes)."""
    folder = tools_dir() / f"minio-{MINIO_VERSION}"
    program = folder / "minio"
    with only_one("minio"):
        if not program.exists():
            # `go install` puts the finished program in place in one step.
            subprocess.run(
                [require_program("go"), "install", f"github.com/minio/minio@{MINIO_VERSION}"],
                env=os.environ | {"GOBIN": str(folder), "GOFLAGS": "-mod=mod"},
                cwd=tools_dir(),
                check=True,
                timeout=BUILD_DEADLINE_S,
            )
    return program


class MinioServer:
    """One server on a free loopback port: random credentials, one bucket, its data in `home`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = free_ports(1)[0]
        self._access_key = f"user-{uuid.uuid4().hex[:12]}"
        self._secret_key = uuid.uuid4().hex
        self._process: ServerProcess | None = None

    @property
    def endpoint_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def store_config(self) -> StoreConfig:
        """The bucket, with all rights."""
        return StoreConfig(
            name="minio",
            kind="s3",
            bucket=BUCKET,
            endpoint_url=self.endpoint_url,
            access_key_id=self._access_key,
            secret_access_key=self._secret_key,
            addressing_style="path",
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers; the same data, port and credentials each time."""
        (self._home / "data").mkdir(parents=True, exist_ok=True)
        self._process = ServerProcess(
            [
                str(minio_program()),
                *("server", "--quiet", "--address", f"127.0.0.1:{self._port}"),
                str(self._home / "data"),
            ],
            environment={
                "PATH": os.environ["PATH"],
                "HOME": str(self._home),
                "MINIO_ROOT_USER": self._access_key,
                "MINIO_ROOT_PASSWORD": self._secret_key,
                "MINIO_BROWSER": "off",
                "MINIO_UPDATE": "off",
                "MINIO_CI_CD": "1",  # the disk of a test is also the machine's root disk
            },
            cwd=self._home,
            log_path=self._home / "minio.log",
        )
        self._process.wait_until_healthy(
            f"{self.endpoint_url}/minio/health/live", deadline_s=START_DEADLINE_S
        )

    def stop(self) -> None:
        """Stop it; the data stays. Idempotent."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """SIGKILL; `start` brings it back."""
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> Self:
        self.start()
        make_bucket(self.store_config)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
