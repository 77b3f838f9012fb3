"""`strandline pipeline reconcile`: compares every object of the bucket with the metadata's rows.

    list the stores (tasks), and keep the list
    -> ask the metadata for its rows (tasks)                            list first, then look
    -> join by segment; ask again for segments without a row, or being deleted
    -> classify objects by the collector's rule; look once more for objects that seem to be missing

The job itself deletes nothing. With `apply` a node's collector is asked to delete the orphans: it
lists and checks anew, with its own grace, brake and audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.node_address import URL_OPTION, NodeAddress
from pipeline.catalogue.node_client import NodeClient
from pipeline.jobs.frame_errors import our_errors
from pipeline.jobs.job import JobContext
from pipeline.jobs.kept_frames import Keep, kept_frames
from pipeline.listing.listed_objects import listed_objects
from pipeline.reconcile.judged_objects import judged_objects, judged_segments, table_rows
from pipeline.reconcile.known_rows import (
    DELETE_STATES,
    asked_anew,
    known_of_node,
    known_of_snapshot,
)
from pipeline.reconcile.tally import Found, tally
from pipeline.reconcile.uploads import UPLOAD, begun_segments, dangling_uploads
from pipeline.reconcile.verdict import MEANING, SegmentClass
from rlm.reconcile.collection_plan import ObjectClass

ASKED_EVERY_S = 0.5
OBJECTS_PER_TASK = 100_000
"""Fewest objects that a task judges, if there are more: a task itself costs 0.1 s."""
ID = ["topic_id", "partition", "segment_id"]
SEGMENT = ["topic", *ID]
NEEDS_SOMEBODY = (SegmentClass.MISSING, SegmentClass.UNFOUND)


@dataclass(frozen=True)
class ReconcileOptions:
    """Options of a reconciliation. `snapshot`: a metadata snapshot instead of a node. `table`: the
    new folder for a table of all objects, as Parquet, or as CSV if `csv`. `accept_objects` as in
    `strandline collect`.
    """

    node: NodeAddress | None
    snapshot: Path | None
    table: str | None
    csv: bool
    apply: bool
    accept_objects: int
    now_ms: Callable[[], int]
    wait: Callable[[float], None]


@dataclass
class ReconcileReport:
    """The result. `uploads`: dangling multipart uploads of segments that are being deleted, were
    deleted, or were never in the metadata. `uncompared`: finished rows of a different manager, of a
    store that no option names, or of partitions whose metadata Kafka's own topic has.
    """

    objects: dict[str, Found] = field(default_factory=dict)
    segments: dict[str, Found] = field(default_factory=dict)
    uploads: Found = field(default_factory=Found)
    rows: int = 0
    uncompared: int = 0
    table: str | None = None
    collection: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """True if nothing is missing or unfound, and the collector, if asked, has finished."""
        collected = self.collection is None or self.collection["state"] == "finished"
        return collected and not any(self.segments[name].count for name in NEEDS_SOMEBODY)

    def as_json(self) -> dict[str, object]:
        """The report for scripts."""
        return {
            "ok": self.ok,
            "rows": self.rows,
            "uncompared_rows": self.uncompared,
            "objects": {name: vars(found) for name, found in self.objects.items()},
            "segments": {name: vars(found) for name, found in self.segments.items()},
            "dangling_uploads": vars(self.uploads),
            "table": self.table,
            "collection": self.collection,
        }

    def lines(self) -> Iterable[str]:
        """The report for people."""
        yield f"{self.rows} rows of the metadata, {self._listed()} objects"
        for class_ in ObjectClass:
            found = self.objects[class_.value]
            name = class_.value.replace("_", " ")
            size = _size(found.size_bytes)
            yield f"  {found.count:>9} objects {size:>10}  {name}: {MEANING[class_]}"
        for each in SegmentClass:
            found = self.segments[each.value]
            if found.count:
                yield f"  {found.count:>9} segments {' ':>9}  {each.value}: {MEANING[each]}"
                yield from (f"      {example}" for example in found.examples)
        if self.uploads.count:
            yield f"  {self.uploads.count:>9} dangling uploads: a lifecycle rule ends them"
        if self.uncompared:
            yield f"  {self.uncompared:>9} rows not compared: of another manager or store, or of"
            yield "            partitions whose metadata is in Kafka's topic (phase KAFKA)"
        for class_ in (ObjectClass.ORPHAN, ObjectClass.FOREIGN):
            yield from (f"{class_.value}: {each}" for each in self.objects[class_.value].examples)
        if self.table is not None:
            yield f"every object: {self.table}"
        if self.collection is not None:
            deleted = self.collection["deleted"]["objects"]
            yield f"the collector is {self.collection['state']}: {deleted} objects deleted"
            if self.collection["text"]:
                yield self.collection["text"]
        elif self.objects[ObjectClass.ORPHAN.value].count:
            yield "next: run it again with --apply, and the node's collector deletes the orphans"

    def _listed(self) -> int:
        return sum(found.count for found in self.objects.values())


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def check_options(options: ReconcileOptions) -> None:
    """Raise InvalidRequest for options that are wrong by themselves, before anything is started."""
    if options.node is None and options.snapshot is None:
        raise InvalidRequest("name a node, or give a metadata snapshot", field=URL_OPTION)
    if options.apply and options.node is None:
        raise InvalidRequest(
            f"needs a node, whose collector deletes: give {URL_OPTION}", field="--apply"
        )
    if options.snapshot is not None:
        try:
            options.snapshot.open("rb").close()
        except OSError as error:
            raise InvalidRequest(
                f"{options.snapshot} can't be read: {error.strerror}", field="--snapshot"
            ) from None


def run(context: JobContext, options: ReconcileOptions) -> ReconcileReport:
    """Reconcile. InvalidRequest without a node or a readable snapshot, or if the table exists.
    Errors of stores and node are passed on.
    """
    check_options(options)
    with our_errors(), kept_frames() as keep:
        if options.table is not None:
            _check_new(context.spark, options.table)
        report = _compare(context, options, keep)
    if options.apply and report.objects[ObjectClass.ORPHAN.value].count:
        with context.console.status("the collector lists anew"):
            report.collection = _collect(options)
    return report


def _check_new(spark: SparkSession, table: str) -> None:
    """Raise InvalidRequest if the table exists. Spark itself would find that only when it writes,
    after the listing, which may take an hour.
    """
    try:
        spark.read.text(table)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return
        raise
    raise InvalidRequest(
        f"{table}: a folder or file of this name exists: name a new one, or remove it (a folder "
        "without _SUCCESS was left by a killed run)",
        field="--table",
    )


def _compare(context: JobContext, options: ReconcileOptions, keep: Keep) -> ReconcileReport:
    spark, stores = context.spark, context.catalogue.stores
    with context.bar("listing the bucket"):
        # Kept on two executors if there are two: a list made anew would be newer than the rows it
        # is compared with. Objects that only it has are then looked up by their ids.
        listed = keep(listed_objects(spark, stores), StorageLevel.DISK_ONLY_2)
        tasks = max(spark.sparkContext.defaultParallelism, listed.count() // OBJECTS_PER_TASK)
        objects = listed.coalesce(tasks)
        begun = begun_segments(stores)
    with context.bar("asking the metadata"):
        known = keep(_known(context, options, objects, keep))
        rows = known.where("state NOT IN ('DELETED', 'NEVER')").count()
    with context.bar("comparing"):
        judged = keep(judged_objects(objects, known, stores, options.now_ms()))
        segments = judged_segments(judged, known, stores)
        report = ReconcileReport(rows=rows, table=options.table)
        report.uncompared = (
            known.where("state = 'COPY_SEGMENT_FINISHED'")
            .where("NOT by_key")
            .where(f.col("known_store").isNull() | ~f.col("known_store").isin(*stores))
            .count()
        )
        report.objects = tally(judged, (each.value for each in ObjectClass))
        report.segments = tally(segments, (each.value for each in SegmentClass))
        uploads = keep(dangling_uploads(known, judged, stores, begun))
        report.uploads = tally(uploads, [UPLOAD])[UPLOAD]
    if options.table is not None:
        with context.bar("writing the table"):
            writer = table_rows(judged).unionByName(uploads).write.mode("errorifexists")
            if options.csv:
                writer.option("header", "true").csv(options.table)
            else:
                writer.parquet(options.table)
    return report


def _known(
    context: JobContext, options: ReconcileOptions, objects: DataFrame, keep: Keep
) -> DataFrame:
    if options.snapshot is not None:
        return known_of_snapshot(context.spark, options.snapshot)
    assert options.node is not None
    rows = keep(known_of_node(context.spark, options.node))
    rows.count()  # read now, after the bucket was listed
    listed = objects.where("segment_id IS NOT NULL").select(*SEGMENT).distinct()
    unclear = listed.join(rows.where(~f.col("state").isin(*DELETE_STATES)), ID, "left_anti")
    again = asked_anew(unclear.select(*SEGMENT), options.node)
    settled = rows.join(again.select(*ID), ID, "left_anti")
    return settled.unionByName(again)


def _collect(options: ReconcileOptions) -> dict[str, Any]:
    assert options.node is not None
    client = NodeClient(options.node)
    try:
        body = {"apply": True, "accept_objects": options.accept_objects}
        job: dict[str, Any] = client.post("/v1/jobs/collect", body)
        while job["state"] == "running":
            options.wait(ASKED_EVERY_S)
            job = client.get(f"/v1/jobs/{job['id']}")
    finally:
        client.close()
    return job
