"""The job `scrub`: reads and checks every byte of the tiered history; one verdict per segment.

Nothing is changed. Tasks return verdicts, which go to the state file wave by wave: a killed run
continues from it, and a lost executor costs only its tasks. A partition's result is posted to the
node after its last segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kafka_formats.errors import InvalidRequest, NotFound, Refused, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import Catalogue, DamagedSegment, TieredSegment
from pipeline.jobs.job import JobContext
from pipeline.jobs.scrub_post import ScrubPost, ToldDamage, open_post
from pipeline.jobs.scrub_report import PartitionResult, ScrubReport
from pipeline.jobs.scrub_segment import RESTORE, scrub_segment
from pipeline.jobs.scrub_state import ScrubState
from pipeline.jobs.scrub_verdict import MISSING, Finding, Outcome, Verdict
from pipeline.jobs.tasks import run_tasks
from pipeline.process import ambient
from pipeline.read.open_stores import OpenStores
from rlmm.segment import OFFSET_MAX
from rsm_backends.store_config import StoreConfig

SEGMENTS_AT_ONCE = 4
"""Segments that a task reads at once from a store on the network: while one waits for its manifest
and indexes, bytes of the others arrive and are checked.
"""

TASK_BYTES_MIN = 256 * 1024 * 1024
TASK_BYTES_MAX = 1024 * 1024 * 1024
"""Segments are packed until a task has between these two sizes to read: a task itself costs some
60 ms, so there are no more than keep all cores busy, and none so large that losing it costs much.
"""

TASKS_PER_CORE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubOptions:
    """Options of a scrub. `topics` empty: all. `records`: decode every record, too. `post`: send
    the results to the node. `task_bytes` None: chosen by the bytes to read.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    records: bool = False
    state: Path | None = None
    aiven_keys: tuple[str, ...] = ()
    post: bool = True
    task_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidRequest, which names the option, if one can't work."""
        if self.partitions and len(self.topics) != 1:
            raise InvalidRequest("name the one topic whose partitions these are", field="partition")
        if self.task_bytes is not None and self.task_bytes < 1:
            raise InvalidRequest("must be at least 1", field="task_bytes")


@dataclass(frozen=True, slots=True)
class ScrubTask:
    """The work of an executor on some segments. Picklable."""

    stores: Mapping[str, StoreConfig]
    aiven_keys: tuple[str, ...]
    records: bool

    def __call__(self, segments: Sequence[TieredSegment]) -> list[Verdict]:
        """Scrub the segments. RetryLater if none answered: then the store has a problem."""
        remote = [each.connections_max for each in self.stores.values() if each.kind == "s3"]
        threads = min(SEGMENTS_AT_ONCE, len(segments), *remote) if remote else 1
        with (
            OpenStores(self.stores, self.aiven_keys, readers=threads) as stores,
            ThreadPoolExecutor(threads, thread_name_prefix="scrub") as pool,
        ):
            for segment in segments:
                stores.of(segment)
            scrubbed = partial(
                scrub_segment, stores=stores, records=self.records, now_ms=ambient.now_ms
            )
            verdicts = list(pool.map(scrubbed, segments))
        if verdicts and all(
            verdict.outcome is Outcome.UNREAD and not verdict.refused for verdict in verdicts
        ):
            raise RetryLater(verdicts[0].findings[0].what)
        return verdicts


def run(
    context: JobContext, options: ScrubOptions, damaged: Sequence[DamagedSegment] = ()
) -> ScrubReport:
    """Scrub. InvalidRequest for an unknown partition or a foreign state file; errors of store and
    node are passed on; Refused if every segment was refused. Damage is not an error: it is in the
    report. The catalogue adds segments that it cannot read to `damaged` while it answers; these are
    not checked further.
    """
    started = ambient.monotonic()
    wanted = _wanted(context.catalogue, options)
    unreadable = _unreadable(damaged, options)
    with ScrubState(options.state) as state, open_post(context.options, options.post) as post:
        scrub = _Scrub(context.catalogue, wanted, unreadable, post, damaged)
        state.add(unreadable)
        scrub.take(unreadable)
        known = 0
        left: list[TieredSegment] = []
        # Segments that the file lists as right are posted as such, and may have been damaged since.
        damage = ToldDamage() if options.state is None else post.told_damage()
        for segments in wanted.values():
            verdicts = [
                verdict
                for verdict in state.known(segments, records=options.records)
                if not damage.may_be(verdict.segment_id)
            ]
            known += len(verdicts)
            scrub.take(verdicts)
            settled = {verdict.segment_id for verdict in verdicts}
            left += [segment for segment in segments if segment.segment_id not in settled]
        spark = context.spark.sparkContext
        size_bytes = options.task_bytes or task_bytes(left, spark.defaultParallelism)
        done = run_tasks(
            spark,
            list(packed(left, size_bytes)),
            ScrubTask(context.catalogue.stores, options.aiven_keys, options.records),
            what="scrub",
            console=context.console,
        )
        for verdicts in done:
            settled_verdicts = scrub.settled(verdicts)
            state.add(settled_verdicts)
            scrub.take(settled_verdicts)
        scrub.finish()
    return ScrubReport(
        partitions=scrub.results,
        known=known,
        seconds=ambient.monotonic() - started,
        records=options.records,
        posted=post.posted,
        not_posted=post.why_not,
    )


def task_bytes(segments: Iterable[TieredSegment], cores: int) -> int:
    """Bytes for each task, so that `cores` share the segments."""
    share = sum(segment.log_bytes for segment in segments) // (TASKS_PER_CORE * cores)
    return min(max(TASK_BYTES_MIN, share), TASK_BYTES_MAX)


