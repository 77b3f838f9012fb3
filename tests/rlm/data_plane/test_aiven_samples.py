"""A whole cluster's tier by Aiven's plug-in, read as a worker does: what its consumers read."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from kafka_formats.batch_scan import scan
from kafka_formats.errors import Refused
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import decode_records, records_within
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.read_request import (
    AivenSegment,
    Isolation,
    LogRequest,
    RecordFormat,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
    StorePlace,
)
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.records.records import decode
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from rsm_backends.filesystem import FilesystemStore
from tests.pipeline.read.aiven_bucket import SAMPLES, SMALL, AivenTopic, Row, expected
from tests.rlm.tier import Pieces, now_ms

HERE = [("comp", "comp/"), ("compenc", "enc/")]
ALL = [("codecs", ""), ("txn", ""), *HERE]


def row_of(line: dict[str, Any]) -> Row:
    """As a consumer wrote it down."""

    def raw(name: str, encoding: str, of: dict[str, Any] = line) -> bytes | None:
        if of[name] is None:
            return None
        text: str = of[name]
        return text.encode() if of[encoding] == "utf-8" else base64.b64decode(text)

    key, value = raw("key", "key_encoding"), raw("value", "value_encoding")
    headers = ((each["key"], raw("value", "encoding", each)) for each in line["headers"])
    return (
        line["offset"],
        line["timestamp_ms"],
        "null" if key is None else key.decode(),
        "null" if value is None else hashlib.sha256(value).hexdigest(),
        "".join(f"{name}={(header or b'').decode()};" for name, header in headers),
    )


async def read_all(topic: AivenTopic, isolation: Isolation) -> tuple[list[Row], int]:
    """All records, and the offset at which a reader goes on."""
    keys = (SMALL if topic.bucket == SMALL else SAMPLES) / "keys" / "private.pem"
    store = FilesystemStore(topic.bucket)
    plane = DataPlane({"main": store}, now_ms=now_ms, aiven_keys={"main": {"key1": keys}})
    pieces = Pieces(
        [
            SegmentPiece(
                AivenSegment(
                    each.segment_id, each.start_offset, each.end_offset, each.log_bytes,
                    each.txn_index_empty, (StorePlace("main", topic.prefix),),
                ),
                each.start_offset,
                each.end_offset,
            )
            for each in topic.segments()
        ]
    )  # fmt: skip
    ends: list[RecordsEnd] = []
    rows: list[Row] = []
    offset = 0
    while not ends or not ends[-1].at_end:
        request = RecordsRequest(offset, 3_000_000, isolation, RecordFormat.JSON_LINES)
        data = b"".join([part async for part in plane.read_records(request, pieces, ends.append)])
        rows += [row_of(json.loads(line)) for line in data.splitlines()]
        offset = ends[-1].next_offset
    return rows, offset


@pytest.mark.parametrize(("topic", "prefix"), HERE)
async def test_a_segments_records_are_what_its_consumer_read(topic: str, prefix: str) -> None:
    tiered = AivenTopic(SMALL, topic, prefix)
    rows, end = await read_all(tiered, Isolation.READ_COMMITTED)
    assert end == tiered.segments()[-1].end_offset + 1
    assert rows == [
        r for r in expected(SMALL / "expected", topic, "read_uncommitted") if r[0] < end
    ]


@pytest.mark.integration
@pytest.mark.skipif(not SAMPLES.is_dir(), reason="STRANDLINE_SAMPLES names no folder of samples")
@pytest.mark.parametrize(("topic", "prefix"), ALL)
@pytest.mark.parametrize("isolation", list(Isolation))
async def test_a_clusters_records_are_what_its_consumers_read(
    topic: str, prefix: str, isolation: Isolation
) -> None:
    told = isolation if topic == "txn" else Isolation.READ_UNCOMMITTED
    rows, end = await read_all(AivenTopic(SAMPLES / "aiven-bucket", topic, prefix), isolation)
    assert end > 0
    assert rows == [r for r in expected(SAMPLES / "expected", topic, told.value) if r[0] < end]


def rows_of_the_metadata_topic() -> list[RemoteLogSegmentMetadata]:
    """Finished segments, as Kafka's own manager recorded them."""
    path = SAMPLES / "metadata-topic" / "__remote_log_metadata-0" / "00000000000000000000.log"
    found: dict[Uuid, RemoteLogSegmentMetadata] = {}
    for batch in scan(path.read_bytes(), source=path.name):
        data = records_within(
            batch.data, batch.header, source=path.name, position=0, bytes_max=10**7
        )
        assert data is not None
        for record in decode_records(data, batch.header, source=path.name, position=0):
            assert record.value is not None
            told = decode(None, record.value)
            if isinstance(told, RemoteLogSegmentMetadata):
                found[told.segment_id.id] = told
            elif isinstance(told, RemoteLogSegmentMetadataUpdate):
                row = found[told.segment_id.id]
                custom = told.custom_metadata
                found[told.segment_id.id] = replace(row, state=told.state, custom_metadata=custom)
    return [row for row in found.values() if row.state is SegmentState.COPY_SEGMENT_FINISHED]


@pytest.mark.integration
@pytest.mark.skipif(not SAMPLES.is_dir(), reason="STRANDLINE_SAMPLES names no folder of samples")
async def test_rows_of_the_metadata_topic_are_understood() -> None:
    """Not moved into a node yet. The bucket of the sample has none of this partition's segments."""
    store = FilesystemStore(SAMPLES / "aiven-bucket")
    tier = TierStore("main", store, "")
    reads = ResolvedReads(cast(Any, None), cast(Any, None), TierStores({"main": tier}, "main"))
    plane = DataPlane({"main": store}, now_ms=now_ms)
    rows = rows_of_the_metadata_topic()
    assert rows
    for row in rows:
        segment = reads.tiered(row)
        assert isinstance(segment, AivenSegment)
        with pytest.raises(Refused, match="in none of the stores main"):
            [piece async for piece in plane.read_log(LogRequest(segment))]
