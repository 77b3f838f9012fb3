"""Doctor's checks of this machine: versions, limits, the data directory, mounts, nested paths."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlmm.data_directory.data_directory import LOCK, META_PROPERTIES
from strandline.doctor.finding import Finding
from strandline.node.open_files import files_needed
from strandline.settings.settings import Settings

DISK_FREE_BYTES_MIN = 1 << 30
"""The least free space of a disk: the metadata log could fill less before an operator notices."""

SUPERVISOR_BYTES = 320 << 20
"""Memory of a supervisor: 253 MiB measured with a million segments and full caches, and the rest
for requests.
"""

WORKER_BYTES = 160 << 20
"""Memory of a worker with a full cache of manifests and indexes, without the parts in flight."""

VOLATILE = frozenset({"tmpfs", "ramfs"})
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "glusterfs"})
_OCTAL = re.compile(r"\\([0-7]{3})")  # how the kernel writes a space in a path
PACKAGES = ("strandline", "rocksdict", "aiobotocore", "kio", "uvicorn", "fastapi")


def versions() -> dict[str, str]:
    """Versions of Strandline, Python, the system and the main libraries."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine(settings: Settings | None) -> dict[str, Any]:
    """Processors, memory, limits, and the file systems of the settings' directories."""
    memory_bytes, whose = memory_limit_bytes()
    paths: list[Path] = []
    if settings is not None:
        stores = [store.path for store in settings.stores.values() if store.path is not None]
        paths = [settings.node.data_dir, *settings.kafka.log_dirs, *stores]
    return {
        "processors": os.cpu_count(),
        "load_average": os.getloadavg(),
        "memory_bytes": memory_bytes,
        "memory_limited_by": whose,
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "user_id": os.geteuid(),
        "directories": {
            str(path): {"file_system": filesystem_of(path), "free_bytes": free_bytes(path)}
            for path in paths
            if path.exists()
        },
    }


def check_versions() -> Finding:
    """The versions, for bug reports; always ok."""
    found = versions()
    text = f"strandline {found['strandline']}, Python {found['python']}, {found['system']}"
    return Finding("versions", True, text)


def check_open_files(settings: Settings) -> Finding:
    """Check that the hard limit of open files allows all connections of the settings."""
    needed = files_needed(settings)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= needed:
        limit = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        return Finding("open files", True, f"up to {needed} needed, the limit is {limit}")
    return Finding(
        "open files",
        False,
        f"up to {needed} needed, the hard limit is {hard}: raise it (LimitNOFILE= in systemd, "
        "ulimit -Hn), or lower http.connections_max or quorum.connections_max",
    )


def check_memory(settings: Settings) -> Finding:
    """Check that there is memory for the worker processes and copies that the settings allow."""
    copier = settings.copier
    parts = copier.part_bytes * (copier.parts_parallel + 1) * copier.parallel_max
    needed = SUPERVISOR_BYTES + settings.worker.count * WORKER_BYTES + parts
    limit, whose = memory_limit_bytes()
    if limit >= needed:
        detail = f"up to {needed >> 20} MiB needed, {whose} allows {limit >> 20} MiB"
        return Finding("memory", True, detail)
    return Finding(
        "memory",
        False,
        f"up to {needed >> 20} MiB needed, {parts >> 20} of them for the parts that are uploaded "
        f"at once, and {whose} allows {limit >> 20} MiB: raise that limit, or lower "
        "copier.parallel_max, copier.parts_parallel, copier.part_bytes or worker.count",
    )


def memory_limit_bytes(groups: Path = Path("/sys/fs/cgroup")) -> tuple[int, str]:
    """The machine's memory or a lower limit of this process's control groups, with the name of the
    one that limits.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = [(machine, "the machine")]
    try:
        own = Path("/proc/self/cgroup").read_text().partition("::")[2].partition("\n")[0]
    except OSError:
        own = ""
    folder = groups / own.lstrip("/")
    for each in (folder, *folder.parents):
        if each.is_relative_to(groups):
            with suppress(OSError, ValueError):  # no such group, or "max"
                found.append((int((each / "memory.max").read_text()), "the control group"))
    return min(found)


def check_data_directory(path: Path) -> Finding:
    """Check that the directory is formatted, writable, on a durable local disk with free space."""
    check = f"data directory {path}"
    if not (path / META_PROPERTIES).is_file():
        return Finding(check, False, "not formatted: run `strandline format`")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return Finding(check, False, "not writable: chown it to the node's user")
    kind = filesystem_of(path)
    if kind in VOLATILE:
        detail = f"on {kind}, which loses its contents at a reboot: use a disk"
        return Finding(check, False, detail)
    if kind in REMOTE:
        detail = f"on {kind}, where locks and fsync are not reliable: use a local disk"
        return Finding(check, False, detail)
    free = free_bytes(path)
    if free < DISK_FREE_BYTES_MIN:
        detail = f"only {free >> 20} MiB free: free at least {DISK_FREE_BYTES_MIN >> 20} MiB"
        return Finding(check, False, detail)
    state = "in use by a running node" if in_use(path) else "no node is running in it"
    return Finding(check, True, f"formatted, {free >> 20} MiB free on {kind}, {state}")


def free_bytes(path: Path) -> int:
    """Free bytes on the file system of `path`."""
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def in_use(data_dir: Path) -> bool:
    """True while a node holds the directory's lock."""
    try:
        with (data_dir / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def check_paths(settings: Settings) -> Iterator[Finding]:
    """A finding for each path of the settings inside a log directory, since a broker does not start
    with a foreign directory in its log directory.
    """
    ours = {"node.data_dir": settings.node.data_dir}
    ours |= {f"hold.dirs {number}": path for number, path in enumerate(settings.hold.dirs or ())}
    for name, store in settings.stores.items():
        if store.path is not None:
            ours[f"stores.{name}.path"] = store.path
    for setting, path in ours.items():
        for log_dir in settings.kafka.log_dirs:
            if path.resolve().is_relative_to(log_dir.resolve()):
                detail = f"is in the log directory {log_dir}, with which the broker does not start"
                yield Finding(f"{setting} {path}", False, f"{detail}: move it elsewhere")


def filesystem_of(path: Path) -> str:
    """The kernel's name of the file system's type; `unknown` if /proc can't be read."""
    target = path.resolve()
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return kind
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        mount = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields.split()[4])
        if target.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, rest.split()[0]
    return kind