def packed(
    segments: Iterable[TieredSegment], size_bytes: int
) -> Iterator[tuple[TieredSegment, ...]]:
    """Groups of neighbouring segments of at least `size_bytes`."""
    group: list[TieredSegment] = []
    size = 0
    for segment in segments:
        group.append(segment)
        size += segment.log_bytes
        if size >= size_bytes:
            yield tuple(group)
            group, size = [], 0
    if group:
        yield tuple(group)


def _wanted(
    catalogue: Catalogue, options: ScrubOptions
) -> dict[TopicIdPartition, Sequence[TieredSegment]]:
    wanted: dict[TopicIdPartition, Sequence[TieredSegment]] = {}
    for topic in options.topics or catalogue.topics():
        for partition in catalogue.partitions(topic):
            if not options.partitions or partition.partition in options.partitions:
                try:
                    found = catalogue.segments(partition)
                except NotFound:  # it has no readable segment; damaged ones are reported separately
                    found = []
                # A segment that serves two ranges of offsets is listed twice but read once.
                wanted[partition] = list({each.segment_id: each for each in found}.values())
    missing = set(options.partitions) - {partition.partition for partition in wanted}
    if missing:
        raise InvalidRequest(
            f"{options.topics[0]} has no tiered partition {min(missing)}", field="partition"
        )
    return wanted


def _unreadable(damaged: Iterable[DamagedSegment], options: ScrubOptions) -> list[Verdict]:
    """Verdicts on damaged segments of the scrubbed partitions; `damaged` may have others, too."""
    by_id = {each.segment_id: each for each in damaged}
    return [
        Verdict(
            each.segment_id,
            each.start_offset,
            each.end_offset,
            Outcome.DAMAGED,
            0,
            ambient.now_ms(),
            findings=tuple(
                Finding(key, MISSING, RESTORE, offset=each.start_offset) for key in each.missing
            )
            or (Finding(each.key, each.error.detail, RESTORE, each.error.position),),
        )
        for each in by_id.values()
        if not options.partitions or each.segment_id.partition.partition in options.partitions
    ]


class _Scrub:
    """Gathers verdicts by partition; posts each partition once it is complete."""

    def __init__(
        self,
        catalogue: Catalogue,
        wanted: Mapping[TopicIdPartition, Sequence[TieredSegment]],
        unreadable: Iterable[Verdict],
        post: ScrubPost,
        damaged: Sequence[DamagedSegment] = (),
    ) -> None:
        self._catalogue = catalogue
        self._damaged = damaged
        self._post = post
        self._left: Counter[TopicIdPartition] = Counter()
        self._results: dict[TopicIdPartition, PartitionResult] = {}
        self._answered = False
        self._refused: Verdict | None = None
        for partition, segments in wanted.items():
            for segment in segments:
                # All bytes of the segment are read, also those below the log start.
                self._expect(partition, segment.start_offset, segment.end_offset)
        for verdict in unreadable:
            start, end = verdict.start_offset, verdict.end_offset
            self._expect(verdict.segment_id.partition, start, start if end is None else end)

    def _expect(self, partition: TopicIdPartition, first_offset: int, last_offset: int) -> None:
        self._left[partition] += 1
        result = self._results.get(partition)
        if result is None:
            result = self._results[partition] = PartitionResult(
                partition, first_offset, last_offset
            )
        result.first_offset = min(result.first_offset, first_offset)
        result.last_offset = max(result.last_offset, last_offset)

    @property
    def results(self) -> list[PartitionResult]:
        return list(self._results.values())

    def settled(self, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """The verdicts, with segments that are gone but still listed as damaged, and those without
        one of their objects and no longer listed as gone: retention removes a segment from the
        catalogue first, and may do so while the segment is read.
        """
        settled = []
        for verdict in verdicts:
            if verdict.outcome is Outcome.GONE and self._is_listed(verdict):
                verdict = _lost(verdict)
            elif _may_be_deleted(verdict) and not self._is_listed(verdict):
                verdict = replace(verdict, outcome=Outcome.GONE)
            settled.append(verdict)
        return settled

    def take(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            if not verdict.refused:
                self._answered = True
            elif self._refused is None:
                self._refused = verdict
            partition = verdict.segment_id.partition
            self._results[partition].add(verdict)
            self._left[partition] -= 1
            if not self._left[partition]:
                self._post.add(self._results[partition])

    def finish(self) -> None:
        """Post the remaining results. Refused if every segment was: it is the job's credentials or
        keys then, not a segment's.
        """
        self._post.flush()
        if self._refused is not None and not self._answered:
            first = self._refused.findings[0]
            raise Refused(f"not one segment may be read, the first: {first.key}: {first.what}")

    def _is_listed(self, verdict: Verdict) -> bool:
        known = len(self._damaged)
        self._catalogue.refresh()
        try:
            segments = self._catalogue.segments(
                verdict.segment_id.partition,
                verdict.start_offset,
                OFFSET_MAX if verdict.end_offset is None else verdict.end_offset,
            )
        except NotFound:
            segments = []
        # A bucket lists a segment that lacks an object as damaged, again after each refresh.
        listed = [each.segment_id for each in segments]
        listed += [each.segment_id for each in self._damaged[known:]]
        return verdict.segment_id in listed


def _may_be_deleted(verdict: Verdict) -> bool:
    return verdict.outcome is Outcome.DAMAGED and verdict.lacks_object


def _lost(verdict: Verdict) -> Verdict:
    why = Finding(
        str(verdict.segment_id.id),
        "the segment's objects are missing from the store, but the metadata still lists it",
        RESTORE,
        offset=verdict.start_offset,
    )
    return replace(verdict, outcome=Outcome.DAMAGED, findings=(why, *verdict.findings))
