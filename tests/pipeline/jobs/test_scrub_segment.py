"""A segment scrubbed: what is right is found right, and every kind of damage is found."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_formats import producer_snapshot
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import Refused, RetryLater
from kafka_formats.producer_snapshot import ProducerState
from kafka_formats.record_batch import HEADER_BYTES
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.jobs import scrub_log_scan
from pipeline.jobs.scrub import ScrubTask
from pipeline.jobs.scrub_segment import scrub_segment
from pipeline.jobs.scrub_verdict import FINDINGS_MAX, Outcome, Verdict, verdict_of
from pipeline.process.compiled import compiled
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_objects import SegmentObjects
from rlm.format.manifest import checksum_chunks
from rsm_backends.blocking_reads import BlockingObject, BlockingStore, open_blocking
from rsm_backends.store_config import StoreConfig
from tests.capture.captured import LOG_DIR
from tests.pipeline.read.aiven_bucket import SMALL, AivenTopic
from tests.pipeline.read.folder_tier import FolderTier, tier_log_dir
from tests.rlm.broker_files import ReplicaWriter, write_log_dir


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> FolderTier:
    return tier_log_dir(LOG_DIR, tmp_path_factory.mktemp("captured") / "tier")


@pytest.fixture
def tier(captured: FolderTier, tmp_path: Path) -> FolderTier:
    """One that a test may damage."""
    return captured.copied_to(tmp_path / "tier")


def scrub(tier: FolderTier, segment: TieredSegment, *, records: bool = False) -> Verdict:
    with OpenStores(tier.stores) as stores:
        return scrub_segment(segment, stores, records=records, now_ms=lambda: 7)


def with_aborts(tier: FolderTier) -> TieredSegment:
    return next(s for s in tier.segments("payments") if not s.txn_index_empty)


def test_every_segment_of_a_broker_is_found_right(captured: FolderTier) -> None:
    for segments in captured.found.values():
        for segment in segments:
            verdict = scrub(captured, segment, records=True)
            assert verdict.outcome is Outcome.OK, verdict.findings
            sizes = [captured.file(segment, s).stat().st_size for s in ("log", "indexes")]
            manifest = captured.file(segment, "rsm-manifest").stat().st_size
            assert verdict.read_bytes == sum(sizes) + manifest
            assert verdict.checksums
            assert verdict_of(segment, json.loads(json.dumps(verdict.as_json()))) == verdict


def test_a_segment_that_compaction_left_without_a_byte_is_found_right(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.skip(10)
    replica.roll()
    tier = tier_log_dir(tmp_path, tmp_path / "tier")
    (segment,) = tier.segments("orders")
    verdict = scrub(tier, segment, records=True)
    assert (verdict.outcome, tier.file(segment).stat().st_size) == (Outcome.OK, 0)


@pytest.mark.parametrize(("topic", "prefix"), [("comp", "comp/"), ("compenc", "enc/")])
def test_segments_of_aivens_plug_in_are_scrubbed_by_what_they_have(topic: str, prefix: str) -> None:
    tiered = AivenTopic(SMALL, topic, prefix)
    (segment,) = tiered.segments()
    with OpenStores({"main": tiered.store}, (str(SMALL / "keys"),)) as stores:
        verdict = scrub_segment(segment, stores, records=True, now_ms=lambda: 7)
    assert (verdict.outcome, verdict.checksums) == (Outcome.OK, False)


def test_an_encrypted_segment_without_its_key_is_no_damage() -> None:
    tiered = AivenTopic(SMALL, "compenc", "enc/")
    (segment,) = tiered.segments()
    with OpenStores({"main": tiered.store}) as stores:
        verdict = scrub_segment(segment, stores, records=False, now_ms=lambda: 7)
    assert (verdict.outcome, verdict.refused) == (Outcome.UNREAD, True)
    assert "key1" in verdict.findings[0].what


def turn(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_a_turned_byte_anywhere_is_found(tier: FolderTier, suffix: str, part: float) -> None:
    segment = with_aborts(tier)
    path = tier.file(segment, suffix)
    turn(path, int(path.stat().st_size * part))
    verdict = scrub(tier, segment)
    assert verdict.outcome is Outcome.DAMAGED
    assert any(finding.key.endswith(suffix) for finding in verdict.findings)
    assert all(finding.action for finding in verdict.findings)


def test_damage_in_the_log_is_told_by_position_and_offset(tier: FolderTier) -> None:
    segment = tier.segments("orders")[2]
    turn(tier.file(segment), 5_000)
    verdict = scrub(tier, segment)
    chunk, batch = verdict.findings
    assert (chunk.position, batch.key) == (0, segment.keys("tier/").log)
    assert batch.position is not None
    assert batch.position <= 5_000
    assert batch.offset is not None
    assert segment.start_offset < batch.offset <= segment.end_offset


@pytest.mark.parametrize("bit", [1 << 6, 1 << 0])
def test_a_base_offset_far_off_is_found_and_no_index_blamed(tier: FolderTier, bit: int) -> None:
    """No batch's CRC is taken over it, and an index could not even say it."""
    segment = max(tier.segments("orders"), key=lambda s: s.log_bytes)
    path = tier.file(segment)
    data = bytearray(path.read_bytes())
    second = int.from_bytes(data[8:12], "big") + 12
    data[second] ^= bit
    path.write_bytes(data)
    for _ in range(2):
        verdict = scrub(tier, segment)
        assert verdict.outcome is Outcome.DAMAGED
        assert sum("are legal" in finding.what for finding in verdict.findings) == 1
        assert {finding.key for finding in verdict.findings if "index" in finding.what} == set()
        segment = rewritten(tier, segment, lambda manifest: None)  # as if no chunk told of it


