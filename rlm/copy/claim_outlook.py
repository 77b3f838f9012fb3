"""Forecasts this node's next claim of a partition, and decides if an admin may reset the claim.
Pure.

A ClaimReset lets the next claim truncate the lineage as far as the admin confirmed: readers get no
record above the cut, and retention then deletes those segments. So a reset is allowed only for a
refused claim, on the node that makes that claim, and, if it truncates, only while deleting is
paused for the topic: until deleting is resumed, a leader with the right checkpoint restores all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.partition_work import PartitionWork
from rlm.leadership.leadership import Leads, NoAnswer
from rlmm.apply.claim_forecast import AskedClaim, ClaimForecast
from rlmm.apply.outcome import Verdict
from rlmm.lineage import epoch_bounds
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.partition_state import Mode, PartitionState
from rlmm.rows.coverage import epoch_ranges, offsets_taken_out
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata, SegmentState


@dataclass(frozen=True, slots=True)
class ClaimCourse:
    """One claim as apply would judge it.

    `cut_at`: the offset where it would truncate the lineage, if at all; `cut_offsets`: the number
    of copied offsets it would take out. `after`: the partition after the claim; None if refused.
    """

    verdict: Verdict
    text: str
    cut_at: int | None
    cut_offsets: int
    after: PartitionState | None

    @property
    def is_accepted(self) -> bool:
        """True also if the claim changes nothing."""
        return self.verdict in (Verdict.ACCEPTED, Verdict.NO_EFFECT)


@dataclass(frozen=True, slots=True)
class ClaimOutlook:
    """This node's claim now, and after a reset."""

    leader_epoch: int
    checkpoint: Epochs
    as_it_is: ClaimCourse
    after_reset: ClaimCourse


@dataclass(frozen=True, slots=True)
class NoOutlook:
    """This node would make no claim now; `why` is the reason."""

    why: str


@dataclass(frozen=True, slots=True)
class ResetRefusal:
    """A refused reset. `reason` is a stable upper-case word, `text` an instruction."""

    reason: str
    text: str


def claim_outlook(
    partition: TopicIdPartition,
    work: PartitionWork | None,
    metadata: MetadataReads,
    incarnation: Incarnation,
) -> ClaimOutlook | NoOutlook:
    """Forecast this node's claim from its broker's answer, its disk and the metadata."""
    state = metadata.partition_state(partition)
    if work is None or work.local is None:
        return NoOutlook("it has no replica of the partition")
    held_off = work.left_out or work.unusable
    if held_off is not None:
        return NoOutlook(held_off.text)
    if not isinstance(work.word, Leads):
        if isinstance(work.word, NoAnswer):
            return NoOutlook(work.word.reason)
        return NoOutlook("its broker does not lead the partition")
    if state is not None and state.adopting and work.found is None:
        return NoOutlook(
            "it has not read the partition's segments in the stores since the restart from a "
            "snapshot, and its claim contains the leader epochs found there"
        )
    checkpoint = work.epochs_to_claim(work.word.leader_epoch, metadata)
    if not checkpoint or checkpoint[-1].epoch != work.word.leader_epoch:
        return NoOutlook(
            f"its broker leads at epoch {work.word.leader_epoch}, but the leader-epoch-checkpoint "
            "on its disk does not end with that epoch yet"
        )
    asked = AskedClaim(
        partition,
        work.word.leader_epoch,
        checkpoint,
        work.local.local_log_start_offset,
        incarnation,
    )
    return ClaimOutlook(
        asked.leader_epoch,
        checkpoint,
        _course(state, metadata.forecast_claim(asked)),
        _course(state, metadata.forecast_claim(replace(asked, after_reset=True))),
    )


def _course(state: PartitionState | None, forecast: ClaimForecast) -> ClaimCourse:
    cut_offsets, cut_at, after = 0, forecast.cut_at, forecast.state
    highest = None if state is None else state.highest_copied
    if state is not None and after is not None and cut_at is not None and highest is not None:
        first = max(cut_at, state.log_start_offset)
        cut_offsets = offsets_taken_out(
            state.lineage, after.lineage, first, highest[0], state.lost_ranges
        )
    outcome = forecast.outcome
    return ClaimCourse(outcome.verdict, outcome.message, cut_at, cut_offsets, after)


def is_cut_off(row: RemoteLogSegmentMetadata, before: Epochs, after: Epochs) -> bool:
    """True if a finished segment serves offsets by the lineage `before` but none by `after`, so
    that retention deletes it.
    """
    return (
        row.state is SegmentState.COPY_SEGMENT_FINISHED
        and _is_reached(row, before)
        and not _is_reached(row, after)
    )


def _is_reached(row: RemoteLogSegmentMetadata, lineage: Epochs) -> bool:
    for each in epoch_ranges(row):
        bounds = epoch_bounds(lineage, each.epoch)
        if bounds is not None and max(each.start, bounds[0]) <= min(each.end, bounds[1]):
            return True
    return False


def reset_refusal(
    state: PartitionState,
    outlook: ClaimOutlook | NoOutlook,
    *,
    deleting_paused: bool,
) -> ResetRefusal | None:
    """The reason against an admin's reset now; None if it helps and by itself loses no record."""
    kept_away = _kept_away(state)
    if kept_away is not None:
        return kept_away
    if isinstance(outlook, NoOutlook):
        return ResetRefusal(
            "NOT_LEADER",
            f"this node would not make the next claim: {outlook.why}. Ask the node beside the "
            "leader, which knows what its claim would cut",
        )
    if outlook.as_it_is.is_accepted:
        return ResetRefusal(
            "NOT_NEEDED", "this node's claim is accepted as it is: there is nothing to reset"
        )
    if not outlook.after_reset.is_accepted:
        return ResetRefusal(
            "NO_HELP",
            f"its claim would be refused after a reset, too: {outlook.after_reset.text}",
        )
    if outlook.after_reset.cut_offsets and not deleting_paused:
        topic = state.partition.topic
        return ResetRefusal(
            "DELETING_NOT_PAUSED",
            f"retention would delete the segments that the next claim takes out of the lineage: "
            f"first `strandline pause deleting --topic {topic}`. Resume it once the data that is "
            "left is known to be right",
        )
    return None


def _kept_away(state: PartitionState) -> ResetRefusal | None:
    if state.last_claim is None:
        return ResetRefusal("NO_CLAIM", "it was never claimed: there is nothing to reset")
    if state.delete_state is not None:
        return ResetRefusal(
            "DELETED", f"the partition is {state.delete_state.name}: take that back first"
        )
    if state.mode is not Mode.SIDECAR:
        return ResetRefusal(
            "MODE",
            f"no node claims a partition in mode {state.mode.name.lower()}: a reset would stay for "
            "any later claim. Set the mode first",
        )
    return None
