"""The identity in a data directory, read without its lock, since a node may be running in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.properties import parse_meta_properties
from rlmm.data_directory.data_directory import CLUSTER_FILE, META_PROPERTIES


@dataclass(frozen=True, slots=True)
class FormattedIdentity:
    """The identity that `strandline format` wrote."""

    cluster_id: str
    kafka_cluster_id: str
    node_id: int


def formatted_identity(data_dir: Path) -> FormattedIdentity | None:
    """The identity; None if the directory is not formatted or can't be read. Raises CorruptData if
    a file is damaged.
    """
    source = data_dir / CLUSTER_FILE
    try:
        properties = (data_dir / META_PROPERTIES).read_bytes()
        cluster = source.read_bytes()
    except OSError:
        return None
    meta = parse_meta_properties(properties, source=str(data_dir / META_PROPERTIES))
    try:
        kafka_cluster_id = json.loads(cluster)["kafkaClusterId"]
        if not isinstance(kafka_cluster_id, str):
            raise TypeError("kafkaClusterId is not text")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"unreadable ({error!r})", source=str(source), position=0) from error
    return FormattedIdentity(meta.cluster_id, kafka_cluster_id, meta.node_id)
