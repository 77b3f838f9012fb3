"""Planted bugs in the remote log manager, its planners and the rules of apply.

Each replaces a rule or two for the length of a run. Every one is found within `SEEDS_MAX` seeds of
`EVENTS` events each; a test holds that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import rlm.copy.copy_plan
import rlm.copy.hold
import rlm.copy.partition_driver
import rlm.copy.partition_work
import rlm.copy.scanner
import rlm.delete.clean_up
import rlm.local_log.hold_plan
import rlm.reconcile.collector
import rlm.retention.delete_records_follower
import rlm.retention.delete_records_watch
import rlm.retention.expirer
import rlmm.apply.claims
import rlmm.apply.lower_end
import rlmm.apply.segments
import rlmm.rows.served_ranges
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.copier import AttemptFailed, BeforeFinish, Copied, Copier, CopyOrder, nothing_more
from rlm.copy.copy_plan import PlanFacts, Step
from rlm.copy.hold import Hold
from rlm.copy.hold_pass import Order
from rlm.copy.mending import _Asking
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.partition_work import PartitionWork
from rlm.copy.work_table import WorkTable
from rlm.data_plane.read_request import SegmentPiece
from rlm.data_plane.segment_source import SegmentSource
from rlm.data_plane.upload_deadline import DeadlineStore
from rlm.delete.clean_up import CleanUp
from rlm.delete.delete_due import objects_due_ms
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.format.object_keys import segment_keys
from rlm.leadership.leadership import BrokerWord, Leads, OwnClaim
from rlm.local_log.gap_rule import GapWatch
from rlm.local_log.hold_directory import HoldDirectory
from rlm.local_log.hold_plan import (
    HoldFacts,
    Release,
    Unit,
    over_budget,
    to_hold,
    unbroken,
    with_heads,
)
from rlm.local_log.log_dir import LocalSegment
from rlm.nodes.registration import NodeRegistrar
from rlm.reconcile.collection_plan import ObjectClass, classify
from rlm.repair.segment_repair import SegmentRepairs
from rlm.retention.delete_records_follower import DeleteRecordsFollower
from rlm.retention.delete_records_watch import Look, Watched, _inside_a_segment, watched
from rlm.retention.expirer import Expirer
from rlm.retention.retention_plan import RetentionFacts, RetentionPlan, plan_retention
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.apply.outcome import Draft, Outcome, find_live
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.queries import ServedSegment
from rlmm.segment import OFFSET_MAX, Incarnation, RemoteLogSegmentMetadata
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectInfo
from sim.ground.planting import Patches, planting
from sim.tier.planted_in_holding import no_unit

SEEDS_MAX = 60
FIRST_SEEDS = {
    "what an earlier leader lost is lost for good": 353,
    "what is held is not looked at before others are asked": 17,
}
"""First seed of the search for a bug that the first seeds don't show."""
RARE_SEEDS_MAX = 200
DAMAGED_SEEDS_MAX = 30
FOLLOWING_SEEDS_MAX = 60
EVENTS = 800
COMMITTED_UP_TO = 1 << 60

_attempt = Copier._attempt


def _no_files_wanted(*_: object) -> int:
    return OFFSET_MAX


_carry_out = Expirer._carry_out
_delete_objects = CleanUp.delete_objects
_drive_all = WorkTable.drive_all
_order = Hold._order
_piece = ResolvedReads.piece
_plan_facts = PartitionDriver._plan_facts
_put = DeadlineStore.put
_remove = CleanUp.remove


def _no_objection(*_: object, **__: object) -> None:
    pass


def _reads_nothing(*_: object) -> BeforeFinish:
    return nothing_more


async def _nothing(*_: object, **__: object) -> None:
    pass


