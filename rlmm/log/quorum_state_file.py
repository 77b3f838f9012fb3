"""Kafka's `quorum-state` file: a voter's epoch and vote, which it must never forget.

One line of JSON, version 1 (KIP-595, KIP-853; Kafka's FileQuorumStateStore). It is on disk *before*
any step in that epoch takes effect. An unreadable file is a hard error: with an empty one, or one
with a flipped bit, the voter could vote twice in an epoch. Kafka's file has no checksum: ours has
one after its last field, which Kafka skips. A file without a checksum is accepted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, StrandlineError
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from rlmm.damaged_replica import REPLACE_REPLICA
from rlmm.log.disk import Disk, replace_file

QUORUM_STATE = "quorum-state"
DATA_VERSION = 1
NOBODY = -1
_INT32_MAX = 2**31 - 1
_KAFKAS_FIELDS = (
    frozenset({
        "clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters",
        "data_version",
    }),
    frozenset({"leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version"}),
)  # fmt: skip
"""The fields of Kafka's file, by version. Any other name may be one of ours with a flipped bit."""
_OUR_FIELDS = frozenset({"cutEpoch", "cutEndOffset", "crc32c"})
_CHECKSUM = re.compile(rb',"crc32c":"([0-9a-f]{8})"(?=}$)')


@dataclass(frozen=True, slots=True)
class QuorumState:
    """`leader_id` and `voted_id` are -1 for none; the directory id belongs to the vote.

    `cut_epoch` and `cut_end_offset` (ours, -1 for none): a log that reaches them lacks nothing that
    this replica may have acknowledged before recovery cut its tail (`rlmm/raft/damaged_tail.py`).
    """

    leader_epoch: int
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: Uuid = ZERO_UUID
    cut_epoch: int = NOBODY
    cut_end_offset: int = NOBODY


def encode(state: QuorumState) -> bytes:
    """Kafka's field names and order, then ours; last the CRC-32C of the text without it."""
    fields: dict[str, object] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": str(state.voted_directory_id),
    }
    if state.cut_end_offset != NOBODY:
        fields |= {"cutEpoch": state.cut_epoch, "cutEndOffset": state.cut_end_offset}
    fields["data_version"] = DATA_VERSION
    text = json.dumps(fields, separators=(",", ":")).encode()
    return text[:-1] + b',"crc32c":"%08x"}' % crc32c(text)


def parse(data: bytes, *, source: str) -> QuorumState:
    """Read version 0 or 1. CorruptData: not such a file."""
    try:
        fields = json.loads(data)
        version = _integer(fields, "data_version")
        if version not in (0, 1):
            raise ValueError(f"data_version {version} is not known here")
        _check(data, fields, version)
        directory = Uuid.parse(fields["votedDirectoryId"]) if version else ZERO_UUID
        state = QuorumState(
            leader_epoch=_integer(fields, "leaderEpoch"),
            leader_id=_integer(fields, "leaderId"),
            voted_id=_integer(fields, "votedId"),
            voted_directory_id=directory,
            cut_epoch=_integer(fields, "cutEpoch") if "cutEpoch" in fields else NOBODY,
            cut_end_offset=_offset(fields, "cutEndOffset") if "cutEpoch" in fields else NOBODY,
        )
        if state.leader_epoch < 0:
            raise ValueError(f"leaderEpoch {state.leader_epoch} is negative")
    except (ValueError, TypeError, KeyError, RecursionError, StrandlineError) as error:
        raise CorruptData(
            f"unreadable quorum state ({str(error)[:200]!r}). This node will not guess its epoch "
            f"and vote. What to do: {REPLACE_REPLICA}",
            source=source,
        ) from error
    return state


def _check(data: bytes, fields: dict[str, object], version: int) -> None:
    unknown = fields.keys() - _KAFKAS_FIELDS[version] - _OUR_FIELDS
    if unknown:
        raise ValueError(f"it has a field {min(unknown)!r}")
    if "crc32c" not in fields:
        return
    found = _CHECKSUM.search(data)
    if found is None or int(found[1], 16) != crc32c(data[: found.start()] + b"}"):
        raise ValueError("it fails its checksum")


def _integer(fields: dict[str, object], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is not an integer")
    if not NOBODY <= value <= _INT32_MAX:
        raise ValueError(f"{name} is not between {NOBODY} and {_INT32_MAX}")
    return value


def _offset(fields: dict[str, object], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{name} is not an offset")
    return value


def load(disk: Disk, directory: Path) -> QuorumState | None:
    """The stored state; None if none was ever stored. CorruptData: the file is unreadable."""
    path = directory / QUORUM_STATE
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None
    return parse(data, source=str(path))


def store(disk: Disk, directory: Path, state: QuorumState) -> None:
    """Store the state; durable on return. It may take effect only afterwards."""
    replace_file(disk, directory / QUORUM_STATE, encode(state))
