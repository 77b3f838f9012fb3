"""ListOffsets for a tiered partition: the special timestamps. Pure.

Sources: Kafka's ListOffsetsRequest (KIP-405, KIP-1005, KIP-1023). A real timestamp is searched in
`rlm/fetch/timestamp_search.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from kafka_formats.errors import InvalidRequest, NotFound
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import PartitionState

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
NO_TIMESTAMP = -1


class OffsetSpec(IntEnum):
    """Kafka's special timestamps; every other negative number is an error."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@dataclass(frozen=True, slots=True)
class LocalOffsets:
    """What this node knows of the local log. `latest` is the last stable offset."""

    local_log_start_offset: int
    latest: int
    checkpoint: Epochs


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """One ListOffsets answer; -1 where there is none. True at `metadata_offset`."""

    partition: TopicIdPartition
    timestamp_ms: int
    offset: int
    leader_epoch: int
    metadata_offset: int


def answer_special(
    spec: OffsetSpec,
    partition: TopicIdPartition,
    state: PartitionState | None,
    local: LocalOffsets | None,
    metadata_offset: int,
) -> OffsetAnswer:
    """LATEST, EARLIEST and the tiered specials. NotFound where only the local log could tell."""
    if state is None and local is None:
        raise NotFound(f"{partition} is neither tiered nor in this node's log directories")
    if spec is OffsetSpec.MAX_TIMESTAMP:
        raise InvalidRequest("MAX_TIMESTAMP needs a search, not a look-up", field="timestamp")
    offset, epoch = _ANSWERS[spec](partition, state, local)
    return OffsetAnswer(partition, NO_TIMESTAMP, offset, epoch, metadata_offset)


def _latest(
    partition: TopicIdPartition, _: PartitionState | None, local: LocalOffsets | None
) -> tuple[int, int]:
    if local is None:
        raise _only_local(partition, "latest")
    epoch = local.checkpoint[-1].epoch if local.checkpoint else UNKNOWN_EPOCH
    return local.latest, epoch


def _earliest(
    partition: TopicIdPartition, state: PartitionState | None, local: LocalOffsets | None
) -> tuple[int, int]:
    if state is None or state.log_start_offset < 0:
        return _earliest_local(partition, state, local)
    return state.log_start_offset, _epoch(state.lineage, state.log_start_offset)


def _earliest_local(
    partition: TopicIdPartition, _: PartitionState | None, local: LocalOffsets | None
) -> tuple[int, int]:
    if local is None:
        raise _only_local(partition, "earliest local")
    offset = local.local_log_start_offset
    return offset, _epoch(local.checkpoint, offset)


def _latest_tiered(
    _: TopicIdPartition, state: PartitionState | None, __: LocalOffsets | None
) -> tuple[int, int]:
    if state is None or state.highest_copied is None:
        return UNKNOWN_OFFSET, UNKNOWN_EPOCH
    offset, epoch = state.highest_copied
    # As Kafka: below the log start there is no epoch left to name.
    return offset, epoch if offset >= state.log_start_offset else UNKNOWN_EPOCH


def _earliest_pending_upload(
    _: TopicIdPartition, state: PartitionState | None, local: LocalOffsets | None
) -> tuple[int, int]:
    if state is None or state.next_offset < 0:
        return UNKNOWN_OFFSET, UNKNOWN_EPOCH
    epochs = local.checkpoint if local is not None and local.checkpoint else state.lineage
    return state.next_offset, _epoch(epochs, state.next_offset)


_ANSWERS: dict[
    OffsetSpec,
    Callable[
        [TopicIdPartition, PartitionState | None, LocalOffsets | None],
        tuple[int, int],
    ],
] = {
    OffsetSpec.LATEST: _latest,
    OffsetSpec.EARLIEST: _earliest,
    OffsetSpec.EARLIEST_LOCAL: _earliest_local,
    OffsetSpec.LATEST_TIERED: _latest_tiered,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: _earliest_pending_upload,
}


def _epoch(epochs: Epochs, offset: int) -> int:
    epoch = epoch_for_offset(epochs, offset)
    return UNKNOWN_EPOCH if epoch is None else epoch


def _only_local(partition: TopicIdPartition, what: str) -> NotFound:
    return NotFound(
        f"the {what} offset of {partition} is known on nodes with a replica of it; this node's "
        "log directories hold none: ask the node beside its leader"
    )


def parse_spec(timestamp: int) -> OffsetSpec | None:
    """The special that a negative number names; None for a real timestamp (ms since the epoch)."""
    if timestamp >= 0:
        return None
    try:
        return OffsetSpec(timestamp)
    except ValueError:
        raise InvalidRequest(
            f"{timestamp} is neither a time in milliseconds nor one of Kafka's specials "
            "(-1 latest, -2 earliest, -3 max timestamp, -4 earliest local, -5 latest tiered, "
            "-6 earliest pending upload)",
            field="timestamp",
        ) from None
