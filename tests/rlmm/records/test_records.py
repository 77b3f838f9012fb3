from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.batch_scan import scan
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.record_batch import iter_records
from rlmm.metadata_shadow import TopicPosition
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records.control_records import (
    ClaimReset,
    ClusterSetting,
    ControlRecordType,
    ExpiryMark,
    ExpiryTakenBack,
    FeatureLevel,
    GapsAllowed,
    LogStart,
    LostRange,
    MigrationAcknowledged,
    MigrationPhaseChange,
    NodeContested,
    NodeRegistration,
    NodeRemoved,
    NodeSilence,
    NodeStopped,
    OffsetsSkipped,
    PartitionAdopted,
    PartitionClaim,
    PartitionDeleteUndo,
    PartitionModeChange,
    Reconciled,
    SegmentMissing,
    SegmentsImported,
    ShadowWritten,
    TimePassed,
    TopicPolicyChange,
)
from rlmm.records.node_facts import NodeFacts, Program, ReadAddress
from rlmm.records.records import MetadataRecord, decode, encode
from rlmm.records.segment_records import TAG_TOKEN
from rlmm.records.setting_scope import CLUSTER, of_node, of_topic
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from tests.rlmm.state_world import NODE_1, ORDERS, epochs, segment_uuid

SEGMENT_ID = RemoteLogSegmentId(ORDERS, Uuid(bytes.fromhex("0102030405060708090a0b0c0d0e0f10")))
ADD = RemoteLogSegmentMetadata(
    segment_id=SEGMENT_ID,
    start_offset=1000,
    end_offset=1999,
    broker_id=2,
    max_timestamp_ms=1_700_000_000_123,
    event_timestamp_ms=1_700_000_001_000,
    leader_epochs=((4, 1000), (6, 1500)),
    size_bytes=1_048_576,
    custom_metadata=None,
    state=SegmentState.COPY_SEGMENT_STARTED,
)
PREFIX = "076f7264657273112233445566778899aabbccddeeff000000000300"
ID = "0102030405060708090a0b0c0d0e0f1000"
GOLDEN: list[tuple[MetadataRecord, str]] = [
    (
        ADD,
        "010000" + PREFIX + ID + "00000000000003e800000000000007cf00000002"
        "0000018bcfe5687b0000018bcfe56be8030000000400000000000003e8000000"
        "000600000000000005dc0000100000000000",
    ),
    (
        RemoteLogSegmentMetadataUpdate(
            SEGMENT_ID, 2, 1_700_000_002_000, b"\xca\xfe", SegmentState.COPY_SEGMENT_FINISHED
        ),
        "010100" + PREFIX + ID + "000000020000018bcfe56fd003cafe0100",
    ),
    (
        RemoteLogSegmentMetadataUpdate(
            SEGMENT_ID, 2, 1_700_000_003_000, None, SegmentState.DELETE_SEGMENT_STARTED
        ),
        "010100" + PREFIX + ID + "000000020000018bcfe573b8000200",
    ),
    (
        RemotePartitionDeleteMetadata(
            ORDERS, 2, 1_700_000_004_000, PartitionDeleteState.DELETE_PARTITION_MARKED
        ),
        "010200" + PREFIX + "000000020000018bcfe577a00000",
    ),
    (
        replace(ADD, leader_epochs=((4, 1000),), txn_index_empty=True),
        "010000" + PREFIX + ID + "00000000000003e800000000000007cf00000002"
        "0000018bcfe5687b0000018bcfe56be8020000000400000000000003e8000010"
        "0000000001000101",
    ),
]


@pytest.mark.parametrize(("record", "golden"), GOLDEN)
def test_kafka_records_are_bit_exact(record: MetadataRecord, golden: str) -> None:
    proposal = encode(record)
    assert proposal.control_type is None
    assert proposal.value.hex() == golden
    assert decode(None, bytes.fromhex(golden)) == record


