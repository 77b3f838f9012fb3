"""The golden bodies of tests/golden/broker_protocol/, whose README has the values: the plug-in's
tests make and read the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import wire
from rlm.delegated.phase_bodies import PhaseAsked, decode_phase_asked, encode_phase
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "broker_protocol"
TOPIC_ID = Uuid(bytes(range(1, 0x11)))
TIP = TopicIdPartition("orders", TOPIC_ID, 7)
FIRST = RemoteLogSegmentMetadata(
    segment_id=RemoteLogSegmentId(TIP, Uuid(bytes(range(0x11, 0x21)))),
    start_offset=100,
    end_offset=199,
    broker_id=3,
    max_timestamp_ms=1_700_000_000_000,
    event_timestamp_ms=1_700_000_000_500,
    leader_epochs=((0, 100), (4, 150)),
    size_bytes=1_000,
    custom_metadata=b"\1\2\3",
    state=SegmentState.COPY_SEGMENT_FINISHED,
    txn_index_empty=True,
)
STARTED = replace(FIRST, state=SegmentState.COPY_SEGMENT_STARTED, custom_metadata=None)
SECOND = RemoteLogSegmentMetadata(
    segment_id=RemoteLogSegmentId(TIP, Uuid(bytes(range(0x21, 0x31)))),
    start_offset=200,
    end_offset=299,
    broker_id=3,
    max_timestamp_ms=1_700_000_001_000,
    event_timestamp_ms=1_700_000_001_500,
    leader_epochs=((4, 200),),
    size_bytes=2_000,
    custom_metadata=None,
    state=SegmentState.DELETE_SEGMENT_STARTED,
)
THIRD_ID = Uuid(bytes(range(0x41, 0x51)))
APPLIED, TAG, CURSOR = 4_711, b"\x09\x09", b"\5\6\7"
WHOLE = wire.Announcement(
    "kafka-cluster", 3, "0.1.0", "4.4.0", "broker-3.example:9092",
    Uuid(bytes(range(0x31, 0x41))), 1, wire.WHOLE_SET, (TIP, replace(TIP, partition=8)), (), (),
)  # fmt: skip
FOLDER = "/var/lib/kafka/orders-7"
COPIED = wire.CopyFiles(
    STARTED,
    f"{FOLDER}/00000000000000000100.log",
    f"{FOLDER}/00000000000000000100.index",
    f"{FOLDER}/00000000000000000100.timeindex",
    "",
    f"{FOLDER}/00000000000000000200.snapshot",
    b"0\n1\n0 100\n",
)
REQUESTS: dict[str, tuple[Callable[[bytes], object], object]] = {
    "announce-whole": (wire.decode_announcement, WHOLE),
    "announce": (
        wire.decode_announcement,
        replace(
            WHOLE, seq=2, base_seq=1, leaders=(TIP,), followers=(replace(TIP, partition=8),),
            stopped=(replace(TIP, partition=9),),
        ),
    ),
    "ready": (wire.decode_ready, TIP),
    "lookup": (wire.decode_look_up, wire.LookUp(TIP, 4, 150, with_txn_index=False)),
    "lookup-txn": (wire.decode_look_up, wire.LookUp(TIP, 4, 150, with_txn_index=True)),
    "highest": (wire.decode_highest, wire.Highest(TIP, 4)),
    "list": (wire.decode_list, wire.ListSegments(TIP, wire.ALL_EPOCHS, None, None)),
    "list-next": (wire.decode_list, wire.ListSegments(TIP, 4, TAG, CURSOR)),
    "add": (wire.decode_row, STARTED),
    "update": (
        wire.decode_update,
        RemoteLogSegmentMetadataUpdate(
            FIRST.segment_id, 3, 1_700_000_000_900, b"\1\2\3", SegmentState.COPY_SEGMENT_FINISHED
        ),
    ),
    "delete-partition": (
        wire.decode_delete_partition,
        RemotePartitionDeleteMetadata(
            TIP, 3, 1_700_000_000_900, PartitionDeleteState.DELETE_PARTITION_MARKED
        ),
    ),
    "copy": (wire.decode_copy, COPIED),
    "copy-files": (
        lambda data: wire.decode_sent(data[4:]),
        wire.SentFiles(COPIED, (1_000, 8, 24, None, 20, 43, 13)),
    ),
    "fetch": (wire.decode_fetch, wire.Fetch(FIRST, 10, 21)),
    "index": (wire.decode_index, wire.FetchIndex(FIRST, 3)),
    "delete": (wire.decode_row, FIRST),
    "phase-first": (decode_phase_asked, PhaseAsked("kafka-cluster", 3, -1, 0)),
    "phase": (decode_phase_asked, PhaseAsked("kafka-cluster", 3, 1, 2)),
}  # fmt: skip
ANSWERS = {
    "announce": wire.encode_announced(APPLIED, 3, 12),
    "ready": wire.encode_ready(APPLIED, True, ""),
    "ready-not": wire.encode_ready(APPLIED, False, "its claim is not held yet"),
    "lookup": wire.encode_found(APPLIED, FIRST),
    "lookup-none": wire.encode_found(APPLIED, None),
    "highest": wire.encode_highest(APPLIED, 199),
    "highest-none": wire.encode_highest(APPLIED, None),
    "list": wire.encode_page(APPLIED, TAG, (FIRST, SECOND), CURSOR),
    "list-last": wire.encode_page(APPLIED, TAG, (SECOND,), None),
    "list-none": wire.encode_page(APPLIED, TAG, (), None),
    "list-same": wire.encode_same(APPLIED, TAG),
    "list-changes": wire.encode_changes(APPLIED, TAG, (THIRD_ID,), (FIRST,)),
    "add": wire.encode_applied(APPLIED),
    "update": wire.encode_applied(APPLIED),
    "delete-partition": wire.encode_applied(APPLIED),
    "delete": wire.encode_applied(APPLIED),
    "phase-first": encode_phase(APPLIED, 0, -1),
    "phase": encode_phase(APPLIED, 2, 4_700),
    "copy": wire.HEARTBEAT * 2 + wire.encode_copied(b"\1\2\3"),
    "copy-send-files": wire.SEND_FILES,
    "copy-files": wire.HEARTBEAT
    + wire.SEND_FILES
    + wire.HEARTBEAT * 2
    + wire.encode_copied(b"\1\2\3"),
    "copy-failed": wire.HEARTBEAT
    + wire.encode_copy_failed("retry_later", "SLOW_STORE", "the store is slow"),
}


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_a_golden_request_is_read(name: str) -> None:
    decode, expected = REQUESTS[name]
    assert decode((GOLDEN / f"{name}.request.bin").read_bytes()) == expected


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_golden_answer_is_made(name: str) -> None:
    assert ANSWERS[name] == (GOLDEN / f"{name}.answer.bin").read_bytes()


def test_no_golden_file_is_left_out() -> None:
    names = {path.name for path in GOLDEN.glob("*.bin")}
    asked = {f"{name}.request.bin" for name in REQUESTS}
    assert names == asked | {f"{name}.answer.bin" for name in ANSWERS}
