"""Reads the metadata as a Spark table, in tasks: from a node over HTTP, or from a snapshot file.

A node is asked for its rows, and for tombstones only of segments without a row; a snapshot file has
both.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from platform import node
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafka_formats.errors import CorruptData, NotFound
from kafka_formats.kafka_uuid import Uuid
from pipeline.catalogue.node_address import NodeAddress
from pipeline.catalogue.node_client import NodeClient
from pipeline.reconcile.verdict import DELETED, NEVER
from pipeline.spark.marked_pickle import SentWork
from pipeline.spark.worker_garbage import begin_task
from rlm.control.surroundings import CopyLimits
from rlm.delete.delete_due import delete_due_ms
from rlm.format.aiven_metadata import AivenMetadata
from rlm.format.custom_metadata import custom_of
from rlm.format.object_keys import ObjectSuffix
from rlm.reconcile.adoption_plan import expected_sizes
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import read_snapshot
from rlmm.records.fixed_layout import decode_segment_row
from rlmm.rows.keys import RowKind
from rlmm.rows.snapshot_rows import from_proposals
from rlmm.segment import SegmentState

KNOWN_SCHEMA = (
    "segment_id string, topic_id string, partition int, topic string, state string, "
    "known_store string, known_start bigint, known_end bigint, due_ms bigint, "
    "known_log bigint, known_indexes bigint, known_manifest bigint, by_key boolean, "
    "known_bytes bigint"
)
"""`by_key`: the row names no store, and its objects have its key in any store, as those of Aiven's
plug-in; `known_bytes`: of its three objects together, null if the row does not have them.
"""
_ARROW = pa.schema(
    [
        ("segment_id", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("topic", pa.string()),
        ("state", pa.string()),
        ("known_store", pa.string()),
        ("known_start", pa.int64()),
        ("known_end", pa.int64()),
        ("due_ms", pa.int64()),
        ("known_log", pa.int64()),
        ("known_indexes", pa.int64()),
        ("known_manifest", pa.int64()),
        ("by_key", pa.bool_()),
        ("known_bytes", pa.int64()),
    ]
)
BATCH_ROWS = 5_000
SEGMENTS_PER_PAGE = 1_000
ASKED_AT_ONCE = 1_000
PARTITIONS_PER_TASK = 50
DELETE_STATES = (
    SegmentState.DELETE_SEGMENT_STARTED.name, SegmentState.DELETE_SEGMENT_FINISHED.name,
)  # fmt: skip

KAFKA_HAS_THE_TRUTH = ("kafka", "switching")
"""The phases of a move in which a node's rows of delegated partitions are old, or not whole yet."""


class PartitionName(NamedTuple):
    """A partition to look up at a node. Not `is_current`: its brokers keep its metadata in
    Kafka's own topic, so the node's rows prove nothing.
    """

    topic: str
    topic_id: str
    partition: int
    is_current: bool


def known_of_snapshot(spark: SparkSession, path: Path) -> DataFrame:
    """The rows of a snapshot file, which must be readable where the task runs: on this machine, or
    on a disk that all machines share.
    """
    return spark.range(0, 1, 1, 1).mapInArrow(
        SentWork(_ReadSnapshot(path.absolute())), KNOWN_SCHEMA
    )


@dataclass(frozen=True)
class _ReadSnapshot:
    path: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for _ in batches:
            try:
                yield from _in_batches(snapshot_knowledge(self.path))
            except OSError as error:
                raise NotFound(
                    f"{self.path} can't be read on {node()}: {error.strerror}. Put it on a disk "
                    "that all machines share"
                ) from error


def snapshot_knowledge(path: Path) -> Iterator[dict[str, object]]:
    """The segments and tombstones of a snapshot. CorruptData if the file is damaged."""
    limits = CopyLimits()
    for key, value in from_proposals(read_snapshot(OsDisk(), path)):
        if key[0] == RowKind.SEGMENT:
            row = decode_segment_row(value)
            partition = row.segment_id.partition
            yield {
                "segment_id": str(row.segment_id.id),
                "topic_id": str(partition.topic_id),
                "partition": partition.partition,
                "topic": partition.topic,
                "state": row.state.name,
                "known_start": row.start_offset,
                "known_end": row.end_offset,
                "due_ms": delete_due_ms(row, limits),
                **_told_by(row.custom_metadata),
            }
        elif key[0] == RowKind.SEGMENT_TOMBSTONE:
            yield _nothing_but(
                str(Uuid(key[1:17])), str(Uuid(value[:16])), int.from_bytes(value[16:20]), DELETED
            )


def _told_by(custom_metadata: bytes | None) -> dict[str, object]:
    """The store and the lengths of the three objects; nulls if a different manager wrote the row.
    If that has no custom metadata, or Aiven's, its objects may have our names.
    """
    custom = custom_of(custom_metadata)
    if custom is not None:
        sizes = expected_sizes(custom)
        told = {known_size(each): sizes[each] for each in ObjectSuffix}
        return told | {"known_store": custom.store, "by_key": False, "known_bytes": None}
    with suppress(CorruptData):
        aivens = AivenMetadata.decode(custom_metadata or b"")
        return _NOTHING_TOLD | {"by_key": True, "known_bytes": aivens.remote_bytes}
    return _NOTHING_TOLD


