"""Buckets of Aiven's plug-in: plain, compressed, encrypted, with transactions; row for row."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import CorruptData, InvalidRequest, Refused
from pipeline.decode.schema import COLUMNS
from pipeline.read.open_stores import OpenStores
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, plan_slices
from pipeline.read.transactions import stable_end
from rlm.data_plane.read_request import Isolation
from tests.pipeline.read.aiven_bucket import SAMPLES, SMALL, AivenTopic, expected, shown

COMPRESSED = AivenTopic(SMALL, "comp", "comp/")
ENCRYPTED = AivenTopic(SMALL, "compenc", "enc/")
KEYS = (str(SMALL / "keys"),)
UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED


def rows(
    topic: AivenTopic,
    first: int,
    last: int,
    *,
    isolation: Isolation = COMMITTED,
    keys: tuple[str, ...] = KEYS,
    columns: tuple[str, ...] = COLUMNS,
) -> list[dict[str, Any]]:
    settings = ReadSettings(columns=columns, isolation=isolation, aiven_keys=keys)
    slices = plan_slices(topic.segments(), first, last, isolation)
    batches = read_slices(slices, {"main": topic.store}, settings)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("topic", [COMPRESSED, ENCRYPTED], ids=lambda topic: topic.topic)
def test_its_transforms_are_undone(topic: AivenTopic) -> None:
    (segment,) = topic.segments()
    wanted = [
        row
        for row in expected(SMALL / "expected", topic.topic, "read_uncommitted")
        if row[0] <= segment.end_offset
    ]
    assert len(wanted) == segment.end_offset + 1
    assert shown(rows(topic, 0, segment.end_offset)) == wanted


def test_a_read_from_the_middle_fetches_the_chunks_it_lies_in() -> None:
    found = rows(ENCRYPTED, 700, 1_200, columns=("offset",))
    assert [row["offset"] for row in found] == list(range(700, 1_201))


@pytest.mark.parametrize("keys", [(), (str(SMALL / "keys" / "private.pem"),)])
def test_an_encrypted_segment_needs_its_key(keys: tuple[str, ...]) -> None:
    if keys:
        assert len(rows(ENCRYPTED, 0, 9, keys=keys)) == 10
        return
    with pytest.raises(Refused, match=r"'key1'.*strandline\.aiven\.keys"):
        rows(ENCRYPTED, 0, 9, keys=keys)


def test_files_without_a_private_key_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (SMALL / "keys" / "public.pem", tmp_path / "empty", tmp_path / "absent.pem"):
        with pytest.raises(InvalidRequest, match=r"strandline\.aiven\.keys"):
            rows(ENCRYPTED, 0, 9, keys=(str(path),))


def test_damage_to_an_encrypted_chunk_is_told_by_its_position(tmp_path: Path) -> None:
    shutil.copytree(SMALL / "enc", tmp_path / "enc")
    (log,) = tmp_path.glob("enc/*/0/*.log")
    data = bytearray(log.read_bytes())
    data[150_000] ^= 1
    log.write_bytes(data)
    damaged = AivenTopic(tmp_path, "compenc", "enc/")
    with pytest.raises(CorruptData, match="authentication") as raised:
        rows(damaged, 0, 1_500)
    assert raised.value.source.endswith(log.name)
    assert raised.value.position <= 150_000


def test_damage_to_a_compressed_chunk_is_told_by_its_position(tmp_path: Path) -> None:
    shutil.copytree(SMALL / "comp", tmp_path / "comp")
    (log,) = tmp_path.glob("comp/*/0/*.log")
    log.write_bytes(log.read_bytes()[:200_000])
    damaged = AivenTopic(tmp_path, "comp", "comp/")
    with pytest.raises(CorruptData) as raised:
        rows(damaged, 0, 1_500)
    assert raised.value.source.endswith(log.name)


@pytest.mark.integration
@pytest.mark.skipif(not SAMPLES.is_dir(), reason="STRANDLINE_SAMPLES names no folder of samples")
@pytest.mark.parametrize(
    ("topic", "prefix"), [("codecs", ""), ("txn", ""), ("comp", "comp/"), ("compenc", "enc/")]
)
@pytest.mark.parametrize("isolation", list(Isolation))
def test_every_row_of_a_whole_cluster_is_what_its_consumer_read(
    topic: str, prefix: str, isolation: Isolation
) -> None:
    if isolation is COMMITTED and topic != "txn":
        pytest.skip("without transactions both isolations read the same")
    tiered = AivenTopic(SAMPLES / "aiven-bucket", topic, prefix)
    segments, keys = tiered.segments(), (str(SAMPLES / "keys"),)
    end = segments[-1].end_offset + 1
    if isolation is COMMITTED:
        with OpenStores({"main": tiered.store}, keys) as stores:
            end = stable_end(segments, stores)
    wanted = [r for r in expected(SAMPLES / "expected", topic, isolation.value) if r[0] < end]
    assert shown(rows(tiered, 0, end - 1, isolation=isolation, keys=keys)) == wanted
    chance = random.Random(7)
    for _ in range(20):
        first, last = sorted(chance.randrange(end) for _ in range(2))
        part = rows(tiered, first, last, isolation=isolation, keys=keys, columns=("offset",))
        assert [r["offset"] for r in part] == [r[0] for r in wanted if first <= r[0] <= last]
