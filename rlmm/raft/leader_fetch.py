"""Fetch, on the leader's side (KIP-595): check, compare logs, take the acknowledgement, answer."""

from __future__ import annotations

from collections.abc import Hashable

from rlmm.raft import (
    high_watermark,
    identity,
    leader,
    leader_append,
    parked_fetches,
    progress,
    voter_changes,
)
from rlmm.raft.fetch_validation import validate
from rlmm.raft.leaving import public_leader_id
from rlmm.raft.messages import EpochEnd, Error, FetchRequest, FetchResponse, NoOp, SnapshotId
from rlmm.raft.replica import Replica
from rlmm.raft.requests import impossible, leader_only
from rlmm.raft.states import Leader


def handle(r: Replica, correlation: Hashable, request: FetchRequest) -> None:
    error = _check(r, request)
    state = r.state
    if error is not Error.NONE or not isinstance(state, Leader):
        r.respond(correlation, FetchResponse(error, public_leader_id(r), r.epoch))
        return
    error = identity.check_fetch(r, state, request)
    if error is Error.NONE and _impossible(r, state, request):
        error = Error.INVALID_REQUEST
    if error is not Error.NONE:
        r.respond(correlation, FetchResponse(error, state.leader_id, state.epoch))
        return
    known = progress.of(r, state, request.replica)
    if known is None:
        r.warn(f"more than {r.settings.observers_max} observers fetch: {request.replica} refused")
        throttled = Error.THROTTLING_QUOTA_EXCEEDED
        r.respond(correlation, FetchResponse(throttled, state.leader_id, state.epoch))
        return
    if progress.begins_uncounted(r, known, request):
        # An idle log would never get a record after this fetch to commit.
        leader_append.append_control(r, state, (NoOp(),))
    verdict = validate(r.log, request.fetch_offset, request.last_fetched_epoch)
    if verdict is not None:
        progress.fetched(r, known)
        r.respond(correlation, _elsewhere(r, state, verdict))
        return
    progress.acknowledged(r, known, request.fetch_offset)
    progress.fetched(r, known)
    if state.change is not None:
        voter_changes.proceed(r, state)
    high_watermark.update_as_leader(r)
    if state.transfer is not None:
        leader.continue_transfer(r)
    if r.state is not state:
        # This fetch completed a change or a transfer, and leadership ended with it.
        moved = FetchResponse(Error.NOT_LEADER_OR_FOLLOWER, public_leader_id(r), r.epoch)
        r.respond(correlation, moved)
    elif parked_fetches.must_answer_now(r, request):
        r.respond(correlation, parked_fetches.success(r, state, request))
    else:
        parked_fetches.park(r, state, correlation, request)


def _check(r: Replica, request: FetchRequest) -> Error:
    node_id = request.replica.node_id
    error = leader_only(r, node_id, request.epoch)
    if error is not Error.NONE:
        return error
    if (
        request.fetch_offset < 0
        or request.last_fetched_epoch < 0
        or request.last_fetched_epoch > request.epoch
        or node_id < 0
    ):
        end = f"offset {request.fetch_offset} in epoch {request.last_fetched_epoch}"
        return impossible(r, node_id, f"fetches in epoch {request.epoch} behind {end}")
    return Error.NONE


def _impossible(r: Replica, leader: Leader, request: FetchRequest) -> bool:
    """True for an offset and epoch that no log of this quorum can have: it must not acknowledge
    anything. A tail of an older epoch that this leader lacks is possible: it diverges.
    """
    log, end, epoch = r.log, request.fetch_offset, request.last_fetched_epoch
    if end > log.end_offset:
        never_written = epoch == leader.epoch
    else:
        # Here the epoch begins above, and it begins at the same offset in every log that has it.
        has_epoch = log.epochs.end_offset_for(epoch, log.end_offset).epoch == epoch
        never_written = (
            log.start_offset < end and log.epochs.epoch_of(end - 1) < epoch and has_epoch
        )
    if never_written:
        r.warn(
            f"node {request.replica.node_id} claims to have its log up to offset {end} in epoch "
            f"{epoch}, which was never written: refused, and it acknowledges "
            "nothing. Its data directory is damaged or not its own: remove it as a voter and "
            "format it anew to join"
        )
    return never_written


def _elsewhere(r: Replica, state: Leader, verdict: EpochEnd | SnapshotId) -> FetchResponse:
    """The response for a diverging or too old log: it acknowledges nothing, but shows that the
    replica is alive.
    """
    return FetchResponse(
        Error.NONE,
        state.leader_id,
        state.epoch,
        state.high_watermark,
        r.log.start_offset,
        diverging=verdict if isinstance(verdict, EpochEnd) else None,
        snapshot=verdict if isinstance(verdict, SnapshotId) else None,
    )
