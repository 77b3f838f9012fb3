"""Objects that are judged as neighbours have the classes that each would have alone."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.listing.listed_objects import OBJECTS_SCHEMA
from pipeline.reconcile.judged_objects import KNOWN_COLUMNS, _JudgeObjects
from pipeline.reconcile.verdict import DELETED, NEVER, KnownSegment, object_class
from rlm.format.object_keys import segment_keys
from rlmm.segment import RemoteLogSegmentId, SegmentState

PREFIXES = {"main": "tier/", "other": "elsewhere/"}
NOW_MS = 1_000
PARTITION = TopicIdPartition("orders", Uuid(b"t" * 16), 7)
STEMS = [
    segment_keys(prefix, RemoteLogSegmentId(PARTITION, Uuid(b"1" * 16)), start).log.removesuffix(
        ".log"
    )
    for prefix, start in product(PREFIXES.values(), (0, 10))
]
KEYS = [
    *(stem + end for stem in STEMS for end in (".indexes", ".log", ".rsm-manifest", ".aaa", "")),
    *("tier/_strandline/cluster.json", "elsewhere/_strandline/cluster.log", "tier/x"),
]
KNOWN = st.just((None, None, None)) | st.tuples(
    st.sampled_from([DELETED, NEVER, *(state.name for state in SegmentState)]),
    st.sampled_from([0, 10]),
    st.sampled_from([NOW_MS - 1, NOW_MS + 1]),
)
ROWS = st.lists(st.tuples(st.sampled_from(sorted(PREFIXES)), st.sampled_from(KEYS), KNOWN))


@given(ROWS)
def test_an_object_has_its_class_whatever_stands_beside_it(
    rows: list[tuple[str, str, tuple[str | None, int | None, int | None]]],
) -> None:
    names = [each.split()[0] for each in OBJECTS_SCHEMA.split(", ")]
    types = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32()}
    schema = pa.schema(
        (name, types[type_])
        for name, type_ in (each.split() for each in f"{OBJECTS_SCHEMA}, state string, "
        "known_start bigint, due_ms bigint".split(", "))
    )  # fmt: skip
    batch = pa.RecordBatch.from_pylist(
        [
            dict.fromkeys(names)
            | {"store": store, "key": key}
            | dict(zip(KNOWN_COLUMNS, known, strict=True))
            for store, key, known in rows
        ],
        schema=schema,
    )
    (judged,) = _JudgeObjects(PREFIXES, NOW_MS)(iter([batch]))
    for row, (store, key, known) in zip(judged.to_pylist(), rows, strict=True):
        state, start, due_ms = known
        alone = None
        if state is not None and start is not None and due_ms is not None:
            alone = KnownSegment(state, start, due_ms)
        assert row["class"] == object_class(key, PREFIXES[store], alone, now_ms=NOW_MS).value
        assert (row["name"], row["state"]) == (f"{store}:{key}", state)
