"""Turns one partition's segments from Spark's grouped rows into rows of a snapshot, in a task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from pipeline.rebuild.left_out import LeftOut, Reason
from pipeline.rebuild.partition_rows import RebuiltPartition, partition_rows
from rlmm.partition_state import Mode
from rlmm.records.fixed_layout import decode_segment_row
from rlmm.rows.resolved_lineage import resolve_lineage
from rlmm.segment import RemoteLogSegmentMetadata

ROWS_SCHEMA = "key binary, value binary, told string"
"""A row of the snapshot, or in `told` the partition's part of the report (JSON)."""

_ARROW = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("told", pa.string())])
LEFT_OUT_TOLD_MAX = 100
LOST_TOLD_MAX = 100
BATCH_ROWS = 10_000

PartitionKey = tuple[str, int]
"""Topic id and number."""


@dataclass(frozen=True)
class RebuildPartitions:
    """The work of a task. `first_offsets`: the start of each partition's metadata offsets.
    `store_order`: of a segment in two stores the one in the earlier counts. `id_twice`: segment ids
    that two partitions have.
    """

    first_offsets: Mapping[PartitionKey, int]
    store_order: Sequence[str]
    id_twice: frozenset[str]
    asked: frozenset[str]
    accept_doubt: bool
    mode: Mode | None

    def rows_of(self, table: pa.Table) -> pa.Table:
        """The rows for all segments of one partition, given in the columns of TOLD_SCHEMA."""
        told = _Told()
        kept = self._chosen(table.to_pylist(), told)
        found = self._rebuilt(kept, told)
        return pa.Table.from_batches(_batches(found, told), schema=_ARROW)

    def _chosen(self, rows: list[dict[str, Any]], told: _Told) -> list[dict[str, Any]]:
        """The rows of segments that are not left out, one each."""
        rows.sort(key=lambda row: (self.store_order.index(row["store"]), row["segment_id"]))
        newest = max(rows, key=lambda row: (row["event_ms"], row["topic"]))
        chosen: dict[str, dict[str, Any]] = {}
        for row in rows:
            problem = self._problem(row, chosen, topic=newest["topic"])
            if problem is None:
                chosen[row["segment_id"]] = row
            else:
                told.leave_out(row, *problem)
        return list(chosen.values())

    def _problem(
        self, row: Mapping[str, Any], chosen: Mapping[str, object], *, topic: str
    ) -> tuple[Reason, str] | None:
        if row["reason"] is not None:
            return Reason(row["reason"]), row["why"]
        if row["segment_id"] in self.asked:
            return Reason.ASKED, ""
        if row["segment_id"] in self.id_twice:
            return Reason.ID_TWICE, ""
        if row["topic"] != topic:
            return Reason.TOPIC_ID_TWICE, f"the newest segment is of {topic}"
        if row["segment_id"] in chosen:
            return Reason.SECOND_COPY, ""
        return None

    def _rebuilt(self, kept: Sequence[dict[str, Any]], told: _Told) -> RebuiltPartition | None:
        if not kept:
            return None
        segments = [decode_segment_row(row["row"]) for row in kept]
        lineage = resolve_lineage(segments, accept_doubt=self.accept_doubt)
        is_ours = set()
        for row, segment in zip(kept, segments, strict=True):
            if segment.segment_id.id in lineage.in_doubt:
                told.leave_out(row, Reason.IN_DOUBT, _epochs(segment))
            elif segment.segment_id.id in lineage.diverged:
                told.leave_out(row, Reason.DIVERGED, _epochs(segment))
            else:
                is_ours.add(row["is_ours"])
        # Only the manager that wrote segments may copy to their partition or expire them: if two
        # did, an admin chooses the one that continues.
        mode = Mode.READ_ONLY if False in is_ours else (self.mode or Mode.SIDECAR)
        told.managers = len(is_ours)
        first = self.first_offsets[kept[0]["topic_id"], kept[0]["partition"]]
        found = partition_rows(segments, lineage, mode, first_offset=first)
        told.cut = len(lineage.cut)
        return found


def _epochs(segment: RemoteLogSegmentMetadata) -> str:
    return f"its leader epochs: {', '.join(f'{e} from {o}' for e, o in segment.leader_epochs)}"


class _Told:
    """The report's part about one partition; examples are bounded, counts are not."""

    def __init__(self) -> None:
        self.cut = 0
        self.managers = 0
        self.counts: dict[str, list[int]] = {}
        self.examples: list[LeftOut] = []

    def leave_out(self, row: Mapping[str, Any], reason: Reason, why: str) -> None:
        """Count a segment left out, and keep the first few as examples."""
        count = self.counts.setdefault(reason.value, [0, 0])
        count[0] += 1
        count[1] += max(row["log_bytes"], 0)
        if len(self.examples) < LEFT_OUT_TOLD_MAX:
            self.examples.append(
                LeftOut(
                    reason, row["store"], row["topic"], row["partition"], row["segment_id"],
                    row["start_offset"], row["end_offset"], row["log_bytes"], why,
                )
            )  # fmt: skip

    def as_json(self, found: RebuiltPartition | None) -> str:
        """One line of the report."""
        document: dict[str, object] = {
            "left_out": self.counts,
            "examples": [asdict(each) for each in self.examples],
        }
        if found is not None:
            partition = found.partition
            lost = found.lost
            document["rebuilt"] = {
                "topic": partition.topic,
                "topic_id": str(partition.topic_id),
                "partition": partition.partition,
                "mode": found.mode.name,
                "managers": self.managers,
                "segments": found.segments,
                "size_bytes": found.size_bytes,
                "log_start_offset": found.log_start_offset,
                "highest_copied": found.highest_copied[0],
                "cut": self.cut,
                "lost_offsets": sum(each.end - each.start + 1 for each in lost),
                "lost": [[each.start, each.end] for each in lost[:LOST_TOLD_MAX]],
            }
        return json.dumps(document)


def _batches(found: RebuiltPartition | None, told: _Told) -> Iterator[pa.RecordBatch]:
    rows = () if found is None else found.rows
    for at in range(0, len(rows), BATCH_ROWS):
        part = rows[at : at + BATCH_ROWS]
        yield pa.RecordBatch.from_pylist(
            [{"key": key, "value": value} for key, value in part], schema=_ARROW
        )
    yield pa.RecordBatch.from_pylist([{"told": told.as_json(found)}], schema=_ARROW)
