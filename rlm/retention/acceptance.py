"""An admin's acceptance that one pass of retention deletes more than the brake allows. Pure.

It covers the segments that the admin was shown, under the policy and the claim of that moment, and
ends with the next pass, even if that deletes nothing: if it remained in force, a later, wrong
policy would pass the brake.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.errors import Conflict
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.retention.retention_plan import UNCOUNTED, RetentionPlan
from rlmm.partition_state import TopicPolicy


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An acceptance: `segments` may be deleted beyond the brake in the next pass. `by`: the name of
    the admin.
    """

    token: int
    policy: TopicPolicy
    segments: frozenset[Uuid]
    size_bytes: int
    up_to_offset: int
    percent: float
    by: str

    @property
    def text(self) -> str:
        return (
            f"{self.by} let the next pass, and none after it, take {len(self.segments)} segments, "
            f"{self.size_bytes} bytes, log start up to {self.up_to_offset} (at most "
            f"{self.percent:g} %), by the policy at metadata offset {self.policy.offset}"
        )

    def counts_for(self, token: int, policy: TopicPolicy) -> bool:
        """True while the claim and the policy are still those of the acceptance."""
        return (self.token, self.policy) == (token, policy)


@dataclass(frozen=True, slots=True)
class AskedAcceptance:
    """A requested acceptance. `up_to_offset`: the new log start that the plan showed; None if the
    log start was to stay.
    """

    percent: float
    up_to_offset: int | None
    by: str


def acceptance_of(
    tip: TopicIdPartition, plan: RetentionPlan, token: int, log_start: int, asked: AskedAcceptance
) -> Acceptance:
    """The acceptance of `plan`, which was made with the requested percent. Conflict: there is
    nothing to accept, or the plan differs from the one shown.
    """
    held = plan.held_back or plan.hold
    if held is not None:
        raise Conflict(f"nothing of {tip} is deleted now: {held}", reason="HELD_BACK")
    going = [each.row for each in plan.taken if each.reason not in UNCOUNTED]
    if not going:
        raise Conflict(
            f"retention would take nothing of {tip} now: there is nothing to accept. Set the "
            "policy first, then look at the plan",
            reason="NOT_NEEDED",
        )
    if plan.brake is not None:
        raise Conflict(f"{tip}: {plan.brake}", reason="TOO_MUCH")
    up_to = log_start if plan.up_to is None else plan.up_to.offset
    shown = log_start if asked.up_to_offset is None else asked.up_to_offset
    if up_to != shown:
        raise Conflict(
            f"the pass would leave the log start of {tip} at {up_to}, but {shown} is to be "
            "accepted: the plan has changed. Look at it again, and accept the offset that it shows",
            reason="OTHER_PLAN",
        )
    return Acceptance(
        token,
        plan.policy,
        frozenset(each.segment_id.id for each in going),
        plan.expiring_bytes,
        up_to,
        asked.percent,
        asked.by,
    )
