"""Gathers the facts of a decision on leadership; requests the broker's log start if the first
delegated claim depends on it.
"""

from __future__ import annotations

from functools import partial

from rlm.cluster_settings.move_hold import MoveHold
from rlm.copy.asked_by_name import tiered_log_start_of
from rlm.copy.partition_work import PartitionWork
from rlm.copy.scanner import BrokerPort
from rlm.leadership.leadership import (
    LeadershipFacts,
    Leads,
    NoAnswer,
    NotLeading,
    lacks_older_history,
)
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import Mode, PartitionState
from rlmm.segment import Incarnation


def leadership_facts(
    work: PartitionWork,
    metadata: RemoteLogMetadataManager,
    broker: BrokerPort | None,
    me: Incarnation,
    now_ms: int,
) -> LeadershipFacts:
    """The facts as they are known now. Without a broker, its log start is read from its disk."""
    state = metadata.partition_state(work.partition)
    told = _told_log_start(work)
    untold = told if isinstance(told, NoAnswer) else None
    return LeadershipFacts(
        word=work.word,
        checkpoint=work.local.leader_epochs if work.local is not None else (),
        state=state,
        incarnation=me,
        now_ms=now_ms,
        claim=work.claim,
        refused=work.refused,
        wanted=work.mode,
        broker_log_start=told if isinstance(told, int) else work.broker_log_start,
        log_start_untold=None if untold is None or broker is None else untold.reason,
        tier_ends_below=partial(_tier_ends_below, metadata, state),
        held=MoveHold(metadata).stand_by(),
    )


def _told_log_start(work: PartitionWork) -> int | NoAnswer:
    """The log start that the broker reported in this leadership. A tiered log extends below the
    first file on disk, so the disk alone does not show where it starts.
    """
    epoch = work.word.leader_epoch if isinstance(work.word, Leads) else None
    if work.tiered_log_start is None or work.tiered_log_start[0] != epoch:
        return NoAnswer("its log start is requested next")
    told = work.tiered_log_start[1]
    return told if isinstance(told, NoAnswer) else max(told, work.log_start_said)


def _tier_ends_below(
    metadata: RemoteLogMetadataManager, state: PartitionState | None, offset: int
) -> bool:
    """True if the tier serves a whole segment below an offset: a broker whose log starts at that
    offset deletes the segment.
    """
    if state is None:
        return False
    served = metadata.served_segments(state, 0, offset - 1)
    return any(row.end_offset < offset for _, row in served)


async def learn_tiered_log_start(
    work: PartitionWork, facts: LeadershipFacts, broker: BrokerPort | None
) -> None:
    """Request the broker's log start, its tier included, if the claim depends on it. An answer from
    before a change of the mode is dropped: nodes may have copied since.
    """
    if facts.wanted is not Mode.DELEGATED:
        work.tiered_log_start = None
    leads, local = facts.word, work.local
    if broker is None or local is None or not isinstance(leads, Leads):
        return
    if not lacks_older_history(facts):
        return
    told = await tiered_log_start_of(broker, local)
    if isinstance(told, NotLeading):
        told = NoAnswer("it does not lead")
    start = told if isinstance(told, NoAnswer) else told.offset
    work.tiered_log_start = leads.leader_epoch, start
