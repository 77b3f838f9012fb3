"""The demo's object store: moto's S3 server in a child process, with one bucket."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx

from kafka_formats.errors import RetryLater
from strandline.demo.process import DemoProcess, wait_until

BUCKET = "strandline-demo"
START_DEADLINE_S = 60.0


@asynccontextmanager
async def embedded_s3(home: Path, port: int) -> AsyncIterator[str]:
    """Run the server inside this context; yields its URL. Raises RetryLater if moto is not
    installed.
    """
    if find_spec("moto") is None:
        raise RetryLater("the demo's packages are not installed: install them with `make demo`")
    endpoint = f"http://127.0.0.1:{port}"
    server = DemoProcess(
        "moto's S3 server",
        (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)),
        home / "s3.log",
    )
    server.start()
    try:
        async with httpx.AsyncClient(base_url=endpoint, trust_env=False) as http:

            async def made() -> bool | None:
                try:
                    (await http.put(f"/{BUCKET}")).raise_for_status()
                except httpx.TransportError:
                    return None
                return True

            await wait_until(made, "an S3 server", processes=(server,), deadline_s=START_DEADLINE_S)
        yield endpoint
    finally:
        server.kill()