class _Anybody(Incarnation):
    """An incarnation that equals any other."""

    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def _live_for_anybody(draft: Draft, partition: TopicIdPartition) -> PartitionRow | Outcome:
    """Take the present claim for the writer's, whoever that is."""
    row = find_live(draft, partition)
    if isinstance(row, Outcome) or row.claim is None:
        return row
    there = row.claim.incarnation
    anybody = _Anybody(there.node_id, there.directory_id, there.boot_counter)
    return row._replace(claim=replace(row.claim, incarnation=anybody))


async def _clean_up_on_suspicion(
    copier: Copier,
    order: CopyOrder,
    store: TierStore,
    row: RemoteLogSegmentMetadata,
    before_finish: BeforeFinish,
) -> Copied | AttemptFailed:
    """Take a lost answer for a failure."""
    outcome = await _attempt(copier, order, store, row, before_finish)
    if isinstance(outcome, AttemptFailed) and outcome.row is not None:
        keys = segment_keys(store.prefix, row.segment_id, row.start_offset).all()
        await store.store.delete_many(keys)
    return outcome


async def _row_first(
    clean_up: CleanUp, row: RemoteLogSegmentMetadata, due_ms: int, why: str
) -> None:
    await _remove(_nowhere(clean_up), row, due_ms, why)
    await _delete_objects(clean_up, row)


def _nowhere(clean_up: CleanUp) -> CleanUp:
    """The clean-up over a store that holds nothing."""
    name = clean_up.stores.default_name
    empty = TierStores({name: TierStore(name, MemoryStore(lambda: 0), "")}, name)
    return replace(clean_up, stores=empty, confirm_prefix=_nothing)


async def _delete_at_first_only(
    clean_up: CleanUp, row: RemoteLogSegmentMetadata, due_ms: int, why: str
) -> None:
    await _delete_objects(clean_up, row)
    await _remove(_nowhere(clean_up), row, due_ms, why)


def _at_once(*_: object, **__: object) -> int:
    return 0


def _retain_by_the_last_epoch(facts: RetentionFacts) -> RetentionPlan:
    """Take the lineage from the broker's checkpoint after local retention."""
    return plan_retention(
        replace(facts, state=replace(facts.state, lineage=facts.state.lineage[-1:]))
    )


def _no_epoch_ends(_: Any, __: int) -> tuple[int, int]:
    return 0, OFFSET_MAX


def _foreign_is_garbage(*args: Any, **named: Any) -> ObjectClass:
    class_ = classify(*args, **named)
    return ObjectClass.ORPHAN if class_ is ObjectClass.FOREIGN else class_


async def _delete_then_move(expirer: Expirer, order: Any) -> None:
    await _carry_out(expirer, replace(order, plan=replace(order.plan, log_start=None)))
    await _carry_out(expirer, order)


async def _put_no_manifest(
    store: DeadlineStore, key: str, data: bytes, *, crc32c: int, create_only: bool = False
) -> ObjectInfo:
    if create_only:
        return ObjectInfo(key, len(data), crc32c, None, "")
    return await _put(store, key, data, crc32c=crc32c, create_only=create_only)


async def _drive_again(table: WorkTable, *, back_offs_max: int) -> None:
    """Drive partitions that are driven already, or have a copy under way."""
    for work in table.works():
        work.task = None
        work.one_copy = asyncio.Lock()
    await _drive_all(table, back_offs_max=back_offs_max)


def _all_is_committed(driver: PartitionDriver, work: Any, state: Any, _: int) -> PlanFacts:
    return _plan_facts(driver, work, state, COMMITTED_UP_TO)


def _jump_the_gap(facts: PlanFacts, _: int) -> Step:
    first = facts.segments[0]
    if first.next_base_offset is None:
        return Wait(WhyNot.NO_SEALED_SEGMENT, "only the active segment is left")
    return rlm.copy.copy_plan._copy(first, fills_lost_range=False)


def _as_if_all_were_there(facts: PlanFacts) -> int:
    return facts.segments[facts.linked_count].base_offset


