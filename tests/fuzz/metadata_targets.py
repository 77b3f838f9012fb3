"""The metadata log: records, rows, snapshots, the files beside it. Seeds are golden records, the
rows of a small world, and files written by the log's own code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from kafka_formats.errors import CorruptData, InternalError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.primitives import Reader, Writer
from rlmm.log import quorum_records, recovery, segment_file, snapshot_files
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.committed import encode_proposals
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.metadata_log import Proposal, SnapshotId
from rlmm.metadata_shadow import Shadow, TopicPosition
from rlmm.migration_phase import Migration, MigrationPhase
from rlmm.partition_state import Expiry, ExpiryHold, Restart, TopicPolicy
from rlmm.partition_state import ExpiryMark as Mark
from rlmm.records import fixed_layout as row_segments
from rlmm.records import record_fields
from rlmm.records.control_records import FeatureLevel, TopicPolicyChange
from rlmm.records.node_facts import NodeFacts, ReadAddress
from rlmm.records.records import decode, encode
from rlmm.records.segment_records import decode_segment_record
from rlmm.records.setting_scope import CLUSTER
from rlmm.rows import nodes as row_nodes
from rlmm.rows import partitions as row_partitions
from rlmm.rows import snapshot_rows
from rlmm.rows import values as row_values
from rlmm.rows.cluster_settings import SettingRow, decode_setting, encode_setting, setting_key
from rlmm.rows.expiry import decode_expiry, encode_expiry
from rlmm.rows.keys import RowKind
from rlmm.rows.migration import decode_migration, encode_migration
from rlmm.rows.nodes import Liveness, RegisteredNode
from rlmm.rows.shadow import (
    decode_outbox,
    decode_position,
    decode_shadow,
    encode_outbox,
    encode_position,
    encode_shadow,
)
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.fuzz import repairs
from tests.fuzz.engine import KIB, Target
from tests.fuzz.metadata_seeds import OURS
from tests.rlmm.log.crash_disk import CrashDisk
from tests.rlmm.records.test_records import GOLDEN
from tests.rlmm.rows.plain_partition_rows import decode_plainly
from tests.rlmm.state_world import NODE_1, World, epochs

_SOURCE = "the fuzzed bytes"
_SEGMENT = Uuid(b"segment-id-16-by")
_NODE = RegisteredNode(
    1,
    NODE_1.directory_id,
    3,
    40,
    50,
    60,
    True,
    ((_SEGMENT, 2),),
    NodeFacts(ReadAddress("replica-1", 9_092, "a")),
    ((7, b"new"),),
    Liveness.FENCED,
    70,
)
_SETTING = SettingRow(CLUSTER, "copying.paused", "true", "ann", "why", 5, 60, ((7, b"new"),))
_SETTING_KEY = setting_key(_SETTING.key, _SETTING.scope)
_EXPIRY = Expiry(
    (Mark(1_000, 5, 60, 7, 1_700_000_000_000, 70, 86_400_000, 2, 5_000, "retention"),),
    ExpiryHold(3, "ann", "the policy was wrong", 1_700_000_000_000),
    9,
)
_MIGRATION = Migration(MigrationPhase.QUORUM, 9, "kafka-cluster", "ann", "now", 1_700_000_000_000)
_DIRECTORY = Path("metadata")
_KINDS: tuple[int | None, ...] = (None, *range(999, 1_027), 1_100)


def _decode(data: bytes) -> object:
    """The first byte says which kind of record the rest is taken for."""
    kind = _KINDS[data[0] % len(_KINDS)] if data else None
    record = decode(kind, data[1:], source=_SOURCE)
    again = encode(record)
    assert decode(again.control_type, again.value) == record
    return record


@cache
def _record_seeds() -> list[bytes]:
    proposals = [encode(record) for record in (*OURS, *(record for record, _ in GOLDEN))]
    seeds = [bytes((_KINDS.index(each.control_type),)) + each.value for each in proposals]
    return seeds + [b"\x00" + bytes.fromhex(golden) for _, golden in GOLDEN]


@cache
def _rows() -> list[tuple[bytes, bytes]]:
    """Rows of most kinds."""
    world = World()
    world.leads((4, 100), (6, 150))
    world.copy(1, 100, 199, [(4, 100), (6, 150)])
    world.copy(2, 150, 260, [(6, 150)])
    world.accept(world.a_lost_range(261, 299), world.an_add(3, 300, 399, [(6, 300)]))
    world.accept(world.an_add(4, 300, 399, [(6, 300)]))
    world.accept(world.a_delete(4, SegmentState.COPY_SEGMENT_STARTED), world.a_delete_finish(4))
    world.accept(TopicPolicyChange("orders", TopicPolicy(retention_ms=5), -1), FeatureLevel(1, -1))
    world.time_passes(5)
    return list(world.rows.items())


def _values(kind: RowKind) -> Callable[[], list[bytes]]:
    return lambda: [value for key, value in _rows() if key[0] == kind] or [bytes(10), bytes(16)]


def _segment_row(data: bytes) -> None:
    """The fast way and the general one have one judgement."""
    general: object
    try:
        general = decode_segment_record(data, source="segment row")
    except CorruptData as error:
        general = error
    try:
        fast: object = row_segments.decode_segment_row(data)
    except (CorruptData, InternalError):
        assert not isinstance(general, RemoteLogSegmentMetadata)
    else:
        assert fast == general
    if isinstance(general, CorruptData):
        raise general


def _partition_row(data: bytes) -> None:
    """It is read as field by field, or refused."""
    try:
        plain = decode_plainly(data)
    except CorruptData:
        row_partitions.decode_partition(data)  # raises as well
        raise AssertionError("it takes what reading field by field refuses") from None
    assert row_partitions.decode_partition(data) == plain


def _row_target(
    name: str, kind: RowKind, run: Callable[[bytes], object], *, covers: str = ""
) -> Target:
    return Target(
        f"row_values.{name}", (covers or f"rlmm.rows.values.{name}",), run, _values(kind), factor=60
    )


def _shadow_targets() -> list[Target]:
    return [
        Target(
            "row_shadow.decode_shadow",
            ("rlmm.rows.shadow.decode_shadow",),
            decode_shadow,
            lambda: [encode_shadow(Shadow(3, _SEGMENT, 50, 9, 2, "lost", "a broker"))],
        ),
        Target(
            "row_shadow.decode_position",
            ("rlmm.rows.shadow.decode_position",),
            lambda data: decode_position(3, data),
            lambda: [encode_position(TopicPosition(3, 70, 9))],
        ),
        Target(
            "row_shadow.decode_outbox",
            ("rlmm.rows.shadow.decode_outbox",),
            lambda data: decode_outbox(7, data),
            lambda: [encode_outbox(5, b"value")],
        ),
    ]


def _rows_targets() -> list[Target]:
    return [
        _row_target(
            "decode_partition",
            RowKind.PARTITION,
            _partition_row,
            covers="rlmm.rows.partitions.decode_partition",
        ),
        _row_target("decode_covered", RowKind.COVERAGE, lambda d: row_values.decode_covered(1, d)),
        _row_target(
            "decode_interval",
            RowKind.INTERVAL,
            lambda data: row_values.decode_interval(1, _SEGMENT, data),
        ),
        _row_target("decode_offset", RowKind.HIGHEST_COPIED, row_values.decode_offset),
        _row_target("decode_lineage", RowKind.LINEAGE, row_values.decode_lineage),
        _row_target("decode_lost_range", RowKind.LOST_RANGE, row_values.decode_lost_range),
        _row_target("decode_totals", RowKind.TOTALS, row_values.decode_totals),
        _row_target("decode_policy", RowKind.TOPIC_POLICY, row_values.decode_policy),
        _row_target("decode_measured_time", RowKind.MEASURED_TIME, row_values.decode_measured_time),
        _row_target("decode_feature_level", RowKind.FEATURE_LEVEL, row_values.decode_feature_level),
        Target(
            "row_values.decode_restart",
            ("rlmm.rows.values.decode_restart",),
            row_values.decode_restart,
            lambda: [row_values.encode_restart(Restart(400))],
        ),
        Target(
            "row_nodes.decode_node",
            ("rlmm.rows.nodes.decode_node",),
            lambda data: row_nodes.decode_node(1, data),
            lambda: [row_nodes.encode_node(_NODE)],
        ),
        Target(
            "row_cluster_settings.decode_setting",
            ("rlmm.rows.cluster_settings.decode_setting",),
            lambda data: decode_setting(_SETTING_KEY, data),
            lambda: [encode_setting(_SETTING)],
        ),
        Target(
            "row_expiry.decode_expiry",
            ("rlmm.rows.expiry.decode_expiry",),
            decode_expiry,
            lambda: [encode_expiry("orders", _EXPIRY)],
        ),
        Target(
            "row_migration.decode_migration",
            ("rlmm.rows.migration.decode_migration",),
            decode_migration,
            lambda: [encode_migration(_MIGRATION)],
        ),
        Target(
            "snapshot_rows.from_proposals",
            ("rlmm.rows.snapshot_rows.from_proposals",),
            lambda data: list(snapshot_rows.from_proposals(_proposals(data))),
            _proposal_seeds,
            factor=60,
        ),
    ]


def _segment_targets() -> list[Target]:
    return [
        _row_target(
            "decode_segment_row",
            RowKind.SEGMENT,
            _segment_row,
            covers="rlmm.records.fixed_layout.decode_segment_row",
        ),
        Target(
            "row_segments.decode_usual",
            (
                "rlmm.records.fixed_layout.decode_usual",
                "rlmm.records.short_lengths.read_short_length",
            ),
            row_segments.decode_usual,
            _values(RowKind.SEGMENT),
            (),
            factor=60,
        ),
        Target(
            "row_segments.decode_usual_update",
            ("rlmm.records.fixed_layout.decode_usual_update",),
            row_segments.decode_usual_update,
            lambda: [bytes.fromhex(golden) for _, golden in GOLDEN],
            (),
            factor=60,
        ),
    ]


def _proposals(data: bytes) -> list[Proposal]:
    """Records of a snapshot: kind, length, value, and so on."""
    found = []
    at = 0
    while at + 3 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 3], "big")
        kind = (None, 1_100, 1_000)[data[at] % 3]
        found.append(Proposal(kind, data[at + 3 : at + 3 + size]))
        at += 3 + size
    return found


@cache
def _proposal_seeds() -> list[bytes]:
    packed = [
        bytes((0 if each.control_type is None else 1,))
        + len(each.value).to_bytes(2, "big")
        + each.value
        for each in snapshot_rows.to_proposals(_rows())
    ]
    return [b"".join(packed), *packed]


def _records_targets() -> list[Target]:
    readers = ("read_partition", "read_incarnation", "read_mode")
    return [
        Target(
            "records.decode",
            (
                "rlmm.records.records.decode",
                "rlmm.records.segment_records.decode_segment_record",
                "rlmm.records.control_encoding.decode_control",
                *(f"rlmm.records.record_fields.{name}" for name in readers),
            ),
            _decode,
            _record_seeds,
            factor=120,
        ),
        Target(
            "record_fields.read_epochs",
            ("rlmm.records.record_fields.read_epochs",),
            lambda data: record_fields.read_epochs(Reader(data, _SOURCE)),
            _epochs_seeds,
            factor=60,
        ),
        Target(
            "quorum_records.decode_voters",
            ("rlmm.log.quorum_records.decode_voters",),
            lambda data: quorum_records.decode_voters(data, source=_SOURCE),
            lambda: [
                quorum_records.encode_voters(
                    (Voter(1, NODE_1.directory_id, (Endpoint("Q", "host", 65_535),)),) * 3
                )
            ],
            factor=100,
        ),
        Target(
            "quorum_records.decode_snapshot_header",
            ("rlmm.log.quorum_records.decode_snapshot_header",),
            lambda data: quorum_records.decode_snapshot_header(data, source=_SOURCE),
            lambda: [quorum_records.encode_snapshot_header(1_700_000_000_000)],
            factor=100,
        ),
        Target(
            "quorum_records.decode_leader_change",
            ("rlmm.log.quorum_records.decode_leader_change",),
            lambda data: quorum_records.decode_leader_change(data, source=_SOURCE),
            lambda: [quorum_records.encode_leader_change(1, (1, 2, 3), (1, 3))],
            factor=100,
        ),
    ]


def _recovery_targets() -> list[Target]:
    return [
        Target(
            "recovery.load_recovery_point",
            ("rlmm.log.recovery.load_recovery_point",),
            lambda data: recovery.load_recovery_point(
                _on_disk(data, recovery.RECOVERY_POINT_CHECKPOINT), _DIRECTORY
            ),
            lambda: [b"0\n1\n__remote_log_metadata 0 12345\n"],
            factor=150,
        ),
        Target(
            "recovery.load_committed_end",
            ("rlmm.log.recovery.load_committed_end",),
            lambda data: recovery.load_committed_end(
                _on_disk(data, recovery.COMMITTED_END_FILE), _DIRECTORY
            ),
            _committed_end_seeds,
            factor=150,
        ),
    ]


def _committed_end_seeds() -> list[bytes]:
    disk = _on_disk(b"", recovery.COMMITTED_END_FILE)
    recovery.store_committed_end(disk, _DIRECTORY, 12_345)
    return [disk.read(_DIRECTORY / recovery.COMMITTED_END_FILE), b"1\n" + b"9" * 5_000 + b"\n"]


def _epochs_seeds() -> list[bytes]:
    writer = Writer()
    record_fields.write_epochs(writer, epochs((0, 0), (3, 9), (2**31 - 1, 2**63 - 1)))
    return [writer.done()]


def _on_disk(data: bytes, name: str) -> CrashDisk:
    disk = CrashDisk()
    disk.make_directory(_DIRECTORY)
    handle = disk.open_append(_DIRECTORY / name)
    handle.append(data)
    return disk


def _snapshot(data: bytes) -> None:
    path = _DIRECTORY / "a.checkpoint"
    disk = _on_disk(data, path.name)
    list(snapshot_files.read_snapshot(disk, path))


def _snapshot_voters(data: bytes) -> None:
    path = _DIRECTORY / "a.checkpoint"
    snapshot_files.snapshot_voters(_on_disk(data, path.name), path)


@cache
def _snapshot_seeds() -> list[bytes]:
    disk = CrashDisk()
    disk.make_directory(_DIRECTORY)
    writer = snapshot_files.SnapshotWriter(
        disk,
        _DIRECTORY,
        SnapshotId(7, 1),
        last_contained_timestamp_ms=1,
        voters=(Voter(1, NODE_1.directory_id),),
    )
    writer.add(snapshot_rows.to_proposals(_rows()))
    return [disk.read(writer.finish())]


@cache
def _log_seeds() -> list[bytes]:
    batches = encode_proposals(
        [encode(record) for record, _ in GOLDEN] + [encode(record) for record in OURS],
        base_offset=0,
        epoch=3,
        timestamp_ms=1,
    )
    return [b"".join(batch.data for batch in batches)]


def _scan_segment(data: bytes) -> None:
    for expected in (None, (EpochEntry(3, 0),)):
        scan = segment_file.scan_segment(Path("0.log"), 0, data, (), expected)
        assert (scan.damage is None) == (scan.segment.size_bytes == len(data))


def _file_targets() -> list[Target]:
    snapshot_bytes = (18 << 20) + 64 * KIB
    return [
        Target(
            "snapshot_files.read_snapshot",
            ("rlmm.log.snapshot_files.read_snapshot",),
            _snapshot,
            _snapshot_seeds,
            constant_bytes=snapshot_bytes,
            repair=repairs.batches,
            share=0.5,
        ),
        Target(
            "snapshot_files.snapshot_voters",
            (),
            _snapshot_voters,
            _snapshot_seeds,
            constant_bytes=snapshot_bytes,
            repair=repairs.batches,
            share=0.5,
        ),
        Target(
            "segment_file.scan_segment",
            ("rlmm.log.segment_file.scan_segment",),
            _scan_segment,
            _log_seeds,
            repair=repairs.batches,
        ),
        *_recovery_targets(),
        Target(
            "quorum_state",
            ("rlmm.log.quorum_state_file.parse",),
            lambda data: quorum_state.parse(data, source=_SOURCE),
            lambda: [
                quorum_state.encode(quorum_state.QuorumState(7, 1, 2, NODE_1.directory_id)),
                b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":0}',
            ],
            factor=150,
        ),
        Target(
            "snapshot_files.parse_snapshot_file_name",
            ("rlmm.log.snapshot_files.parse_snapshot_file_name",),
            lambda data: snapshot_files.parse_snapshot_file_name(
                data.decode("utf-8", "surrogateescape")
            ),
            lambda: [snapshot_files.snapshot_file_name(SnapshotId(7, 1)).encode()],
            errors=(),
        ),
    ]


def metadata_targets() -> list[Target]:
    """All rows of this module."""
    return [
        *_records_targets(),
        *_rows_targets(),
        *_shadow_targets(),
        *_segment_targets(),
        *_file_targets(),
    ]