NEW = ((9, b"new"),)
SETTING = ClusterSetting(of_topic("logs.*"), "topics.tiered", "true", "ann", "the audit asks", 5)
PHASE = MigrationPhaseChange(MigrationPhase.SWITCHING, 5, "uQ3nwGfCRBaWmpNKO5XJXg", "ann", "now")
ACKNOWLEDGED = MigrationAcknowledged(3, 2**40)
IMPORTED = SegmentsImported(ORDERS, 9, 200, last=False, rows=(b"row", b"another"))
WRITTEN = ShadowWritten(
    9, Uuid(b"metadata-topic-1"), 50, 2**40, (TopicPosition(3, 70, 2**40), TopicPosition(4, 0))
)
OURS: list[MetadataRecord] = [
    PartitionClaim(ORDERS, Mode.SIDECAR, 6, NODE_1, 12, epochs((0, 0), (6, 70)), 55),
    PartitionClaim(ORDERS, Mode.DELEGATED, 0, NODE_1, 0, epochs((0, 0)), unknown_tags=((7, b"x"),)),
    LogStart(ORDERS, 17, 6, 2**40),
    LogStart(ORDERS, 17, 6, 70, unknown_tags=((7, b"x"),), policy_offset=-1),
    LogStart(ORDERS, 17, 6, 70, policy_offset=3, mark_offset=-1),
    LogStart(ORDERS, 17, 6, 70, unknown_tags=((7, b"x"),), mark_offset=2**40, seen_ms=5),
    LostRange(ORDERS, 17, 5, 9, "local retention"),
    PartitionModeChange(ORDERS, Mode.PAUSED, -1),
    TopicPolicyChange("orders", TopicPolicy(1000, -1, copy_paused=True), 5),
    TopicPolicyChange("orders", TopicPolicy(-1, -1, follow_delete_records=True), 5),
    TopicPolicyChange(
        "orders", TopicPolicy(5, delete_paused=True, topic_id=Uuid(b"orders-once-more")), 6
    ),
    ClaimReset(ORDERS, 17),
    ClaimReset(ORDERS, 17, 0),
    PartitionDeleteUndo(ORDERS, 18),
    FeatureLevel(2, -1),
    PartitionAdopted(ORDERS, 17),
    SegmentMissing(ORDERS, segment_uuid(3), 12),
    TimePassed(70, 600_000),
    Reconciled(400, unknown_tags=((9, b"yy"),)),
    GapsAllowed(ORDERS, "compacted"),
    OffsetsSkipped(ORDERS, 17, 5, 9, "skipped by ann: the disk died"),
    NodeRegistration(NODE_1, unknown_tags=((9, b"new"),)),
    NodeRegistration(NODE_1, NodeFacts(ReadAddress("replica-1", 19_092, "zone a"))),
    NodeRegistration(
        NODE_1,
        NodeFacts(
            program=Program("0.1.0", 1, 2), http="https://n1:9480", quorum="n1:9093", log_dirs=0
        ),
    ),
    NodeContested(NODE_1, 77),
    NodeSilence(1, 77, 5, fenced=True),
    NodeSilence(1, 77, 5, fenced=False, unknown_tags=((9, b"new"),)),
    NodeStopped(NODE_1, 77),
    NodeRemoved(1, 77),
    ClusterSetting(CLUSTER, "copying.paused", "true", "ann", "", -1),
    ClusterSetting(of_node(7), "copying.paused", None, "ann", "moved", 2**40, unknown_tags=NEW),
    SETTING,
    ExpiryMark(ORDERS, 17, 6, 70, -1, 86_400_000, 2, 2**40, joins=True, why="retention"),
    ExpiryMark(ORDERS, 17, 6, 70, 3, 1, 0, 0, joins=False, why="", unknown_tags=NEW),
    ExpiryTakenBack(ORDERS, 21, hold=True, who="ann", why="the policy was wrong"),
    ExpiryTakenBack(ORDERS, 2**40, hold=False, who="ann", why="", unknown_tags=NEW),
    PHASE,
    MigrationPhaseChange(MigrationPhase.BACK, 2**40, "kafka", "ann", "", unknown_tags=NEW),
    ACKNOWLEDGED,
    MigrationAcknowledged(0, 9, unknown_tags=NEW),
    IMPORTED,
    SegmentsImported(ORDERS, 9, 200, last=True, unknown_tags=NEW),
    SegmentsImported(
        ORDERS,
        9,
        0,
        last=True,
        rows=(b"",),
        lineage=epochs((4, 1000), (6, 1500)),
        highest=epochs((4, 1499)),
        log_start_offset=1000,
    ),
    WRITTEN,
    ShadowWritten(9, Uuid(b"metadata-topic-1"), 1, incomplete="lost", foreign="a broker"),
    ShadowWritten(9, ZERO_UUID, 1, unknown_tags=NEW),
]
WITH_TAGS: list[MetadataRecord] = [
    replace(
        ADD,
        token=5,
        writer=NODE_1,
        upload_deadline_ms=99,
        finished_at=7,
        custom_metadata=b"",
        unknown_tags=((3, b"new"), (20_000, b"")),
        nested_unknown_tags=((0, ((1, b"a"),)), (1, ((2, b"b"),)), (3, ((9, b"c"),))),
    ),
    RemoteLogSegmentMetadataUpdate(
        SEGMENT_ID,
        2,
        5,
        None,
        SegmentState.DELETE_SEGMENT_STARTED,
        token=5,
        writer=NODE_1,
        expected_state=SegmentState.COPY_SEGMENT_STARTED,
        unknown_tags=((3, b"new"),),
        policy_offset=-1,
    ),
    RemotePartitionDeleteMetadata(
        ORDERS, 2, 5, PartitionDeleteState.DELETE_PARTITION_STARTED, unknown_tags=((1, b"x"),)
    ),
    RemotePartitionDeleteMetadata(
        ORDERS, 2, 5, PartitionDeleteState.DELETE_PARTITION_MARKED, replaces_offset=0, grace_ms=0
    ),
    RemotePartitionDeleteMetadata(
        ORDERS,
        2,
        5,
        PartitionDeleteState.DELETE_PARTITION_STARTED,
        replaces_offset=2**40,
        grace_ms=2**60,
        seen_ms=7,
        unknown_tags=((20_000, b"y"),),
    ),
]
ALL = [record for record, _ in GOLDEN] + WITH_TAGS + OURS