def _the_whole_piece(reads: ResolvedReads, served: ServedSegment) -> SegmentPiece:
    piece = _piece(reads, served)
    return replace(piece, first_offset=piece.segment.start_offset)


async def _objects_only(clean_up: CleanUp, row: RemoteLogSegmentMetadata) -> None:
    for tier in clean_up.stores.by_name.values():
        keys = segment_keys(tier.prefix, row.segment_id, row.start_offset).all()
        await tier.store.delete_many(keys)


def _links_cost_something(
    units: Iterable[Unit], *, bytes_max: int, bytes_missing: int
) -> tuple[tuple[Unit, Release], ...]:
    """Count links of what the broker still has."""
    alone = (replace(unit, alone=True) for unit in units)
    return over_budget(alone, bytes_max=bytes_max, bytes_missing=bytes_missing)


def _by_its_name_alone(facts: HoldFacts, held: Iterable[Unit]) -> tuple[LocalSegment, ...]:
    return to_hold(
        facts, [replace(each, segment=replace(each.segment, size_bytes=-1)) for each in held]
    )


def _by_the_stable(hold: Hold, work: PartitionWork) -> Order:
    order = _order(hold, work)
    stable = order.local.last_stable_offset_bound
    return replace(order, facts=replace(order.facts, high_watermark=stable))


def _never(*_: object) -> bool:
    return False


def _none_usable(*_: object) -> tuple[Unit, ...]:
    return ()


def _copied_in_part(facts: HoldFacts, first_known: int, _: int) -> bool:
    return first_known < facts.next_offset


async def _begin_with_nothing(hold: Hold) -> None:
    for directory in hold._directories:
        directory.prepare()
        directory.sweep()
        hold._unread[directory] = ()


def _joined_at_the_first_base(work: PartitionWork, *_: object) -> Epochs:
    if work.local is None:
        return ()
    start = work.local.segments[0].base_offset
    seen = unbroken(work.kept, start, epoch_for_offset(work.checkpoint, start))
    return with_heads(seen, work.local.leader_epochs)


def _each_below_the_last(units: Iterable[Unit], *_: object) -> tuple[Unit, ...]:
    found: list[Unit] = []
    for unit in sorted(units, key=lambda each: each.base_offset, reverse=True):
        if not found or unit.leader_epochs[-1].epoch <= found[-1].leader_epochs[0].epoch:
            found.append(unit)
    return tuple(reversed(found))


def _begins_with_its_own(facts: PlanFacts) -> int:
    return facts.local_log_start_offset


def _joined_where_they_end(units: Iterable[Unit], offset: int, *_: object) -> tuple[Unit, ...]:
    return tuple(unit for unit in units if unit.next_base_offset == offset)


def _at_the_first_look(before: Watched | None, look: Look) -> Watched:
    if before is None and _inside_a_segment(look):
        return Watched(look, proven=look.log_start_offset)
    return watched(before, look)


def _in_one_directory(last: Look, look: Look) -> bool:
    return last.directory == look.directory and look.log_start_offset >= last.log_start_offset


def _in_one_epoch(last: Look, look: Look) -> bool:
    return (last.token, last.leader_epoch) == (look.token, look.leader_epoch)


def _led_before(claim: OwnClaim, before: BrokerWord | None, _: BrokerWord | None) -> bool:
    return isinstance(before, Leads) and before.leader_epoch == claim.leader_epoch


def _yes_at_once(*_: object) -> bool:
    return True


