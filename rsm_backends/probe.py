"""Tries once, under its own key, each operation that Strandline needs of a store; reports failures.

For `strandline doctor` and before the first write to a new bucket: this finds a missing permission,
a missing bucket, or a store that silently ignores create-only, before a copy would.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import AlreadyExists, NotFound, StrandlineError
from rsm_backends.store import PART_BYTES_MIN, ObjectStore
from rsm_backends.streams import read_all

_DATA = b"Strandline checks that it may write, read and delete here.\n"
_OTHER = b"This must not replace what is there.\n"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result for one operation: `ok` if it works; if not, `detail` says what to do."""

    name: str
    ok: bool
    detail: str


class _WrongAnswerError(Exception):
    """The store answered, but not as the port promises."""


async def probe(store: ObjectStore, prefix: str, nonce: str) -> list[ProbeResult]:
    """Try each operation; `nonce` makes the keys unique. Leaves no object if deletes work.

    Never raises an error of the store; a step that depends on a failed one counts as not tried.
    """
    return await _Probe(store, f"{prefix}_strandline/probe-{nonce}/").run()


class _Probe:
    """The steps, in the order in which they depend on each other."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._key = folder + "object"
        self._upload_key = folder + "upload"

    async def run(self) -> list[ProbeResult]:
        """Try all operations and remove the keys."""
        results = [await self._step("put", self._put)]
        after_put: tuple[tuple[str, Callable[[], Awaitable[str]]], ...] = (
            ("head", self._head),
            ("get", self._get),
            ("range", self._range),
            ("create-only", self._create_only),
            ("list", self._list),
        )
        for name, step in after_put:
            if results[0].ok:
                results.append(await self._step(name, step))
            else:
                results.append(ProbeResult(name, False, "not tried, since put failed"))
        results.append(await self._step("multipart", self._multipart))
        results.append(await self._step("delete", self._delete))
        return results

    async def _step(self, name: str, step: Callable[[], Awaitable[str]]) -> ProbeResult:
        try:
            return ProbeResult(name, True, await step())
        except (StrandlineError, _WrongAnswerError) as error:
            return ProbeResult(name, False, str(error))

    async def _put(self) -> str:
        await self._store.put(self._key, _DATA, crc32c=crc32c_of(_DATA))
        return "an object was written"

    async def _head(self) -> str:
        info = await self._store.head(self._key)
        if info.size != len(_DATA):
            raise _WrongAnswerError(
                f"{len(_DATA)} bytes were written, but the store reports {info.size}"
            )
        if info.crc32c is None:
            return "described, without a CRC32C: lost answers are settled by reading objects again"
        if info.crc32c != crc32c_of(_DATA):
            raise _WrongAnswerError(
                f"the store reports a different CRC32C than was sent: {info.crc32c:08x}"
            )
        return "described, with its CRC32C"

    async def _get(self) -> str:
        if await read_all(self._store, self._key) != _DATA:
            raise _WrongAnswerError(
                "the bytes read differ from the bytes written; do not use this store"
            )
        return "read back"

    async def _range(self) -> str:
        if await read_all(self._store, self._key, start=5, end=20) != _DATA[5:20]:
            raise _WrongAnswerError(
                "a ranged read returned the wrong bytes; is there a proxy in between?"
            )
        return "a range was read"

    async def _create_only(self) -> str:
        try:
            await self._store.put(self._key, _OTHER, crc32c=crc32c_of(_OTHER), create_only=True)
        except AlreadyExists:
            return "an existing object is not overwritten"
        raise _WrongAnswerError(
            "the store overwrote an existing object although asked not to (If-None-Match: *); "
            "two nodes could overwrite each other: use a store or a version that supports it"
        )

    async def _list(self) -> str:
        found = [info.key for info in (await self._store.list_page(self._folder)).objects]
        if self._key not in found:
            raise _WrongAnswerError(f"an object just written is not listed: {found}")
        return "listed"

    async def _multipart(self) -> str:
        upload_id = await self._store.start_multipart(self._upload_key)
        try:
            if upload_id not in await self._store.list_uploads(self._upload_key):
                raise _WrongAnswerError("an unfinished upload is not listed by its key")
            pieces = (bytes(PART_BYTES_MIN), _DATA)
            parts = [
                await self._store.put_part(
                    self._upload_key, upload_id, number, piece, crc32c=crc32c_of(piece)
                )
                for number, piece in enumerate(pieces, 1)
            ]
            crc32c = crc32c_of(_DATA, crc32c_of(pieces[0]))
            await self._store.complete_multipart(
                self._upload_key, upload_id, parts, crc32c=crc32c, create_only=True
            )
        except BaseException:
            with suppress(StrandlineError):  # the first error is the one to show
                await self._store.abort_multipart(self._upload_key, upload_id)
            raise
        await self._store.abort_multipart(
            self._upload_key, await self._store.start_multipart(self._upload_key)
        )
        return "parts were uploaded and completed; another upload was aborted"

    async def _delete(self) -> str:
        await self._store.delete_many([self._key, self._upload_key])
        try:
            await self._store.head(self._key)
        except NotFound:
            return "deleted"
        raise _WrongAnswerError(
            "an object is still there after it was deleted; is it locked or versioned?"
        )
