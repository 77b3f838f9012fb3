"""Keeps uncopied segments from the broker's local retention, by hard links.

One pass after each look at the log directories: hold newly sealed segments, release copied or
unfitting ones, and give each partition the units that it may copy from. `hold_plan` has the rules,
`hold_directory` the links.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_formats.errors import RetryLater
from kafka_formats.leader_epoch_checkpoint import truncate_from_start
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.run_events import OnEvent
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.active_hold import ActiveHold
from rlm.copy.hold_pass import Order, Orders, Passed, released
from rlm.copy.partition_work import HOLD_NOT_LOOKED_AT, PartitionWork
from rlm.copy.scanner import PARTITIONS_PER_BREATH
from rlm.leadership.leadership import Leads, NoAnswer
from rlm.local_log.committed_plan import LastSeen, NotCommittedError
from rlm.local_log.hold_directory import HoldDirectory, Unread, is_of_one_log, why_unread
from rlm.local_log.hold_plan import (
    HoldFacts,
    Release,
    Unit,
    is_cut_off,
    over_budget,
    to_hold,
)
from rlm.local_log.hold_unit import mark_cut_off
from rlm.local_log.log_dir import LocalPartition
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import Mode, PartitionState
from rlmm.segment import PartitionDeleteState

UNUSABLE = "unusable"
"""The name of the problem about unusable held segments; each partition's status shows it too."""
_DELETED = frozenset(
    {
        PartitionDeleteState.DELETE_PARTITION_STARTED,
        PartitionDeleteState.DELETE_PARTITION_FINISHED,
    }
)


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """Bounds of each hold directory. `bytes_max` counts bytes that the broker has removed;
    `free_bytes_min` of its mount stay free. A pass longer than `pass_deadline_s` (a hanging disk)
    is reported.
    """

    bytes_max: int
    free_bytes_min: int
    pass_deadline_s: float = 60.0


@dataclass(frozen=True, slots=True)
class HoldUsage:
    """The units held now, and their bytes; `alone`: bytes that the broker no longer has."""

    units: int
    size_bytes: int
    alone_bytes: int


@dataclass(frozen=True, slots=True)
class Outside:
    """Directories outside this node's hold. `problems`: the hold directories that are not used, by
    path, each with the text to report. `log_dirs`: log directories whose segments are not held.
    `holds_unread`: true if segments of a log directory that appeared after the start are held in a
    directory that this node has not read; blocks, OSError.
    """

    problems: Mapping[str, str] = field(default_factory=dict)
    log_dirs: frozenset[Path] = frozenset()
    holds_unread: Callable[[Path], bool] = lambda _: False


