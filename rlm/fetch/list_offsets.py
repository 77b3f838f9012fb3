"""ListOffsets for a tiered partition: the special timestamps. Pure.

Sources: Kafka's ListOffsetsRequest (KIP-405, KIP-1005, KIP-1023). `rlm/fetch/timestamp_search.py`
searches for real timestamps.
"""

from __future__ import annotations

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
    """Kafka's special timestamps; any other negative number is an error."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@dataclass(frozen=True, slots=True)
class LocalOffsets:
    """The local log by this node's last look. `latest` is the last stable offset, exclusive."""

    local_log_start_offset: int
    latest: int
    checkpoint: Epochs


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """One ListOffsets answer; -1 where there is no value. Valid at `metadata_offset`."""

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
    """Answer all special timestamps but MAX_TIMESTAMP, for which InvalidRequest is raised.
    NotFound if the answer needs the local log, and this node has none.
    """
    if state is None and local is None:
        raise NotFound(f"{partition} is neither tiered nor in this node's log directories")
    offset, epoch = _answer(spec, partition, state, local)
    return OffsetAnswer(partition, NO_TIMESTAMP, offset, epoch, metadata_offset)


def _answer(
    spec: OffsetSpec,
    partition: TopicIdPartition,
    state: PartitionState | None,
    local: LocalOffsets | None,
) -> tuple[int, int]:
    match spec:
        case OffsetSpec.MAX_TIMESTAMP:
            raise InvalidRequest("MAX_TIMESTAMP needs a search, not a look-up", field="timestamp")
        case OffsetSpec.LATEST:
            local = _known(partition, local, "latest")
            return local.latest, local.checkpoint[-1].epoch if local.checkpoint else UNKNOWN_EPOCH
        case OffsetSpec.EARLIEST if state is not None and state.first_readable_offset >= 0:
            return state.first_readable_offset, _epoch(state.lineage, state.first_readable_offset)
        case OffsetSpec.EARLIEST | OffsetSpec.EARLIEST_LOCAL:
            local = _known(partition, local, "earliest local")
            start = local.local_log_start_offset
            return start, _epoch(local.checkpoint, start)
        case OffsetSpec.LATEST_TIERED if state is not None and state.highest_copied is not None:
            offset, epoch = state.highest_copied
            # As in Kafka: there is no epoch below the log start.
            return offset, epoch if offset >= state.first_readable_offset else UNKNOWN_EPOCH
        case OffsetSpec.EARLIEST_PENDING_UPLOAD if state is not None and state.next_offset >= 0:
            epochs = local.checkpoint if local is not None and local.checkpoint else state.lineage
            return state.next_offset, _epoch(epochs, state.next_offset)
        case _:
            return UNKNOWN_OFFSET, UNKNOWN_EPOCH


def _epoch(epochs: Epochs, offset: int) -> int:
    epoch = epoch_for_offset(epochs, offset)
    return UNKNOWN_EPOCH if epoch is None else epoch


def _known(partition: TopicIdPartition, local: LocalOffsets | None, what: str) -> LocalOffsets:
    if local is not None:
        return local
    raise NotFound(
        f"the {what} offset of {partition} is known on nodes with a replica of it; this node's "
        "log directories hold none: ask the node beside its leader"
    )


def parse_spec(timestamp: int) -> OffsetSpec | None:
    """The special timestamp of a negative number; None for a real timestamp (Unix time in ms)."""
    if timestamp >= 0:
        return None
    try:
        return OffsetSpec(timestamp)
    except ValueError:
        raise InvalidRequest(
            f"{timestamp} is neither a time in milliseconds nor one of Kafka's special timestamps "
            "(-1 latest, -2 earliest, -3 max timestamp, -4 earliest local, -5 latest tiered, "
            "-6 earliest pending upload)",
            field="timestamp",
        ) from None
