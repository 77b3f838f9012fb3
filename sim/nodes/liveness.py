"""An outsider's knowledge of which nodes fetch, against what leaders record of them."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.record_batch import parse_header
from rlmm.apply.outcome import Verdict
from rlmm.log.committed import committed_records
from rlmm.log.log_directory import StoredBatch
from rlmm.manager.node_liveness import LOOKS_PER_SILENCE
from rlmm.raft.messages import FetchRequest, ReplicaKey
from rlmm.records.control_records import ControlRecordType, NodeSilence
from rlmm.records.records import decode
from rlmm.rows.nodes import Liveness, find_node
from sim.nodes.log_copy import StoredBytes
from sim.nodes.reference import Reference

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process
    from sim.nodes.world import World


class LivenessAudit:
    """Invariant `fences_only_the_silent`: a node is fenced only if it has fetched from the leader
    that appended the record for no less than a whole silence, by that leader's clock, while it led.

    Nodes register in every second world. `silence_max_s` is that of all its nodes.
    """

    def __init__(self, world: World) -> None:
        draws = Random(f"registrations of {world.seed}")
        self.on = draws.randrange(2) == 0
        timeouts = draws.choice((2, 4)) if self.on else 100
        self.silence_max_s = world.settings.fetch_timeout_ms * timeouts / 1000
        self._world = world
        self._heard: dict[tuple[str, int, ReplicaKey], list[float]] = {}
        self._leads_since: dict[tuple[str, int], float] = {}
        self._unfounded: dict[tuple[int, int], str] = {}
        self._judged: set[tuple[int, int]] = set()
        self.fenced = self.back = 0

    def leads(self, machine: Machine, epoch: int) -> None:
        self._leads_since[machine.name, epoch] = machine.monotonic()

    def answered(self, machine: Machine, process: Process | None, request: FetchRequest) -> None:
        if process is not None and request.epoch == process.epoch:
            who = machine.name, request.epoch, request.replica
            self._heard.setdefault(who, []).append(machine.monotonic())

    def appended(self, machine: Machine, batch: StoredBytes, reference: Reference) -> None:
        """A leader writes a batch of its epoch. Once it follows, it may get what it wrote back."""
        if not self.on or (machine.name, batch.epoch) not in self._leads_since:
            return
        for offset, record in _silences(batch):
            if record.fenced and (offset, batch.epoch) not in self._judged:
                self._judged.add((offset, batch.epoch))
                # Its clock counts from a fetch that may be answered so much later, and what it
                # judged may wait until the next look, while leadership is handed over.
                waits_s = self._world.settings.fetch_wait_max_ms / 1000
                waits_s += self.silence_max_s / LOOKS_PER_SILENCE
                silent_s = self._silent_s(machine, batch.epoch, record, reference, waits_s)
                if silent_s < self.silence_max_s - waits_s:
                    self._unfounded[offset, batch.epoch] = (
                        f"{machine.name} fences node {record.node_id}, which was silent for "
                        f"{silent_s:g} s at most while it could be heard"
                    )

    def committed(self, batch: StoredBytes, reference: Reference) -> None:
        """The reference has applied the batch."""
        if not self.on:
            return
        for offset, record in _silences(batch):
            if reference.verdicts[offset] is Verdict.ACCEPTED:
                self.fenced += record.fenced
                self.back += not record.fenced
                unfounded = self._unfounded.get((offset, batch.epoch))
                self._world.auditor.check(
                    unfounded is None, "fences_only_the_silent", unfounded or ""
                )

    def all_live(self, machines: list[Machine], reference: Reference) -> bool:
        """Everybody who runs is known to live."""
        if not self.on:
            return True
        nodes = (find_node(reference.rows, each.key.node_id) for each in machines)
        return all(node is not None and node.liveness is Liveness.LIVE for node in nodes)

    def _silent_s(
        self,
        machine: Machine,
        epoch: int,
        record: NodeSilence,
        reference: Reference,
        waits_s: float,
    ) -> float:
        """The longest silence of the node that lasts, or ended at most `waits_s` ago: it may have
        come back since the leader judged.
        """
        node = find_node(reference.rows, record.node_id)
        if node is None or record.node_id == machine.key.node_id:
            return 0.0
        key = ReplicaKey(node.node_id, str(node.directory_id))
        since_s, now_s = self._leads_since[machine.name, epoch], machine.monotonic()
        heard = (at for at in self._heard.get((machine.name, epoch, key), ()) if at > since_s)
        times = (since_s, *heard, now_s)
        return max(end - begin for begin, end in pairwise(times) if end >= now_s - waits_s)


def _silences(batch: StoredBytes) -> list[tuple[int, NodeSilence]]:
    header = parse_header(batch.data, 0, source="appended", position=0)
    found = []
    for record in committed_records(StoredBatch(header, batch.data, "appended", 0)):
        if record.control_type == ControlRecordType.NODE_SILENCE:
            decoded = decode(record.control_type, record.value)
            assert isinstance(decoded, NodeSilence)
            found.append((record.offset, decoded))
    return found
