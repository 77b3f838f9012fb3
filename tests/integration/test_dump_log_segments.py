"""Stock kafka-dump-log reads the metadata log and its snapshots, and skips records of ours."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.data_directory.data_directory import (
    NewDirectory,
    format_data_directory,
    open_data_directory,
)
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import Mode
from rlmm.records.control_records import LogStart, PartitionClaim
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from rlmm.view.view import View
from tests.real.kafka import run_tool
from tests.rlmm.quorum.sole_voter import open_sole_voter

pytestmark = pytest.mark.integration

NOW_MS = 1_700_000_000_000
DIRECTORY_ID = Uuid.parse("ZGlyZWN0b3J5LW9uZS4uLg")
CLUSTER_ID = Uuid.parse("Y2x1c3Rlci1udW1iZXItMQ")
PARTITION = TopicIdPartition("orders", Uuid.parse("b3JkZXJzLXRvcGljLWlkIQ"), 3)
SEGMENT_ID = RemoteLogSegmentId(PARTITION, Uuid.parse("c2VnbWVudC1pZC1vbmUtLQ"))


async def write_metadata(data: Path) -> Path:
    """A claim, one copied segment, a snapshot; returns the metadata log's directory."""
    voter = Voter(7, DIRECTORY_ID, (Endpoint("QUORUM", "localhost", 40_000),))
    format_data_directory(
        data,
        NewDirectory(CLUSTER_ID, "kafka-cluster", 7, DIRECTORY_ID, (voter,)),
    )
    with open_data_directory(data) as directory:
        view = View.open(directory.view_path)
        log = await open_sole_voter(
            directory.metadata_path,
            node_id=7,
            directory_id=DIRECTORY_ID,
            voters=directory.initial_voters,
            view_flushed_end=0,
            now_ms=lambda: NOW_MS,
            on_failure=pytest.fail,
        )
        manager = await RemoteLogMetadataManager.start(
            log, view, incarnation=directory.incarnation, now_ms=lambda: NOW_MS
        )
        await copy_one_segment(manager)
        await manager.take_snapshot()
        await manager.close()
        await log.close()
        view.close()
        return directory.metadata_path / "__remote_log_metadata-0"


async def copy_one_segment(manager: RemoteLogMetadataManager) -> None:
    claim = PartitionClaim(
        PARTITION, Mode.SIDECAR, 4, manager.incarnation, 1, (EpochEntry(4, 100),)
    )
    answer = await manager.claim_partition(claim)
    await manager.record_log_start(LogStart(PARTITION, answer.token, 4, 100))
    started = RemoteLogSegmentMetadata(
        segment_id=SEGMENT_ID,
        start_offset=100,
        end_offset=199,
        broker_id=7,
        max_timestamp_ms=NOW_MS,
        event_timestamp_ms=NOW_MS,
        leader_epochs=((4, 100),),
        size_bytes=12_345,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        token=answer.token,
        writer=manager.incarnation,
        upload_deadline_ms=NOW_MS + 60_000,
    )
    await manager.add_remote_log_segment_metadata(started)
    await manager.add_remote_log_segment_metadata(
        replace(
            started,
            segment_id=RemoteLogSegmentId(PARTITION, Uuid(b"another segment.")),
            size_bytes=1,
        )
    )
    await manager.update_remote_log_segment_metadata(
        RemoteLogSegmentMetadataUpdate(
            segment_id=SEGMENT_ID,
            broker_id=7,
            event_timestamp_ms=NOW_MS + 1,
            custom_metadata=b"strandline",
            state=SegmentState.COPY_SEGMENT_FINISHED,
            token=answer.token,
            writer=manager.incarnation,
        )
    )


def dump(path: Path) -> str:
    """What the stock tool prints; it exits with 0 and finds nothing to complain about."""
    text = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--remote-log-metadata-decoder",
        "--deep-iteration",
        "--files",
        str(path),
    )
    assert "isvalid: false" not in text
    assert "Non-consecutive" not in text
    assert "Found" not in text
    return text


async def test_stock_tool_decodes_log_and_snapshots(tmp_path: Path) -> None:
    directory = await write_metadata(tmp_path / "data")
    log_text = await asyncio.to_thread(dump, directory / f"{0:020d}.log")
    assert log_text.count("RemoteLogSegmentMetadata{") == 2
    assert log_text.count("RemoteLogSegmentMetadataUpdate{") == 1
    assert str(SEGMENT_ID.id) in log_text
    assert "LeaderChange" in log_text
    assert "KRaftVersion" in log_text
    assert "KRaftVoters" in log_text
    assert str(DIRECTORY_ID) in log_text
    assert "40000" in log_text
    # The claim is a control record of ours: printed without its content, and no stumbling block.
    assert log_text.count("controlType: UNKNOWN(1000)") == 1
    assert len(re.findall(r"^\| offset: ", log_text, re.MULTILINE)) == 8

    newest = sorted(directory.glob("*.checkpoint"))[-1]
    snapshot_text = await asyncio.to_thread(dump, newest)
    assert snapshot_text.index("SnapshotHeader") < snapshot_text.index("KRaftVoters")
    assert snapshot_text.count("RemoteLogSegmentMetadata{") == 2
    assert snapshot_text.rstrip().splitlines()[-1].count("SnapshotFooter") == 1

    bootstrap_text = await asyncio.to_thread(dump, directory / f"{0:020d}-{0:010d}.checkpoint")
    assert str(DIRECTORY_ID) in bootstrap_text