def test_a_sound_log_is_read_once_and_by_the_compiled_scan(
    captured: FolderTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr("pipeline.jobs.scrub_segment._Scrub._log", never)
    for segments in captured.found.values():
        for segment in segments:
            assert scrub(captured, segment).outcome is Outcome.OK


def test_without_the_compiled_scan_verdicts_are_the_same(
    tier: FolderTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [segment for found in tier.found.values() for segment in found]
    for number, segment in enumerate(segments[::2]):
        turn(tier.file(segment, ("log", "indexes")[number % 2]), 30)
    verdicts = [scrub(tier, segment) for segment in segments]
    assert {verdict.outcome for verdict in verdicts} == {Outcome.OK, Outcome.DAMAGED}
    monkeypatch.setitem(sys.modules, "pipeline.jobs.log_scan", None)
    compiled.cache_clear()
    try:
        assert [scrub(tier, segment) for segment in segments] == verdicts
    finally:
        compiled.cache_clear()


@pytest.mark.parametrize("suffix", ["log", "indexes"])
@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"x", lambda d: b""])
def test_an_object_of_another_length_is_found(
    tier: FolderTier, suffix: str, change: Callable[[bytes], bytes]
) -> None:
    segment = with_aborts(tier)
    path = tier.file(segment, suffix)
    path.write_bytes(change(path.read_bytes()))
    verdict = scrub(tier, segment)
    assert verdict.outcome is Outcome.DAMAGED
    assert {finding.key.rpartition(".")[2] for finding in verdict.findings} >= {suffix}


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_a_missing_object_is_damage_and_three_are_a_deletion(tier: FolderTier, suffix: str) -> None:
    segment = tier.segments("orders")[0]
    tier.file(segment, suffix).unlink()
    verdict = scrub(tier, segment)
    assert verdict.outcome is Outcome.DAMAGED
    assert verdict.findings[0].what == "the object is missing"
    for other in ("log", "indexes", "rsm-manifest"):
        tier.file(segment, other).unlink(missing_ok=True)
    assert scrub(tier, segment).outcome is Outcome.GONE


