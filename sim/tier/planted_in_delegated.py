"""Planted bugs about partitions that brokers tier themselves: [LOSS-n] that a node can make."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import Any

import rlm.delegated.deletions
import rlm.delegated.segment_lists
import rlm.delegated.segment_reads
import rlm.leadership.leadership
from kafka_formats.errors import RetryLater, StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.read_request import NoSuchIndex
from rlm.delegated import wire
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.deletions import BrokerDeletions
from rlm.delegated.fresh_leaders import FreshLeaders
from rlm.delegated.older_history import OlderHistory
from rlm.delegated.plugin import Plugin
from rlm.delegated.segment_reads import SegmentReads
from rlm.delegated.sessions import Made
from rlm.format.manifest import IndexType
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from sim.ground.planting import Patches, planting

DELEGATED_SEEDS_MAX = 40

_announce = BrokerCalls.announce
_list = BrokerCalls.list_segments
_look_up = BrokerCalls.look_up
_index = SegmentReads.index


def _delete_what_stopped(calls: BrokerCalls, body: bytes) -> bytes:
    answer = _announce(calls, body)
    for tip in wire.decode_announcement(body).stopped:
        mark = RemotePartitionDeleteMetadata(
            tip, 1, calls.around.ambient.now_ms(), PartitionDeleteState.DELETE_PARTITION_MARKED,
            grace_ms=0,
        )  # fmt: skip
        asyncio.get_running_loop().create_task(_quietly(calls, mark))
    return answer


async def _quietly(calls: BrokerCalls, mark: RemotePartitionDeleteMetadata) -> None:
    try:
        await calls.metadata.put_remote_partition_delete_metadata(mark, deadline_s=10.0)
    except StrandlineError:
        return


async def _empty_list_before_it_is_ready(
    calls: BrokerCalls, body: bytes, *, takes_changes: bool
) -> bytes:
    try:
        return await _list(calls, body, takes_changes=takes_changes)
    except RetryLater:
        return wire.encode_page(0, b"", (), None)


def _ready_at_once(*_: object) -> bytes:
    return wire.encode_ready(0, True, "")


async def _begun_counts_as_copied(calls: BrokerCalls, body: bytes) -> bytes:
    asked = wire.decode_highest(body)
    rows = calls.metadata.list_remote_log_segments(asked.partition, asked.leader_epoch)
    ends = [row.end_offset for row in rows if row.state is not SegmentState.DELETE_SEGMENT_STARTED]
    return wire.encode_highest(0, max(ends, default=None))


async def _nothing_found_before_it_is_ready(calls: BrokerCalls, body: bytes) -> bytes:
    try:
        return await _look_up(calls, body)
    except RetryLater:
        return wire.encode_found(0, None)


async def _no_transaction_index(calls: BrokerCalls, body: bytes) -> bytes:
    if wire.decode_look_up(body).with_txn_index:
        return wire.encode_found(0, None)
    return await _look_up(calls, body)


async def _none_where_it_fails(
    reads: SegmentReads, row: RemoteLogSegmentMetadata, index: IndexType
) -> AsyncIterator[bytes]:
    try:
        async for chunk in _index(reads, row, index):
            yield chunk
    except StrandlineError as error:
        raise NoSuchIndex(str(error)) from None


def _no(*_: object) -> bool:
    return False


async def _never(*_: object) -> bool:
    return False


def _as_it_is(row: RemoteLogSegmentMetadata, _below: int) -> RemoteLogSegmentMetadata:
    return row


def _none_of_them(*_: object) -> Iterator[RemoteLogSegmentMetadata]:
    return iter(())


async def _leave_what_was_passed(*_: object) -> None:
    pass


def _nothing_noted(*_: object) -> int:
    return 0


async def _expires_at_once(*_: object) -> None:
    pass


def _nothing_is_cut(*_: object) -> None:
    pass


def _anybodys_token(calls: BrokerCalls, tip: TopicIdPartition, _made: Made) -> int:
    state = calls.metadata.partition_state(tip)
    assert state is not None
    assert state.claim is not None
    return state.claim.token


LOSS_1: Patches = ((BrokerCalls, "announce", _delete_what_stopped),)
LOSS_2: Patches = (
    (BrokerCalls, "list_segments", _empty_list_before_it_is_ready),
    (BrokerCalls, "ready", _ready_at_once),
)
LOSS_3: Patches = ((BrokerCalls, "highest", _begun_counts_as_copied),)
LOSS_4: Patches = ((BrokerCalls, "look_up", _nothing_found_before_it_is_ready),)
LOSS_7: Patches = ((SegmentReads, "index", _none_where_it_fails),)
LOSS_8: Patches = ((rlm.leadership.leadership, "_is_first_delegated_claim", _no),)
LOSS_8_LATER: Patches = ((rlm.delegated.deletions, "is_kept", _no),)
COUNTED_AGAIN: Patches = ((BrokerDeletions, "start_passed", _leave_what_was_passed),)
LOSS_9: Patches = ((rlm.delegated.segment_reads, "last_valid_offset", _nothing_is_cut),)

LATE_CALLS: Patches = ((Made, "before", _no),)

REPLACED = "a call of a broker that was replaced is recorded under its successor's claim"
RESTARTS = frozenset({"restart", "elect"})
BUGS_OF_DELEGATED: dict[str, tuple[frozenset[str], Patches]] = {
    "LOSS-1: a replica that stopped is deleted": (frozenset({"move"}), LOSS_1),
    "LOSS-2: a list is empty before its node is ready": (RESTARTS, LOSS_2),
    "LOSS-3: what was begun counts as copied": (frozenset({"leaves_off", "elect"}), LOSS_3),
    "LOSS-4: a look-up finds nothing before its node is ready": (RESTARTS, LOSS_4),
    "LOSS-8: a broker gets a topic with older history": (
        frozenset({"late_topic", "elect"}),
        (*LOSS_8, *LOSS_8_LATER),  # each alone keeps that history
    ),
    "what a log start passed is not marked before its broker counts": (
        frozenset({"retention", "leaves_off"}),
        COUNTED_AGAIN,
    ),
    "a leader counts before it has asked what is copied": (
        frozenset({"retention", "elect"}),
        ((FreshLeaders, "why_not_expire", _expires_at_once),),
    ),
    "an old broker is shown what is being deleted, and counts it": (
        frozenset({"retention", "old_brokers"}),
        ((Plugin, "is_left_out", _no),),
    ),
}
"""Bugs found by seeds with these deeds of brokers, within `DELEGATED_SEEDS_MAX`."""

BUGS_OF_DELEGATED_SCRIPTS: dict[str, tuple[str, Patches]] = {
    "LOSS-1 by hand": ("delegated_replica_moves_away", LOSS_1),
    "LOSS-2 by hand": ("delegated_node_restarts", LOSS_2),
    "LOSS-3 by hand": ("delegated_copy_is_not_finished", LOSS_3),
    "LOSS-4 by hand": ("delegated_node_restarts", LOSS_4),
    "LOSS-5 by hand: no segment has a transaction index": (
        "delegated_index_that_cannot_be_read",
        ((BrokerCalls, "look_up", _no_transaction_index),),
    ),
    "LOSS-7 by hand: an index that cannot be read is said to be none": (
        "delegated_index_that_cannot_be_read",
        LOSS_7,
    ),
    "LOSS-8 by hand": ("delegated_over_older_history", LOSS_8),
    "LOSS-8 of a later leader": (
        "delegated_head_of_a_later_leader",
        LOSS_8_LATER,
    ),
    "LOSS-8 of a later leader: its log start as it is counts as moved": (
        "delegated_head_of_a_later_leader",
        ((OlderHistory, "_note", _nothing_noted),),
    ),
    "LOSS-9 by hand: a diverged tail goes to consumers": ("delegated_unclean_election", LOSS_9),
    "a call from before a leadership that was not announced is recorded under its claim": (
        "delegated_late_add_unannounced",
        LATE_CALLS,
    ),
    REPLACED: (
        "delegated_delete_of_a_replaced_broker",
        ((BrokerCalls, "_token", _anybodys_token),),
    ),
    "a run that broke off is counted again": ("delegated_run_broken_off", COUNTED_AGAIN),
    "what is of epochs before the log's first is counted again": (
        "delegated_run_broken_off_across_epochs",
        ((rlm.delegated.deletions, "islice", _none_of_them),),
    ),
    "what is kept below a log start counts": (
        "delegated_kept_history_by_size",
        ((rlm.delegated.segment_lists, "_counted", _as_it_is),),
    ),
    "a fresh leader counts its disk and the tier": (
        "delegated_fresh_leader",
        ((FreshLeaders, "why_not_expire", _expires_at_once),),
    ),
    "what is listed after a deletion is asked of a leader alone": (
        "delegated_topic_deleted",
        ((BrokerDeletions, "is_topic_deleted", _never),),
    ),
}
"""Bugs found by the named script."""


def planted(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    found: Any = BUGS_OF_DELEGATED.get(name) or BUGS_OF_DELEGATED_SCRIPTS[name]
    return planting(found[1])
