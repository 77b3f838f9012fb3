"""The job `restore`: copies a topic from the tier into a Kafka cluster or into log directories."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_formats.errors import InternalError, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.jobs.job import JobContext
from pipeline.jobs.tasks import run_tasks, wave_tasks
from pipeline.process import ambient
from pipeline.restore.kafka_target import (
    KafkaAddress,
    Progress,
    TargetTopic,
    committed_progress,
    create_topic,
    find_topic,
)
from pipeline.restore.log_directory import (
    FinishedLog,
    Place,
    find_finished,
    find_place,
    no_broker_in,
    prepare,
    publish,
    seal,
)
from pipeline.restore.log_directory_plan import join, kept_leader_epoch, wanted_segments
from pipeline.restore.log_end import EndedLog, WrittenLog, end_log
from pipeline.restore.log_segment import SegmentFiles, WrittenSegment, restore_segment
from pipeline.restore.produce import (
    COLUMNS,
    Compared,
    PartitionRestore,
    Produced,
    compare_partition,
    produce_partition,
)
from pipeline.restore.produce_plan import ProducePlan, plan_produce
from pipeline.restore.ranges import (
    Ranges,
    Wanted,
    find_ranges,
    nothing_to_restore,
    source_name,
)
from pipeline.restore.reports import (
    LogDirsReport,
    LogPartition,
    MissedPartition,
    ProducedPartition,
    ProduceReport,
)
from pipeline.restore.restore_note import Begun
from pipeline.restore.target_plan import (
    NEW_TOPIC_CONFIGS,
    check_target,
    new_topic_configs,
    older_topic_configs,
)
from pipeline.spark.session import speculates
from rlm.data_plane.read_request import Isolation

OWNER = "strandline-restore"
"""Consumer group of the progress, and prefix of transactional ids."""

CREATED_DEADLINE_S = 30.0
LOOKED_EVERY_S = 0.2
MAPPED_BYTES_OF_A_WAVE = 256 * 1024 * 1024
"""Packed offsets that a wave of comparisons may return. Two waves are under way, and Spark's
driver has 1 GiB by default, of which it takes as much from one (`spark.driver.maxResultSize`).
"""


@dataclass(frozen=True)
class IntoKafka:
    """A restore by producing. `topic_as` None: the same name. `mapping` is the file for the offsets
    of both sides.
    """

    wanted: Wanted
    address: KafkaAddress
    topic_as: str | None = None
    producer_settings: Mapping[str, str] = field(default_factory=dict)
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    compare: bool = True
    mapping: Path | None = None

    def __post_init__(self) -> None:
        """Raise InvalidRequest for a mapping without the comparison that finds its offsets, and for
        configs of the topic with which a restore would be lost.
        """
        for name, needed in NEW_TOPIC_CONFIGS.items():
            if self.topic_configs.get(name, needed) != needed:
                raise InvalidRequest(
                    f"{name} has to be {needed} until the restore has ended: set it afterwards",
                    field="--topic-config",
                )
        if self.mapping is not None and not self.compare:
            raise InvalidRequest(
                "the offsets are known by comparing: leave --no-compare out", field="--mapping"
            )


@dataclass(frozen=True)
class IntoLogDirs:
    """A restore into log directories of this machine, which no broker may use meanwhile. `topic_id`
    is the topic's id in their cluster; None: as the directories say.
    """

    wanted: Wanted
    log_dirs: Sequence[Path]
    topic_as: str | None = None
    topic_id: Uuid | None = None


def run(context: JobContext, options: IntoKafka | IntoLogDirs) -> ProduceReport | LogDirsReport:
    """Restore; safe to repeat: a run continues where a killed one stopped, and a complete one does
    nothing.

    Conflict if the target has different data, which stays unchanged.
    """
    if isinstance(options, IntoKafka):
        return _into_kafka(context, options)
    return _into_log_dirs(context, options)


def _into_kafka(context: JobContext, options: IntoKafka) -> ProduceReport:
    began = ambient.monotonic()
    _check_no_speculation(context)
    wanted = options.wanted
    name = options.topic_as or wanted.topic
    partitions = max(each.partition for each in context.catalogue.partitions(wanted.topic)) + 1
    target = find_topic(options.address, name)
    noted: Mapping[int, Progress] = {}
    if target is not None:
        check_target(target, partitions, topic=wanted.topic)
        noted = committed_progress(options.address, name, range(partitions), OWNER)
    plan = plan_produce(context.catalogue, context.options, wanted, COLUMNS, noted)
    if target is None:
        check_target(_made(options, name, partitions), partitions, topic=wanted.topic)
    work = [_partition_restore(context, options, name, plan, each) for each in plan.partitions]
    _check_mapping_kept(options.mapping, work)
    spark, console = context.spark.sparkContext, context.console
    produced = list(run_tasks(spark, work, produce_partition, what="restore", console=console))
    compared: list[Compared] = []
    if options.compare:
        compared += _compared(context, options.mapping, work, produced)
    return ProduceReport(
        topic=wanted.topic,
        target=name,
        partitions=tuple(_rows(plan, work, produced, compared)),
        mapping_file=None if options.mapping is None else str(options.mapping),
        took_s=ambient.monotonic() - began,
        missed=tuple(MissedPartition(each.partition, lost) for each, lost in plan.missed.items()),
    )


def _compared(
    context: JobContext,
    mapping: Path | None,
    work: Sequence[PartitionRestore],
    produced: Sequence[Produced],
) -> Iterable[Compared]:
    """Compares, and writes the mapping as the results arrive: all at once may be gigabytes."""
    spark = context.spark.sparkContext
    # Waves of few tasks, so that each may return much.
    at_once = min(len(work), wave_tasks(spark, 1))
    bytes_max = 0 if mapping is None else MAPPED_BYTES_OF_A_WAVE // at_once
    sides = [
        replace(item, since=None if item.is_whole else done.resumed, mapped_bytes_max=bytes_max)
        for item, done in zip(work, produced, strict=True)
    ]
    found = run_tasks(
        spark, sides, compare_partition, what="compare", console=context.console, tasks_per_slot=1
    )
    return found if mapping is None else write_mapping(mapping, found)


def _check_mapping_kept(mapping: Path | None, work: Sequence[PartitionRestore]) -> None:
    """Raise InvalidRequest if the file exists and may map offsets that this run can't map any
    more.
    """
    shorter = [f"{each.topic}-{each.source.partition}" for each in work if not each.is_whole]
    if mapping is not None and shorter and mapping.exists():
        raise InvalidRequest(
            f"{mapping} exists, and may have offsets of {shorter[0]} that the tier no longer has: "
            "name a new file",
            field="--mapping",
        )


def _check_no_speculation(context: JobContext) -> None:
    """Raise InvalidRequest with speculation: a second attempt fences the first while it still runs.
    Nothing would be produced twice, but the job would end with the first one's error.
    """
    if speculates(context.spark):
        raise InvalidRequest(
            "a task that Spark runs twice at once would fence itself: give --conf "
            "spark.speculation=false",
            field="--conf",
        )


def _made(options: IntoKafka, name: str, partitions: int) -> TargetTopic:
    configs = new_topic_configs(options.topic_configs)
    try:
        create_topic(options.address, name, partitions, configs)
    except InvalidRequest as error:
        older = older_topic_configs(configs, str(error))
        if older is None:
            raise
        create_topic(options.address, name, partitions, older)
    ends_at = ambient.monotonic() + CREATED_DEADLINE_S
    while ambient.monotonic() < ends_at:
        target = find_topic(options.address, name)
        if target is not None and target.partitions == partitions:
            return target
        ambient.wait(LOOKED_EVERY_S)
    raise InternalError(f"{name} was created, but is not visible after {CREATED_DEADLINE_S:g} s")


def _partition_restore(
    context: JobContext,
    options: IntoKafka,
    name: str,
    plan: ProducePlan,
    source: TopicIdPartition,
) -> PartitionRestore:
    return PartitionRestore(
        source=source,
        begun=plan.partitions[source].begun,
        slices=plan.partitions[source].slices,
        stores=context.catalogue.stores,
        settings=plan.settings,
        address=options.address,
        producer_settings=options.producer_settings,
        topic=name,
        owner=OWNER,
    )


def _rows(
    plan: ProducePlan,
    work: Sequence[PartitionRestore],
    produced: Sequence[Produced],
    compared: Sequence[Compared],
) -> Iterable[ProducedPartition]:
    by_partition = {each.partition: each for each in compared}
    for item, done in zip(work, produced, strict=True):
        found = by_partition.get(done.partition)
        resumed_from = None if done.resumed is None else done.resumed.source_offset
        yield ProducedPartition(
            partition=done.partition,
            source_start=item.begun.first_offset,
            source_end=item.begun.end_offset,
            records=done.records,
            bytes=done.bytes,
            resumed_from=resumed_from,
            same_records=None if found is None else found.records,
            compared_from=None if found is None or item.is_whole else resumed_from,
            offsets_kept=None if found is None else found.offsets_kept,
            unmapped_from=None if found is None else found.unmapped_from,
            difference=None if found is None else found.difference,
            lost=plan.partitions[item.source].lost,
            undecided=done.undecided,
        )


def write_mapping(path: Path, compared: Iterable[Compared]) -> list[Compared]:
    """Write the CSV file whole or not at all: a row for each run of records whose offsets ascend by
    one on both sides. A row with only a source offset means: unmapped from this offset on. Returns
    the comparisons, without the offsets.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    written = []
    try:
        with unfinished.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(("partition", "source_offset", "target_offset", "records"))
            for each in compared:
                writer.writerows((each.partition, *run) for run in each.mapping())
                if each.unmapped_from is not None:
                    writer.writerow((each.partition, each.unmapped_from, "", ""))
                written.append(replace(each, runs=b""))
        unfinished.replace(path)
    except OSError as error:
        raise InvalidRequest(
            f"{path} can't be written: {error.strerror}", field="--mapping"
        ) from None
    return written


