"""A table's folder: small objects through our store port, data files through Arrow's file systems.

Arrow's S3 client has no create-only write, and the store port no streams for Parquet, so both are
used. Both get their credentials from the same StoreConfig.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import InvalidRequest, NotFound, Refused, RetryLater
from pipeline.stores.opened_store import opened, told_uploads
from rsm_backends.store import ObjectInfo, UnfinishedUpload
from rsm_backends.store_config import StoreConfig

DELETE_MANY_MAX = 1_000
LOOKED_AT_AT_ONCE = 16
S3_CONNECT_TIMEOUT_S = 10.0
S3_REQUEST_TIMEOUT_S = 60.0

_Answer = TypeVar("_Answer")


class TargetFolder:
    """The objects below a StoreConfig's prefix, by paths relative to it. Blocks; for the driver.

    Errors are those of the store port.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self._prefix = config.prefix
        self._runner = asyncio.Runner()
        self._closing = AsyncExitStack()
        try:
            if config.kind == "filesystem" and config.path is not None:
                _make_folder(config)
            self._store = self._run(self._closing.enter_async_context(opened(config)))
        except BaseException:
            self._runner.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free connections."""
        self._run(self._closing.aclose())
        self._runner.close()

    def create(self, path: str, document: object) -> None:
        """Write JSON to a new object; AlreadyExists if the object exists."""
        data = json.dumps(document, indent=1, sort_keys=True).encode()
        self._run(self._store.put(self._prefix + path, data, crc32c=crc32c(data), create_only=True))

    def read(self, path: str) -> Any:
        """The JSON of an object. NotFound if it is absent; InvalidRequest if it is not JSON."""
        data = self._run(self._read(path))
        try:
            return json.loads(data)
        except ValueError:
            raise InvalidRequest(
                "is not JSON, so Strandline did not write it: export to a different folder",
                field=self.shown(path),
            ) from None

    def exists(self, path: str) -> bool:
        """True if the object exists."""
        try:
            self._run(self._store.head(self._prefix + path))
        except NotFound:
            return False
        return True

    def listed(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose path starts with `prefix`, with paths as keys, in order."""
        cursor: str | None = None
        while True:
            page = self._run(self._store.list_page(self._prefix + prefix, cursor=cursor))
            for each in page.objects:
                path = each.key.removeprefix(self._prefix)
                yield ObjectInfo(path, each.size, each.crc32c, each.last_modified_ms, each.etag)
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    def check_written(self, sizes: Mapping[str, int]) -> None:
        """Raise InvalidRequest unless the files at these paths exist and have these sizes."""
        filesystem, root = arrow_filesystem(self.config)
        try:
            with ThreadPoolExecutor(LOOKED_AT_AT_ONCE) as threads:
                found = list(threads.map(filesystem.get_file_info, (root + path for path in sizes)))
        except OSError as error:
            raise RetryLater(
                f"files that tasks wrote to {self.shown('')} could not be checked: {error}"
            ) from None
        for (path, size), file in zip(sizes.items(), found, strict=True):
            if file.size != size:
                raise InvalidRequest(
                    f"a task wrote {size} bytes to {self.shown(path)}, but the driver finds "
                    f"{'no such file' if file.size is None else f'{file.size} bytes'}: nothing was "
                    "committed. Give a place that is the same folder on all machines",
                    field="--to",
                )

    def remove(self, paths: Sequence[str]) -> None:
        """Delete objects; absent ones count as deleted."""
        for at in range(0, len(paths), DELETE_MANY_MAX):
            keys = [self._prefix + path for path in paths[at : at + DELETE_MANY_MAX]]
            self._run(self._store.delete_many(keys))

    def uploads(self, prefix: str = "") -> list[UnfinishedUpload]:
        """Unfinished uploads of paths that start with `prefix`, with paths as keys, as far as the
        store lists them.
        """
        found = self._run(told_uploads(self._store, self._prefix + prefix))
        return [
            UnfinishedUpload(each.key.removeprefix(self._prefix), each.upload_id) for each in found
        ]

    def abort(self, uploads: Iterable[UnfinishedUpload]) -> int:
        """Drop uploads with their parts; returns their number. One that has ended counts as
        dropped. Without the permission they stay.
        """
        aborted = 0
        with suppress(Refused):
            for each in uploads:
                self._run(self._store.abort_multipart(self._prefix + each.key, each.upload_id))
                aborted += 1
        return aborted

    def shown(self, path: str) -> str:
        """A path in the form for messages."""
        return folder_url(self.config).rstrip("/") + "/" + path

    async def _read(self, path: str) -> bytes:
        return b"".join([piece async for piece in self._store.get(self._prefix + path)])

    def _run(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        return self._runner.run(work)


def _make_folder(config: StoreConfig) -> None:
    assert config.path is not None
    try:
        config.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(
            f"the folder {config.path} can't be created: {error.strerror}. Create it, or choose a "
            "different one"
        ) from error


def folder_url(config: StoreConfig) -> str:
    """The folder in the form for table libraries: s3://bucket/prefix or a path."""
    if config.kind == "s3":
        return f"s3://{config.bucket}/{config.prefix}".rstrip("/")
    return str(config.path)


def address_of(location: str) -> str:
    """A location in the form of the option `strandline.store`: plain paths become file URLs."""
    url = urlsplit(location)
    if url.scheme in ("s3", "s3a", "s3n"):
        return f"s3://{url.netloc}{url.path}"
    if url.scheme == "file":
        return f"file://{url.path}"
    if url.scheme == "" and location.startswith("/"):
        return f"file://{location}"
    raise InvalidRequest(
        f"{location[:200]!r} must be s3://bucket/folder or an absolute path", field="--to"
    )


def path_below(config: StoreConfig, location: str) -> str | None:
    """The path, relative to the folder, of a file's location from a table library; None if the file
    is not in the folder.
    """
    plain = unquote(address_of(location).removeprefix("file://"))
    folder = folder_url(config).rstrip("/") + "/"
    return plain.removeprefix(folder) if plain.startswith(folder) else None


def arrow_filesystem(config: StoreConfig) -> tuple[fs.FileSystem, str]:
    """Arrow's file system for the folder, and the folder's path in it, ending with `/`."""
    if config.kind == "filesystem":
        return fs.LocalFileSystem(), f"{config.path}/"
    given: dict[str, Any] = {
        "region": config.region,
        "access_key": config.access_key_id,
        "secret_key": config.secret_access_key,
        "session_token": config.session_token,
        "connect_timeout": S3_CONNECT_TIMEOUT_S,
        "request_timeout": S3_REQUEST_TIMEOUT_S,
    }
    if config.endpoint_url is not None:
        url = urlsplit(config.endpoint_url)
        given |= {"scheme": url.scheme, "endpoint_override": url.netloc}
        given["force_virtual_addressing"] = config.addressing_style == "virtual"
    if config.ca_bundle is not None:
        given["tls_ca_file_path"] = str(config.ca_bundle)
    named = {key: value for key, value in given.items() if value is not None}
    return fs.S3FileSystem(**named), f"{config.bucket}/{config.prefix}"
