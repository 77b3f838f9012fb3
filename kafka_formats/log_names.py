"""Names in a log directory: of segment files, of partition directories, and of topics.

Source: Kafka's LogFileUtils, UnifiedLog.parseTopicPartitionName and Topic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from kafka_formats.errors import InvalidRequest

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SUFFIXES = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
)
LEADER_EPOCH_CHECKPOINT_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
TOPIC_NAME_CHARACTERS_MAX = 249

_OFFSET_MAX = 2**63 - 1
_PARTITION_MAX = 2**31 - 1
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION_DIRECTORY = re.compile(
    r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})(?:\.[0-9a-f]{32}-(?P<kind>future|delete|stray))?"
)


def segment_file_name(offset: int, suffix: str) -> str:
    """`offset` in 20 digits and one of the suffixes above."""
    if not 0 <= offset <= _OFFSET_MAX:
        raise InvalidRequest(f"{offset} is not an offset from 0 to {_OFFSET_MAX}", field="offset")
    return f"{offset:020d}{suffix}"


def parse_segment_file_name(name: str) -> tuple[int, str] | None:
    """(offset, suffix), or None for any other name, also for `.deleted`, `.swap` and the like."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or match[2] not in SUFFIXES or int(match[1]) > _OFFSET_MAX:
        return None
    return int(match[1]), match[2]


class DirectoryKind(Enum):
    """The broker's use of a partition directory, from its name."""

    LIVE = "live"
    FUTURE = "future"  # a replica that is being moved here from another log directory
    DELETE = "delete"  # queued for deletion
    STRAY = "stray"  # not expected on this broker


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A partition directory's name, parsed.

    For DELETE and STRAY, Kafka shortens long topic names: the id in `partition.metadata` counts.
    """

    topic: str
    partition: int
    kind: DirectoryKind


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Read `<topic>-<partition>` or `<topic>-<partition>.<32 hex>-<kind>`; None if neither."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    topic, partition = match["topic"], int(match["partition"])
    if partition > _PARTITION_MAX or _why_illegal(topic) is not None:
        return None
    kind = DirectoryKind(match["kind"]) if match["kind"] else DirectoryKind.LIVE
    return PartitionDirectory(topic, partition, kind)


def check_topic_name(name: str) -> None:
    """Raise InvalidRequest unless `name` is legal in Kafka."""
    reason = _why_illegal(name)
    if reason is not None:
        raise InvalidRequest(f"{name[:60]!r} is not a topic name: {reason}", field="topic")


def _why_illegal(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "it is a special directory name"
    if len(name) > TOPIC_NAME_CHARACTERS_MAX:
        return f"it has more than {TOPIC_NAME_CHARACTERS_MAX} characters"
    if not _has_legal_characters(name):
        return "it may hold only letters and digits of ASCII, '.', '_' and '-'"
    return None


@lru_cache(maxsize=4_096)
def _has_legal_characters(name: str) -> bool:
    """Cached, since every record of the metadata log asks; only for names that are not too long."""
    return _TOPIC.fullmatch(name) is not None