def _into_log_dirs(context: JobContext, options: IntoLogDirs) -> LogDirsReport:
    began = ambient.monotonic()
    master = str(context.spark.sparkContext.master)
    if not master.startswith("local"):
        raise InvalidRequest(
            f"log directories are written on the broker's own machine, not by {master}: leave "
            "--master out",
            field="--into-log-dirs",
        )
    wanted, name = options.wanted, options.topic_as or options.wanted.topic
    ranges = find_ranges(
        context.catalogue, context.options, wanted, Isolation.READ_UNCOMMITTED, ("offset",)
    )
    if not ranges.slices:
        raise nothing_to_restore(wanted)
    with no_broker_in(options.log_dirs):
        # All places are checked before anything is written.
        restores = {source: _begun(source, ranges, wanted) for source in ranges.slices}
        places = {
            source: find_place(
                options.log_dirs, name, source.partition, options.topic_id, restores[source]
            )
            for source in ranges.slices
        }
        finished = {
            source: found
            for source, place in places.items()
            if (found := find_finished(place, restores[source])) is not None
        }
        left = {source: place for source, place in places.items() if source not in finished}
        written = _written(context, ranges, left)
        for source, ended in written.items():
            finished[source] = _sealed(source, left[source], restores[source], ended)
        partitions = tuple(
            _published(place, finished[source], written.get(source))
            for source, place in places.items()
        )
    return LogDirsReport(wanted.topic, partitions, ambient.monotonic() - began)


