"""Names of hold directories, and other hold directories beside a node's own.

The name is `<Kafka cluster id>-<node id>`, which a disaster recovery does not change: the new
Strandline cluster finds the segments that the lost one held. Earlier releases used the Strandline
cluster id. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from kafka_formats.log_names import LOG_SUFFIX
from rlm.local_log.active_links import active_root, holds_links
from rlm.local_log.hold_directory import PROBE, HoldDirectory, remove_unit


def hold_name(cluster_id: object, node_id: int) -> str:
    """The name of a node's hold directory."""
    return f"{quote(str(cluster_id), safe='')}-{node_id}"


def take_over(before: Path, own: Path) -> None:
    """Move the held segments of `before` to `own`: by a rename, or unit by unit if both exist. May
    be repeated after a crash; of two units of the same file one stays. Passes OSError.
    """
    if not _is_there(before) or _renamed(before, own):
        return
    for parent in sorted(before.glob("*/*")):
        into = own / parent.relative_to(before)
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        for unit in sorted(parent.iterdir()):
            _take(unit, into / unit.name)
        with contextlib.suppress(OSError):  # it is not empty
            parent.rmdir()
    (before / PROBE).unlink(missing_ok=True)
    for emptied in (*before.iterdir(), before):
        with contextlib.suppress(OSError):
            emptied.rmdir()


def others(own: Path) -> Iterator[Path]:
    """Directories beside a node's own that hold segments, or links to active ones. Passes
    OSError.
    """
    for each in sorted(own.parent.iterdir()):
        with contextlib.suppress(PermissionError):  # another user's
            if each != own and HoldDirectory(each, ()).holds_any():
                yield each
    links = active_root(own)
    if _is_there(links.parent):
        for each in sorted(links.parent.iterdir()):
            with contextlib.suppress(PermissionError):
                if each != links and holds_links(each):
                    yield each


def why_not_used(other: Path, own: Path, before: Path) -> str:
    """A sentence about a hold directory that this node does not use, and what to do."""
    return (
        f"{other} holds segments but is not this node's directory, {own.name}: they are not copied "
        "from there, and count in no hold.bytes_max. If this node made it in a different "
        f"Strandline cluster, stop the node, rename the directory to {before.name} and start it "
        "again; if no node uses it any more, remove it"
    )


def is_of_another_node(other: Path, own: Path) -> bool:
    """True if `other` has the name of a different node of the same Kafka cluster."""
    cluster, _, node = other.name.rpartition("-")
    return node.isdecimal() and cluster == own.name.rpartition("-")[0]


def why_left(other: Path, own: Path, before: Path) -> str:
    """A sentence about the directory of another node of this Kafka cluster, which does not run on
    this machine, and what to do.
    """
    node = other.name.rpartition("-")[2]
    return (
        f"{other} holds segments of node {node} of this Kafka cluster, which does not run on this "
        "machine now: they are not copied from there, and count in no hold.bytes_max. If this "
        f"node, {own.name}, had that id before, stop it, rename the directory to {before.name} and "
        "start it again; if there is no such node any more, remove it; else start that node"
    )


def _is_there(path: Path) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def _take(unit: Path, target: Path) -> None:
    if unit.name.startswith("."):
        remove_unit(unit)  # half made or half removed
        return
    if _renamed(unit, target):
        return
    log = unit.name[:20] + LOG_SUFFIX
    with contextlib.suppress(FileNotFoundError):
        if os.path.samefile(unit / log, target / log):
            remove_unit(unit)


def _renamed(source: Path, target: Path) -> bool:
    """Rename a directory; False if the target is one with something in it."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