BUGS: dict[str, Patches] = {
    "a lost answer is cleaned up after": ((Copier, "_attempt", _clean_up_on_suspicion),),
    "a copy finishes without a manifest": ((DeadlineStore, "put", _put_no_manifest),),
    "two copies of a partition are in flight": ((WorkTable, "drive_all", _drive_again),),
    "what is not committed is copied": ((PartitionDriver, "_plan_facts", _all_is_committed),),
    "log start moves after the delete": (
        (Expirer, "_carry_out", _delete_then_move),
        (rlmm.apply.segments, "_needed", _no_objection),
    ),
    "the collector deletes what is foreign": (
        (rlm.reconcile.collector, "classify", _foreign_is_garbage),
    ),
    "a gap is passed over in silence": (
        (rlmm.apply.segments, "_out_of_place", _no_objection),
        (rlm.copy.copy_plan, "_gap", _jump_the_gap),
    ),
    "links of what the broker has count in the hold": (
        (rlm.copy.hold, "over_budget", _links_cost_something),
    ),
    "what an open transaction keeps back is not held": ((Hold, "_order", _by_the_stable),),
    "what an earlier leader lost is lost for good": (
        (rlm.copy.copy_plan, "_fills_a_lost_range", _never),
    ),
    "what is copied in part is held no more": (
        (rlm.local_log.hold_plan, "is_copied", _copied_in_part),
    ),
}
RARE_BUGS: dict[str, Patches] = {
    "a wiped disk never gets its claims back": ((rlmm.apply.claims, "_took_over", _never),),
    "two processes with one node id go on": ((NodeRegistrar, "look", _nothing),),
    "uploads are left dangling": ((CleanUp, "delete_objects", _objects_only),),
    "the source is not looked at again": ((SegmentSource, "check_unchanged", _no_objection),),
    "what is held is forgotten at a restart": ((Hold, "begin", _begin_with_nothing),),
    "half-made links stay": ((HoldDirectory, "sweep", _no_objection),),
}
"""Bugs found by seeds as well, within `RARE_SEEDS_MAX`."""

BUGS_OF_DAMAGE: dict[str, Patches] = {
    "what is copied anew is not read back": ((SegmentRepairs, "_read_back", _reads_nothing),),
}
"""Bugs found by seeds of a world whose objects are damaged, within `DAMAGED_SEEDS_MAX`."""

BUGS_OF_LOCAL_DAMAGE: dict[str, Patches] = {
    "what is gone at the head of a log is lost at once": (
        (rlm.copy.partition_driver, "files_wanted_from", _no_files_wanted),
    ),
    "a gap in a segment is passed over": ((GapWatch, "check", _no_objection),),
}
BUGS_OF_HELD_DAMAGE: dict[str, Patches] = {
    "what is held is not looked at before others are asked": ((_Asking, "look_at", _nothing),),
    "a held file is linked again once it seems to reach further": (
        (rlm.copy.hold, "to_hold", _by_its_name_alone),
    ),
}
"""Both found by seeds of a world whose brokers lose segments, within `DAMAGED_SEEDS_MAX`; these
where nodes hold what is not copied.
"""

BUGS_OF_FOLLOWING: dict[str, Patches] = {
    "a log start on the border of a segment is followed": (
        (rlm.retention.delete_records_watch, "_inside_a_segment", _yes_at_once),
    ),
    "what the first look finds is followed": (
        (rlm.retention.delete_records_follower, "watched", _at_the_first_look),
    ),
    "what moved in another leader epoch is followed": (
        (rlm.retention.delete_records_watch, "_goes_on", _in_one_directory),
    ),
    "whether the broker still leads is not asked again": (
        (rlm.retention.delete_records_follower, "_leads_throughout", _led_before),
    ),
    "a policy that was turned off is followed": (
        (DeleteRecordsFollower, "_is_asked_for", _yes_at_once),
    ),
    "nothing proves DeleteRecords": (
        (rlm.retention.delete_records_watch, "_inside_a_segment", _never),
    ),
}
"""Bugs found by seeds of a world that follows DeleteRecords, within `FOLLOWING_SEEDS_MAX`."""

