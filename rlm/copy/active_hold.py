"""Keeps records of active segments from local retention, as `hold` does for sealed segments.

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
"""Limit of the new links and new checkpoints in a pass, since each is synced: a node that starts
beside ten thousand partitions, or sees the leaders of all of them move, makes them in many passes.
"""
KEEPS_A_PASS = 50
"""Limit of the high watermarks written in a pass, each with a sync too: quiet logs take turns."""


@dataclass(slots=True)
class _Linked:
    """A link and what is known of its log. `segments`: the broker's segments when the link was last
    seen to be its active segment. `committed`: the high watermark when the file was last seen in
    the log, or -1; `is_kept`: it is on disk too; `is_too_high`: the value on disk is higher,
    and would prove truncated records committed. `doubt`: the broker's high watermark may be from
    before a truncation; `is_found`: the link is of an earlier process, and this one has not scanned
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
        """Take the facts of a scan, after a second look found the file still in the log: in
        between, the log may have been truncated, and the high watermark be that of newer records.

        A lower high watermark than before is taken: an unclean election truncated the log, or the
        broker's file had that of a deleted topic. An unknown one (the broker's file cannot be read)
        changes nothing. One that may be from before a truncation counts only below the cut; above
        it only the offset counts that the broker reports as the leader of the new records. On
        OSError a lower one is not on disk.
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
        """Renew the doubt about high watermarks from before a cut. If a known high watermark is
        above the cut, the doubt is written to disk at once, as for a value that is too high.
        """
        before, self.doubt = self.doubt, self._doubted(order)
        if (before is None) != (self.doubt is None):
            self.is_kept = False
        if self.doubt is not None and self.doubt.others == 0 and not self.is_kept:
            highest = max(self.committed, order.facts.high_watermark)
            self.is_too_high |= self.doubt.same_to < highest

    def _doubted(self, order: Order) -> CutDoubt | None:
        """The doubt after this scan. A second cut during the doubt begins it anew, even if it is
        above every known high watermark: a higher one may have been written by now.
        """
        written_ns, same_to = order.local.high_watermark_written_ns, self._same_to(order)
        if same_to < OFFSET_MAX:
            return CutDoubt(written_ns, same_to=same_to).joined(self.doubt)
        if self.doubt is None and self.is_found:
            # An earlier process keeps its doubt only with a high watermark, which it does not write
            # for a busy log.
            young = _of_young_epochs(order)
            known = self.committed if self.link.known_epochs() else -1
            return None if young is None else young.told(known)
        return None if self.doubt is None else self.doubt.looked(written_ns)

    def begins_in(self, doubt: CutDoubt, order: Order) -> None:
        """Begin in doubt: the log was truncated while a different file of it was linked."""
        self.committed, self.doubt = min(self.committed, doubt.same_to), doubt
        self.is_too_high = True
        self.seen(order)

    def left_behind(self, order: Order) -> CutDoubt | None:
        """The doubt for the link of the next file of the log. If this link's file was cut off, only
        offsets below its base are unchanged.
        """
        base, local = self.link.base_offset, order.local
        bases = [each.base_offset for each in local.segments]
        doubt = self._doubted(order)
        if base >= bases[0] and (base not in bases or not local.leader_epochs):
            return CutDoubt(local.high_watermark_written_ns, same_to=base).joined(doubt)
        return doubt

    def _same_to(self, order: Order) -> int:
        """The end (exclusive) of the offsets that are unchanged since the link's epochs were
        renewed, or the log's first offset if that is higher; OFFSET_MAX: nothing was truncated.
        """
        if order.local.checkpoint_bytes == self.link.checkpoint_bytes:
            return OFFSET_MAX
        before, now = self.link.known_epochs(), order.local.leader_epochs
        if not before or not now:
            return OFFSET_MAX
        return max(now[0].start_offset, shared_end(before, now, OFFSET_MAX))

    def keep(self) -> None:
        """Write the high watermark for the next process: once the log is quiet, since it costs a
        small write, or at once if the one on disk is too high. One that is too low only proves
        less.
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
        """Find the links of an earlier process, or of a newly mounted disk. On OSError no link is
        known.
        """
        self._links, self._unread, self._failed, self._unproven = {}, {}, {}, {}
        self._to_keep.clear()
        self._gone.clear()
        for link in find_links(self._root):
            kept = kept_committed(link)
            linked = _Linked(link, committed=kept.high_watermark, is_kept=True, is_found=True)
            linked.doubt = CutDoubt(same_to=kept.high_watermark) if kept.is_cut else None
            self._links.setdefault(link.partition, []).append(linked)

    def unread(self) -> Iterable[Unread]:
        """Links whose batches cannot be read, and those that the last pass could not turn into
        units: the disk failed, or they are not proven committed yet, or the disk has no room for a
        copy of the committed part.
        """
        unproven = list(self._unproven.items())
        away = (Unread(each.unit.partition, why_unread(path, each)) for path, each in unproven)
        return [*self._unread.values(), *self._failed.values(), *away]

    def unproven(self) -> list[Unit]:
        """The future units of links that are not proven committed yet (their replica is not on this
        node, or its broker does not answer), and of links without room for their committed part.
        They count as held alone and in doubt, so they are released before units that can be copied.
        """
        denied = list(self._unproven.values())
        return [replace(each.unit, doubt=str(each)) for each in denied]

    def let_go(self, unit: Unit, why: Release, passed: Passed) -> bool:
        """Remove the link of an `unproven` unit; False if the unit is not one of them."""
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
        """The doubt, from the links of other files of the log, removed ones included; if there is
        none, from the age of its epochs.
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
        """Write high watermarks of quiet logs, the longest waiting first."""
        for key, linked in list(self._to_keep.items())[:KEEPS_A_PASS]:
            del self._to_keep[key]
            if any(each is linked for each in self._links.get(linked.link.partition, ())):
                with passed.going_on():
                    linked.keep()

    def _to_link(self, orders: Orders) -> list[Order]:
        """The partitions to link in this pass, in turns, so that failing ones do not hold up the
        rest.
        """
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
                self._gone.pop(partition, None)  # the link's own scan has the doubt
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
            stays = True  # kept if the next lines fail
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
        """Remember a removed link, for the link of the log's next file, which is made now or once
        that file has a record: a truncation may be known by then, or happen in between.
        """
        if order is not None:
            linked.doubt = linked.left_behind(order)
            self._gone.setdefault(linked.link.partition, []).append(linked)

    def _quiet(self, linked: _Linked, order: Order) -> None:
        """Handle a link whose log has not changed since the last scan, when its file was in it."""
        is_news = order.facts.high_watermark != linked.committed or linked.doubt is not None
        if is_news and own_segment(order.local, linked.link.segment) is not None:
            linked.seen(order)
        if not linked.is_kept:
            self._to_keep.setdefault(id(linked), linked)

    def _settled(self, linked: _Linked, orders: Orders, held: list[Unit], passed: Passed) -> Fate:
        """KEEP the link, or DROP it, after its unit was made if one is needed."""
        link = linked.link
        order = orders.by_partition.get(link.partition)
        self._failed.pop(link.path, None)
        try:
            found = self._fate(link, orders, held)
            if found is Fate.HOLD:
                found = self._hold(linked, orders, held, passed)
            else:  # a replica that was missing has the file again
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
            # The replica cannot be read now, or is not on this node any more.
            is_there = is_in_a_log(link.partition, link.log_path, self._directory.log_dirs)
            return Fate.KEEP if is_there else Fate.HOLD
        own = own_segment(order.local, link.segment)
        named = (each for each in order.local.segments if each.base_offset == link.base_offset)
        if own is None and any(not each.log_path.exists() for each in named):
            return Fate.KEEP  # removed since the scan: the next one shows how
        mine = (unit for unit in held if unit.partition == link.partition)
        return fate(order.facts, link.base_offset, link.known_epochs(), own, mine)

    def _renew(self, linked: _Linked, order: Order | None) -> None:
        """Link the index files made since, if the link's file is still part of the log."""
        if order is None or own_segment(order.local, linked.link.segment) is None:
            return
        is_another = linked.link.checkpoint_bytes != order.local.checkpoint_bytes
        if is_another and order.local.leader_epochs:
            if self._syncs_left <= 0:
                # Do it in a later pass: until the new epochs are on disk, the high watermark is not
                # taken either, since it may be from after them.
                return
            self._syncs_left -= 1
        linked.seen(order)
        linked.link = link_beside(linked.link, order.local)
        is_active = order.local.segments[-1].base_offset == linked.link.base_offset
        linked.segments = order.local.segments if is_active else None

    def _hold(self, linked: _Linked, orders: Orders, held: list[Unit], passed: Passed) -> Fate:
        """Make a unit of a file that has left the log; KEEP the link if its batches cannot be read,
        or are not proven committed yet.
        """
        link = linked.link
        order = orders.by_partition.get(link.partition)
        waits = orders.may_yet_prove(link.partition)
        if link.path in self._unread or (waits and link.path in self._unproven):
            return Fate.KEEP  # it was read before, and is no longer written to
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
                raise  # the release of units held alone makes room for the next pass
            self._drop(link, passed, _no_room(link, order))
            return Fate.DROP
        if told.unit is not None:
            held.append(told.unit)
        if told.rest is not None:
            self._drop(link, passed, released(told.rest, orders.why_denied(told.rest, None)))
        return Fate.DROP

    def _drop(self, link: ActiveLink, passed: Passed, told: HoldReleased | None = None) -> None:
        """Remove a link, and report its release, `told`. OSError, without a report, if the disk is
        not mounted.
        """
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
    """The event for a link dropped for lack of room. Its file is not read, so its end is taken to
    be the offset where the log begins now, the highest it can be.
    """
    base = link.base_offset
    end = base if order is None else order.local.segments[0].base_offset - 1
    size, why = os.stat(link.log_path).st_size, Release.FREE_BYTES_MIN
    return HoldReleased(link.partition, base, end, size, why.value, missed=True)
