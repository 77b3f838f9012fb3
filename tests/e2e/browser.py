"""A page in Debian's Chromium: what it asks for, what it complains of, and axe's word about it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Request, Response, expect, sync_playwright

from tests.real.chromium import FLAGS, chromium
from tests.real.toolbox import REPOSITORY, missing

AXE = REPOSITORY / "api" / "ui" / "node_modules" / "axe-core" / "axe.min.js"
PAGE_DEADLINE_MS = 30_000
"""A page has hung that takes longer; actions that wait for an election are answered within 20 s."""
DESK, PHONE = (1280, 900), (390, 844)


@contextmanager
def browser() -> Iterator[Browser]:
    """A new browser without a history."""
    found = chromium()
    expect.set_options(timeout=PAGE_DEADLINE_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=found.program,
            args=list(FLAGS),
            env={**os.environ, **found.environment},
            headless=True,
        )
        try:
            yield opened
        finally:
            opened.close()


def renderer_mib(opened: Browser) -> float:
    """Private memory of the largest process that shows a page: the shared rest is the browser's."""
    session = opened.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [
        sum(
            int(line.split()[1])
            for line in Path(f"/proc/{each['id']}/smaps_rollup").read_text().splitlines()
            if line.startswith("Private_")
        )
        for each in processes
        if each["type"] == "renderer"
    ]
    session.detach()
    return max(sizes) / 1024


class Tab:
    """One tab at a node's page, with everything that went on in it."""

    def __init__(self, opened: Browser, url: str, *, size: tuple[int, int] = DESK) -> None:
        self.url = url
        self.console: list[str] = []
        self.asked: list[str] = []
        self.took_ms: dict[str, list[float]] = {}
        self.bytes: dict[str, int] = {}
        self._context = opened.new_context(viewport={"width": size[0], "height": size[1]})
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(PAGE_DEADLINE_MS)
        self.page.on("console", lambda said: self._noted(said.type, said.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", self._asked)
        self.page.on("requestfinished", self._finished)

    def open(self, place: str = "") -> Page:
        """The view at `place`, such as `partitions/orders/0`."""
        self.page.goto(f"{self.url}/ui#/{place}")
        self.page.get_by_role("heading", level=1).wait_for()
        return self.page

    def foreign(self) -> list[str]:
        """Requests to anywhere but the node."""
        own = urlsplit(self.url).netloc
        return [each for each in self.asked if urlsplit(each).netloc not in (own, "")]

    def forgive(self, *statuses: int) -> None:
        """Drop what Chromium says of answers with these, which the test has met on purpose."""
        self.console[:] = [
            each
            for each in self.console
            if not any(f"with a status of {status}" in each for status in statuses)
        ]

    def violations(self) -> list[str]:
        """What axe finds wrong in what is shown now."""
        if not AXE.exists():
            missing("axe-core, which `npm ci` in api/ui brings")
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run({resultTypes: ['violations']})")
        return [
            f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes']]}"
            for each in found["violations"]
        ]

    def picture(self, name: str) -> Path:
        """A screenshot of the whole page, kept in PAGE_SCREENSHOTS or a folder of /tmp."""
        kept = os.environ.get("PAGE_SCREENSHOTS")
        folder = Path(kept) if kept else Path(tempfile.gettempdir()) / "strandline-screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{re.sub(r'[^a-z0-9-]+', '', name)}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def close(self) -> None:
        """Close the tab."""
        self._context.close()

    def _noted(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.console.append(f"{kind}: {text}")

    def _asked(self, request: Request) -> None:
        self.asked.append(request.url)

    def _finished(self, request: Request) -> None:
        answer: Response | None = request.response()
        if answer is not None:
            length = int(answer.headers.get("content-length", 0))
            path = urlsplit(request.url).path
            self.bytes[path] = max(length, self.bytes.get(path, 0))
            taken = request.timing["responseEnd"]
            self.took_ms.setdefault(urlsplit(request.url).path, []).append(taken)
