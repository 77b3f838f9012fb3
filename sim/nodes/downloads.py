"""Progress of replicas that download snapshots, seen from the leader that serves them.

A replica that has a whole snapshot goes on behind it: its leader keeps the log from there until the
replica lacks nothing, or has all that a later snapshot has, and does not send it to another one
before (download_goes_on). Else a download
that takes as long as the time between two snapshots would begin over for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlmm.log.snapshot_files import snapshot_file_name
from rlmm.metadata_log import SnapshotId as StoredSnapshotId
from rlmm.quorum.network_ports import Answer
from rlmm.raft.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReplicaKey,
    Request,
    SnapshotId,
)
from sim.nodes.situations import OVERTAKEN

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process
    from sim.nodes.world import World


@dataclass
class _Served:
    """A replica as its leader knows it; `whole` is a snapshot behind which it may lack records."""

    heard_s: float
    loads: bool = False
    whole: SnapshotId | None = None


class DownloadAudit:
    """Hears of each request when it arrives, and of its answer when that leaves."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._served: dict[tuple[Process, int], dict[ReplicaKey, _Served]] = {}

    def asked(self, machine: Machine, request: Request) -> None:
        """A request arrives; one that has all that is committed needs no more of the log."""
        served = self._of(machine, request)
        if served is None or machine.process is None or machine.process.log is None:
            return
        silent_s = machine.monotonic() - served.heard_s
        served.heard_s = machine.monotonic()
        replica = machine.process.log.driver.core.replica
        newest, end = replica.log.latest_snapshot, replica.high_watermark
        if newest is not None and served.whole is not None and newest > served.whole:
            end = min(end, newest.end_offset)
            self._world.reached.note(OVERTAKEN, isinstance(request, FetchRequest))
        forgotten = silent_s * 2000 > self._world.settings.download_forgotten_ms
        if forgotten or (isinstance(request, FetchRequest) and request.fetch_offset >= end):
            served.whole = None

    def answering(self, machine: Machine, request: Request, told: Answer) -> None:
        served, response = self._of(machine, request), told.response
        if served is None:
            return
        if isinstance(response, FetchSnapshotResponse) and response.error is Error.NONE:
            served.loads = True
            is_last = response.position + len(told.data) == response.size_bytes
            end = -1 if response.snapshot is None else response.snapshot.end_offset
            goes_on = self._log_start(machine) <= end and not self._cuts(machine)
            served.whole = response.snapshot if is_last and goes_on else None
        whole = served.whole
        if (
            whole is not None
            and isinstance(request, FetchRequest)
            and isinstance(response, FetchResponse)
            and response.snapshot is not None
            and request.fetch_offset >= whole.end_offset
            and request.last_fetched_epoch >= whole.epoch
        ):
            self._world.auditor.check(
                self._loading(machine) > self._world.log_limits.downloads_held_max
                or _is_set_aside(machine, whole),
                "download_goes_on",
                f"{machine.name} sends {request.replica}, which has just downloaded {whole}, to "
                f"{response.snapshot}",
            )

    def _of(self, machine: Machine, request: Request) -> _Served | None:
        """The replica that asks, in this leadership."""
        process = machine.process
        if process is None or not isinstance(request, FetchRequest | FetchSnapshotRequest):
            return None
        replicas = self._served.setdefault((process, request.epoch), {})
        return replicas.setdefault(request.replica, _Served(machine.monotonic()))

    def _log_start(self, machine: Machine) -> int:
        """A snapshot may have been cut off from the log before anybody downloaded it."""
        assert machine.process is not None
        assert machine.process.log is not None
        return machine.process.log.driver.core.replica.log.start_offset

    def _cuts(self, machine: Machine) -> bool:
        """True during a cut, which may remove what nobody wanted when it was decided."""
        assert machine.process is not None
        assert machine.process.log is not None
        return machine.process.log.cuts

    def _loading(self, machine: Machine) -> int:
        return max(
            sum(each.loads for each in replicas.values())
            for (process, _), replicas in self._served.items()
            if process is machine.process
        )


def _is_set_aside(machine: Machine, snapshot: SnapshotId) -> bool:
    """True if the snapshot went bad after its download: then nothing is kept for it."""
    assert machine.process is not None
    assert machine.process.log is not None
    stem = Path(snapshot_file_name(StoredSnapshotId(*snapshot))).stem
    return any(name.startswith(stem) for name in machine.process.log._directory.damaged_snapshots())
