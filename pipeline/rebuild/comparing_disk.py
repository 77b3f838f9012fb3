"""A disk that writes nothing, and compares the bytes to write with an existing file."""

from __future__ import annotations

from pathlib import Path

from rlmm.log.disk import AppendFile, OsDisk


class OtherBytes(Exception):  # noqa: N818  it is an answer
    """The file has other bytes than those to write."""


class ComparingDisk(OsDisk):
    """A disk for one writer, which ends by renaming its file to `path`."""

    def __init__(self, path: Path) -> None:
        self._file = _ComparedFile(self, path)

    def open_append(self, path: Path) -> AppendFile:  # noqa: ARG002  nothing comes to be there
        return self._file

    def rename(self, old: Path, new: Path) -> None:  # noqa: ARG002  the file is `new` already
        if self.size(new) != self._file.compared_bytes:
            raise OtherBytes


class _ComparedFile:
    def __init__(self, disk: OsDisk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.compared_bytes = 0

    def reserve(self, size_bytes: int) -> None:
        pass

    def append(self, data: bytes) -> None:
        if self._disk.read(self._path, self.compared_bytes, len(data)) != data:
            raise OtherBytes
        self.compared_bytes += len(data)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass
