"""`strandline pipeline rebuild`: makes a metadata snapshot from the bucket's manifests alone.

    list the stores (tasks) -> read each manifest (tasks) -> rows of each partition (tasks)
    -> sorted by key -> written by the driver as they come, a Spark partition at a time

Nothing in the bucket changes. The result is a snapshot for `strandline format --from-snapshot`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kafka_formats.errors import InvalidRequest, NotFound
from pipeline.jobs.frame_errors import our_errors
from pipeline.jobs.job import JobContext
from pipeline.jobs.kept_frames import Keep, kept_frames
from pipeline.listing.listed_objects import listed_objects
from pipeline.rebuild.left_out import MEANING, NEEDS_SOMEBODY, Reason
from pipeline.rebuild.manifest_rows import listed_segments, told_segments
from pipeline.rebuild.ordered_rows import rows_in_key_order
from pipeline.rebuild.partition_group import ROWS_SCHEMA, PartitionKey, RebuildPartitions
from pipeline.rebuild.partition_rows import first_offsets
from pipeline.rebuild.snapshot_file import write_snapshot
from pipeline.spark.marked_pickle import SentWork
from rlmm.partition_state import Mode, Totals
from rlmm.rows import keys, values

EXAMPLES_MAX = 200
ID_TWICE_MAX = 10_000
UNKNOWN_TOLD_MAX = 10
TWO_MANAGERS_TOLD_MAX = 20
TASKS_PER_SLOT = 4
SEGMENTS_PER_PART = 50_000
"""Segments in each part of a snapshot: some 18 MiB, and a driver holds two parts at once."""

NOT_CARRIED = (
    "topic policies (retention, pauses): without any, everything is kept",
    "deletions in progress, marks for deletion, tombstones: their segments are back",
    "log start: it is now the lowest offset that the bucket serves",
    "claims: no partition is claimed; partition modes: SIDECAR, READ_ONLY where a different "
    "manager copied a segment with a row",
    "reasons of lost offsets: every hole is recorded as not in the bucket",
)
"""State that manifests do not contain, and the rebuilt state instead."""


@dataclass(frozen=True)
class RebuildOptions:
    """Options of a rebuild. `output` None: a dry run that writes nothing. `mode` None: SIDECAR."""

    output: Path | None
    leave_out: frozenset[str] = frozenset()
    accept_doubt: bool = False
    mode: Mode | None = None


@dataclass
class RebuildReport:
    """The content of the snapshot, and what was left out. `was_there`: an earlier run wrote it."""

    snapshot: str | None = None
    was_there: bool = False
    partitions: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, list[int]] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True unless offsets are missing, or a segment left out may be the only copy."""
        doubtful = {reason.value for reason in NEEDS_SOMEBODY} & self.left_out.keys()
        return not doubtful and not any(each["lost_offsets"] for each in self.partitions)

    @property
    def segments(self) -> int:
        """Number of segments with a row."""
        return sum(each["segments"] for each in self.partitions)

    def as_json(self) -> dict[str, object]:
        """The report for scripts."""
        return {
            "ok": self.ok,
            "snapshot": self.snapshot,
            "was_there": self.was_there,
            "segments": self.segments,
            "size_bytes": sum(each["size_bytes"] for each in self.partitions),
            "partitions": self.partitions,
            "left_out": {
                reason: {"segments": count, "size_bytes": size}
                for reason, (count, size) in sorted(self.left_out.items())
            },
            "examples": self.examples,
            "not_carried": list(NOT_CARRIED),
        }

    def lines(self) -> Iterable[str]:
        """The report for people."""
        yield f"{self.segments} segments of {len(self.partitions)} partitions"
        for each in self.partitions:
            if each["lost_offsets"]:
                ranges = ", ".join(f"{start} to {end}" for start, end in each["lost"][:5])
                yield (
                    f"  {each['topic']}-{each['partition']}: {each['lost_offsets']} offsets are "
                    f"not in the bucket ({ranges})"
                )
        yield from self._two_managers()
        if self.left_out:
            yield "segments left out, which stay in the bucket and are not deleted:"
        for reason, (count, _) in sorted(self.left_out.items()):
            yield f"  {count} {reason.replace('_', ' ')}: {MEANING[Reason(reason)]}"
        yield "not in any manifest:"
        yield from (f"  {each}" for each in NOT_CARRIED)
        if self.snapshot is None:
            yield "a dry run: nothing was written"
            return
        done = "exists already with the same bytes" if self.was_there else "written"
        yield f"{done}: {self.snapshot}"
        yield (
            f"next: strandline format --config FILE --from-snapshot {self.snapshot} --yes, once no "
            "node of the former cluster runs any more"
        )

    def _two_managers(self) -> Iterable[str]:
        names = [
            f"{one['topic']}-{one['partition']}" for one in self.partitions if one["managers"] > 1
        ]
        if not names:
            return
        yield (
            f"{len(names)} partitions have segments of two managers, Strandline and a different "
            "one, and are READ_ONLY: no segment of them is copied, while the brokers' own "
            "retention continues."
        )
        yield (
            "  Stop the other manager, then strandline mode set TOPIC PARTITION sidecar --yes, or "
            "delegated if the broker continues:"
        )
        yield from (f"  {name}" for name in names[:TWO_MANAGERS_TOLD_MAX])
        if len(names) > TWO_MANAGERS_TOLD_MAX:
            yield f"  and {len(names) - TWO_MANAGERS_TOLD_MAX} more"


def run(context: JobContext, options: RebuildOptions) -> RebuildReport:
    """Rebuild. NotFound without any segment. InvalidRequest if the snapshot's file exists with
    different bytes. Errors of the stores are passed on.
    """
    with our_errors(), kept_frames() as keep:
        return _run(context, options, keep)


def _run(context: JobContext, options: RebuildOptions, keep: Keep) -> RebuildReport:
    stores = context.catalogue.stores
    slots = context.spark.sparkContext.defaultParallelism
    with context.bar("listing the bucket"):
        objects = listed_objects(context.spark, stores)
        segments = keep(listed_segments(objects))
        found = segments.count()
    if not found:
        raise NotFound(f"no segment was found in {', '.join(stores)}: correct bucket and prefix")
    _check_listed(segments, options.leave_out)
    with context.bar(f"reading the manifests of {found} segments"):
        told = keep(told_segments(segments, stores, tasks=TASKS_PER_SLOT * slots))
        begins, end_offset = _first_offsets(told)
    work = RebuildPartitions(
        begins,
        tuple(stores),
        _ids_twice(told),
        options.leave_out,
        options.accept_doubt,
        options.mode,
    )
    rows_of = SentWork(work.rows_of)
    with context.bar("making the rows"):
        # A function of one argument: Spark counts the `self` of a method as one.
        grouped = told.groupBy("topic_id", "partition")
        rows = keep(grouped.applyInArrow(lambda table: rows_of(table), ROWS_SCHEMA))
        report = _report(rows.where("told IS NOT NULL").coalesce(TASKS_PER_SLOT * slots))
    if options.output is not None and report.partitions:
        with context.bar("writing the snapshot"):
            ordered = rows_in_key_order(rows, 1 + found // SEGMENTS_PER_PART)
            path, report.was_there = write_snapshot(
                options.output, end_offset, _state_rows(ordered, report)
            )
        report.snapshot = str(path)
    return report


def _check_listed(segments: DataFrame, leave_out: frozenset[str]) -> None:
    """Raise InvalidRequest for an id to leave out that no listed segment has: a mistyped one would
    get its row.
    """
    if not leave_out:
        return
    found = segments.where(f.col("segment_id").isin(*leave_out)).select("segment_id").collect()
    unknown = sorted(leave_out - {row[0] for row in found})
    if unknown:
        raise InvalidRequest(
            f"no segment has the id {', '.join(unknown[:UNKNOWN_TOLD_MAX])}: correct or drop it",
            field="--leave-out",
        )


def _first_offsets(told: DataFrame) -> tuple[dict[PartitionKey, int], int]:
    counted = told.groupBy("topic_id", "partition").agg(f.count("*"), f.max("event_ms"))
    return first_offsets([tuple(row) for row in counted.collect()])


def _ids_twice(told: DataFrame) -> frozenset[str]:
    """Segment ids used in more than one partition, of which the metadata can hold only one."""
    known = told.where("reason IS NULL").select("segment_id", "topic_id", "partition").distinct()
    twice = known.groupBy("segment_id").count().where(f.col("count") > 1).limit(ID_TWICE_MAX)
    found = frozenset(row[0] for row in twice.collect())
    if len(found) == ID_TWICE_MAX:
        raise InvalidRequest(
            f"{ID_TWICE_MAX} or more segment ids are used in several partitions: the bucket holds "
            "copies of folders. Name one prefix that has each segment once",
            field="--store",
        )
    return found


def _report(told: DataFrame) -> RebuildReport:
    report = RebuildReport()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for (text,) in told.select("told").toLocalIterator():
        document = json.loads(text)
        for reason, (count, size) in document["left_out"].items():
            counts[reason] += count
            sizes[reason] += size
        report.examples += document["examples"][: EXAMPLES_MAX - len(report.examples)]
        if "rebuilt" in document:
            report.partitions.append(document["rebuilt"])
    report.partitions.sort(key=lambda each: (each["topic"], each["topic_id"], each["partition"]))
    report.left_out = {reason: [counts[reason], sizes[reason]] for reason in counts}
    return report


def _state_rows(
    ordered: Iterator[tuple[bytes, bytes]], report: RebuildReport
) -> Iterator[tuple[bytes, bytes]]:
    """All rows in key order; the totals sort before the rows of any partition."""
    totals = Totals(
        copy_finished=report.segments,
        size_bytes=sum(each["size_bytes"] for each in report.partitions),
        partitions=len(report.partitions),
    )
    yield keys.TOTALS_KEY, values.encode_totals(totals)
    yield from ordered
