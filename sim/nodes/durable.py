"""Contents of a machine's medium, whatever its programs believe."""

from __future__ import annotations

from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, offset_checkpoint
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.log_names import parse_segment_file_name, segment_file_name
from kafka_formats.record_batch import HEADER_BYTES, LOG_OVERHEAD, parse_header
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.quorum_state_file import QUORUM_STATE, QuorumState
from rlmm.log.recovery import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_DIRECTORY,
    RECOVERY_POINT_CHECKPOINT,
    TOPIC,
)
from rlmm.log.snapshot_files import parse_snapshot_file_name
from sim.ground.medium import Directory, File, Medium

SIZE_AT = 8
"""Position of a batch's length in its header, which `LOG_OVERHEAD` ends."""
METADATA = Path("/data/metadata")
LOG = METADATA / PARTITION_DIRECTORY


def _files(medium: Medium, path: Path = LOG) -> dict[str, File]:
    """Durable files of a directory, by name."""
    directory: Directory = medium.root
    for name in path.parts[1:]:
        node = directory.durable.get(name)
        if not isinstance(node, Directory):
            return {}
        directory = node
    return {name: node for name, node in directory.durable.items() if isinstance(node, File)}


def stored_quorum_state(medium: Medium) -> QuorumState | None:
    """The stored quorum state; None before there is one."""
    file = _files(medium).get(QUORUM_STATE)
    return None if file is None else quorum_state.parse(bytes(file.durable), source="medium")


def stored_epochs(medium: Medium) -> Epochs:
    """The stored leader epoch checkpoint; none before there is one."""
    file = _files(medium).get(LEADER_EPOCH_CHECKPOINT)
    return () if file is None else leader_epoch_checkpoint.parse(bytes(file.durable), source="")


def holds(medium: Medium, base_offset: int, data: bytes) -> bool:
    """True if these bytes are in their segment, or below a snapshot's end."""
    files = _files(medium)
    wanted = segment_file_name(base_offset, LOG_SUFFIX)
    names = [name for name in files if name.endswith(LOG_SUFFIX) and name <= wanted]
    if names and _has_batch(files[max(names)].durable, data):
        return True
    return base_offset < snapshot_end(medium)


def found_at(medium: Medium, base_offset: int, data: bytes) -> tuple[Path, int] | None:
    """The file and position of these bytes; None if they are in no segment."""
    wanted = segment_file_name(base_offset, LOG_SUFFIX)
    files = _files(medium)
    names = [name for name in files if name.endswith(LOG_SUFFIX) and name <= wanted]
    at = files[max(names)].durable.find(data) if names else -1
    return (LOG / max(names), at) if at >= 0 else None


def _has_batch(content: bytearray, data: bytes) -> bool:
    """True if a reader from batch to batch finds it; none is found behind half a batch."""
    at = content.find(data)
    if at < 0:
        return False
    begin = 0
    while begin < at:
        size = int.from_bytes(content[begin + SIZE_AT : begin + LOG_OVERHEAD])
        if size == 0:
            return False
        begin += LOG_OVERHEAD + size
    return begin == at


def recovery_point(medium: Medium) -> int:
    """The stored recovery point; 0 before there is one."""
    file = _files(medium, METADATA).get(RECOVERY_POINT_CHECKPOINT)
    if file is None:
        return 0
    return offset_checkpoint.parse(bytes(file.durable), source="medium").get((TOPIC, 0), 0)


def log_end(medium: Medium) -> int:
    """The end of the log's whole batches, one behind the other; 0 without any."""
    end = 0
    for name, file in sorted(_files(medium).items()):
        parsed = parse_segment_file_name(name)
        if parsed is None or parsed[1] != LOG_SUFFIX:
            continue
        if end not in (0, parsed[0]):
            return end
        end, at, content = parsed[0], 0, bytes(file.durable)
        while len(content) - at >= HEADER_BYTES:
            if not any(content[at + SIZE_AT : at + LOG_OVERHEAD]):
                return end
            try:
                header = parse_header(content, at, source="medium", position=at)
            except CorruptData:  # torn, and not cut yet
                return end
            if header.base_offset != end or at + header.size_bytes > len(content):
                return end
            end, at = header.last_offset + 1, at + header.size_bytes
    return end


def snapshot_end(medium: Medium) -> int:
    """End of the newest complete snapshot; 0 without one."""
    found = (parse_snapshot_file_name(name) for name in _files(medium))
    return max((each.end_offset for each in found if each is not None), default=0)


def snapshots(medium: Medium) -> dict[str, bytes]:
    """Complete snapshots by name."""
    return {
        name: bytes(file.durable)
        for name, file in _files(medium).items()
        if parse_snapshot_file_name(name) is not None
    }
