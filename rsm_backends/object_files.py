"""Objects as plain files under a root folder: the blocking half of the filesystem store.

Layout:

    <root>/<key>                                    an object, byte for byte
    <root>/.strandline/temporary/*                  files being written
    <root>/.strandline/uploads/<id>/                an unfinished upload (`upload_files.py`)
    <root>/.strandline/checksums/<2 hex>/<30 hex>   the CRC32C of an object, by a hash of its key

Order of a write, and what a crash leaves after each step:

1. write the bytes into a temporary file, fsync. Left: a temporary file, removed a day later;
2. link(2) (create-only: it fails if the name is taken) or rename(2) to the key. Left: the whole
   object, perhaps not yet durable, but the caller has not been answered either;
3. fsync every folder from the object's up to the root. Now it is durable, the caller is answered;
4. write the checksum file: it names inode, size and time of the file it describes, with its own
   checksum. If it is missing, stale or damaged, `describe` reads the object again.

After a failed fsync nothing is written to the same file again: the caller repeats the whole write,
into a new one (the kernel may have dropped the bytes and would report success the next time).

No symbolic link is followed, so no key leads out of the root. A link is Refused: an operator who
moved a folder to a different disk and left a link must not get the answer that all of it is gone.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kafka_formats.crc32c import Buffer
from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import AlreadyExists, InvalidRequest, NotFound, Refused
from rsm_backends.arguments import shown
from rsm_backends.hung_calls import check_wanted, sync_if_wanted
from rsm_backends.store import ObjectInfo
from rsm_backends.unlinked import FOLDER, OBJECT_FOR_READING, open_unlinked

STAGING = ".strandline"
READ_BYTES = 1024 * 1024
STALE_TEMPORARY_MS = 24 * 3600 * 1000
PLACE_ATTEMPTS_MAX = 100
"""The most attempts of a write to create its folder again after a delete removed it as empty."""

_FOLDER_MODE = 0o755
OBJECT_MODE = 0o644
_NO_OBJECT = (FileNotFoundError, NotADirectoryError)
_NO_SUCH_NAME = (errno.ENXIO, errno.ENAMETOOLONG)
_NAME_BYTES_MAX = 255
"""The limit of Linux's file systems for one name."""


class OpenObject:
    """A file open for reading, from several threads.

    A call cancelled on the event loop continues in its thread. So the descriptor is closed only
    when no read is under way (its number could be given to a different file), and an object that no
    caller ever received closes when it is garbage-collected.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._reads = 0
        self._closed = False

    def __del__(self) -> None:
        """Close the descriptor."""
        self.close()

    def close(self) -> None:
        """Close the descriptor, now or when the reads under way end. Idempotent."""
        with self._lock:
            if not self._closed and self._reads == 0:
                os.close(self._fd)
            self._closed = True

    def status(self) -> os.stat_result:
        """The file's status, from fstat."""
        return os.fstat(self._fd)

    def read(self, size: int, at: int) -> bytes:
        """At most `size` bytes from position `at`; empty at the end, or once closed."""
        if not self._read_begins():
            return b""
        try:
            return os.pread(self._fd, size, at)
        finally:
            self._read_ended()

    def pieces(self) -> Iterator[memoryview]:
        """All bytes from the start; a piece is valid until the next one is requested."""
        # One buffer for all of them: new memory for each costs more than reading it.
        buffer = memoryview(bytearray(READ_BYTES))
        at = 0
        while size := self.read_into(buffer, at):
            at += size
            yield buffer[:size]

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Read as `read` does, into `buffer`; returns the number of bytes filled."""
        if not self._read_begins():
            return 0
        try:
            return os.preadv(self._fd, [buffer], at)
        finally:
            self._read_ended()

    def _read_begins(self) -> bool:
        with self._lock:
            self._reads += not self._closed
            return not self._closed

    def _read_ended(self) -> None:
        with self._lock:
            self._reads -= 1
            if self._closed and self._reads == 0:
                os.close(self._fd)


class Place(NamedTuple):
    """An object that a walk has reached; `folder` stays open until the walk continues."""

    key: str
    folder: int
    name: str

    def described(self) -> ObjectInfo | None:
        """The object's description without its checksum; None if it is gone or a folder by now."""
        try:
            status = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return object_info(self.key, status, None) if stat.S_ISREG(status.st_mode) else None


