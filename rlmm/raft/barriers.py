"""Linearizable reads by a batched no-op barrier, and reads of at least an offset.

KRaft has no linearizable read. This is ours: a record appended in this epoch *after* the read
arrived, once committed, proves that no later leader had committed a record before the read arrived.
Reads that arrive while one no-op is under way share the next one, or a proposal appended meanwhile.
The answer waits until everything below that record may be applied here.

Leases are not used: a restarted follower may vote at once, and clocks would matter.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable

from rlmm.raft import leader_append
from rlmm.raft.actions import WaitersDone, WaitersFailed
from rlmm.raft.events import AtLeastRequested, BarrierRequested
from rlmm.raft.leaving import public_leader_id
from rlmm.raft.messages import Error, NoOp
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader


def barrier_requested(r: Replica, event: BarrierRequested) -> None:
    leader = r.state
    if not isinstance(leader, Leader):
        refused = WaitersFailed((event.handle,), Error.NOT_LEADER_OR_FOLLOWER, public_leader_id(r))
        r.emit(refused)
        return
    barriers = leader.barriers
    if r.shutting_down or leader.transfer is not None:
        r.emit(WaitersFailed((event.handle,), Error.BROKER_NOT_AVAILABLE, leader.leader_id))
        return
    if barriers.count >= r.settings.waiters_max:
        r.emit(WaitersFailed((event.handle,), Error.THROTTLING_QUOTA_EXCEEDED, leader.leader_id))
        return
    barriers.count += 1
    barriers.uncovered.append(event.handle)
    if not barriers.groups:
        leader_append.append_control(r, leader, (NoOp(),))


def acknowledge_barriers(r: Replica, leader: Leader) -> None:
    """Answer the barriers below the high watermark and the durable end, after one moved."""
    barriers = leader.barriers
    end = min(leader.high_watermark, r.apply_to)
    while barriers.groups and barriers.groups[0][0] <= end:
        offset, handles = barriers.groups.popleft()
        barriers.count -= len(handles)
        r.emit(WaitersDone(handles, offset))
    if barriers.uncovered and not barriers.groups and leader.transfer is None:
        leader_append.append_control(r, leader, (NoOp(),))


def at_least_requested(r: Replica, event: AtLeastRequested) -> None:
    waiting = r.at_least
    if event.offset <= r.apply_to:
        r.emit(WaitersDone((event.handle,), event.offset))
    elif len(waiting.live) >= r.settings.waiters_max:
        r.emit(WaitersFailed((event.handle,), Error.THROTTLING_QUOTA_EXCEEDED))
    else:
        waiting.arrived += 1
        waiting.live[event.handle] = event.offset
        heapq.heappush(waiting.heap, (event.offset, waiting.arrived, event.handle))


def acknowledge_at_least(r: Replica) -> None:
    waiting = r.at_least
    done: list[Hashable] = []
    while waiting.heap and waiting.heap[0][0] <= r.apply_to:
        _, _, handle = heapq.heappop(waiting.heap)
        if waiting.live.pop(handle, None) is not None:
            done.append(handle)
    if done:
        r.emit(WaitersDone(tuple(done), r.apply_to))


def cancel(r: Replica, handle: Hashable) -> None:
    """Forget a waiter. Proposals and barriers end with their commit or the leadership."""
    waiting = r.at_least
    if waiting.live.pop(handle, None) is None:
        return
    if len(waiting.heap) > 2 * len(waiting.live) + 100:
        waiting.heap = [entry for entry in waiting.heap if entry[2] in waiting.live]
        heapq.heapify(waiting.heap)
