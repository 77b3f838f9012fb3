"""Keeps records of active segments from local retention, beside what `hold` keeps of sealed ones.

`active_plan` has the rules, `active_links` the links. Everything here blocks: it is a part of the
pass over one hold directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.run_events import HoldReleased
from rlm.copy.hold_pass import Order, Orders, Passed, released
from rlm.local_log.active_links import (
    ActiveLink,
    Kept,
    active_root,
    epochs_written_ns,
    find_links,
    is_in_a_log,
    keep_committed,
    kept_committed,
    link_active,
    link_beside,
    remove_links,
)
from rlm.local_log.active_plan import Fate, fate, to_link
from rlm.local_log.committed_plan import LastSeen, NoRoomError, NotCommittedError, shared_end
from rlm.local_log.cut_doubt import CutDoubt, of_young_epochs
from rlm.local_log.hold_directory import (
    FULL,
    HoldDirectory,
    Unread,
    is_one_file,
    own_segment,
    why_unread,
)
from rlm.local_log.hold_plan import (
    Release,
    Unit,
)
from rlm.local_log.log_dir import LocalSegment
from rlmm.segment import OFFSET_MAX

SYNCS_A_PASS = 200
"""The most new links and new checkpoints of a pass, since each is synced: a node that starts beside
ten thousand partitions, or whose brokers' leaders all moved, makes them in many passes.
"""
KEEPS_A_PASS = 50
"""High watermarks kept in a pass, each with a sync, too: quiet logs wait for their turn."""


@dataclass(slots=True)
class _Linked:
    """`segments`: the broker's own when the link was last found to be of its active segment.
    `committed`: the high watermark when the file was last seen in the log, or -1; `is_kept`: on
    the disk, too; `is_too_high`: what the disk has proves what was cut off. `doubt`: the broker's
    high watermark is perhaps of before a cut; `is_found`: by this process, which did not look at
    the log yet.
    """

    link: ActiveLink
    segments: Sequence[LocalSegment] | None = None
    committed: int = -1
    is_kept: bool = False
    is_too_high: bool = False
    doubt: CutDoubt | None = None
    is_found: bool = False

    def seen(self, order: Order) -> None:
        """The file is part of the log, by a look behind that for the facts: in between, the log may
        have been cut and another high watermark be of what came instead. A lower one than before
        counts: an unclean election cut the log, or the broker's file named a deleted topic's. One
        that is not known now (the broker's file cannot be read) changes nothing, nor does what is
        above a cut of one that is perhaps of before it: there the broker's word as the leader of
        what came counts alone. OSError: a lower one is not kept.
        """
        known, now = self.committed, order.facts.high_watermark
        self._look(order)
        self.is_found = False
        if now < 0:
            now = known
        if self.doubt is not None:
            self.doubt = self.doubt.told(order.told)
            now = min(self.doubt.same_to, now)
        if now != known:
            self.committed, self.is_kept = now, False
            self.is_too_high |= now < known
        if self.is_too_high:
            self.keep()

    def _look(self, order: Order) -> None:
        """Doubt high watermarks of before a cut. The disk has it from the beginning on if one is
        known that is above the cut, as it has a mark that is too high.
        """
        before, self.doubt = self.doubt, self._doubted(order)
        if (before is None) != (self.doubt is None):
            self.is_kept = False
        if self.doubt is not None and self.doubt.others == 0 and not self.is_kept:
            highest = max(self.committed, order.facts.high_watermark)
            self.is_too_high |= self.doubt.same_to < highest

    def _doubted(self, order: Order) -> CutDoubt | None:
        """The doubt behind this look. A cut amid another one begins it anew, and is perhaps above
        any high watermark that was known: another one may be written down by now.
        """
        written_ns, same_to = order.local.high_watermark_written_ns, self._same_to(order)
        if same_to < OFFSET_MAX:
            return CutDoubt(written_ns, same_to=same_to).joined(self.doubt)
        if self.doubt is None and self.is_found:
            # The doubt of the process before is kept with a mark alone, and a busy log has none.
            young = _of_young_epochs(order)
            known = self.committed if self.link.known_epochs() else -1
            return None if young is None else young.told(known)
        return None if self.doubt is None else self.doubt.looked(written_ns)

    def begins_in(self, doubt: CutDoubt, order: Order) -> None:
        """The log was cut a moment ago, when another file of it was linked."""
        self.committed, self.doubt = min(self.committed, doubt.same_to), doubt
        self.is_too_high = True
        self.seen(order)

    def left_behind(self, order: Order) -> CutDoubt | None:
        """The doubt for the link of the file in which the log goes on. Where this one's file was
        cut off with the log, that has no more than what was below it.
        """
        base, local = self.link.base_offset, order.local
        bases = [each.base_offset for each in local.segments]
        doubt = self._doubted(order)
        if base >= bases[0] and (base not in bases or not local.leader_epochs):
            return CutDoubt(local.high_watermark_written_ns, same_to=base).joined(doubt)
        return doubt

    def _same_to(self, order: Order) -> int:
        """The end of what the log has of what it had when the link's epochs were renewed, or its
        head if that is higher; OFFSET_MAX: it went on in the epoch that it ended in.
        """
        if order.local.checkpoint_bytes == self.link.checkpoint_bytes:
            return OFFSET_MAX
        before, now = self.link.known_epochs(), order.local.leader_epochs
        if not before or not now:
            return OFFSET_MAX
        return max(now[0].start_offset, shared_end(before, now, OFFSET_MAX))

    def keep(self) -> None:
        """Keep the high watermark for the next process: once the log is quiet, since it costs a
        small write, or at once if the kept one is too high. One that is too low says less.
        """
        if not self.is_kept and (self.committed >= 0 or self.is_too_high):
            keep_committed(self.link, Kept(self.committed, self.doubt is not None))
            self.is_kept, self.is_too_high = True, False


class ActiveHold:
    """The links of one hold directory."""

    def __init__(self, directory: HoldDirectory) -> None:
        self._directory = directory
        self._root = active_root(directory.path)
        self._links: dict[TopicIdPartition, list[_Linked]] = {}
        self._unread: dict[Path, Unread] = {}
        self._failed: dict[Path, Unread] = {}
        self._unproven: dict[Path, NotCommittedError | NoRoomError] = {}
        self._syncs_left = SYNCS_A_PASS
        self._last_tried: TopicIdPartition | None = None
        self._to_keep: dict[int, _Linked] = {}
        self._gone: dict[TopicIdPartition, list[_Linked]] = {}

    def find(self) -> None:
        """Find the links of an earlier process, or of another disk. OSError: none is known."""
        self._links, self._unread, self._failed, self._unproven = {}, {}, {}, {}
        self._to_keep.clear()
        self._gone.clear()
        for link in find_links(self._root):
            kept = kept_committed(link)
            linked = _Linked(link, committed=kept.high_watermark, is_kept=True, is_found=True)
            linked.doubt = CutDoubt(same_to=kept.high_watermark) if kept.is_cut else None
            self._links.setdefault(link.partition, []).append(linked)

    def unread(self) -> Iterable[Unread]:
        """Links whose batches do not tell what they have, and those of which the last pass could
        make no unit: below the log's head when the disk failed, not known to be committed yet, or
        without room for the part that is.
        """
        unproven = list(self._unproven.items())
        away = (Unread(each.unit.partition, why_unread(path, each)) for path, each in unproven)
        return [*self._unread.values(), *self._failed.values(), *away]

    def unproven(self) -> list[Unit]:
        """The units that links would be, if these were known to be committed, of replicas that are
        not here or whose broker does not answer, and those without room for their committed part.
        They count as held alone, and in doubt: before any that can be copied they go.
        """
        denied = list(self._unproven.values())
        return [replace(each.unit, doubt=str(each)) for each in denied]

    def let_go(self, unit: Unit, why: Release, passed: Passed) -> bool:
        """Remove the link of an `unproven` unit; False if it is none."""
        links = (each.link for each in self._links.get(unit.partition, ()))
        link = next((each for each in links if each.log_path == unit.segment.log_path), None)
        if link is not None:
            self._drop(link, passed, released(unit, why))
        return link is not None

    def partitions(self) -> Iterable[TopicIdPartition]:
        """The partitions that have a link."""
        return tuple(self._links)

    def look(self, orders: Orders, held: list[Unit], passed: Passed) -> None:
        """Link active segments, and make units, added to `held`, of those that left the log."""
        self._syncs_left = SYNCS_A_PASS
        for partition in list(self._links):
            kept = list(self._looked_at(partition, orders, held, passed))
            if kept:
                self._links[partition] = kept
            else:
                del self._links[partition]
        self._keep_some(passed)
        for order in self._to_link(orders):
            with passed.going_on():
                link = link_active(self._root, order.local)
                if link is not None:
                    linked = _Linked(link, order.local.segments, order.facts.high_watermark)
                    doubt = self._doubt(order)
                    self._gone.pop(link.partition, None)
                    self._links.setdefault(link.partition, []).append(linked)
                    if doubt is not None:
                        linked.begins_in(doubt, order)

    def _doubt(self, order: Order) -> CutDoubt | None:
        """The doubt by the links of other files of the log, also those that went; without any, by
        the age of its epochs.
        """
        id_, start = order.local.partition, order.local.segments[0].base_offset
        others = (each for each in self._links.get(id_, ()) if each.link.base_offset >= start)
        known = (*others, *self._gone.get(id_, ()))
        if not known:
            return _of_young_epochs(order)
        doubt: CutDoubt | None = None
        for each in known:
            found = each.left_behind(order)
            doubt = doubt if found is None else found.joined(doubt)
        return doubt

    def _keep_some(self, passed: Passed) -> None:
        """Keep high watermarks of quiet logs, the one that waits longest first."""
        for key, linked in list(self._to_keep.items())[:KEEPS_A_PASS]:
            del self._to_keep[key]
            if any(each is linked for each in self._links.get(linked.link.partition, ())):
                with passed.going_on():
                    linked.keep()

    def _to_link(self, orders: Orders) -> list[Order]:
        """The orders whose turn it is: where links fail, others have their turn all the same."""
        found: dict[TopicIdPartition, Order] = {}
        for partition, order in orders.by_partition.items():
            active = to_link(order.facts)
            is_here = order.local.directory.parent in self._directory.log_dirs
            if active is None or not is_here or order.is_delegated:
                continue
            known = {each.link.base_offset for each in self._links.get(partition, ())}
            if active.base_offset not in known:
                found[partition] = order
            else:
                self._gone.pop(partition, None)  # the look told it
        here = orders.by_partition
        self._gone = {each: gone for each, gone in self._gone.items() if each in here}
        last = self._last_tried
        turns = sorted(found, key=lambda each: (last is not None and each <= last, each))
        turns = turns[: self._syncs_left]
        self._last_tried = turns[-1] if turns else None
        return [found[each] for each in turns]

    def _looked_at(
        self, partition: TopicIdPartition, orders: Orders, held: list[Unit], passed: Passed
    ) -> Iterator[_Linked]:
        order = orders.by_partition.get(partition)
        for each in self._links[partition]:
            if order is not None and order.local.segments is each.segments:
                with passed.going_on():
                    self._quiet(each, order)
                yield each
                continue
            stays = True  # where that fails
            with passed.going_on():
                if self._settled(each, orders, held, passed) is Fate.KEEP:
                    self._renew(each, order)
                else:
                    self._note_gone(each, order)
                    self._drop(each.link, passed)
                    stays = False
            if stays:
                yield each

    def _note_gone(self, linked: _Linked, order: Order | None) -> None:
        """Remember a link that goes, for the one of the file in which the log goes on, now or once
        that has a record: a cut may be known by then, or come in between.
        """
        if order is not None:
            linked.doubt = linked.left_behind(order)
            self._gone.setdefault(linked.link.partition, []).append(linked)

    def _quiet(self, linked: _Linked, order: Order) -> None:
        """Nothing was written to the log since the last look, by which the file was part of it."""
        is_news = order.facts.high_watermark != linked.committed or linked.doubt is not None
        if is_news and own_segment(order.local, linked.link.segment) is not None:
            linked.seen(order)
        if not linked.is_kept:
            self._to_keep.setdefault(id(linked), linked)

    def _settled(self, linked: _Linked, orders: Orders, held: list[Unit], passed: Passed) -> Fate:
        """KEEP the link, or DROP it, of which there is a unit if there is to be one."""
        link = linked.link
        order = orders.by_partition.get(link.partition)
        self._failed.pop(link.path, None)
        try:
            found = self._fate(link, orders, held)
            if found is Fate.HOLD:
                found = self._hold(linked, orders, held, passed)
            else:  # a replica that was away has it again
                self._unread.pop(link.path, None)
                self._unproven.pop(link.path, None)
        except OSError as error:
            if order is not None and link.base_offset < order.local.segments[0].base_offset:
                self._failed[link.path] = Unread(link.partition, why_unread(link.path, error))
            raise
        return found

    def _fate(self, link: ActiveLink, orders: Orders, held: list[Unit]) -> Fate:
        order = orders.by_partition.get(link.partition)
        if order is None:
            if link.partition in orders.deleted:
                return Fate.DROP
            # Of a replica that cannot be read now, or that is not here any more.
            is_there = is_in_a_log(link.partition, link.log_path, self._directory.log_dirs)
            return Fate.KEEP if is_there else Fate.HOLD
        own = own_segment(order.local, link.segment)
        named = (each for each in order.local.segments if each.base_offset == link.base_offset)
        if own is None and any(not each.log_path.exists() for each in named):
            return Fate.KEEP  # removed since the look: the next one tells how
        mine = (unit for unit in held if unit.partition == link.partition)
        return fate(order.facts, link.base_offset, link.known_epochs(), own, mine)

    def _renew(self, linked: _Linked, order: Order | None) -> None:
        """Link what came beside a file that is still a part of the log."""
        if order is None or own_segment(order.local, linked.link.segment) is None:
            return
        is_another = linked.link.checkpoint_bytes != order.local.checkpoint_bytes
        if is_another and order.local.leader_epochs:
            if self._syncs_left <= 0:
                return  # in a later pass: the mark of now may be of behind these epochs
            self._syncs_left -= 1
        linked.seen(order)
        linked.link = link_beside(linked.link, order.local)
        is_active = order.local.segments[-1].base_offset == linked.link.base_offset
        linked.segments = order.local.segments if is_active else None

    def _hold(self, linked: _Linked, orders: Orders, held: list[Unit], passed: Passed) -> Fate:
        """Make a unit of a file that has left the log; KEEP if its batches do not tell what it
        has.
        """
        link = linked.link
        order = orders.by_partition.get(link.partition)
        waits = orders.may_yet_prove(link.partition)
        if link.path in self._unread or (waits and link.path in self._unproven):
            return Fate.KEEP  # nobody writes to it: it was read before
        mine = [unit for unit in held if unit.partition == link.partition]
        if any(is_one_file(unit.segment, link.segment) for unit in mine):
            return Fate.DROP
        try:
            proof = orders.proof(link.partition, LastSeen(linked.committed, link.epochs()))
            local = None if order is None else order.local
            told = self._directory.hold_left(link, local, proof, may_cut=not waits)
        except NotCommittedError as denied:
            if waits:
                self._unproven[link.path] = denied
                return Fate.KEEP
            self._drop(link, passed, released(denied.unit, orders.why_denied(denied.unit, None)))
            return Fate.DROP
        except NoRoomError as denied:
            self._unproven[link.path] = denied
            return Fate.KEEP
        except CorruptData as error:
            self._unread[link.path] = Unread(link.partition, why_unread(link.path, error))
            return Fate.KEEP
        except FileNotFoundError:
            return Fate.DROP
        except OSError as error:
            if error.errno not in FULL or any(each.alone for each in held):
                raise  # what is held alone makes room for the next pass
            self._drop(link, passed, _no_room(link, order))
            return Fate.DROP
        if told.unit is not None:
            held.append(told.unit)
        if told.rest is not None:
            self._drop(link, passed, released(told.rest, orders.why_denied(told.rest, None)))
        return Fate.DROP

    def _drop(self, link: ActiveLink, passed: Passed, told: HoldReleased | None = None) -> None:
        """Remove a link, and tell so. A disk that is away tells nothing, and is an OSError."""
        os.stat(self._directory.path)
        self._unread.pop(link.path, None)
        self._unproven.pop(link.path, None)
        try:
            remove_links(link.path)
        finally:
            if told is not None and not link.log_path.exists():  # else the next pass tries again
                passed.released.append(told)


def _of_young_epochs(order: Order) -> CutDoubt | None:
    local = order.local
    written_ns = epochs_written_ns(local.directory)
    return of_young_epochs(local.high_watermark_written_ns, written_ns, local.leader_epochs)


def _no_room(link: ActiveLink, order: Order | None) -> HoldReleased:
    """The end of a file that nobody reads is where the log begins now, at most."""
    base = link.base_offset
    end = base if order is None else order.local.segments[0].base_offset - 1
    size, why = os.stat(link.log_path).st_size, Release.FREE_BYTES_MIN
    return HoldReleased(link.partition, base, end, size, why.value, missed=True)
