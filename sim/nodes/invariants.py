"""Invariants of whole nodes, seen from outside: driver actions, bytes on media, rows of views.

Names as in `sim/core/invariants.py`. The medium is read; what a node says of its disk is not
believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlmm.quorum.initial_state import persisted
from rlmm.raft import actions as act
from rlmm.raft.messages import (
    Batch,
    FetchRequest,
    PeerRequest,
    ReplicaKey,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
    VotersRecord,
)
from rlmm.rows import queries
from rlmm.rows.cluster_settings import all_settings
from rlmm.rows.nodes import all_nodes
from rlmm.view.view import View
from sim.core.elections import Elections
from sim.core.invariants import InvariantError
from sim.nodes.downloads import DownloadAudit
from sim.nodes.durable import (
    holds,
    log_end,
    recovery_point,
    snapshot_end,
    stored_quorum_state,
)
from sim.nodes.liveness import LivenessAudit
from sim.nodes.log_copy import StoredBytes
from sim.nodes.reference import Reference
from sim.nodes.stored import StoredAudit

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process
    from sim.nodes.world import World


class Auditor:
    """Knows everything that nodes ever showed; `violation` is the first broken invariant."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violation: InvariantError | None = None
        self.reference = Reference(self.check)
        self.committed: dict[int, StoredBytes] = {}
        self.committed_end = 0
        self.acknowledged_end = 0
        self.voter_sets: dict[tuple[int, int], tuple[ReplicaKey, ...]] = {}
        """Every voter set ever written, by offset and epoch."""
        self.liveness = LivenessAudit(world)
        self.stored = StoredAudit(world)
        self.downloads = DownloadAudit(world)
        self._elections = Elections(self.check)
        self._records: dict[tuple[int, int], StoredBytes] = {}
        self._committed_in: dict[int, int] = {}
        self._before: dict[tuple[int, int], int] = {}

    def check(self, holds: bool, name: str, message: str) -> None:
        """Raise and remember a broken invariant, since the code under test may catch everything."""
        if not holds:
            error = InvariantError(name, message)
            self.violation = self.violation or error
            raise error

    # ---- what drivers do

    def started(self, machine: Machine, process: Process) -> None:
        stored = stored_quorum_state(machine.disk.medium)
        process.epoch = stored.leader_epoch if stored is not None else 0
        self.stored.opened(machine, process)

    def recovery_point_stored(self, machine: Machine) -> None:
        """Recovery takes the medium's word for how far the log was durable."""
        medium = machine.disk.medium
        if machine.lost:
            return
        end, held = recovery_point(medium), max(log_end(medium), snapshot_end(medium))
        self.check(
            end <= held,
            "recovery_point_is_durable",
            f"{machine.name} has the recovery point {end} and a durable log up to {held}",
        )

    def performing(self, machine: Machine, process: Process, action: object) -> None:
        """Check an action just before it is carried out."""
        self._settle(process)
        self.tail_is_bounded(machine, process)
        match action:
            case act.PersistQuorumState():
                self._persisting(machine, action.state)
            case act.RoleChanged():
                self._role_changed(machine, process, action)
            case act.TruncateTo():
                self.check(
                    action.end_offset >= process.high_watermark,
                    "no_truncation_below_hw",
                    f"{machine.name} truncates to {action.end_offset}, {process.high_watermark} is "
                    "committed there",
                )
                self._next_generation(machine, process, action.generation)
                process.copy.truncate(action.end_offset)
                machine.take_back(process)
            case act.InstallSnapshot():
                self.check(
                    action.snapshot.end_offset >= process.high_watermark,
                    "no_truncation_below_hw",
                    f"{machine.name} replaces {process.high_watermark} committed by "
                    f"{action.snapshot}",
                )
                self._next_generation(machine, process, action.generation)
                process.installing = action.snapshot
            case act.AdvanceHighWatermark():
                self._advancing(machine, process, action)
            case act.Fatal():
                self.check(False, "no_fatal", f"{machine.name}: {action.message}")
            case _:
                pass

    def _next_generation(self, machine: Machine, process: Process, generation: int) -> None:
        self.check(
            generation > process.generation,
            "each_truncation_has_a_generation",
            f"{machine.name} goes from generation {process.generation} to {generation}",
        )
        process.generation = generation

    def performed(self, machine: Machine, process: Process, action: object) -> None:
        """Check an action right after it was carried out."""
        if isinstance(action, act.AppendBatches):
            self._world.rarities.appended(machine, process, action.batches[-1].epoch)
            copy, log = process.copy, process.log
            assert log is not None
            first = len(copy.batches)
            for batch in action.batches:
                self._one_voter_change(machine, process, batch)
                self._elections.voters_change(
                    machine.name,
                    process.epoch if process.role is act.Role.LEADER else -1,
                    batch,
                    (each.epoch for each in self.committed.values()),
                )
            copy.appended(log.driver, action.batches)
            for index in range(first, len(copy.batches)):
                self._appended(machine, process, index)

    def _settle(self, process: Process) -> None:
        """Replace the copy of the log once an installed snapshot has replaced it."""
        wanted = process.installing
        if wanted is not None and process.log is not None:
            replica = process.log.driver.core.replica
            if replica.log.start_offset == wanted.end_offset:
                process.copy.replace(wanted.end_offset, wanted.epoch)
                process.installing = None

    # ---- leaders and votes

    def forgets_its_votes(self, machine: Machine) -> None:
        """Forget a machine's votes: it may vote again, but one leader an epoch remains."""
        self._elections.forget_votes(machine.key)

    def _role_changed(self, machine: Machine, process: Process, change: act.RoleChanged) -> None:
        if change.role is act.Role.PROSPECTIVE:
            self.check(
                change.epoch == process.epoch,
                "prospective_keeps_epoch",
                f"{machine.name} asks for pre-votes in {change.epoch}, was in {process.epoch}",
            )
        self.check(
            change.epoch >= process.epoch,
            "epoch_monotone",
            f"{machine.name} goes from epoch {process.epoch} to {change.epoch}",
        )
        process.role, process.epoch = change.role, change.epoch
        if change.role is not act.Role.LEADER or change.established:
            return
        key, epoch = machine.key, change.epoch
        self.liveness.leads(machine, epoch)
        self._elections.leads(key, epoch)
        stored = stored_quorum_state(machine.disk.medium)
        self.check(
            stored is not None and (stored.leader_epoch, stored.leader_id) == (epoch, key.node_id),
            "persisted_first",
            f"{machine.name} leads epoch {epoch}, its disk says {stored}",
        )
        self._elections.leader_is_complete(
            machine.name,
            epoch,
            process.copy.batches,
            process.copy.end_offset,
            self.committed,
            self._committed_in,
        )

    def _persisting(self, machine: Machine, state: act.PersistedState) -> None:
        stored = stored_quorum_state(machine.disk.medium)
        if stored is not None:
            self._elections.persists(machine.name, persisted(stored), state)
        if state.cut is None and machine.process is not None:
            machine.take_back(machine.process)  # nothing is missing, or no more

    def answering(self, machine: Machine, request: Request, response: Response) -> None:
        """Check an answer that leaves the machine."""
        self.stored.speaks(machine)
        if isinstance(request, FetchRequest):
            self.liveness.answered(machine, machine.process, request)
        if not isinstance(request, VoteRequest) or not isinstance(response, VoteResponse):
            return
        if request.pre_vote or not response.vote_granted:
            return
        self._elections.votes(machine.key, request.epoch, request.candidate)
        self._elections.votes_for_process(machine.key, request)
        self._has_stored(machine, request, f"grants {request.candidate} its vote")

    def asking(self, machine: Machine, request: PeerRequest) -> None:
        """Check a request that leaves the machine."""
        self.stored.speaks(machine)
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self._elections.votes(machine.key, request.epoch, request.candidate)
            self._has_stored(machine, request, "stands for election")
        process = machine.process
        if isinstance(request, FetchRequest) and process is not None:
            self._settle(process)
            self._fetch_is_durable(machine, process, request.fetch_offset)
            machine.acknowledged = request.last_fetched_epoch, request.fetch_offset
            self.stored.counts(machine, process, request.fetch_offset)

    def _has_stored(self, machine: Machine, request: VoteRequest, deed: str) -> None:
        stored = stored_quorum_state(machine.disk.medium)
        state = None if stored is None else persisted(stored)
        self.check(
            state is not None
            and (
                state.epoch > request.epoch
                or (state.epoch, state.voted) == (request.epoch, request.candidate)
            ),
            "persisted_first",
            f"{machine.name} {deed} in epoch {request.epoch}, its disk says {state}",
        )

    def _fetch_is_durable(self, machine: Machine, process: Process, end: int) -> None:
        medium = machine.disk.medium
        if end <= process.copy.start_offset:
            durable = end == 0 or snapshot_end(medium) >= end
        else:
            last = next(
                (each for each in reversed(process.copy.batches) if each.end_offset == end), None
            )
            durable = last is not None and holds(medium, last.base_offset, last.data)
        self.check(
            durable or machine.lost,
            "fetch_is_durable",
            f"{machine.name} acknowledges {end}, which its medium does not hold",
        )

    # ---- the log

    def _appended(self, machine: Machine, process: Process, index: int) -> None:
        """Check log matching: equal (offset, epoch) is the same bytes after the same
        epoch, ever.
        """
        batch = process.copy.batches[index]
        self.liveness.appended(machine, batch, self.reference)
        before = process.copy.batches[index - 1].epoch if index else process.copy.start_epoch
        place_ = (batch.base_offset, batch.epoch)
        known = self._records.setdefault(place_, batch)
        known_before = self._before.setdefault(place_, before)
        self.check(
            known == batch and (known_before == before or index == 0),
            "log_matching",
            f"{machine.name} writes {batch} after epoch {before}, elsewhere it is {known} after "
            f"{known_before}",
        )

    def _one_voter_change(self, machine: Machine, process: Process, appended: Batch) -> None:
        changes = [each for each in appended.control if isinstance(each, VotersRecord)]
        if not changes:
            return
        place = (appended.base_offset, appended.epoch)
        self.voter_sets[place] = changes[-1].voters.keys
        log = process.log
        assert log is not None
        committed = max(self.committed_end, process.high_watermark)
        open_changes = [
            offset
            for offset, _ in log.driver.core.replica.voters._sets
            if committed <= offset < appended.base_offset
        ]
        self.check(
            not open_changes,
            "one_voter_change",
            f"{machine.name} appends {appended} while the change at {open_changes} is uncommitted",
        )

    # ---- what is committed

    def _advancing(
        self, machine: Machine, process: Process, change: act.AdvanceHighWatermark
    ) -> None:
        end, name = change.high_watermark, machine.name
        self.check(
            end >= process.high_watermark,
            "hw_monotone",
            f"{name} goes back from {process.high_watermark} to {end}",
        )
        known = process.copy.between(process.high_watermark, end)
        for batch in known:
            self._commit(machine, process, batch)
        if process.role is act.Role.LEADER and end > process.high_watermark:
            last = known[-1]
            self.check(
                last.epoch == process.epoch,
                "commit_in_own_epoch",
                f"{name} leads epoch {process.epoch} and commits up to {last}",
            )
            self._durable_on_majority(machine, process, last)
        self.stored.advanced(machine, process, end)
        process.high_watermark = end
        self._applicable_is_durable(machine, process, change.apply_to)
        self.stored.counts(machine, process, change.apply_to)

    def _applicable_is_durable(self, machine: Machine, process: Process, apply_to: int) -> None:
        if apply_to <= process.copy.start_offset or apply_to > process.copy.end_offset:
            return
        last = next((b for b in reversed(process.copy.batches) if b.end_offset <= apply_to), None)
        self.check(
            last is None or machine.lost or holds(machine.disk.medium, last.base_offset, last.data),
            "hw_is_durable",
            f"{machine.name} applies up to {apply_to}, and {last} is not on its medium",
        )

    def _commit(self, machine: Machine, process: Process, batch: StoredBytes) -> None:
        if batch.base_offset < self.committed_end:
            known = self.committed.get(batch.base_offset)
            self.check(
                known == batch,
                "committed_never_lost",
                f"{machine.name} has {batch} committed, elsewhere it is {known}",
            )
            return
        self.check(
            batch.base_offset == self.committed_end,
            "committed_never_lost",
            f"{machine.name} commits {batch}, the end is {self.committed_end}",
        )
        self.committed[batch.base_offset] = batch
        self._committed_in[batch.base_offset] = process.epoch
        self.committed_end = batch.end_offset
        place = (batch.base_offset, batch.epoch)
        self.stored.committed(batch.base_offset, self.voter_sets.get(place))
        self.reference.commit(batch)
        self.liveness.committed(batch, self.reference)
        self._world.clients.committed_values(self.reference, batch)

    def _durable_on_majority(self, machine: Machine, process: Process, last: StoredBytes) -> None:
        """Check that a majority of the leader's latest voter set, or of the one before it, has the
        records on disk (KAFKA-16580).
        """
        log = process.log
        assert log is not None
        core = log.driver.core
        sets = {
            core.voters.keys,
            core.voters_at(last.end_offset).keys,
            core.voters_at(last.base_offset).keys,
        }
        reached = any(
            sum(self._holds(key, last) for key in keys) >= len(keys) // 2 + 1
            for keys in sorted(sets)
        )
        self.check(
            reached,
            "hw_is_durable",
            f"{machine.name} commits up to {last}, no majority of {sorted(sets)} "
            "has it on a medium",
        )

    def _holds(self, key: ReplicaKey, batch: StoredBytes) -> bool:
        machine = next((m for m in self._world.machines if m.key == key), None)
        if machine is None:
            return True  # wiped since: it may have held it, and is one of the few that may be lost
        return machine.lost or holds(machine.disk.medium, batch.base_offset, batch.data)

    # ---- what is applied, and what callers were told

    def applied(self, machine: Machine, process: Process, view: View) -> None:
        """Check a changed view against the reference at its offset."""
        offset = view.applied_offset
        self.check(
            offset < self.committed_end,
            "committed_is_applied",
            f"{machine.name} applies {offset}, what is committed ends at {self.committed_end}",
        )
        assert machine.process is not None
        known = machine.process.level_known
        self.check(
            offset < self.reference.level_offset or known >= self.reference.level,
            "unknown_level_is_not_applied",
            f"{machine.name} knows {known} and applies {offset}",
        )
        self._applicable_is_durable(machine, process, offset + 1)
        self.check(
            self.reference.digests[offset] == view.digest(),
            "same_offset_same_state",
            f"{machine.name} at {offset}",
        )

    def tells_its_rows(self, machine: Machine, process: Process, view: View) -> None:
        """Check what a manager remembers of its rows, to tell it again."""
        manager = process.manager
        assert manager is not None
        self.check(
            manager.registered_nodes() == all_nodes(view)
            and manager.cluster_settings() == all_settings(view)
            and all(
                manager.partition_state(each) == queries.partition_state(view, each)
                for each in queries.partitions(view)
            ),
            "told_as_stored",
            f"{machine.name} tells other states of nodes, settings or partitions than it has",
        )

    def tail_is_bounded(self, machine: Machine, process: Process) -> None:
        """Check that a log that is on the disk is not kept in memory beyond its bound, and that
        what is kept, also of dropped batches, ascends: it is looked up by halves.
        """
        driver = None if process.log is None else process.log.driver
        if driver is None or driver.jobs._running is not None or driver.jobs._jobs:
            return
        self.check(
            driver.tail._bytes <= self._world.log_limits.recent_bytes_max,
            "tail_is_bounded",
            f"{machine.name} keeps {driver.tail._bytes} bytes of its log in memory",
        )
        first, bases = driver.tail._first, driver.tail._bases
        self.check(
            not 0 < first < len(bases) or bases[first - 1] < bases[first],
            "tail_is_in_order",
            f"{machine.name} keeps the batch at {bases[first : first + 1]} behind one that it has "
            f"dropped, at {bases[first - 1 : first]}",
        )

    def snapshot_begun(self, machine: Machine, end: int) -> None:
        """Check that a snapshot ends where a batch does: logs begin only there."""
        self.check(
            end == self.committed_end or end in self.committed,
            "snapshot_at_batch_end",
            f"{machine.name} takes a snapshot that ends at {end}, inside a batch",
        )

    def acknowledged(self, end_offset: int) -> None:
        self.acknowledged_end = max(self.acknowledged_end, end_offset)

    def turns_in_place(self, machine: Machine) -> None:
        """Remember an endless callback; raising would be caught."""
        self.violation = self.violation or InvariantError(
            "liveness", f"{machine.name}: a callback never ends"
        )

    def unexcused(self, machine: Machine, message: str) -> None:
        """Fail for a node that stopped though its disk was not touched."""
        self.check(False, "no_fatal", f"{machine.name}: {message}")


def compact(what: object) -> Any:
    """Names and numbers of `what` for a trace, the same in every run."""
    if isinstance(what, str):
        return what
    fields = getattr(what, "__dataclass_fields__", {})
    shown = {
        name: value
        for name in fields
        if isinstance(value := getattr(what, name), int | str | tuple)
        and not isinstance(value, tuple)
    }
    return f"{type(what).__name__} {shown}"
