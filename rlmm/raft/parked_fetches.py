"""Responses to fetches, at once or when there is something new.

A valid fetch with nothing to read is parked, one for each replica, until the log grows, its wait
ends, or leadership ends. A high watermark above the replica's ends the wait as well (KIP-1166), but
not at once: the next records usually follow soon, and one response has both, which halves the
fetches of a busy quorum. This does not delay a node that waits for its own commit: the answer to
its Produce reports it (`high_watermark.learned`).
"""

from __future__ import annotations

from collections.abc import Hashable

from rlmm.raft import progress
from rlmm.raft.messages import Error, FetchRequest, FetchResponse, LogRead
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader, ParkedFetch


def success(r: Replica, leader: Leader, request: FetchRequest) -> FetchResponse:
    """The response with the records from the fetch offset on, if any, and the high watermark."""
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


def must_answer_now(r: Replica, request: FetchRequest) -> bool:
    return request.fetch_offset < r.log.end_offset or request.wait_max_ms <= 0


def park(r: Replica, leader: Leader, correlation: Hashable, request: FetchRequest) -> None:
    """Park a fetch. It replaces an older one of the replica, which gets an empty response."""
    older = leader.parked.pop(request.replica, None)
    if older is not None:
        r.respond(older.correlation, success(r, leader, older.request))
    wait_ms = min(request.wait_max_ms, r.settings.fetch_wait_max_ms)
    if _lacks_news(leader, request):
        wait_ms = min(wait_ms, r.settings.commit_news_wait_max_ms)
    leader.parked[request.replica] = ParkedFetch(correlation, request, r.now + wait_ms)


def _lacks_news(leader: Leader, request: FetchRequest) -> bool:
    return request.high_watermark < progress.told_high_watermark(leader, request)


def answer_all(r: Replica, leader: Leader) -> None:
    """Answer all parked fetches, after the log grew."""
    if leader.parked:
        parked, leader.parked = leader.parked, {}
        for each in parked.values():
            r.respond(each.correlation, success(r, leader, each.request))


def answer_soon(r: Replica, leader: Leader) -> None:
    """Shorten the wait of parked fetches that do not have the new high watermark."""
    latest_ms = r.now + r.settings.commit_news_wait_max_ms
    for each in leader.parked.values():
        if each.deadline_ms > latest_ms and _lacks_news(leader, each.request):
            each.deadline_ms = latest_ms


def answer_expired(r: Replica, leader: Leader) -> None:
    expired = [key for key, each in leader.parked.items() if each.deadline_ms <= r.now]
    for key in expired:
        each = leader.parked.pop(key)
        r.respond(each.correlation, success(r, leader, each.request))
