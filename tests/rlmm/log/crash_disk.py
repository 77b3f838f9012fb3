"""A disk in memory that forgets what was not synced, and can die before any of its operations.

SIGKILL keeps the page cache, so it proves nothing about fsync. `power_cut` is what the machine's
death leaves: bytes and names that were synced, and of the rest what `Survivors` says. A process's
death alone (`process_death`) leaves everything in place, still unsynced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from rlmm.log.disk import AppendFile


class PowerCut(BaseException):
    """The machine is off: nobody may catch this and go on."""


class Survivors(Enum):
    """What of the unsynced writes to one file, or changes to one directory, reached the medium."""

    NONE = "none"
    ALL = "all"
    FIRST_HALF = "first half"
    LAST_ONLY = "last only"


@dataclass
class _Inode:
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[bytes] = field(default_factory=list)

    def content(self) -> bytes:
        return bytes(self.durable) + b"".join(self.unsynced)

    def settle(self, survivors: Survivors) -> None:
        lost = self.unsynced
        self.unsynced = []
        if survivors is Survivors.ALL:
            self.durable += b"".join(lost)
        elif survivors is Survivors.FIRST_HALF:
            whole = b"".join(lost)
            self.durable += whole[: len(whole) // 2]
        elif survivors is Survivors.LAST_ONLY and len(lost) > 1:
            # The length was written, earlier pages were not: they read as zeros.
            self.durable += bytes(sum(map(len, lost[:-1]))) + lost[-1]


@dataclass
class _Change:
    """One unsynced change of a directory: the names that it sets or removes."""

    names: dict[str, _Inode | None]


class CrashDisk:
    """Implements `Disk`. `crash_at` counts operations that change something, from 0."""

    def __init__(self) -> None:
        self._live: dict[Path, dict[str, _Inode]] = {}
        self._durable: dict[Path, dict[str, _Inode]] = {}
        self._unsynced: dict[Path, list[_Change]] = {}
        self.operations = 0
        self.crash_at: int | None = None

    def _operate(self) -> None:
        if self.crash_at is not None and self.operations >= self.crash_at:
            raise PowerCut
        self.operations += 1

    def process_death(self) -> None:
        """The page cache stays; the next life counts its operations anew."""
        self.crash_at = None
        self.operations = 0

    def power_cut(self, content: Survivors, names: Survivors) -> None:
        """Only what was synced, and the given part of the rest, is there afterwards."""
        self.process_death()
        inodes = {
            id(inode): inode
            for directory in (*self._live.values(), *self._durable.values())
            for inode in directory.values()
        }
        for inode in inodes.values():
            inode.settle(content)
        for path, changes in self._unsynced.items():
            if names is Survivors.NONE:
                kept = []
            elif names is Survivors.ALL:
                kept = changes
            elif names is Survivors.FIRST_HALF:
                kept = changes[: len(changes) // 2]
            else:
                kept = changes[-1:]
            for change in kept:
                _apply(self._durable[path], change)
        self._unsynced = {path: [] for path in self._durable}
        self._live = {path: dict(names) for path, names in self._durable.items()}

    def _change(self, directory: Path, names: dict[str, _Inode | None]) -> None:
        change = _Change(names)
        _apply(self._live[directory], change)
        self._unsynced[directory].append(change)

    def _inode(self, path: Path) -> _Inode:
        try:
            return self._live[path.parent][path.name]
        except KeyError:
            raise FileNotFoundError(str(path)) from None

    def damage(self, path: Path, position: int) -> None:
        """Turn one bit over, durably."""
        inode = self._inode(path)
        inode.durable[:] = inode.content()
        inode.unsynced = []
        inode.durable[position] ^= 0x10

    # ---- Disk

    def list_names(self, directory: Path) -> tuple[str, ...]:
        return tuple(sorted(self._live.get(directory, {})))

    def make_directory(self, path: Path) -> None:
        for directory in (path, *path.parents):
            self._live.setdefault(directory, {})
            self._durable.setdefault(directory, {})
            self._unsynced.setdefault(directory, [])

    def size(self, path: Path) -> int:
        return len(self._inode(path).content())

    def read(self, path: Path, position: int = 0, length: int | None = None) -> bytes:
        content = self._inode(path).content()
        return content[position:] if length is None else content[position : position + length]

    def open_append(self, path: Path) -> AppendFile:
        if path.name not in self._live[path.parent]:
            self._operate()
            self._change(path.parent, {path.name: _Inode()})
        return _CrashFile(self, self._inode(path))

    def truncate(self, path: Path, size: int) -> None:
        self._operate()
        inode = self._inode(path)
        inode.durable[:] = inode.content()[:size]
        inode.unsynced = []

    def rename(self, old: Path, new: Path) -> None:
        self._operate()
        assert old.parent == new.parent
        self._change(old.parent, {old.name: None, new.name: self._inode(old)})

    def remove(self, path: Path) -> None:
        if path.name in self._live[path.parent]:
            self._operate()
            self._change(path.parent, {path.name: None})

    def sync_directory(self, path: Path) -> None:
        self._operate()
        for change in self._unsynced[path]:
            _apply(self._durable[path], change)
        self._unsynced[path] = []


def _apply(directory: dict[str, _Inode], change: _Change) -> None:
    for name, inode in change.names.items():
        if inode is None:
            directory.pop(name, None)
        else:
            directory[name] = inode


class _CrashFile:
    def __init__(self, disk: CrashDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def append(self, data: bytes) -> None:
        self._disk._operate()
        self._inode.unsynced.append(data)

    def sync(self) -> None:
        self._disk._operate()
        self._inode.settle(Survivors.ALL)

    def close(self) -> None:
        pass
