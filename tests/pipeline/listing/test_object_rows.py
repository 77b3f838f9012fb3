"""A page of a listing as rows: each key tells what it tells alone."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.listing.listed_objects import object_rows
from rlm.format.object_keys import parse_segment_key, segment_keys
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store import ObjectInfo
from rsm_backends.store_config import StoreConfig

CONFIG = StoreConfig(name="main", kind="filesystem", path=Path("/nowhere"), prefix="tier/")
STEMS = [
    segment_keys(
        "tier/", RemoteLogSegmentId(TopicIdPartition(topic, Uuid(b"t" * 16), 7), Uuid(id_)), start
    ).log.removesuffix("log")
    for topic, id_, start in product(("orders", "a.b"), (b"1" * 16, b"2" * 16), (0, 2**63 - 1))
]
KEYS = [
    *(
        stem + suffix
        for stem in STEMS
        for suffix in ("indexes", "log", "rsm-manifest", "aaa", "log.log", "")
    ),
    *("tier/_strandline/cluster.json", "tier/.log", "tier/x.log", "elsewhere.log", "tier/ü"),
]


@given(
    st.lists(
        st.builds(
            ObjectInfo,
            st.sampled_from(KEYS),
            st.integers(0, 2**40),
            st.none(),
            st.none() | st.integers(0, 2**41),
            st.just(""),
        ),
        max_size=20,
    )
)
def test_every_key_tells_the_same_whatever_stands_beside_it(page: list[ObjectInfo]) -> None:
    rows = object_rows(CONFIG, page).to_pylist()
    for row, each in zip(rows, page, strict=True):
        assert (row["store"], row["key"], row["size"]) == ("main", each.key, each.size)
        assert row["modified_ms"] == (
            -1 if each.last_modified_ms is None else each.last_modified_ms
        )
        parsed = parse_segment_key("tier/", each.key)
        told = [
            row[name]
            for name in ("topic", "topic_id", "partition", "start_offset", "segment_id", "suffix")
        ]
        if parsed is None:
            assert told == [None] * 6
            continue
        partition = parsed.segment_id.partition
        assert told == [
            partition.topic, str(partition.topic_id), partition.partition, parsed.start_offset,
            str(parsed.segment_id.id), parsed.suffix.value,
        ]  # fmt: skip