@pytest.mark.parametrize("record", ALL)
def test_every_record_comes_back_as_it_was(record: MetadataRecord) -> None:
    proposal = encode(record)
    decoded = decode(proposal.control_type, proposal.value)
    assert decoded == record
    assert encode(decoded) == proposal


def test_our_control_records_have_private_types() -> None:
    assert [encode(record).control_type for record in OURS] == [
        1000, 1000, 1001, 1001, 1001, 1001, 1002, 1003, 1004, 1004, 1004, 1005, 1005, 1006,
        1007, 1008, 1009, 1016, 1010, 1011, 1012, 1013, 1013, 1013, 1014, 1017, 1017, 1018, 1019,
        1020, 1020, 1020, 1021, 1021, 1022, 1022, 1023, 1023, 1026, 1026, 1024, 1024, 1024,
        1025, 1025, 1025,
    ]  # fmt: skip
    assert min(ControlRecordType) >= 1000


def test_the_bytes_of_a_setting() -> None:
    proposal = encode(SETTING)
    golden = (
        "0000" "02" "076c6f67732e2a" "0e746f706963732e746965726564" "0574727565" "04616e6e"
        "0f7468652061756469742061736b73" "0000000000000005" "00"
    )  # fmt: skip
    assert (proposal.control_type, proposal.value.hex()) == (1020, golden)