def rewritten(
    tier: FolderTier, segment: TieredSegment, change: Callable[[dict[str, Any]], None]
) -> TieredSegment:
    """Rewrite the manifest, with the checksums of what is stored now; nothing is recorded of it."""
    path = tier.file(segment, "rsm-manifest")
    manifest = json.loads(path.read_bytes())
    change(manifest)
    ours = manifest["remoteLogSegmentMetadata"]["strandline"]
    for suffix in ("log", "indexes"):
        data = tier.file(segment, suffix).read_bytes()
        size = ours[suffix]["chunkBytes"]
        sums = [crc32c(data[at : at + size]) for at in range(0, len(data), size)]
        ours[suffix] |= {
            "bytes": len(data),
            "crc32c": crc32c(data),
            "chunkCrc32c": base64.b64encode(checksum_chunks(sums)).decode(),
        }
    path.write_bytes(json.dumps(manifest).encode())
    return replace(segment, objects=None)


def patched(tier: FolderTier, segment: TieredSegment, index: str, at: int, data: bytes) -> None:
    path = tier.file(segment, "indexes")
    manifest = json.loads(tier.file(segment, "rsm-manifest").read_bytes())
    begins = manifest["segmentIndexes"][index]["position"] + at
    stored = bytearray(path.read_bytes())
    if not data:  # another number than there was
        data = (int.from_bytes(stored[begins : begins + 8], "big") + 1).to_bytes(8, "big")
    stored[begins : begins + len(data)] = data
    path.write_bytes(stored)


@pytest.mark.parametrize(
    ("index", "at", "data", "told"),
    [
        ("offset", 4, (1).to_bytes(4, "big"), r"offset index \(entry 0 of"),
        ("offset", 0, b"\xff\xff\xff\xff", "offset index"),
        ("timestamp", 0, (5).to_bytes(8, "big"), r"time index \(entry 0 of"),
        ("transaction", 10, b"", "begins at [0-9]+, but in the log it does not"),
        ("transaction", 2, (77).to_bytes(8, "big"), "has an ABORT of producer 77"),
        ("transaction", 18, b"", "has an ABORT of producer"),
        (
            "transaction",
            26,
            b"",
            "the last stable offset after the ABORT at offset [0-9]+ is [0-9]+, but it is",
        ),
        ("transaction", 0, b"\x00\x09", "unknown version 9"),
        ("producerSnapshot", 12, b"\xff", "snapshot"),
        ("leaderEpoch", 0, b"9", "version"),
        ("leaderEpoch", 4, b"7", "leader epoch checkpoint"),
    ],
)
def test_an_index_that_does_not_fit_its_log_is_found_though_its_checksums_do(
    tier: FolderTier, index: str, at: int, data: bytes, told: str
) -> None:
    segment = with_aborts(tier)
    patched(tier, segment, index, at, data)
    segment = rewritten(tier, segment, lambda manifest: None)
    verdict = scrub(tier, segment)
    assert verdict.outcome is Outcome.DAMAGED
    texts = " | ".join(finding.what for finding in verdict.findings)
    assert re.search(told, texts), texts


def cleaned(path: Path, removed: list[int]) -> ReplicaWriter:
    """What Kafka's cleaner leaves: batches are gone, entries say where transactions once began."""
    replica = ReplicaWriter(write_log_dir(path))
    replica.append(1, producer_id=2, transactional=True)  # 0
    replica.roll()
    for _ in range(3):
        replica.append(1, producer_id=1, transactional=True)  # 1, 2, 3
    replica.append(1)  # 4
    replica.end_transaction(1, commit=False)  # 5
    replica.append(1, producer_id=2, transactional=True)  # 6
    replica.end_transaction(2, commit=False)  # 7
    replica.append(1)  # 8
    replica.batches = [each for at, each in enumerate(replica.batches) if at not in removed]
    replica.roll()
    return replica


