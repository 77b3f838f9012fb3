"""Names of objects in a store. Segments use the documented layout of Aiven's RemoteStorageManager:

    <prefix><topic>-<topicId>/<partition>/<start offset, 20 digits>-<segmentId>.<suffix>

The first folder's name must not exceed the 255 bytes that file systems and MinIO accept. A topic
name of more than 232 characters (below a prefix that ends with a slash) is split after 100
characters:

    <prefix><topic, 100 characters>/<the rest>-<topicId>/<partition>/...

No other topic's folder looks like that: its subfolders have numbers as names. Our own objects are
below `<prefix>_strandline/`, which can't be a topic's folder: those end with a dash and a topic id,
or have a hundred characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import RemoteLogSegmentId

PREFIX_BYTES_MAX = 256
"""The longest prefix: with the longest topic name a key stays below the 1024 bytes that S3
accepts.
"""

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
NAME_BYTES_MAX = 255
"""The limit of a folder's name on the stores that have such a limit."""
_HEAD_CHARACTERS = 100
PREFIX_NAME_BYTES_MAX = 132
"""The limit of a prefix after its last slash: with it only topics of more than a hundred characters
are split, and stores accept both halves.
"""
_ID_CHARACTERS = 23
"""The length of a topic id with the dash before it."""
_TOPIC_FOLDER = re.compile(
    r"(?:(?P<head>[A-Za-z0-9._-]{100})/)?(?P<topic>[A-Za-z0-9._-]{1,249})"
    r"-(?P<topic_id>[A-Za-z0-9_-]{22})"
)
_HEAD = re.compile(r"[A-Za-z0-9._-]{100}")
_PARTITION = re.compile(r"[0-9]{1,10}")
_SEGMENT_NAME = re.compile(r"([0-9]{20})-([A-Za-z0-9_-]{22})")
_FOLDERS_KEPT = 64
_SEGMENTS_KEPT = 8


class ObjectSuffix(StrEnum):
    """The three objects of a segment."""

    LOG = "log"
    INDEXES = "indexes"
    MANIFEST = "rsm-manifest"


_SUFFIXES = {suffix.value: suffix for suffix in ObjectSuffix}


@dataclass(frozen=True, slots=True)
class SegmentKeys:
    """The keys of a segment's three objects. `stem` is their common start, with the final dot."""

    stem: str

    @property
    def log(self) -> str:
        return self.stem + ObjectSuffix.LOG

    @property
    def indexes(self) -> str:
        return self.stem + ObjectSuffix.INDEXES

    @property
    def manifest(self) -> str:
        return self.stem + ObjectSuffix.MANIFEST

    def all(self) -> tuple[str, str, str]:
        """All keys, in the order of deletion: without its manifest a segment counts as absent."""
        return self.manifest, self.indexes, self.log


@dataclass(frozen=True, slots=True)
class ParsedSegmentKey:
    """The parts of a segment's key."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    suffix: ObjectSuffix


def segment_keys(prefix: str, segment_id: RemoteLogSegmentId, start_offset: int) -> SegmentKeys:
    """The keys of one segment. InvalidRequest for a topic name that Kafka does not allow."""
    if not 0 <= start_offset <= _INT64_MAX:
        raise InvalidRequest(
            f"{start_offset} is not an offset: give 0 to 2^63 - 1", field="start_offset"
        )
    stem = f"{partition_prefix(prefix, segment_id.partition)}{start_offset:020}-{segment_id.id}."
    return SegmentKeys(stem)


@lru_cache(maxsize=_FOLDERS_KEPT)
def partition_prefix(prefix: str, partition: TopicIdPartition) -> str:
    """The start of the keys of all segments of a partition."""
    check_topic_name(partition.topic)
    if not 0 <= partition.partition <= _INT32_MAX:
        raise InvalidRequest(
            f"{partition.partition} is not a partition: give 0 to 2^31 - 1", field="partition"
        )
    return f"{topic_start(prefix, partition.topic)}{partition.topic_id}/{partition.partition}/"


def topic_start(prefix: str, topic: str) -> str:
    """The start of the folders of all topics of this name, without the topic id."""
    check_prefix(prefix)
    path = topic
    if _is_split(prefix, topic):
        path = f"{topic[:_HEAD_CHARACTERS]}/{topic[_HEAD_CHARACTERS:]}"
    return f"{prefix}{path}-"


def may_have_long_topics(name: str) -> bool:
    """True if a folder directly below the prefix may be the first part of split topic folders."""
    return _HEAD.fullmatch(name) is not None


def _is_split(prefix: str, topic: str) -> bool:
    before = len(prefix.rpartition("/")[2].encode())
    return before + len(topic) + _ID_CHARACTERS > NAME_BYTES_MAX


def parse_segment_key(prefix: str, key: str) -> ParsedSegmentKey | None:
    """Parse a key that `segment_keys` made; None for every other object."""
    stem, suffix = segment_stem(key)
    segment = None if suffix is None else _same_segment(prefix, stem)
    return None if segment is None or suffix is None else ParsedSegmentKey(*segment, suffix)


def segment_stem(key: str) -> tuple[str, ObjectSuffix | None]:
    """Split a key into stem and suffix; the suffix is None if the key is not a segment's."""
    stem, _, end = key.rpartition(".")
    return stem, _SUFFIXES.get(end) if stem else None