def test_the_bytes_of_the_move() -> None:
    phase, imported = encode(PHASE), encode(IMPORTED)
    assert (phase.control_type, phase.value.hex()) == (
        1023,
        "0000" "01" "0000000000000005" "17755133" "6e7747664352426157" "6d704e4b4f35584a5867"
        "04616e6e" "046e6f77" "00",
    )  # fmt: skip
    assert (imported.control_type, imported.value.hex()) == (
        1024,
        "0000" + PREFIX + "0000000000000009" "00000000000000c8" "00"
        "03" "04726f77" "08616e6f74686572" "01" "01" "ffffffffffffffff" "00",
    )  # fmt: skip
    acknowledged = encode(ACKNOWLEDGED)
    golden = "000000000003000001000000000000"
    assert (acknowledged.control_type, acknowledged.value.hex()) == (1026, golden)
    written = encode(WRITTEN)
    assert (written.control_type, written.value.hex()) == (
        1025,
        "0000" "0000000000000009" "6d657461646174612d746f7069632d31" "00000032"
        "0000010000000000" "03" "00000003" "0000000000000046" "0000010000000000"
        "00000004" "0000000000000000" "ffffffffffffffff" "01" "01" "00",
    )  # fmt: skip
    assert [int(each) for each in MigrationPhase] == [-1, 0, 1, 2, 3, 4]


def test_what_is_ours_in_kafka_records_stands_in_high_tags() -> None:
    value = encode(replace(ADD, token=5)).value
    assert value.startswith(encode(ADD).value[:-1])
    assert value[len(encode(ADD).value) - 1] == 1, "one tagged field"
    assert TAG_TOKEN >= 10_000


@pytest.mark.parametrize("record", ALL)
def test_no_cut_of_a_record_is_taken_for_one(record: MetadataRecord) -> None:
    proposal = encode(record)
    for size in range(len(proposal.value)):
        with pytest.raises(CorruptData):
            decode(proposal.control_type, proposal.value[:size])
    with pytest.raises(CorruptData):
        decode(proposal.control_type, proposal.value + b"\0")


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(ALL),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_bytes_are_another_record_or_corrupt_data(
    record: MetadataRecord, damage: list[tuple[int, int]]
) -> None:
    proposal = encode(record)
    value = bytearray(proposal.value)
    for at, byte in damage:
        value[at % len(value)] = byte
    with suppress(CorruptData):
        decoded = decode(proposal.control_type, bytes(value))
        again = encode(decoded)
        assert decode(again.control_type, again.value) == decoded


@settings(max_examples=100, deadline=None)
@given(st.none() | st.integers(-2, 1200), st.binary(max_size=200))
def test_any_bytes_are_a_record_or_corrupt_data(control_type: int | None, value: bytes) -> None:
    with suppress(CorruptData):
        decode(control_type, value)


@pytest.mark.parametrize(
    "value",
    [
        "000000",  # frame version 0
        "020000",  # frame version 2
        "010001",  # message version 1
        "010300",  # the snapshot record, which nothing in a broker writes either
        "017f00",
    ],
)
def test_other_frames_keys_and_versions_are_refused(value: str) -> None:
    with pytest.raises(CorruptData):
        decode(None, bytes.fromhex(value))


@pytest.mark.parametrize("control_type", [0, 2, 999, 1015, 1100, 32_767])
def test_other_control_types_are_refused(control_type: int) -> None:
    with pytest.raises(CorruptData, match="is not a control record type"):
        decode(control_type, b"\0\0\1\0\0")


def test_a_number_that_does_not_fit_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest):
        encode(replace(ADD, size_bytes=2**31))


def test_a_metadata_topic_written_by_kafka_is_read_and_written_again_bit_for_bit() -> None:
    name = "remote_log_metadata_by_kafka_4.3.0.log"
    data = (Path(__file__).parent / "data" / name).read_bytes()
    values = [
        record.value
        for batch in scan(data, source=name)
        for record in iter_records(batch.data, source=name, position=batch.position)
    ]
    assert len(values) > 10
    for value in values:
        assert value is not None
        assert encode(decode(None, value)).value == value
