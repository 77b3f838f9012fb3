"""A server that takes only requests signed with the keys of the day, and answers GET and PUT."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from rsm_backends.store_config import StoreConfig

DATA = b"0123456789"


@dataclass
class CheckingS3:
    """Signatures are not checked, only whose they are."""

    url: str = ""
    key_id: str = "first"
    refusal: str = "InvalidAccessKeyId"
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        used = re.search("Credential=([^/]*)/", request.headers.get("Authorization", ""))
        self.asked.append(used[1] if used else "nobody")
        await request.read()
        if self.asked[-1] != self.key_id:
            words = f"<Error><Code>{self.refusal}</Code><Message>no</Message></Error>"
            return web.Response(status=403, text=words, content_type="application/xml")
        if request.method == "PUT":
            told = {k: v for k, v in request.headers.items() if "checksum-crc32c" in k.lower()}
            return web.Response(headers={"ETag": '"e"', **told})
        if "Range" in request.headers:
            told = {"Content-Range": f"bytes 0-9/{len(DATA)}"}
            return web.Response(status=206, body=DATA, headers=told)
        return web.Response(body=DATA, headers={"ETag": '"e"'})

    def config(self, **more: object) -> StoreConfig:
        """Of a bucket there, without keys."""
        return StoreConfig(
            name="main", kind="s3", bucket="b", endpoint_url=self.url, addressing_style="path",
            attempts_max=2, **more,  # type: ignore[arg-type]
        )  # fmt: skip


@asynccontextmanager
async def checking_s3() -> AsyncIterator[CheckingS3]:
    """The server, running."""
    found = CheckingS3()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{rest:.*}", found.answer)
    async with serving(app) as found.url:
        yield found


@asynccontextmanager
async def serving(app: web.Application, port: int = 0) -> AsyncIterator[str]:
    """An application on this machine; its address."""
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
