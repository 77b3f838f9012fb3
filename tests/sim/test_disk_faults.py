"""Failed writes of the disk in the nodes' world: torn, and on a disk that has room again."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sim.nodes.machine import MachineDisk

LOG = Path("/data/log")


@pytest.mark.parametrize(("was_full", "error"), [(False, errno.EIO), (True, errno.ENOSPC)])
def test_a_failed_write_leaves_half_and_the_next_one_finds_room(was_full: bool, error: int) -> None:
    """Only so is a node seen that repeats a failed write behind its torn half."""
    faults = SimpleNamespace(
        power_goes=lambda: False,
        thread_waits=lambda: False,
        space_comes_back=lambda: was_full,
    )
    disk = MachineDisk(cast(Any, SimpleNamespace(world=SimpleNamespace(faults=faults))))
    disk.make_directory(LOG.parent)
    handle = disk.open_append(LOG)
    handle.append(b"before ")
    disk.next_write_fails = True
    with pytest.raises(OSError) as failed:
        handle.append(b"torn")
    assert failed.value.errno == error
    assert disk.read(LOG) == b"before to"
    handle.append(b" after")
    assert disk.read(LOG) == b"before to after"
