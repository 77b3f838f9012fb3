"""Stable words for the reasons why a partition is not copied now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WhyNot(StrEnum):
    NOT_INCLUDED = "not_included"
    COMPACTED = "compacted"
    UNUSABLE_DIRECTORY = "unusable_directory"
    NO_LOCAL_LOG = "no_local_log"
    MODE = "mode"
    DELEGATED = "delegated"
    PAUSED = "paused"
    PARTITION_DELETED = "partition_deleted"
    NO_LEADER_EPOCH = "no_leader_epoch"
    NOT_LEADER = "not_leader"
    BROKER_UNAVAILABLE = "broker_unavailable"
    EPOCH_NOT_ON_DISK = "epoch_not_on_disk"
    CLAIMED_ELSEWHERE = "claimed_elsewhere"
    CLAIM_REFUSED = "claim_refused"
    METADATA_UNAVAILABLE = "metadata_unavailable"
    CLOCK = "clock"
    BLOCKED = "blocked"
    BACK_OFF = "back_off"
    NO_SEALED_SEGMENT = "no_sealed_segment"
    HOLE_IN_LOG = "hole_in_log"
    WAITING_FOR_LSO = "waiting_for_lso"
    DIVERGED = "diverged"
    WAITING_FOR_SLOT = "waiting_for_slot"
    NOT_SCANNED = "not_scanned"
    EPOCHS_MISSING = "epochs_missing"
    NOT_ADOPTED = "not_adopted"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now, until `until_ms` (since the epoch) if known."""

    why: WhyNot
    text: str
    until_ms: int | None = None