ZOMBIE = "zombie_put_before_the_deadline"
HELD = "hold_through_an_outage"
DELETE_RECORDS = "delete_records_past_the_copied_offset"
BUGS_OF_SCRIPTS: dict[str, tuple[str, Patches]] = {
    "the fence is skipped": (
        "stale_copy_is_fenced",
        (
            (rlmm.apply.segments, "without_token", _no_objection),
            (rlmm.apply.segments, "find_live", _live_for_anybody),
        ),
    ),
    "a clean-up does not wait for the upload's deadline": (
        ZOMBIE,
        ((CleanUp, "due_ms", _at_once),),
    ),
    "metadata goes before the objects": (ZOMBIE, ((CleanUp, "remove", _row_first),)),
    "objects are deleted once only": (ZOMBIE, ((CleanUp, "remove", _delete_at_first_only),)),
    "left-overs are forgotten": (ZOMBIE, ((PartitionDriver, "clean_left_overs", _nothing),)),
    "objects go without the delay for readers": (
        "retention",
        ((rlm.delete.clean_up, "objects_due_ms", _at_once),),
    ),
    "a pass goes on by a policy that was replaced": (
        "retention_by_a_policy_that_was_replaced",
        ((rlmm.apply.lower_end, "decided_otherwise", _no_objection),),
    ),
    "retention goes by an unmerged lineage": (
        "retention_over_two_leaders",
        ((rlm.retention.expirer, "plan_retention", _retain_by_the_last_epoch),),
    ),
    "a finished copy has no late requests": (
        "late_put_of_a_finished_copy",
        ((rlm.delete.clean_up, "delete_due_ms", objects_due_ms),),
    ),
    "what DeleteRecords took is waited for": (
        DELETE_RECORDS,
        ((rlm.copy.copy_plan, "_first_offset_left", _as_if_all_were_there),),
    ),
    "a read behind a hole begins below what is served": (
        DELETE_RECORDS,
        ((ResolvedReads, "piece", _the_whole_piece),),
    ),
    "what is held is not planned with": (
        HELD,
        ((rlm.copy.partition_work, "usable", _none_usable),),
    ),
    "what is held is said to reach a head that DeleteRecords took": (
        "hold_below_what_delete_records_took",
        ((PartitionWork, "epochs_to_claim", _joined_at_the_first_base),),
    ),
    "what is held is of any log that begins where it ends": (
        "hold_below_a_log_begun_anew",
        ((rlm.copy.partition_work, "unbroken", _joined_where_they_end),),
    ),
    "a held segment hides one that overlaps it": (
        "hold_of_a_replica_that_moved",
        ((rlm.copy.partition_work, "usable", _each_below_the_last),),
    ),
    "a log that begins amid a held segment begins there": (
        "hold_that_the_log_begins_amid",
        ((rlm.copy.copy_plan, "_history_start", _begins_with_its_own),),
    ),
    "a held file that was cut and written on is let go": (
        "hold_of_a_file_cut_and_written_on",
        ((HoldDirectory, "rebuild_from_batches", no_unit),),
    ),
    "what moved in another directory is followed": (
        "delete_records_followed",
        ((rlm.retention.delete_records_watch, "_goes_on", _in_one_epoch),),
    ),
    "a topic made again is taken for the one before": (
        "topic_made_again_before_the_brokers_answer",
        (
            (rlm.copy.scanner, "why_another", _no_objection),
            (rlm.copy.scanner.Scanner, "_under_wrong_ids", AsyncMock(return_value={})),
        ),
    ),
    "the diverged tail is served": (
        "unclean_election",
        ((rlmm.rows.served_ranges, "epoch_bounds", _no_epoch_ends),),
    ),
}
"""Bugs found by the named script: their conditions are rare among seeds."""


def planted(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    scripted = {each: patches for each, (_, patches) in BUGS_OF_SCRIPTS.items()}
    local = BUGS_OF_LOCAL_DAMAGE | BUGS_OF_HELD_DAMAGE
    seeded = BUGS | RARE_BUGS | BUGS_OF_DAMAGE | local | BUGS_OF_FOLLOWING
    return planting((seeded | scripted)[name])
