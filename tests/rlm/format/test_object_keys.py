"""Names of objects: Aiven's layout, and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.object_keys import (
    ObjectSuffix,
    ParsedSegmentKey,
    cluster_marker_key,
    parse_segment_key,
    partition_prefix,
    segment_keys,
    segment_stem,
    snapshots_prefix,
)
from rlmm.segment import RemoteLogSegmentId

UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,60}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)
SEGMENT = RemoteLogSegmentId(
    TopicIdPartition("txn", Uuid.parse("27y3OsjlRa-QBg7p-29Okg"), 0),
    Uuid.parse("G5njkNIVRCChwCbQpJs3-w"),
)


def test_keys_are_those_of_aivens_plug_in() -> None:
    keys = segment_keys("pre/", SEGMENT, 9222)
    stem = "pre/txn-27y3OsjlRa-QBg7p-29Okg/0/00000000000000009222-G5njkNIVRCChwCbQpJs3-w"
    assert keys.log == f"{stem}.log"
    assert keys.indexes == f"{stem}.indexes"
    assert keys.manifest == f"{stem}.rsm-manifest"
    assert keys.all() == (keys.manifest, keys.indexes, keys.log)


@settings(max_examples=100, deadline=None)
@given(TOPICS, UUIDS, UUIDS, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_every_key_is_read_back(
    topic: str, topic_id: Uuid, id_: Uuid, partition: int, offset: int
) -> None:
    segment_id = RemoteLogSegmentId(TopicIdPartition(topic, topic_id, partition), id_)
    keys = segment_keys("a/b-", segment_id, offset)
    for key, suffix in (
        (keys.log, ObjectSuffix.LOG),
        (keys.indexes, ObjectSuffix.INDEXES),
        (keys.manifest, ObjectSuffix.MANIFEST),
    ):
        assert parse_segment_key("a/b-", key) == ParsedSegmentKey(segment_id, offset, suffix)


LONG_TOPICS = st.integers(190, 249).flatmap(
    lambda size: st.text("ab.-_9", min_size=size, max_size=size)
)


@settings(max_examples=100, deadline=None)
@given(LONG_TOPICS, UUIDS, st.sampled_from(("", "a/", "a/b-", "tier-of-a-team-")))
def test_a_long_topics_folders_have_names_that_any_store_takes(
    topic: str, topic_id: Uuid, prefix: str
) -> None:
    segment_id = RemoteLogSegmentId(TopicIdPartition(topic, topic_id, 7), SEGMENT.id)
    keys = segment_keys(prefix, segment_id, 5)
    for key in keys.all():
        assert max(len(part) for part in key.split("/")) <= 255
        assert len(key) <= 1024
        parsed = parse_segment_key(prefix, key)
        assert parsed is not None
        assert (parsed.segment_id, parsed.start_offset) == (segment_id, 5)
    aivens = f"{prefix}{topic}-{topic_id}/7/"
    name = aivens.split("/")[-3]
    assert (partition_prefix(prefix, segment_id.partition) == aivens) == (len(name) <= 255)


@pytest.mark.parametrize("size", [1, 40, 99, 100, 101, 249])
@pytest.mark.parametrize("behind_the_slash", [131, 132])
def test_behind_the_longest_prefix_every_topics_keys_are_read_back(
    size: int, behind_the_slash: int
) -> None:
    prefix = f"a/{'p' * behind_the_slash}"
    id_ = RemoteLogSegmentId(
        TopicIdPartition("t" * size, SEGMENT.partition.topic_id, 7), Uuid(b"s" * 16)
    )
    for key in segment_keys(prefix, id_, 5).all():
        parsed = parse_segment_key(prefix, key)
        assert parsed is not None
        assert parsed.segment_id == id_
        assert max(len(part) for part in key.split("/")) <= 255


def test_a_prefix_whose_last_part_is_too_long_to_begin_folders_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"more than 132 bytes.*end it with a slash"):
        segment_keys("p" * 133, SEGMENT, 0)
    assert segment_keys("p" * 133 + "/", SEGMENT, 0).log.startswith("p" * 133 + "/txn-")


@pytest.mark.parametrize("size", [232, 233])
def test_of_the_two_forms_of_a_folder_only_the_written_one_is_ours(size: int) -> None:
    topic, stem = "t" * size, f"-{SEGMENT.partition.topic_id}/0/{7:020}-{SEGMENT.id}.log"
    forms = (f"pre/{topic}{stem}", f"pre/{topic[:100]}/{topic[100:]}{stem}")
    ours = [key for key in forms if parse_segment_key("pre/", key) is not None]
    assert ours == [forms[size > 232]]


PIECES = st.sampled_from((
    "pre/", "txn-27y3OsjlRa-QBg7p-29Okg", "/", "0", "00000000000000009222", "-", ".", "log",
    "G5njkNIVRCChwCbQpJs3-w", "indexes", "rsm-manifest", "x", ".log", "1",
))  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(PIECES, max_size=10).map("".join)
    | st.lists(PIECES, max_size=2).map(
        lambda more: segment_keys("pre/", SEGMENT, 7).log.removesuffix("log") + "".join(more)
    )
)
def test_what_a_key_says_hangs_on_its_stem_and_its_suffix(key: str) -> None:
    stem, suffix = segment_stem(key)
    found = parse_segment_key("pre/", key)
    if suffix is None:
        assert found is None
        return
    assert key == f"{stem}.{suffix}"
    for other in ObjectSuffix:
        expected = found and ParsedSegmentKey(found.segment_id, found.start_offset, other)
        assert parse_segment_key("pre/", f"{stem}.{other}") == expected


@pytest.mark.parametrize(
    "key",
    [
        "",
        "_strandline/cluster.json",
        "other/txn-27y3OsjlRa-QBg7p-29Okg/0/00000000000000009222-G5njkNIVRCChwCbQpJs3-w.log",
        "txn-27y3OsjlRa-QBg7p-29Okg/00/00000000000000009222-G5njkNIVRCChwCbQpJs3-w.log",
        "txn-27y3OsjlRa-QBg7p-29Okg/9999999999/00000000000000009222-G5njkNIVRCChwCbQpJs3-w.log",
        "txn-27y3OsjlRa-QBg7p-29Okg/0/99999999999999999999-G5njkNIVRCChwCbQpJs3-w.log",
        "txn-27y3OsjlRa-QBg7p-29Okg/0/00000000000000009222-G5njkNIVRCChwCbQpJs3_x.log",
        "txn-27y3OsjlRa-QBg7p-29Okg/0/00000000000000009222-G5njkNIVRCChwCbQpJs3-w.log.bak",
        "..-27y3OsjlRa-QBg7p-29Okg/0/00000000000000009222-G5njkNIVRCChwCbQpJs3-w.log",
        "txn-27y3OsjlRa-QBg7p-29Okg/0/00000000000000009222-G5njkNIVRCChwCbQpJs3-w.log\n",
    ],
)
def test_other_objects_are_not_taken_for_segments(key: str) -> None:
    assert parse_segment_key("", key) is None


def test_a_key_without_the_prefix_is_foreign() -> None:
    assert parse_segment_key("pre/", segment_keys("", SEGMENT, 0).log) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../../etc", "a\x00b", "ä", "x" * 250])
def test_a_hostile_topic_name_makes_no_key(topic: str) -> None:
    segment_id = RemoteLogSegmentId(TopicIdPartition(topic, SEGMENT.id, 0), SEGMENT.id)
    with pytest.raises(InvalidRequest):
        segment_keys("", segment_id, 0)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_an_impossible_partition_makes_no_key(partition: int) -> None:
    segment_id = RemoteLogSegmentId(TopicIdPartition("t", SEGMENT.id, partition), SEGMENT.id)
    with pytest.raises(InvalidRequest):
        segment_keys("", segment_id, 0)


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_an_impossible_offset_makes_no_key(offset: int) -> None:
    with pytest.raises(InvalidRequest):
        segment_keys("", SEGMENT, offset)


@pytest.mark.parametrize("prefix", ["/a/", "a//b", "../", "a/./b", "a\nb", "x" * 257, "\udcff"])
def test_an_unplain_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidRequest, match="prefix"):
        cluster_marker_key(prefix)


def test_our_own_objects_stand_below_one_folder() -> None:
    assert cluster_marker_key("pre/") == "pre/_strandline/cluster.json"
    assert snapshots_prefix("") == "_strandline/snapshots/"
