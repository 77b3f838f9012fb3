"""Names in the quorum's messages: the topic, directory ids. Pure."""

from __future__ import annotations

from functools import lru_cache

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from rlmm.log.recovery import TOPIC

PARTITION = 0
KRAFT_TOPIC = "__cluster_metadata"
"""The topic for which `kafka-metadata-quorum` asks; answered for the log's one partition."""

OUR_TOPICS = (TOPIC, KRAFT_TOPIC)

_DIRECTORIES_MAX = 1024


@lru_cache(_DIRECTORIES_MAX)
def directory_bytes(text: str) -> bytes:
    """The 16 bytes of a ReplicaKey's directory id; zeros if it is unknown."""
    return bytes(Uuid.parse(text)) if text else bytes(ZERO_UUID)


@lru_cache(_DIRECTORIES_MAX)
def directory_text(raw: bytes) -> str:
    """The reverse of `directory_bytes`."""
    if len(raw) != len(ZERO_UUID):
        raise InvalidRequest(f"a directory id of {len(raw)} bytes", field="directory_id")
    return "" if raw == ZERO_UUID else str(Uuid(raw))