class Hold:
    """The held segments of a node. `begin` first; `after_look` never runs twice at once."""

    def __init__(
        self,
        directories: Sequence[HoldDirectory],
        metadata: RemoteLogMetadataManager,
        limits: HoldLimits,
        *,
        breathe: Callable[[], Awaitable[None]],
        on_event: OnEvent,
        outside: Outside | None = None,
    ) -> None:
        self._directories = tuple(directories)
        self._metadata = metadata
        self._limits = limits
        self._breathe = breathe
        self._on_event = on_event
        self._outside = outside or Outside()
        self._held: dict[HoldDirectory, list[Unit]] = {each: [] for each in self._directories}
        self._active = {each: ActiveHold(each) for each in self._directories}
        self._unread: dict[HoldDirectory, tuple[Unread, ...] | None] = dict.fromkeys(
            self._directories
        )  # None: the directory was not read yet
        self._place: dict[HoldDirectory, tuple[int, int]] = {}
        self._away: dict[Path, Unread] = {}  # by their `.log`: units of a disk not mounted now
        self._trouble: str | None = None
        # Log directories that appeared after the start; true: segments of it are held, but unread.
        self._unknown: dict[Path, bool] = {}
        self._running: asyncio.Future[Passed] | None = None
        self._running_orders: Orders | None = None
        self._passed_orders: Orders | None = None

    async def begin(self) -> None:
        """Try links, clean up after a crash, find the units. Refused, with an instruction, if links
        can't be made. A disk that fails now is reported like one that fails later; each pass tries
        it again.
        """
        for directory in self._directories:
            await asyncio.to_thread(directory.prepare)
            passed = Passed()
            await asyncio.to_thread(self._find, directory, passed, sweep=True)
            if passed.error is not None:
                self._trouble = _told(passed.error)

    def usage(self) -> HoldUsage:
        """The state after the last pass."""
        units = [unit for held in self._held.values() for unit in held]
        units += (unit for active in self._active.values() for unit in active.unproven())
        return HoldUsage(
            len(units),
            sum(unit.segment.size_bytes for unit in units),
            sum(unit.segment.size_bytes for unit in units if unit.alone),
        )

    def problems(self) -> tuple[NodeProblem, ...]:
        """Failures of the last pass, unused directories and unusable segments, each with a name."""
        texts: dict[str | None, str] = {} if self._trouble is None else {None: self._trouble}
        texts.update(self._outside.problems)
        if unusable := self._unusable():
            first = min(unusable, key=lambda each: (each.topic, each.partition))
            more = len(unusable) - 1
            also = f" (and so of {more} more partitions)" if more else ""
            texts[UNUSABLE] = f"{first.topic}-{first.partition}: {unusable[first]}{also}"
        for log_dir in sorted(self._unknown):
            texts[str(log_dir)] = _came_later(log_dir, self._unknown[log_dir])
        return tuple(NodeProblem(ProblemArea.HOLD, name, text) for name, text in texts.items())

    async def after_look(self, works: Iterable[PartitionWork]) -> None:
        """One pass; its failures are in `problems` and stop no copy."""
        try:
            await self._keep(works)
            self._trouble = None
        except OSError as error:
            self._trouble = _told(error)
        except RetryLater as error:
            self._trouble = str(error)

    async def _keep(self, works: Iterable[PartitionWork]) -> None:
        rows = [work for work in works if work.local is not None]
        found: dict[TopicIdPartition, Order] = {}
        for number, work in enumerate(rows, 1):
            if number % PARTITIONS_PER_BREATH == 0:
                await self._breathe()
            found[work.partition] = self._order(work)
        orders = Orders(found, await self._deleted(found))
        known = {log_dir for each in self._directories for log_dir in each.log_dirs}
        used = {order.local.directory.parent for order in found.values()}
        unknown = used - known - self._outside.log_dirs
        self._passed_orders = None
        try:
            self._unknown = {each: self._unknown.get(each, True) for each in unknown}
            if any(self._unknown.values()):
                self._unknown = await asyncio.to_thread(self._look_beside, unknown)
            passed = await self._in_time(orders)
        finally:
            self._tell(rows)
        if passed.error is not None:
            raise passed.error

    async def _deleted(self, here: Container[TopicIdPartition]) -> frozenset[TopicIdPartition]:
        """Deleted partitions that have held segments, but no replica, on this node."""
        held = {unit.partition for units in self._held.values() for unit in units}
        held.update(each.partition for each in self._all_unread())
        for active in self._active.values():
            held.update(active.partitions())
        deleted = set()
        for number, partition in enumerate(sorted(each for each in held if each not in here), 1):
            if number % PARTITIONS_PER_BREATH == 0:
                await self._breathe()
            state = self._metadata.partition_state(partition)
            gone = self._metadata.is_deleted(partition) if state is None else _is_deleted(state)
            if gone:
                deleted.add(partition)
        return frozenset(deleted)

    def _tell(self, works: Iterable[PartitionWork]) -> None:
        """Give each partition its units, also after a failed pass: held segments are not lost. A
        partition that waits for a pass waits for one that saw the log begin where it begins now:
        segments that have left the log since that pass are no units yet.
        """
        by_partition: dict[TopicIdPartition, list[Unit]] = {}
        for held in list(self._held.values()):
            for unit in (each for each in held if each.doubt is None and not each.cut_off):
                by_partition.setdefault(unit.partition, []).append(unit)
        unusable = self._unusable()
        for work in works:
            if work.local is not None:
                work.units = tuple(by_partition.get(work.partition, ()))
                log_dir = work.local.directory.parent
                unread = _came_later(log_dir, True) if self._unknown.get(log_dir) else None
                wait = self._why_wait(unusable.get(work.partition) or unread)
                if wait is not None or self._has_passed(work.local):
                    work.hold_wait = wait

    def _has_passed(self, local: LocalPartition) -> bool:
        """True if the pass after this scan ended, and saw the log begin where it begins now."""
        orders = self._passed_orders
        order = None if orders is None else orders.by_partition.get(local.partition)
        begins = local.segments[0].base_offset
        return order is not None and order.local.segments[0].base_offset == begins

    def _look_beside(self, log_dirs: Iterable[Path]) -> dict[Path, bool]:
        """True for log directories with unread held segments, or whose hold can't be read."""
        found = dict.fromkeys(log_dirs, True)
        for each in found:
            with suppress(OSError):
                found[each] = self._outside.holds_unread(each)
        return found

    def _why_wait(self, unusable: str | None) -> Wait | None:
        """Wait if unusable held segments may contain the missing offsets."""
        for found in self._unread.values():
            if found is None:
                return replace(
                    HOLD_NOT_LOOKED_AT, text=f"{HOLD_NOT_LOOKED_AT.text} ({self._trouble})"
                )
        return None if unusable is None else Wait(WhyNot.UNUSABLE_DIRECTORY, unusable)

    def _all_unread(self) -> Iterator[Unread]:
        yield from self._away.values()
        for active in self._active.values():
            yield from active.unread()
        yield from (each for found in self._unread.values() for each in found or ())

    def _unusable(self) -> dict[TopicIdPartition, str]:
        """The reasons why held segments that may be needed are not read or in doubt."""
        found = {each.partition: each.why for each in self._all_unread()}
        for unit in (each for held in list(self._held.values()) for each in held):
            if unit.doubt is not None and unit.wanted:
                found[unit.partition] = why_unread(unit.segment.log_path.parent, unit.doubt)
        return found

    def _order(self, work: PartitionWork) -> Order:
        local = work.local
        assert local is not None, "only partitions on this disk are passed"
        state = self._metadata.partition_state(work.partition)
        committed = -1 if local.high_watermark is None else local.high_watermark
        word = work.word if isinstance(work.word, Leads) else None
        if word is not None and _is_outdated(word, local):
            word = None
        if word is not None:
            committed = max(committed, word.last_stable_offset)
        facts = HoldFacts(
            segments=local.segments,
            # Entries below the first file can't be checked against any batch here.
            checkpoint=truncate_from_start(local.leader_epochs, local.segments[0].base_offset),
            high_watermark=committed,
            next_offset=-1 if state is None else state.next_offset,
            lost_ranges=() if state is None else state.lost_ranges,
            deleted=state is not None and _is_deleted(state),
            left_out=work.left_out is not None and work.mode is Mode.SIDECAR,
            log_start_offset=-1 if state is None else state.log_start_offset,
            lineage=() if state is None else state.lineage,
        )
        led = None if word is None else word.leader_epoch
        is_heard = not isinstance(work.word, NoAnswer)
        is_delegated = work.mode is Mode.DELEGATED
        told = -1 if word is None or _is_later(word, local) else word.last_stable_offset
        return Order(local, facts, work.copying, led, is_heard, is_delegated, told)

    async def _in_time(self, orders: Orders) -> Passed:
        """Run a pass with these orders. RetryLater: it hangs, or an earlier pass still hangs, and
        no second one is started beside it.
        """
        if self._running is not None:
            await self._ended(self._running)
        self._running_orders = orders
        self._running = asyncio.ensure_future(asyncio.to_thread(self._pass, orders))
        return await self._ended(self._running)

    async def _ended(self, running: asyncio.Future[Passed]) -> Passed:
        done, _ = await asyncio.wait({running}, timeout=self._limits.pass_deadline_s)
        if not done:
            raise RetryLater(
                f"{', '.join(str(each.path) for each in self._directories)} could not be brought "
                f"up to date within {self._limits.pass_deadline_s:g} s: check whether a disk hangs"
            )
        self._running = None
        passed = running.result()
        self._passed_orders = self._running_orders
        for event in passed.released:
            self._on_event(event)
        return passed

    def _pass(self, orders: Orders) -> Passed:
        """Run one pass; blocks. Links that it made are remembered even if a later step fails."""
        passed = Passed()
        for directory in self._directories:
            self._find(directory, passed, sweep=self._trouble is not None)
            self._join(directory, orders, passed)
            held = self._look_again(directory, orders, passed)
            self._held[directory] = held
            for order in orders.by_partition.values():
                if order.local.directory.parent in directory.log_dirs:
                    self._link(directory, order, held, passed)
            self._active[directory].look(orders, held, passed)
            with passed.going_on():
                self._held[directory] = self._within_budget(directory, orders, held, passed)
        return passed

    def _find(self, directory: HoldDirectory, passed: Passed, *, sweep: bool) -> None:
        """Remove half-made and half-removed units, and read those not read yet."""
        with passed.going_on():
            if sweep:
                directory.sweep()
        with passed.going_on():
            place = directory.place()
            if place != self._place.setdefault(directory, place):
                self._away |= {each.segment.log_path: _away(each) for each in self._held[directory]}
                self._held[directory], self._unread[directory] = [], None
                self._place[directory] = place
            unread = self._unread[directory]
            if unread is not None and not unread:
                return
            if unread is None:
                self._active[directory].find()
            found = directory.find()
            for unit in found.units:
                self._away.pop(unit.segment.log_path, None)
            known = {unit.segment.log_path for unit in self._held[directory]}
            self._held[directory] += [
                unit for unit in found.units if unit.segment.log_path not in known
            ]
            self._unread[directory] = found.unread

    def _join(self, directory: HoldDirectory, orders: Orders, passed: Passed) -> None:
        """Move units from a wrong topic id, the result of a flipped bit in partition.metadata, to
        the right one, if a file proves that both belong to one log.
        """
        strays: dict[tuple[str, int], dict[TopicIdPartition, list[Unit]]] = {}
        for unit in self._held[directory]:
            id_ = unit.partition
            if id_ not in orders.by_partition:
                by_id = strays.setdefault((id_.topic, id_.partition), {})
                by_id.setdefault(id_, []).append(unit)
        for own, order in orders.by_partition.items() if strays else ():
            found = strays.get((own.topic, own.partition))
            if found is None or order.led is None:
                continue
            mine = [each for each in self._held[directory] if each.partition == own]
            for units in found.values():
                if any(is_of_one_log(order.local, mine, unit) for unit in units):
                    self._give(directory, units, own, passed)

    def _give(
        self, directory: HoldDirectory, units: list[Unit], to: TopicIdPartition, passed: Passed
    ) -> None:
        for unit in units:
            with passed.going_on():
                given = directory.give(unit, to)
                self._held[directory].remove(unit)
                if given is not None:
                    self._held[directory].append(given)

    def _look_again(self, directory: HoldDirectory, orders: Orders, passed: Passed) -> list[Unit]:
        kept = []
        for unit in self._held[directory]:
            still: Unit | None = unit  # kept if the next line fails
            with passed.going_on():
                still = self._look_at(directory, unit, orders, passed)
            if still is not None:
                kept.append(still)
        return kept

    @staticmethod
    def _look_at(
        directory: HoldDirectory, unit: Unit, orders: Orders, passed: Passed
    ) -> Unit | None:
        """The unit as it is now; None once released. On OSError it is unchanged."""
        order, own = orders.by_partition.get(unit.partition), orders.own_segment(unit)
        now = directory.look_again(unit, None if order is None else order.local, own)
        if now is not None and now.doubt is None and order is not None:
            cut_off = is_cut_off(order.facts, now)
            if cut_off:
                now = replace(now, cut_off=True)  # even if the mark can't be written
            with passed.going_on():
                now = mark_cut_off(now, cut_off)
        busy = orders.busy(unit)
        if now is not None and now.doubt is not None and orders.has_left(now, own) and not busy:
            was = LastSeen(unit.next_base_offset, unit.leader_epochs)
            proof, waits = orders.proof(unit.partition, was), orders.may_yet_prove(unit.partition)
            try:
                told = directory.rebuild_from_batches(doubted := now, proof, may_cut=not waits)
                now = told.unit
                if told.rest is not None:
                    passed.released.append(released(told.rest, Release.DIVERGED))
            except NotCommittedError as denied:
                if not waits:
                    as_told = replace(denied.unit, doubt=None)
                    passed.let_go(directory, as_told, orders.why_denied(as_told, own))
                    return None
                now = replace(doubted, doubt=str(denied))
        reason = Release.CHANGED if now is None else orders.why_let_go(now, own)
        if now is not None and reason is None:
            return orders.with_wanted(now)
        if busy:
            return unit
        assert reason is not None, "a unit is kept, or there is a reason to release it"
        passed.let_go(directory, now or unit, reason)
        return None

    @staticmethod
    def _link(directory: HoldDirectory, order: Order, held: list[Unit], passed: Passed) -> None:
        """Link segments, and add them to `held`."""
        mine = [unit for unit in held if unit.partition == order.local.partition]
        for segment in to_hold(order.facts, mine):
            with passed.going_on():
                unit = directory.hold(order.local, segment)
                if unit is not None:
                    held.append(unit)

    def _within_budget(
        self, directory: HoldDirectory, orders: Orders, held: list[Unit], passed: Passed
    ) -> list[Unit]:
        active = self._active[directory]
        unproven = map(orders.with_wanted, active.unproven())
        going = over_budget(
            (unit for unit in (*held, *unproven) if not orders.busy(unit)),
            bytes_max=self._limits.bytes_max,
            bytes_missing=self._limits.free_bytes_min - directory.free_bytes(),
        )
        gone = set()
        for unit, why in going:
            with passed.going_on():
                if not active.let_go(unit, why, passed):
                    passed.let_go(directory, unit, why)
                gone.add(id(unit))
        return [unit for unit in held if id(unit) not in gone]


def _is_outdated(word: Leads, local: LocalPartition) -> bool:
    """True if the log has a later epoch than the one that the broker reported to lead: its answer
    does not say what is committed in the later epoch.
    """
    return bool(local.leader_epochs) and local.leader_epochs[-1].epoch > word.leader_epoch


def _is_later(word: Leads, local: LocalPartition) -> bool:
    """True if the broker leads in a later epoch than the log had at the scan before its answer: the
    log may have been truncated since.
    """
    return not local.leader_epochs or local.leader_epochs[-1].epoch < word.leader_epoch


def _is_deleted(state: PartitionState) -> bool:
    return state.delete_state in _DELETED


def _away(unit: Unit) -> Unread:
    why = (
        f"{unit.segment.log_path.parent} is not on the disk that is mounted there now: mount the "
        "right disk, or restart the node if the segments held there are lost"
    )
    return Unread(unit.partition, why)


def _came_later(log_dir: Path, holds_unread: bool) -> str:
    told = f"{log_dir} was not there when the node started"
    if holds_unread:
        return f"{told}, and segments of it are held: start the node again, which then copies them"
    return f"{told}: its segments are not held before the next start"


def _told(error: OSError) -> str:
    return f"{error.filename or 'a hold directory'}: {error.strerror}"
