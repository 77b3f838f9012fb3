"""A file system that tells the medium from the page cache.

After a power cut the unsynced part may be left as follows, which is weaker than what ext4 or XFS
promise:

- of a file, any subset of the sectors that were written, each in any of its versions since the last
  sync, and any length the file had meanwhile; a missing sector reads as zeros or as stale bytes;
- of a directory, any subset of the changes to it; a rename within it is one change, a rename or
  link from elsewhere is a change of each directory for itself;
- what was synced, always: a sector itself is never torn, and no synced byte is lost.

A failed sync does as Linux does: the pages count as clean, reads still return them, and the next
sync succeeds without writing them. A failed sync of a directory turns the file system read-only
until the power is cut, as ext4 and XFS do when their journal fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class Survivors(Enum):
    """The part of the unsynced writes to a file, or changes to a directory, that survives."""

    NONE = "none"
    ALL = "all"
    FIRST_HALF = "first half"
    LAST_ONLY = "last only"


class Torn:
    """Any subset, drawn from a seed: sectors of `sector_bytes`, sizes, changes of directories.

    With `ordered`, as a file system with a journal has it, the changes of one directory survive up
    to some one of them, and a file never grows by bytes that did not arrive.
    """

    def __init__(self, seed: int, sector_bytes: int = 512, *, ordered: bool = False) -> None:
        self.seed = seed
        self.sector_bytes = sector_bytes
        self.ordered = ordered
        self.random = random.Random(seed)
        self.stale = self.random.random() < 0.3

    def __repr__(self) -> str:
        return f"Torn({self.seed}, {self.sector_bytes})"


Fate = Survivors | Torn


@dataclass(slots=True)
class Write:
    """Bytes put at `position`; without bytes, a cut to `position` bytes."""

    position: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        end = self.position if self.data is None else self.position + len(self.data)
        if self.data is None:
            del content[end:]
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        if self.data is not None:
            content[self.position : end] = self.data


@dataclass(eq=False)
class File:
    """`live` is what a read returns, `durable` the medium, `unsynced` lies between them."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write] = field(default_factory=list)

    def write(self, change: Write) -> None:
        change.apply(self.live)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            change.apply(self.durable)
        self.unsynced.clear()

    def lose(self) -> None:
        """Drop pending writes after a failed sync, which never reach the medium."""
        self.unsynced.clear()

    def survivor(self, fate: Fate) -> bytes:
        """The content after a power cut."""
        if not self.unsynced or fate is Survivors.NONE:
            return bytes(self.durable)
        if isinstance(fate, Torn):
            return _torn(self.durable, self.unsynced, fate)
        content = bytearray(self.durable)
        for change in _kept(self.unsynced, fate):
            change.apply(content)
        return bytes(content)


def _kept(writes: list[Write], fate: Survivors) -> list[Write]:
    if fate is Survivors.ALL:
        return writes
    if fate is Survivors.LAST_ONLY:
        # Its length is written, earlier pages are not: they read as zeros.
        return writes[-1:] if len(writes) > 1 else []
    left = sum(len(change.data or b"") for change in writes) // 2
    kept: list[Write] = []
    for change in writes:
        if change.data is not None and len(change.data) > left:
            return [*kept, Write(change.position, change.data[:left])]
        left -= len(change.data or b"")
        kept.append(change)
    return kept


def _torn(durable: bytearray, writes: list[Write], fate: Torn) -> bytes:
    choose, step = fate.random, fate.sector_bytes
    versions = [bytes(durable)]
    for change in writes:
        content = bytearray(versions[-1])
        change.apply(content)
        versions.append(bytes(content))
    if fate.ordered:
        version = choose.choice(versions)
        arrived = choose.randint(0, len(version)) // step * step
        return version[:arrived] if arrived > len(durable) else version
    size = len(choose.choice(versions))
    # One bias a cut, so that nearly everything and nearly nothing come up as well as a half.
    share = choose.choice((0.05, 0.5, 0.95))
    result = bytearray()
    for start in range(0, size, step):
        if choose.random() < share:
            version = versions[-1]
        else:
            version = choose.choice(versions) if choose.random() < 0.3 else versions[0]
        sector = version[start : start + step]
        length = min(step, size - start)
        filler = bytes(durable[:step]) if fate.stale else b""
        result += sector[:length] + filler[len(sector) : length].ljust(length - len(sector), b"\0")
    return bytes(result[:size])


