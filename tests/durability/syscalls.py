"""What a process did to the files below one directory, from strace, in the order it happened.

RocksDB writes through its own C++ code, so no port of ours sees it. The system calls do, and they
can be played into a `Medium` up to any of them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.ground.medium import Directory, File, Medium, Write
from tests.real.toolbox import require_program

CALLS = (
    "open", "openat", "creat", "write", "writev", "pwrite64", "pwritev", "truncate", "ftruncate",
    "fallocate", "fsync", "fdatasync", "rename", "renameat", "renameat2", "link", "linkat",
    "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "copy_file_range", "sendfile",
)  # fmt: skip
STRING_BYTES_MAX = 64 * 1024 * 1024
DEADLINE_S = 60
_LINE = re.compile(r"(\d+) +(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


@dataclass(frozen=True, slots=True)
class Call:
    """One successful call: its name, the paths it concerns (absolute), bytes or a size or flags."""

    name: str
    paths: tuple[Path, ...]
    data: bytes = b""
    number: int = -1
    flags: str = ""


def record(command: Sequence[str], root: Path, trace: Path, environment: dict[str, str]) -> str:
    """Run a command under strace; its calls go to the file `trace`. Returns what it printed."""
    done = subprocess.run(
        [
            require_program("strace"), "-f", "-y", "-xx", "-s", str(STRING_BYTES_MAX),
            "-o", str(trace), "-e", f"trace={','.join(CALLS)}", *command,
        ],
        cwd=root, env=environment, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_calls(trace: Path, home: Path) -> list[Call]:
    """The calls that change something below `home`, or make it durable."""
    found = []
    for text in _whole_lines(trace):
        call = _parse(text)
        if call and any(path.is_relative_to(home) for path in call.paths):
            found.append(call)
    return found


def _whole_lines(trace: Path) -> Iterator[str]:
    """Calls in the order of their ends; what another thread's line cut in two is joined."""
    begun: dict[str, str] = {}
    for line in trace.read_text("ascii").splitlines():
        match = _LINE.match(line)
        assert match, line[:200]
        thread, text = match[1], match[2]
        if text.endswith("<unfinished ...>"):
            begun[thread] = text.removesuffix("<unfinished ...>")
        elif text.startswith("<..."):
            yield begun.pop(thread) + text.partition("resumed>")[2]
        else:
            yield text


def _parse(text: str) -> Call | None:
    match = _CALL.match(text)
    if match is None or int(match[3]) < 0:
        return None
    name, arguments = match[1], match[2]
    strings = [_bytes(string) for string in _STRING.findall(arguments)]
    descriptors = [_bytes(path) for path, deleted in _DESCRIPTOR.findall(arguments) if not deleted]
    if name in ("write", "pwrite64", "fsync", "fdatasync", "ftruncate"):
        if not descriptors:
            return None
        path = Path(descriptors[0].decode())
        data = strings[0][: int(match[3])] if strings else b""
        number = int(arguments.rpartition(", ")[2]) if name in ("pwrite64", "ftruncate") else -1
        return Call(name, (path,), data, number)
    if name in ("writev", "pwritev", "fallocate", "copy_file_range", "sendfile"):
        return Call(name, tuple(Path(path.decode()) for path in descriptors), flags=arguments)
    paths = [Path(string.decode()) for string in strings]
    if name.endswith("at") or name == "renameat2":
        folders = [Path(path.decode()) for path in descriptors]
        paths = [folder / path for folder, path in zip(folders, paths, strict=False)]
    return Call(name, tuple(paths), flags=arguments)


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def play(medium: Medium, call: Call) -> None:
    """Do to the medium what the call did to the file system."""
    name, paths = call.name, call.paths
    if name in ("open", "openat", "creat"):
        _open(medium, paths[0], call.flags)
    elif name in ("write", "pwrite64"):
        file = medium.file(paths[0])
        file.write(Write(len(file.live) if call.number < 0 else call.number, call.data))
    elif name == "ftruncate":
        medium.file(paths[0]).write(Write(call.number, None))
    elif name in ("fsync", "fdatasync"):
        medium.find(paths[0]).sync()
    elif name in ("rename", "renameat", "renameat2"):
        medium.rename(*paths)
    elif name in ("link", "linkat"):
        medium.name(paths[1], medium.find(paths[0]))
    elif name in ("unlink", "rmdir", "unlinkat"):
        medium.remove(paths[0])
    elif name in ("mkdir", "mkdirat"):
        medium.name(paths[0], Directory())
    elif name == "fallocate" and ", FALLOC_FL_KEEP_SIZE, " in call.flags:
        pass  # space behind the end: no byte and no length changes
    else:
        raise NotImplementedError(f"{name} of {paths}")


def _open(medium: Medium, path: Path, flags: str) -> None:
    """A new file appears, or `O_TRUNC` empties an old one; other openings change nothing."""
    folder = medium.directory(path.parent)
    if path.name not in folder.live:
        if "O_CREAT" in flags:
            medium.name(path, File())
    elif "O_TRUNC" in flags:
        medium.file(path).write(Write(0, None))


def with_directories(path: Path) -> Medium:
    """A medium with `path` and everything above it in place."""
    medium = Medium()
    for directory in reversed((path, *path.parents[:-1])):
        parent = medium.directory(directory.parent)
        made = Directory()
        parent.live[directory.name] = parent.durable[directory.name] = made
    return medium