def _begun(source: TopicIdPartition, ranges: Ranges, wanted: Wanted) -> Begun:
    start, end = _bounds(ranges, source)
    return Begun(source_name(source, ranges.settings.isolation), start, end, wanted.asked)


def _written(
    context: JobContext, ranges: Ranges, left: Mapping[TopicIdPartition, Place]
) -> Mapping[TopicIdPartition, EndedLog]:
    """Writes the segments of these partitions, each into the staging folder beside its place, and
    ends their logs where no transaction is open.
    """
    files = {
        source: tuple(_segment_files(context, ranges, source, place))
        for source, place in left.items()
    }
    items = [(source, item) for source, each in files.items() for item in each]
    for source, place in left.items():
        prepare(place, _plan_text(source, ranges, place))
    spark, console = context.spark.sparkContext, context.console
    results = run_tasks(
        spark, [item for _, item in items], restore_segment, what="restore", console=console
    )
    written: dict[TopicIdPartition, list[WrittenSegment]] = defaultdict(list)
    for (source, _), result in zip(items, results, strict=True):
        written[source].append(result)
    logs = [
        WrittenLog(
            name=str(source),
            folder=str(place.staging),
            start=_bounds(ranges, source)[0],
            files=files[source],
            written=tuple(written[source]),
        )
        for source, place in left.items()
    ]
    return dict(
        zip(left, run_tasks(spark, logs, end_log, what="end", console=console), strict=True)
    )


def _segment_files(
    context: JobContext, ranges: Ranges, source: TopicIdPartition, place: Place
) -> Iterable[SegmentFiles]:
    start, end = _bounds(ranges, source)
    for each in wanted_segments(context.catalogue.segments(source, start, end - 1), start, end):
        yield SegmentFiles(
            segment=each.segment,
            stores=context.catalogue.stores,
            aiven_keys=ranges.settings.aiven_keys,
            folder=str(place.staging),
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            leader_epoch=kept_leader_epoch(source, place.topic_id),
        )


def _sealed(source: TopicIdPartition, place: Place, restore: Begun, ended: EndedLog) -> FinishedLog:
    epoch = kept_leader_epoch(source, place.topic_id)
    log = join(ended.written, restore.first_offset, epoch, source=str(source))
    log = replace(log, left_out_last=ended.left_out_last)
    return seal(place, log, sum(1 for each in ended.written if each.log_bytes), restore)


def _published(place: Place, finished: FinishedLog, ended: EndedLog | None) -> LogPartition:
    """Publishes a finished log; `ended` is None if an earlier run had finished it."""
    publish(place, finished)
    return LogPartition(
        directory=str(place.directory),
        topic_id=str(place.topic_id),
        segments=finished.segments,
        segments_resumed=finished.segments
        if ended is None
        else sum(each.resumed for each in ended.written),
        log=finished.log,
    )


def _bounds(ranges: Ranges, source: TopicIdPartition) -> tuple[int, int]:
    """First offset and end (exclusive) of a partition's range."""
    parts = ranges.slices[source]
    return parts[0].first_offset, parts[-1].last_offset + 1


def _plan_text(source: TopicIdPartition, ranges: Ranges, place: Place) -> str:
    start, end = _bounds(ranges, source)
    return f"{source} from {start} to {end} as topic id {place.topic_id}"