@dataclass(eq=False)
class Directory:
    """Names to files and directories, live and durable, and the changes between the two."""

    live: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    unsynced: list[dict[str, Node | None]] = field(default_factory=list)

    def change(self, names: dict[str, Node | None]) -> None:
        _change(self.live, names)
        self.unsynced.append(names)

    def sync(self) -> None:
        for names in self.unsynced:
            _change(self.durable, names)
        self.unsynced.clear()

    def survivors(self, fate: Fate) -> dict[str, Node]:
        """The names after a power cut."""
        changes = self.unsynced
        if isinstance(fate, Torn) and fate.ordered:
            kept = changes[: fate.random.randint(0, len(changes))]
        elif isinstance(fate, Torn):
            share = fate.random.choice((0.1, 0.5, 0.9))
            kept = [change for change in changes if fate.random.random() < share]
        elif fate is Survivors.FIRST_HALF:
            kept = changes[: len(changes) // 2]
        elif fate is Survivors.LAST_ONLY:
            kept = changes[-1:]
        else:
            kept = changes if fate is Survivors.ALL else []
        names = dict(self.durable)
        for change in kept:
            _change(names, change)
        return names


Node = File | Directory


def _change(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Medium:
    """A tree of directories under `/`. Paths are absolute; nothing here follows links."""

    def __init__(self, root: Directory | None = None) -> None:
        self.root = root or Directory()

    def find(self, path: Path) -> Node:
        """The node at a path. FileNotFoundError: there is none."""
        node: Node = self.root
        for name in path.parts[1:]:
            if not isinstance(node, Directory) or name not in node.live:
                raise FileNotFoundError(str(path))
            node = node.live[name]
        return node

    def directory(self, path: Path) -> Directory:
        node = self.find(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(str(path))
        return node

    def file(self, path: Path) -> File:
        node = self.find(path)
        if not isinstance(node, File):
            raise IsADirectoryError(str(path))
        return node

    def name(self, path: Path, node: Node) -> None:
        """Give `node` a further name, replacing any node that has it."""
        self.directory(path.parent).change({path.name: node})

    def remove(self, path: Path) -> None:
        self.directory(path.parent).change({path.name: None})

    def rename(self, old: Path, new: Path) -> None:
        node = self.find(old)
        if old.parent == new.parent:
            self.directory(old.parent).change({old.name: None, new.name: node})
        else:
            self.directory(new.parent).change({new.name: node})
            self.directory(old.parent).change({old.name: None})

    def after_power_cut(self, content: Fate, names: Fate) -> Medium:
        """The medium after a power cut; this object stays as it is."""
        settled: dict[int, Node] = {}

        def settle(node: Node) -> Node:
            known = settled.get(id(node))
            if known is not None:
                return known
            if isinstance(node, File):
                left = node.survivor(content)
                settled[id(node)] = fresh = File(bytearray(left), bytearray(left))
                return fresh
            settled[id(node)] = directory = Directory()
            for name, child in node.survivors(names).items():
                directory.durable[name] = directory.live[name] = settle(child)
            return directory

        root = settle(self.root)
        assert isinstance(root, Directory)
        return Medium(root)

    def files(self, path: Path | None = None) -> Iterator[tuple[Path, File | None]]:
        """Every file below `path`, and every directory (None), parents first."""
        path = path or Path("/")
        for name, node in sorted(self.directory(path).live.items()):
            if isinstance(node, File):
                yield path / name, node
            else:
                yield path / name, None
                yield from self.files(path / name)

    def content(self) -> tuple[tuple[Path, bytes | None, Path], ...]:
        """Path and live bytes of every file, with the first path of the same file; None for a
        directory's bytes. Media with equal content and nothing unsynced are alike.
        """
        first: dict[int, Path] = {}
        return tuple(
            (path, None, path)
            if file is None
            else (path, bytes(file.live), first.setdefault(id(file), path))
            for path, file in self.files()
        )

    def write_out(self, path: Path, home: Path) -> None:
        """Write the files below `path` into the real directory `home`."""
        for found, file in self.files(path):
            target = home / found.relative_to(path)
            if file is None:
                target.mkdir(exist_ok=True)
            else:
                target.write_bytes(file.live)
