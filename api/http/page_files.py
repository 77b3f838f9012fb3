"""The files of the page of `/ui`, as `api/ui/build.py` built them, kept in memory."""

from __future__ import annotations

import asyncio
import gzip
import mimetypes
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from kafka_formats.errors import NotFound

BUILT = Path(__file__).resolve().parents[1] / "ui" / "dist"
INDEX = "index.html"
NOT_BUILT = (
    "the page is not built: run `python api/ui/build.py` (as make does), which needs Node.js "
    "20.19 or newer, and restart the node; a released wheel includes the page"
)


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, plain and compressed by gzip. `tag` changes with the content."""

    media_type: str
    plain: bytes
    compressed: bytes
    tag: str


class PageFiles:
    """The files, read once: an asset's name contains a digest of its content."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._folder = folder
        self._files: dict[str, PageFile] | None = None

    async def index(self) -> PageFile:
        """The page. NotFound: it is not built."""
        files = await self._read()
        if INDEX not in files:
            raise NotFound(NOT_BUILT)
        return files[INDEX]

    async def asset(self, name: str) -> PageFile:
        """A file that the page names. NotFound: there is no such file."""
        found = (await self._read()).get(f"assets/{name}")
        if found is None:
            raise NotFound("the page has no such file: reload /ui")
        return found

    async def _read(self) -> dict[str, PageFile]:
        if self._files is None:
            self._files = await asyncio.to_thread(_read, self._folder)
        return self._files


def _read(folder: Path) -> dict[str, PageFile]:
    files = [folder / INDEX, *folder.glob("assets/*")]
    return {str(path.relative_to(folder)): _file(path) for path in files if path.is_file()}


def _file(path: Path) -> PageFile:
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    plain = path.read_bytes()
    tag = f'"{blake2b(plain, digest_size=16).hexdigest()}"'
    return PageFile(media_type, plain, gzip.compress(plain, mtime=0), tag)