@pytest.mark.parametrize("removed", [[], [0], [0, 1], [1], [3], [5]])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_the_cleaner_leaves_is_no_damage(
    tmp_path: Path, removed: list[int], is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(scrub_log_scan, "compiled", lambda _: None)
    cleaned(tmp_path / "logs", removed)
    tier = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    segment = tier.segments("orders")[1]
    verdict = scrub(tier, segment)
    assert (verdict.outcome, verdict.findings) == (Outcome.OK, ())
    patched(tier, segment, "transaction", 34 + 10, (1).to_bytes(8, "big"))
    verdict = scrub(tier, rewritten(tier, segment, lambda manifest: None))
    assert [finding.what for finding in verdict.findings] == [
        "in the transaction index the transaction aborted at offset 7 begins at 1, but in the log "
        "it does not; there it begins at 0"
    ]


def test_an_entry_from_below_is_unverified_where_no_snapshot_tells(tmp_path: Path) -> None:
    replica = cleaned(tmp_path / "logs", [])
    replica.path(1, ".snapshot").unlink()
    tier = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    first, second = tier.segments("orders")
    assert scrub(tier, first).unverified == 0
    verdict = scrub(tier, second)
    assert (verdict.outcome, verdict.unverified) == (Outcome.OK, 1)
    assert verdict_of(second, json.loads(json.dumps(verdict.as_json()))) == verdict


@pytest.mark.parametrize(("producer_id", "first_offset"), [(2, -1), (1, 1), (2, 8)])
def test_a_snapshot_that_shows_other_transactions_open_is_found(
    tmp_path: Path, producer_id: int, first_offset: int
) -> None:
    cleaned(tmp_path / "logs", [])
    tier = tier_log_dir(tmp_path / "logs", tmp_path / "tier")
    segment = tier.segments("orders")[0]
    state = ProducerState(producer_id, 0, 0, 0, 0, 5, -1, first_offset)
    patched(tier, segment, "producerSnapshot", 0, producer_snapshot.encode([state]))
    verdict = scrub(tier, rewritten(tier, segment, lambda manifest: None))
    assert any("the producer snapshot has" in finding.what for finding in verdict.findings)


def test_an_abort_that_no_index_lists_is_found(tier: FolderTier) -> None:
    segment = with_aborts(tier)

    def drop(manifest: dict[str, Any]) -> None:
        manifest["segmentIndexes"]["transaction"] = None
        manifest["remoteLogSegmentMetadata"]["txnIdxEmpty"] = True

    changed = replace(rewritten(tier, segment, drop), txn_index_empty=True)
    verdict = scrub(tier, changed)
    assert any("does not have it" in finding.what for finding in verdict.findings)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("startOffset", 1, "start offset"),
        ("endOffset", 10**9, "end offset"),
        ("maxTimestampMs", 5, "largest timestamp"),
        ("segmentLeaderEpochs", {"9": 0}, "leader epochs"),
        ("txnIdxEmpty", True, "transaction index"),
    ],
)
def test_a_manifest_that_says_other_things_than_the_metadata_is_found(
    tier: FolderTier, field: str, value: object, told: str
) -> None:
    segment = with_aborts(tier)

    def change(manifest: dict[str, Any]) -> None:
        manifest["remoteLogSegmentMetadata"][field] = value

    verdict = scrub(tier, rewritten(tier, segment, change))
    assert any(told in finding.what for finding in verdict.findings), verdict.findings


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"end_offset": 3, "last_offset": 3}, "are legal"),
        ({"max_timestamp_ms": 12}, "largest timestamp of its batches"),
    ],
)
def test_metadata_that_does_not_fit_the_log_is_found(
    tier: FolderTier, change: dict[str, Any], told: str
) -> None:
    segment = replace(tier.segments("orders")[0], **change)
    verdict = scrub(tier, segment)
    assert any(told in finding.what for finding in verdict.findings), verdict.findings
    assert len(verdict.findings) <= FINDINGS_MAX