def known_size(suffix: ObjectSuffix) -> str:
    """The column with the length that an object must have."""
    return f"known_{suffix.name.lower()}"


_NOTHING_TOLD: dict[str, object] = {
    "known_store": None, "by_key": False, "known_bytes": None,
    **{known_size(each): None for each in ObjectSuffix},
}  # fmt: skip


def _nothing_but(segment: str, topic_id: str, partition: int, state: str) -> dict[str, object]:
    return {
        "segment_id": segment, "topic_id": topic_id, "partition": partition, "topic": None,
        "state": state, "known_start": -1, "known_end": -1, "due_ms": 0,
    } | _NOTHING_TOLD  # fmt: skip


def _in_batches(rows: Iterator[dict[str, object]]) -> Iterator[pa.RecordBatch]:
    while part := list(islice(rows, BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(part, schema=_ARROW)


def known_of_node(spark: SparkSession, address: NodeAddress) -> DataFrame:
    """All rows of a node, in every state, of every incarnation of a topic. The partitions are read
    at the call, the rows when the table is computed.
    """
    names = list(_partitions(address))
    groups = [
        names[at : at + PARTITIONS_PER_TASK] for at in range(0, len(names), PARTITIONS_PER_TASK)
    ]
    numbers = spark.range(0, max(len(groups), 1), 1, max(len(groups), 1))
    return numbers.mapInArrow(SentWork(_AskForRows(address, groups or [[]])), KNOWN_SCHEMA)


def _partitions(address: NodeAddress) -> Iterator[PartitionName]:
    client = NodeClient(address)
    try:
        phase = ""
        with suppress(NotFound):  # of an older node
            phase = client.get("/v1/migration")["phase"]
        for summary in client.pages("/v1/topics", "topics", limit=SEGMENTS_PER_PAGE):
            topic = str(summary["topic"])
            for each in client.pages(f"/v1/topics/{topic}", "partition_list", limit=1_000):
                is_current = not (phase in KAFKA_HAS_THE_TRUTH and each["mode"] == "delegated")
                yield PartitionName(topic, each["topic_id"], each["partition"], is_current)
    finally:
        client.close()


@dataclass(frozen=True)
class _AskForRows:
    address: NodeAddress
    groups: Sequence[Sequence[PartitionName]]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        client = NodeClient(self.address)
        try:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from _in_batches(self._rows(client, self.groups[number]))
        finally:
            client.close()

    def _rows(
        self, client: NodeClient, names: Sequence[PartitionName]
    ) -> Iterator[dict[str, object]]:
        for topic, topic_id, partition, is_current in names:
            path = f"/v1/topics/{topic}/partitions/{partition}/segments"
            params: dict[str, str | int] = {"topic_id": topic_id, "limit": SEGMENTS_PER_PAGE}
            for each in client.pages(path, "segments", **params):
                custom = each["custom_metadata"]
                raw = None if custom is None else base64.b64decode(custom)
                yield {
                    "segment_id": each["segment_id"],
                    "topic_id": topic_id,
                    "partition": partition,
                    "topic": topic,
                    "state": each["state"],
                    "known_start": each["start_offset"],
                    "known_end": each["end_offset"],
                    "due_ms": 0,  # requested later if the state needs it
                    **(_told_by(raw) if is_current else _NOTHING_TOLD),
                }


def asked_anew(segments: DataFrame, address: NodeAddress) -> DataFrame:
    """A node's answers about segments by their ids: tombstones of those without a row, and the time
    when objects may go of those being deleted. Columns of KNOWN_SCHEMA.
    """
    columns = segments.select("topic", "topic_id", "partition", "segment_id")
    return columns.mapInArrow(SentWork(_AskAgain(address)), KNOWN_SCHEMA)


@dataclass(frozen=True)
class _AskAgain:
    address: NodeAddress

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        client = NodeClient(self.address)
        try:
            for batch in batches:
                for at in range(0, batch.num_rows, ASKED_AT_ONCE):
                    asked = batch.slice(at, ASKED_AT_ONCE).to_pylist()
                    answer = client.post("/v1/segments/known", {"segments": asked})
                    rows = map(_answered, asked, answer["segments"])
                    yield pa.RecordBatch.from_pylist(list(rows), schema=_ARROW)
        finally:
            client.close()


def _answered(asked: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, object]:
    state = {"deleted": DELETED, "never": NEVER}.get(answer["knowledge"], answer["state"])
    row = _nothing_but(asked["segment_id"], asked["topic_id"], asked["partition"], state)
    if answer["knowledge"] != "row":
        return row
    return row | {
        "topic": asked["topic"], "known_start": answer["start_offset"],
        "known_end": answer["start_offset"], "due_ms": answer["due_ms"],
    }  # fmt: skip