class ObjectFiles:
    """Blocking; call it from an executor. Raises OSError and our errors; safe from many threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound(
                f"the store's folder {str(root)!r} does not exist: create it, or mount its disk"
            ) from None
        except NotADirectoryError:
            raise InvalidRequest(f"{str(root)!r} is not a folder", field="path") from None
        except PermissionError:
            raise Refused(f"no permission to open the store's folder {str(root)!r}") from None

    def close(self) -> None:
        """Close the root folder. Idempotent."""
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1

    @contextmanager
    def temporary_file(self) -> Iterator[tuple[int, str]]:
        """A new temporary file (descriptor and path), removed at the end unless it was moved."""
        fd, path = tempfile.mkstemp(dir=self.staging_folder("temporary"))
        try:
            os.fchmod(fd, OBJECT_MODE)
            yield fd, path
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(path)

    def staging_folder(self, *parts: str) -> Path:
        """A folder of the hidden staging area, created if needed."""
        folder = self.root / STAGING
        if folder.is_symlink():
            raise Refused(f"{str(folder)!r} is a symbolic link; remove it")
        folder = folder.joinpath(*parts)
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        return folder

    def place(self, temporary: tuple[int, str], key: str, crc32c: int, create_only: bool) -> None:
        """Make a complete temporary file the object `key`, durably (steps 1 to 4 above)."""
        fd, path = temporary
        sync_if_wanted(fd)
        for _ in range(PLACE_ATTEMPTS_MAX):
            try:
                with self.folders_to(key, create=True) as folders:
                    try:
                        self._name(path, folders[-1], key, create_only)
                    finally:
                        _sync_folders(folders)  # also for AlreadyExists: it must stay true
            except FileNotFoundError:
                if not os.path.exists(path):
                    raise
                continue  # a delete removed the folder because it was empty: create it again
            self._remember_crc32c(key, os.fstat(fd), crc32c)
            return
        raise OSError(errno.EAGAIN, "deletes keep removing its folder", key)

    @contextmanager
    def only_replacer(self, key: str) -> Iterator[None]:
        """A lock for one replacer of `key` at a time, across processes and machines (flock).

        A plain write or a delete does not wait for it: replaced objects get no plain writes.
        """
        digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        path = self.staging_folder("replaced") / digest
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, OBJECT_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def open_object(self, key: str) -> OpenObject:
        """The file of `key` for reading; NotFound unless it is an object."""
        try:
            with self.folders_to(key, create=False) as folders:
                fd = open_unlinked(_last(key), OBJECT_FOR_READING, folders[-1], key)
        except OSError as error:
            if isinstance(error, _NO_OBJECT) or error.errno in _NO_SUCH_NAME:
                raise NotFound(f"there is no object {shown(key)}") from None
            raise
        opened = OpenObject(fd)
        if not stat.S_ISREG(opened.status().st_mode):
            raise NotFound(f"there is no object {shown(key)}")
        return opened

    def describe(self, key: str) -> ObjectInfo:
        """The description of `key`; reads the whole object if its checksum file is missing."""
        opened = self.open_object(key)
        status = opened.status()
        crc32c = self._remembered_crc32c(key, status)
        if crc32c is None:
            crc32c = 0
            for piece in opened.pieces():
                crc32c = crc32c_of(piece, crc32c)
            self._remember_crc32c(key, status, crc32c)
        return object_info(key, status, crc32c)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects durably, then the folders that became empty; absent ones are no error."""
        parents: set[str] = set()
        for key in keys:
            if _is_too_long(key):
                continue  # no file can have such a name: the object is absent
            parents.add(_parent(key))
            with suppress(*_NO_OBJECT), self.folders_to(key, create=False) as folders:
                check_wanted()  # opening a folder may also have hung
                try:
                    os.unlink(_last(key), dir_fd=folders[-1])
                except (IsADirectoryError, PermissionError):
                    if not _is_folder(_last(key), folders[-1]):
                        raise
            with suppress(FileNotFoundError):
                os.unlink(self._checksum_path(key))
        for parent in sorted(parents, key=len, reverse=True):
            self._sync_nearest(parent)
            self._remove_empty_folders(parent)

    def walk(self, prefix: str, after: str | None) -> Iterator[Place]:
        """The places of the objects whose keys start with `prefix`, in UTF-8 byte order, after the
        key `after`. A folder's names are read once, when the walk reaches it.
        """
        with suppress(*_NO_OBJECT), self._above(prefix) as (folder, path):
            yield from _walk(folder, path, prefix, "" if after is None else after)

    def folders(self, prefix: str, after: str | None) -> Iterator[str]:
        """Folders directly below `prefix` that contain an object at any depth, each with its slash,
        in UTF-8 byte order, after the folder `after`.
        """
        with suppress(*_NO_OBJECT), self._above(prefix) as (folder, path):
            for name in _ordered_names(folder, at_root=not path):
                key = path + name
                if (
                    name.endswith("/")
                    and key.startswith(prefix)
                    and (after is None or key > after)
                    and _has_object(folder, name, key)
                ):
                    yield key

    @contextmanager
    def _above(self, prefix: str) -> Iterator[tuple[int, str]]:
        """The folder of all keys with this prefix, and its path. FileNotFoundError if absent."""
        start = _parent(prefix)
        parts = start.split("/") if start else []
        if parts[:1] == [STAGING] or any(part in ("", ".", "..") for part in parts):
            raise FileNotFoundError(errno.ENOENT, "no key starts like this", prefix)
        with self.folders_to(_in(start), create=False) as folders:
            yield folders[-1], f"{start}/" if start else ""

    def sweep(self) -> None:
        """Remove temporary files that a crash left more than a day ago, by the disk's clock."""
        folder = self.staging_folder("temporary")
        with self.temporary_file() as (fd, _):
            stale_ns = os.fstat(fd).st_mtime_ns - STALE_TEMPORARY_MS * 1_000_000
        for name in os.listdir(folder):
            with suppress(FileNotFoundError, PermissionError):  # another process's, or just gone
                if os.stat(folder / name).st_mtime_ns < stale_ns:
                    os.unlink(folder / name)

    def _name(self, path: str, folder: int, key: str, create_only: bool) -> None:
        name = _last(key)
        if _is_folder(name, folder):
            raise InvalidRequest(
                f"{shown(key)} is a folder of other objects; on a filesystem it can't be both",
                field="key",
            )
        check_wanted()  # opening a folder may have hung after the sync
        if not create_only:
            os.replace(path, name, dst_dir_fd=folder)
            return
        try:
            os.link(path, name, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise AlreadyExists(
                f"the object {shown(key)} exists already and was not changed"
            ) from None

    @contextmanager
    def folders_to(self, key: str, *, create: bool) -> Iterator[list[int]]:
        """Descriptors of the folders from the root down to the one that contains `key`."""
        opened = [os.dup(self._root_fd)]
        try:
            for part in key.split("/")[:-1]:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, _FOLDER_MODE, dir_fd=opened[-1])
                opened.append(open_unlinked(part, FOLDER, opened[-1], key))
            yield opened
        finally:
            for fd in opened:
                os.close(fd)

    def _sync_nearest(self, folder: str) -> None:
        """Make removals from `folder` durable, also earlier ones that may not be yet.

        If a different process removed the empty folder, its absence has to become durable.
        """
        while True:
            try:
                with self.folders_to(_in(folder), create=False) as folders:
                    os.fsync(folders[-1])
                return
            except _NO_OBJECT:
                if not folder:
                    raise
                folder = _parent(folder)

    def _remove_empty_folders(self, folder: str) -> None:
        while folder:
            try:
                with self.folders_to(folder, create=False) as folders:
                    os.rmdir(_last(folder), dir_fd=folders[-1])
            except OSError:
                return  # not empty, or already gone
            folder = _parent(folder)

    def _checksum_path(self, key: str) -> Path:
        digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        return self.root / STAGING / "checksums" / digest[:2] / digest[2:]

    def _remember_crc32c(self, key: str, status: os.stat_result, crc32c: int) -> None:
        path = self._checksum_path(key)
        line = _checksum_line(crc32c, status)
        # It only saves reading the object again, so a full or read-only disk is not an error.
        with suppress(OSError), self.temporary_file() as (fd, temporary):
            os.write(fd, line)
            self.staging_folder("checksums", path.parent.name)
            os.replace(temporary, path)

    def _remembered_crc32c(self, key: str, status: os.stat_result) -> int | None:
        try:
            line = self._checksum_path(key).read_bytes()
            crc32c = int(line[:8], 16)
        except (FileNotFoundError, ValueError):
            return None
        return crc32c if line == _checksum_line(crc32c, status) else None