def test_a_record_that_cannot_be_decoded_is_found_when_records_are_asked_for(
    tier: FolderTier,
) -> None:
    segment = next(
        s
        for s in tier.segments("codecs")
        if tier.file(s).read_bytes()[22] & 7 == 0  # the first batch is not compressed
    )
    path = tier.file(segment)
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[8:12], "big") + 12
    data[HEADER_BYTES] ^= 0x7E  # the first record's length
    data[17:21] = crc32c(bytes(data[21:length])).to_bytes(4, "big")
    path.write_bytes(data)
    segment = rewritten(tier, segment, lambda manifest: None)
    assert scrub(tier, segment).outcome is Outcome.OK
    verdict = scrub(tier, segment, records=True)
    assert verdict.outcome is Outcome.DAMAGED
    assert [finding.position for finding in verdict.findings] == [0]


def test_what_the_store_does_not_give_is_unread_and_no_damage(
    tier: FolderTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = tier.segments("orders")[0]

    def busy(self: SegmentObjects) -> bytes:
        raise RetryLater("slow down")

    monkeypatch.setattr(SegmentObjects, "stored_manifest", busy)
    verdict = scrub(tier, segment)
    assert verdict.outcome is Outcome.UNREAD
    assert "slow down" in verdict.findings[0].what


def test_an_object_that_the_store_refuses_is_unread_and_hides_no_damage(
    tier: FolderTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, damaged = tier.segments("orders")[:2]

    def archived(*_: object) -> bytes:
        raise Refused("GetObject: the store answered InvalidObjectState")

    monkeypatch.setattr(SegmentObjects, "stored_indexes", archived)
    verdict = scrub(tier, segment)
    assert (verdict.outcome, verdict.refused) == (Outcome.UNREAD, True)
    assert "InvalidObjectState" in verdict.findings[0].what
    assert "access" in verdict.findings[0].action
    turn(tier.file(damaged, "rsm-manifest"), 30)
    found = scrub(tier, damaged)
    assert (found.outcome, found.refused) == (Outcome.DAMAGED, True)
    assert "InvalidObjectState" in found.findings[0].what
    assert len(found.findings) > 1


@dataclass
class NetworkObject:
    """A file that tells its length with every read, as S3 does."""

    file: BlockingObject
    length: int
    object_bytes: int | None = None

    def read_into(self, buffer: memoryview, start: int) -> int:
        self.object_bytes = self.length
        return self.file.read_into(buffer, start)

    def close(self) -> None:
        self.file.close()


@dataclass
class NetworkStore:
    files: BlockingStore
    folder: Path

    def open(self, key: str, *, in_order_to: int | None = None) -> BlockingObject:
        opened = self.files.open(key, in_order_to=in_order_to)
        return NetworkObject(opened, (self.folder / key).stat().st_size)

    def close(self) -> None:
        self.files.close()


@pytest.mark.parametrize("at_once", [2, 4], ids=["fetched ahead", "in order"])
def test_segments_on_the_network_are_read_side_by_side_with_the_same_verdicts(
    tier: FolderTier, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("pipeline.jobs.scrub.SEGMENTS_AT_ONCE", at_once)
    segments = [segment for found in tier.found.values() for segment in found]
    turn(tier.file(segments[1]), 5_000)
    tier.file(segments[2], "indexes").unlink()
    longer = tier.file(segments[3])
    longer.write_bytes(longer.read_bytes() + b"x")
    one_by_one = ScrubTask(tier.stores, (), records=False)(segments)
    (files,) = tier.stores.values()

    def open_network(_: StoreConfig, **options: Any) -> NetworkStore:
        return NetworkStore(open_blocking(files, **options), tier.folder)

    monkeypatch.setattr("pipeline.read.open_stores.open_blocking", open_network)
    network = {files.name: replace(files, kind="s3", bucket="tier", path=None)}
    found = ScrubTask(network, (), records=False)(segments)
    assert [replace(verdict, scrubbed_at_ms=0) for verdict in found] == [
        replace(verdict, scrubbed_at_ms=0) for verdict in one_by_one
    ]
    damaged = [verdict.outcome is Outcome.DAMAGED for verdict in found]
    assert damaged == [False, True, True, True] + [False] * (len(segments) - 4)
    assert "longer than recorded" in found[3].findings[0].what
