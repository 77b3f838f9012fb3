"""The disk port of the metadata log (`rlmm/log/disk.py`) over a medium that forgets.

Subclasses decide what goes wrong, before each change and at each sync.
"""

from __future__ import annotations

import errno
from pathlib import Path

from rlmm.log.disk import AppendFile
from sim.ground.medium import Directory, File, Medium, Write


class PowerCut(BaseException):
    """The machine is off; nothing may catch this and go on."""


class ForgetfulDisk:
    """Implements `Disk`. `read_only` after a failed sync of a directory, as ext4 and XFS are. While
    it is `full` nothing grows. An append that fails leaves half of its bytes, whatever the error.
    """

    def __init__(self) -> None:
        self.medium = Medium()
        self.read_only = False
        self.full = False

    def operate(self, *, grows: bool = False) -> None:
        """Called before a change, which `grows` what is stored. May raise PowerCut."""
        if self.read_only:
            raise OSError(errno.EROFS, "Read-only file system")
        if grows and self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync_fails(self) -> bool:
        """True if this sync fails."""
        self.operate()
        return False

    def sync_is_left_out(self, what: str) -> bool:  # noqa: ARG002 - subclasses look at it
        """True if a planted bug leaves this sync, of "bytes" or "names", out."""
        return False

    # ---- Disk

    def list_names(self, directory: Path) -> tuple[str, ...]:
        try:
            return tuple(sorted(self.medium.directory(directory).live))
        except FileNotFoundError:
            return ()

    def make_directory(self, path: Path) -> None:
        for directory in reversed((path, *path.parents[:-1])):
            parent = self.medium.directory(directory.parent)
            if directory.name not in parent.live:
                self.operate(grows=True)
                made = Directory()
                parent.live[directory.name] = parent.durable[directory.name] = made

    def size(self, path: Path) -> int:
        return len(self.medium.file(path).live)

    def read(self, path: Path, position: int = 0, length: int | None = None) -> bytes:
        content = self.medium.file(path).live
        end = None if length is None else position + length
        return bytes(content[position:end])

    def open_append(self, path: Path) -> AppendFile:
        if path.name not in self.medium.directory(path.parent).live:
            self.operate(grows=True)
            self.medium.name(path, File())
        return _ForgetfulFile(self, self.medium.file(path))

    def truncate(self, path: Path, size: int) -> None:
        file = self.medium.file(path)
        file.write(Write(size, None))
        self.sync_file(file)

    def rename(self, old: Path, new: Path) -> None:
        self.operate(grows=True)
        assert old.parent == new.parent
        self.medium.rename(old, new)

    def remove(self, path: Path) -> None:
        if path.name in self.medium.directory(path.parent).live:
            self.operate()
            self.medium.remove(path)

    def sync_directory(self, path: Path) -> None:
        directory = self.medium.directory(path)
        if self.sync_fails():
            self.read_only = True
            raise OSError(errno.EIO, "Input/output error")
        if not self.sync_is_left_out("names"):
            directory.sync()

    def sync_file(self, file: File) -> None:
        if self.sync_fails():
            file.lose()
            raise OSError(errno.EIO, "Input/output error")
        if not self.sync_is_left_out("bytes"):
            file.sync()


class _ForgetfulFile:
    def __init__(self, disk: ForgetfulDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    def reserve(self, size_bytes: int) -> None:
        pass  # no operation shows it, and it may be refused

    def append(self, data: bytes) -> None:
        try:
            self._disk.operate(grows=True)
        except OSError as error:
            if error.errno != errno.EROFS:
                self._file.write(Write(len(self._file.live), data[: len(data) // 2]))
            raise
        self._file.write(Write(len(self._file.live), data))

    def sync(self) -> None:
        self._disk.sync_file(self._file)

    def close(self) -> None:
        pass