def object_info(key: str, status: os.stat_result, crc32c: int | None) -> ObjectInfo:
    """The port's description of a file."""
    return ObjectInfo(
        key, status.st_size, crc32c, status.st_mtime_ns // 1_000_000, f'"{_identity(status)}"'
    )


def write_all(fd: int, data: Buffer) -> None:
    """Append all of `data`; one write(2) may write less."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


# Text compares by code points, which is the order of its bytes in UTF-8.
def _walk(folder: int, path: str, prefix: str, after: str) -> Iterator[Place]:
    for name in _ordered_names(folder, at_root=not path):
        key = path + name
        if name.endswith("/"):
            if not (key.startswith(prefix) or prefix.startswith(key)):
                continue
            if key < after and not after.startswith(key):
                continue
            with suppress(*_NO_OBJECT), _opened(name[:-1], folder, key) as below:
                yield from _walk(below, key, prefix, after)
        elif key > after and key.startswith(prefix):
            yield Place(key, folder, name)


def _has_object(folder: int, name: str, key: str) -> bool:
    """True if the folder `name` (with its slash) contains an object; reads up to the first one."""
    with suppress(*_NO_OBJECT), _opened(name[:-1], folder, key) as below:
        return any(
            not each.endswith("/") or _has_object(below, each, key + each)
            for each in _names(below, at_root=False)
        )
    return False


def _ordered_names(folder: int, *, at_root: bool) -> list[str]:
    """Entries in the order of their keys: a folder sorts like its name with a slash."""
    return sorted(_names(folder, at_root=at_root))


def _names(folder: int, *, at_root: bool) -> Iterator[str]:
    """Objects; and with a slash folders and symbolic links, which are refused when opened."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if at_root and name == STAGING:
                continue
            if not name.isascii() and any("\ud800" <= each <= "\udfff" for each in name):
                continue  # not UTF-8, so not ours: no key can have this name
            if entry.is_file(follow_symlinks=False):
                yield name
            elif entry.is_dir(follow_symlinks=False) or entry.is_symlink():
                yield name + "/"


@contextmanager
def _opened(name: str, folder: int, key: str) -> Iterator[int]:
    fd = open_unlinked(name, FOLDER, folder, key)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync_folders(folders: list[int]) -> None:
    """Sync from the object's folder up; a write not yet durable may have created any of them."""
    for fd in reversed(folders):
        os.fsync(fd)


def _is_folder(name: str, folder: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _checksum_line(crc32c: int, status: os.stat_result) -> bytes:
    line = f"{crc32c:08x} {_identity(status)}".encode()
    return line + f" {crc32c_of(line):08x}\n".encode()


def _identity(status: os.stat_result) -> str:
    return f"{status.st_size:x}-{status.st_ino:x}-{status.st_mtime_ns:x}"


def _in(folder: str) -> str:
    """A key in this folder ("" is the root), by which to open the folder."""
    return f"{folder}/x" if folder else "x"


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


def _is_too_long(key: str) -> bool:
    return any(len(part.encode()) > _NAME_BYTES_MAX for part in key.split("/"))


def _last(key: str) -> str:
    return key.rpartition("/")[2]
