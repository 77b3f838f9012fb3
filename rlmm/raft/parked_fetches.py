"""Answers to fetches, at once or when there is something to say.

A valid fetch with nothing to read is parked, one for each replica, until the log grows, the high
watermark moves past what the replica knows (KIP-1166), its wait ends, or leadership does.
"""

from __future__ import annotations

from rlmm.raft import progress
from rlmm.raft.actions import SendResponse
from rlmm.raft.messages import Error, FetchRequest, FetchResponse, LogRead
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader, ParkedFetch


def success(r: Replica, leader: Leader, request: FetchRequest) -> FetchResponse:
    """The records behind the fetch offset, if there are any, and the high watermark."""
    log = r.log
    read = None
    if request.fetch_offset < log.end_offset:
        bytes_max = min(request.bytes_max, r.settings.fetch_bytes_max)
        read = LogRead(request.fetch_offset, log.end_offset, bytes_max, log.generation)
    return FetchResponse(
        Error.NONE,
        leader.leader_id,
        leader.epoch,
        progress.told_high_watermark(leader, request),
        log.start_offset,
        read=read,
    )


def must_answer_now(r: Replica, leader: Leader, request: FetchRequest) -> bool:
    return (
        request.fetch_offset < r.log.end_offset
        or request.wait_max_ms <= 0
        or request.high_watermark < progress.told_high_watermark(leader, request)
    )


def park(r: Replica, leader: Leader, parked: ParkedFetch) -> None:
    """A replica's newer fetch replaces its older one, which is answered with nothing."""
    key = parked.request.replica
    older = leader.parked.pop(key, None)
    if older is not None:
        r.emit(SendResponse(older.correlation, success(r, leader, older.request)))
    leader.parked[key] = parked


def answer_all(r: Replica, leader: Leader) -> None:
    """The log grew."""
    if leader.parked:
        parked, leader.parked = leader.parked, {}
        for each in parked.values():
            r.emit(SendResponse(each.correlation, success(r, leader, each.request)))


def answer_those_behind(r: Replica, leader: Leader) -> None:
    """The high watermark moved."""
    behind = [
        key
        for key, each in leader.parked.items()
        if each.request.high_watermark < progress.told_high_watermark(leader, each.request)
    ]
    for key in behind:
        each = leader.parked.pop(key)
        r.emit(SendResponse(each.correlation, success(r, leader, each.request)))


def answer_expired(r: Replica, leader: Leader) -> None:
    expired = [key for key, each in leader.parked.items() if each.deadline_ms <= r.now]
    for key in expired:
        each = leader.parked.pop(key)
        r.emit(SendResponse(each.correlation, success(r, leader, each.request)))
