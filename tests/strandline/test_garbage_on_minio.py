"""Garbage in a real bucket: what a dead node's late requests leave goes, what is not ours stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.object_keys import segment_keys
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig
from strandline.cli.exit_codes import ExitCode
from tests.e2e.bucket import stored_objects
from tests.e2e.node_process import NodeProcess
from tests.real.s3_admin import client
from tests.strandline.captured_node import ask, captured_node, uploads

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

NEVER_KNOWN = TopicIdPartition("events", Uuid(b"nobodys topic id"), 0)


@pytest.fixture
def config(minio_store_config: StoreConfig) -> StoreConfig:
    return replace(minio_store_config, prefix="garbage/")


@pytest.fixture
def node(tmp_path: Path, config: StoreConfig) -> Iterator[NodeProcess]:
    with captured_node(tmp_path, config) as running:
        yield running


def test_late_requests_of_the_dead_are_collected_and_nothing_else(
    node: NodeProcess, config: StoreConfig
) -> None:
    s3, bucket = client(config), config.bucket
    before = stored_objects(config)
    ask(node, "topics", "delete", "codecs", "--yes", "--grace", "0s")
    ask(node, "topics", "deletion", "codecs", "--wait", "60s")
    kept = stored_objects(config)
    gone = sorted(before.keys() - kept.keys())
    assert len(gone) >= 3
    assert all("/codecs-" in key for key in gone)
    assert kept.keys() == {key for key in before if "/codecs-" not in key}

    late = gone[:3]  # PUTs of a zombie, done after DELETE_SEGMENT_FINISHED
    for key in late:
        s3.put_object(Bucket=bucket, Key=key, Body=b"late")
    s3.create_multipart_upload(Bucket=bucket, Key=late[0])
    unknown = RemoteLogSegmentId(NEVER_KNOWN, Uuid(b"nobodys segment."))
    foreign = {f"{config.prefix}notes.txt", *segment_keys(config.prefix, unknown, 0).all()}
    for key in foreign:
        s3.put_object(Bucket=bucket, Key=key, Body=b"not ours")
    assert uploads(s3, bucket, late[0]) == 1

    seen = ask(node, "collect")
    counts = {name: found["objects"] for name, found in seen["found"].items()}
    assert (counts["orphan"], counts["foreign"], counts["live"]) == (3, len(foreign), len(kept))
    assert seen["stores"]["main"]["foreign"] == {
        "objects": len(foreign), "size_bytes": len(foreign) * len(b"not ours"),
    }  # fmt: skip
    assert stored_objects(config).keys() == kept.keys() | foreign | set(late), "only looked"

    stopped = ask(node, "collect", "--apply", code=ExitCode.INCOMPLETE)
    assert stopped["state"] == "stopped"
    assert stored_objects(config).keys() == kept.keys() | foreign | set(late), "the brake"

    done = ask(node, "collect", "--apply", "--accept-objects", 3)
    assert (done["state"], done["deleted"]["objects"]) == ("finished", 3)
    assert stored_objects(config).keys() == kept.keys() | foreign
    assert uploads(s3, bucket, late[0]) == 0
    lines = ask(node, "audit", "--action", "orphan_deleted")
    assert sum("objects of a deleted segment" in line["why"] for line in lines) == len(lines) > 0
    s3.close()