def parse_segment_stem(prefix: str, stem: str) -> tuple[RemoteLogSegmentId, int] | None:
    """The segment and start offset in a stem; None for anything but a segment's stem."""
    if not stem.startswith(prefix):
        return None
    folder, _, name = stem[len(prefix) :].rpartition("/")
    match = _SEGMENT_NAME.fullmatch(name)
    partition = None if match is None else parse_partition_folder(folder)
    if match is None or partition is None:
        return None
    if ("/" in folder[: -len(str(partition.partition)) - 1]) != _is_split(prefix, partition.topic):
        return None  # not the form that this topic's length requires: not ours
    start_offset = int(match[1])
    try:
        id_ = Uuid.parse(match[2])
    except InvalidRequest:
        return None
    return None if start_offset > _INT64_MAX else (RemoteLogSegmentId(partition, id_), start_offset)


# In a listing a segment's three objects, and a partition's segments, are neighbours.
_same_segment = lru_cache(maxsize=_SEGMENTS_KEPT)(parse_segment_stem)


@lru_cache(maxsize=_FOLDERS_KEPT)
def parse_partition_folder(folder: str) -> TopicIdPartition | None:
    """Parse a folder between a store's prefix and a segment's name; None for any other."""
    name, _, number = folder.rpartition("/")
    topic = parse_topic_folder(name)
    if topic is None or _PARTITION.fullmatch(number) is None:
        return None
    if str(int(number)) != number or int(number) > _INT32_MAX:
        return None
    return TopicIdPartition(*topic, int(number))


def parse_topic_folder(name: str) -> tuple[str, Uuid] | None:
    """Parse the folder between a store's prefix and a partition's; None for any other folder."""
    match = _TOPIC_FOLDER.fullmatch(name)
    if match is None:
        return None
    try:
        topic = (match["head"] or "") + match["topic"]
        check_topic_name(topic)
        return topic, Uuid.parse(match["topic_id"])
    except InvalidRequest:
        return None


def own_prefix(prefix: str) -> str:
    """The start of the keys of Strandline's own objects, which belong to no segment."""
    return f"{check_prefix(prefix)}_strandline/"


def cluster_marker_key(prefix: str) -> str:
    """The key of the object that names the cluster that owns the prefix."""
    return f"{own_prefix(prefix)}cluster.json"


def snapshots_prefix(prefix: str) -> str:
    """The start of the keys of uploaded metadata snapshots."""
    return f"{own_prefix(prefix)}snapshots/"


def check_prefix(prefix: str) -> str:
    """The prefix itself; InvalidRequest if some store would not accept keys that start with it."""
    parts = prefix.split("/")
    plain = all(part not in (".", "..") for part in parts) and "" not in parts[:-1]
    if not plain or not prefix.isprintable() or len(prefix.encode()) > PREFIX_BYTES_MAX:
        raise InvalidRequest(
            f"{prefix[:60]!r} must be printable text of at most {PREFIX_BYTES_MAX} bytes, without "
            "a leading slash, empty parts, `.` and `..`",
            field="prefix",
        )
    if len(parts[-1].encode()) > PREFIX_NAME_BYTES_MAX:
        raise InvalidRequest(
            f"{parts[-1][:60]!r}... has more than {PREFIX_NAME_BYTES_MAX} bytes, and folders of "
            "topics begin with it: end it with a slash",
            field="prefix",
        )
    return prefix
