"""What is in the bucket, and what the metadata says should be."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.object_keys import cluster_marker_key, segment_keys, snapshots_prefix
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig
from tests.real.s3_admin import client


def store_settings(folder: Path, config: StoreConfig) -> dict[str, object]:
    """A node's settings for the store; the credentials go into a file in `folder`."""
    credentials = folder / "credentials"
    credentials.write_text(
        f"[default]\naws_access_key_id = {config.access_key_id}\n"
        f"aws_secret_access_key = {config.secret_access_key}\n"
    )
    return {
        "kind": "s3",
        "bucket": config.bucket,
        "prefix": config.prefix,
        "endpoint_url": str(config.endpoint_url),
        "addressing_style": config.addressing_style,
        "credentials_file": str(credentials),
    }


def stored_objects(config: StoreConfig) -> dict[str, int]:
    """Size of every object under the store's prefix, by key.

    The cluster marker and the metadata's snapshots are left out.
    """
    s3 = client(config)
    try:
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=config.bucket, Prefix=config.prefix
        )
        found = {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}
    finally:
        s3.close()
    found.pop(cluster_marker_key(config.prefix))
    snapshots = snapshots_prefix(config.prefix)
    return {key: size for key, size in found.items() if not key.startswith(snapshots)}


def named_objects(prefix: str, segments: Iterable[dict[str, Any]]) -> dict[str, int]:
    """The three objects of every segment row, with the sizes the metadata has for them."""
    named = {}
    for row in segments:
        tip = TopicIdPartition(row["topic"], Uuid.parse(row["topic_id"]), row["partition"])
        segment_id = RemoteLogSegmentId(tip, Uuid.parse(row["segment_id"]))
        keys = segment_keys(prefix, segment_id, row["start_offset"])
        objects = row["objects"]
        named[keys.log] = objects["log_bytes"]
        named[keys.indexes] = objects["indexes_bytes"]
        named[keys.manifest] = objects["manifest_bytes"]
    return named
