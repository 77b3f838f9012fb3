"""Unfinished multipart uploads of the filesystem store: the blocking half.

    <root>/.strandline/uploads/<id>/
    key              the object's key
    data             the bytes; the place of part n is at (n - 1) x stride
    stride           a symbolic link whose target is a number: the size of the first part sent
    claimed-<n>      a writer has taken the place of part n; no other writer may use it
    <n>-<size>-<crc> part n: a link to `data` if it is whole in its place, else its bytes

Parts are written to their places at once, and `data` becomes the object: no byte is written twice.
A part that does not fit its place (the last one came first), or is sent again, becomes its own
file; the upload is then joined into a new file. Order of a completion, safe against a crash:

1. `data` is locked, so that it is no longer written; its parts are read and their checksums
   compared;
2. it gets a second name: from now on it is never written to, and never completed in place again;
3. as for every object (`rsm_backends.object_files`): fsync, name, fsync of the folders;
4. the upload's folder is removed.

A completion that failed in step 3 is repeated with a new file: after a failed fsync the kernel may
count the pages of the old one as written although they are not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka_formats.crc32c import Buffer
from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import CorruptData, InvalidRequest, NotFound, StrandlineError
from rsm_backends.arguments import shown
from rsm_backends.object_files import (
    OBJECT_MODE,
    READ_BYTES,
    STAGING,
    ObjectFiles,
    object_info,
    write_all,
)
from rsm_backends.store import ObjectInfo, UnfinishedUpload, UploadedPart

PLACED_BYTES_MAX = 1 << 40
"""The end of the places that are used: file systems bound the size of a file, holes included."""

_ABORT_ATTEMPTS_MAX = 10
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_ID_CHARACTERS_MAX = 64
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)
_DATA, _KEY, _STRIDE = "data", "key", "stride"


class UploadFiles:
    """Blocking; call it from an executor. Raises OSError and our errors; safe from many threads and
    processes.
    """

    def __init__(self, files: ObjectFiles) -> None:
        self._files = files

    def start(self, key: str) -> str:
        """Begin an upload; returns its id."""
        folder = Path(tempfile.mkdtemp(prefix="u", dir=self._files.staging_folder("uploads")))
        fd = os.open(folder / _DATA, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
        try:
            os.fchmod(fd, OBJECT_MODE)
        finally:
            os.close(fd)
        (folder / _KEY).write_text(key, "utf-8")
        return folder.name

    def put_part(self, key: str, upload_id: str, part: UploadedPart, data: Buffer) -> None:
        """Keep a part. Not synced: durability is promised only when the upload completes."""
        folder = self._folder(key, upload_id)
        try:
            if not _put_in_place(folder, part, data):
                with self._files.temporary_file() as (fd, path):
                    write_all(fd, data)
                    os.replace(path, folder / _part_name(part))
        except FileNotFoundError:
            raise NotFound(f"the upload of {shown(key)} was aborted meanwhile") from None

    def complete(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        crc32c: int,
        *,
        create_only: bool,
    ) -> ObjectInfo:
        """Make the object of exactly these parts; the caller has checked their combined CRC32C."""
        folder = self._folder(key, upload_id)
        with _opened_data(folder) as data_fd:
            alone = _locked(data_fd, fcntl.LOCK_EX)
            sources = [_Source(folder, data_fd, part, key) for part in parts]
            if alone and _is_unnamed_elsewhere(data_fd, folder) and _stand_in_order(sources):
                info = self._complete_in_place(folder, data_fd, sources, key, crc32c, create_only)
            else:
                info = self._join(sources, key, crc32c, create_only)
        shutil.rmtree(folder, ignore_errors=True)
        return info

    def _complete_in_place(
        self,
        folder: Path,
        fd: int,
        sources: Sequence[_Source],
        key: str,
        crc32c: int,
        create_only: bool,
    ) -> ObjectInfo:
        for source in sources:
            for _ in source.checked_pieces():
                pass
        size = sum(source.part.size for source in sources)
        if os.fstat(fd).st_size != size:
            os.ftruncate(fd, size)  # drops parts that were sent but are not named
        # It stays if a later step fails: it shows the next attempt that step 2 was done.
        second_name = self._second_name(folder)
        with suppress(FileNotFoundError):
            os.unlink(second_name)
        try:
            os.link(folder / _DATA, second_name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._join(sources, key, crc32c, create_only)
        try:
            self._files.place((fd, second_name), key, crc32c, create_only)
        except StrandlineError:
            os.unlink(second_name)  # the name was refused; the bytes are durable
            raise
        with suppress(FileNotFoundError):
            os.unlink(second_name)
        return object_info(key, os.fstat(fd), crc32c)

    def _second_name(self, folder: Path) -> str:
        return str(self._files.staging_folder("temporary") / f"complete-{folder.name}")

    def _join(
        self, sources: Sequence[_Source], key: str, crc32c: int, create_only: bool
    ) -> ObjectInfo:
        with self._files.temporary_file() as (fd, path):
            for source in sources:
                for piece in source.checked_pieces():
                    write_all(fd, piece)
            self._files.place((fd, path), key, crc32c, create_only)
            return object_info(key, os.fstat(fd), crc32c)

    def abort(self, key: str, upload_id: str) -> None:
        """Drop an upload; an unknown one counts as dropped."""
        for _ in range(_ABORT_ATTEMPTS_MAX):  # a late part may arrive during the removal
            try:
                folder = self._folder(key, upload_id)
            except NotFound:
                return
            Path(self._second_name(folder)).unlink(missing_ok=True)
            # The key is removed last: a half-removed upload is still listed and aborted again.
            with suppress(FileNotFoundError):  # a different process aborts it at the same time
                for name in os.listdir(folder):
                    if name != _KEY:
                        (folder / name).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)

    def listed(self, key: str) -> tuple[str, ...]:
        """Ids of the unfinished uploads of exactly this key."""
        return tuple(each.upload_id for each in self.below(key) if each.key == key)

    def below(self, prefix: str) -> tuple[UnfinishedUpload, ...]:
        """The unfinished uploads of keys that start with `prefix`."""
        folder = self._files.root / STAGING / "uploads"
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return ()
        keys = ((_key_of(folder / name), name) for name in names)
        return tuple(
            UnfinishedUpload(key, name)
            for key, name in keys
            if key is not None and key.startswith(prefix)
        )

    def _folder(self, key: str, upload_id: str) -> Path:
        folder = self._files.root / STAGING / "uploads" / upload_id
        fits = 0 < len(upload_id) <= _ID_CHARACTERS_MAX and _ID_CHARACTERS.issuperset(upload_id)
        if not fits or _key_of(folder) != key:
            raise NotFound(f"there is no unfinished upload {shown(upload_id)} of {shown(key)}")
        return folder


class _Source:
    """The bytes of a stored part: in their place in `data`, or in their own file."""

    def __init__(self, folder: Path, data_fd: int, part: UploadedPart, key: str) -> None:
        self.part = part
        self._path = folder / _part_name(part)
        self._data_fd = data_fd
        self._key = key
        try:
            self.in_place = stat.S_ISLNK(self._path.lstat().st_mode)
        except FileNotFoundError:
            raise InvalidRequest(
                f"part {part.number} of {shown(key)} was not stored with this size and CRC32C",
                field="parts",
            ) from None
        self.position = (part.number - 1) * _stride(folder) if self.in_place else 0

    def checked_pieces(self) -> Iterator[memoryview]:
        """The part's bytes; CorruptData at their end if the CRC32C does not match. A piece is valid
        until the next one is requested.
        """
        crc32c = 0
        for piece in self._pieces():
            crc32c = crc32c_of(piece, crc32c)
            yield piece
        if crc32c != self.part.crc32c:
            raise CorruptData(
                f"part {self.part.number} has CRC32C {crc32c:08x} on disk, but "
                f"{self.part.crc32c:08x} was written",
                source=self._key,
                position=0,
            )

    def _pieces(self) -> Iterator[memoryview]:
        # One buffer for all of them: new memory for each costs more than reading it.
        buffer = memoryview(bytearray(READ_BYTES))
        fd = self._data_fd if self.in_place else os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            at, end = self.position, self.position + self.part.size
            while at < end:
                size = os.preadv(fd, [buffer[: end - at]], at)
                if not size:
                    return
                at += size
                yield buffer[:size]
        finally:
            if not self.in_place:
                os.close(fd)


def _put_in_place(folder: Path, part: UploadedPart, data: Buffer) -> bool:
    """Write a part to its place in `data`; False if it has to be its own file."""
    stride = _agreed_stride(folder, part.size)
    position = (part.number - 1) * stride
    if part.size > stride or position + part.size > PLACED_BYTES_MAX:
        return False
    with _opened_data(folder) as fd:
        # Writers share the lock; a completion holds it exclusively.
        if not _locked(fd, fcntl.LOCK_SH) or not _is_unnamed_elsewhere(fd, folder):
            return False
        claim = folder / f"claimed-{part.number}"
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
        except FileExistsError:
            return False
        rest = memoryview(data)
        while rest:
            written = os.pwrite(fd, rest, position)
            position += written
            rest = rest[written:]
        with suppress(FileExistsError):
            os.symlink(_DATA, folder / _part_name(part))
        return True


def _stand_in_order(sources: Sequence[_Source]) -> bool:
    """True if the places of the parts follow one another and together form the object."""
    position = 0
    for source in sources:
        if not source.in_place or source.position != position:
            return False
        position += source.part.size
    return True


def _agreed_stride(folder: Path, size: int) -> int:
    """The size of the first part sent, the same for every caller."""
    with suppress(FileExistsError):
        os.symlink(str(size), folder / _STRIDE)
    return _stride(folder)


def _stride(folder: Path) -> int:
    return int(os.readlink(folder / _STRIDE))


@contextmanager
def _opened_data(folder: Path) -> Iterator[int]:
    fd = os.open(folder / _DATA, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _locked(fd: int, how: int) -> bool:
    """Lock `fd` until it is closed; False if the file system has no locks."""
    try:
        fcntl.flock(fd, how)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _is_unnamed_elsewhere(fd: int, folder: Path) -> bool:
    """True if the file still belongs to the upload and no completion has given it a second name."""
    status = os.fstat(fd)
    return status.st_nlink == 1 and os.path.samestat(status, (folder / _DATA).lstat())


def _key_of(folder: Path) -> str | None:
    try:
        return (folder / _KEY).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def _part_name(part: UploadedPart) -> str:
    return f"{part.number}-{part.size:x}-{part.crc32c:08x}"
