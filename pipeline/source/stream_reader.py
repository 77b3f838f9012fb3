"""The reader of a streaming query, which follows the end of the tier in batches of bounded size."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafka_formats.errors import NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.catalogue.tiered_segment import PartitionBounds
from pipeline.process import ambient
from pipeline.source import stream_offsets
from pipeline.source.batch_plan import may_be_quiet, slices_of, starting_option, tasks_of
from pipeline.source.data_loss import report_lost
from pipeline.source.offset_limits import LATEST, OffsetLimit, SpecificOffsets
from pipeline.source.offsets import Bounds, beyond, check_complete, ranges, resolve, times_ms
from pipeline.source.options import SourceOptions, Subscription, parse_options
from pipeline.source.read_limits import (
    ADMISSION_CONTROL,
    SupportsTriggerAvailableNow,
    default_limit,
    takes_all,
)
from pipeline.source.stream_offsets import Position
from pipeline.source.task_partition import TaskPartition, read_task
from pipeline.source.tier_view import TierView
from pipeline.spark.marked_pickle import Marked
from rlm.data_plane.kept_objects import kept_objects

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

log = logging.getLogger("strandline.source")

JsonOffsets = dict[str, dict[str, Any]]


class StreamReader(Marked, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query. Reads the catalogue anew whenever Spark asks for the next batch.

    Nothing is opened or refused before the first call: Spark loses an error of a constructor.
    """

    def __init__(
        self, options: Mapping[str, str], *, now_ms: Callable[[], int] = ambient.now_ms
    ) -> None:
        self._given = dict(options)
        self._now_ms = now_ms
        self._fixed: Bounds | None = None
        self._newest: dict[TopicIdPartition, int] = {}
        self._kept: dict[TopicIdPartition, int] = {}
        """Positions that a batch began with and did not end with: all there was had expired."""
        self._told: set[TopicIdPartition] = set()
        self._last_trigger_ms = 0

    @cached_property
    def _options(self) -> SourceOptions:
        options = parse_options(self._given)
        options.check_stream(admission_control=ADMISSION_CONTROL)
        return options

    @cached_property
    def _tier(self) -> TierView:
        return TierView(open_catalogue(self._given), self._options.read_settings())

    def initialOffset(self) -> JsonOffsets:  # noqa: N802  Spark's name
        """The start of a query without a checkpoint."""
        options = self._options
        limit, option = options.stream_start(), starting_option(options)
        partitions = self._tier.subscribed(options.subscription, quiet_ok=True)
        quiet = may_be_quiet(options, partitions)
        check_complete(limit, partitions, option=option, quiet=quiet)
        views = self._tier.partitions(dict.fromkeys(partitions, 0))
        bounds = {partition: view.bounds for partition, view in views.items()}
        starts = resolve(
            limit,
            bounds,
            self._tier.first_offsets(times_ms(limit, list(bounds)), views),
            option=option,
            no_match=LATEST if options.no_match_is_latest else None,
        )
        quiet_starts = self._quiet_starts(limit, bounds)
        nothing = dict.fromkeys(quiet_starts, PartitionBounds(0, 0))
        lost = beyond(starts, bounds) + beyond(quiet_starts, nothing)
        report_lost(lost, fail=options.fail_on_data_loss)
        return stream_offsets.to_json(starts | quiet_starts)

    def _quiet_starts(self, limit: OffsetLimit, bounds: Bounds) -> dict[TopicIdPartition, int]:
        """The starting offsets above 0 of partitions without a tiered segment, where the stream
        begins once they have one.
        """
        if not isinstance(limit, SpecificOffsets):
            return {}
        there = {(one.topic, one.partition) for one in bounds}
        return {
            TopicIdPartition(topic, self._tier.catalogue.partitions(topic)[0].topic_id, number): at
            for (topic, number), at in limit.offsets.items()
            if at > 0 and (topic, number) not in there
        }

    def latestOffset(  # noqa: N802  Spark's name
        self, start: JsonOffsets | None = None, limit: ReadLimit | None = None
    ) -> JsonOffsets:
        """The end of the next batch. Spark 4.1 passes neither `start` nor `limit`."""
        bounds = self._bounds()
        latest = {partition: within.latest for partition, within in bounds.items()}
        if start is None:
            self._newest = stream_offsets.joined(self._newest, latest)
            return stream_offsets.to_json(self._newest)
        before = stream_offsets.parse(start)
        there = {(one.topic, one.partition): Position(one.topic_id, 0) for one in bounds}
        lost, kept = self._vanished(before, there)
        report_lost(lost, fail=self._options.fail_on_data_loss)
        begin = kept | stream_offsets.starts(before, bounds)
        self._newest = kept | {one: max(end, begin[one]) for one, end in latest.items()}
        if takes_all(limit):
            return stream_offsets.to_json(self._newest)
        if self._waits(stream_offsets.count(begin, self._newest)):
            return start
        highest = self._options.max_offsets_per_trigger
        if highest is None:
            return stream_offsets.to_json(self._newest)
        return stream_offsets.to_json(stream_offsets.limited(begin, self._newest, highest))

    @kept_objects()
    def _bounds(self) -> Bounds:
        """The readable offsets now; for `availableNow`, those at the start of the query."""
        if self._fixed is not None:
            return self._fixed
        self._tier.catalogue.refresh()
        there = self._tier.subscribed(self._options.subscription, absent_ok=True)
        views = self._tier.partitions({one: self._newest.get(one, 0) for one in there})
        return {partition: view.bounds for partition, view in views.items()}

    def _waits(self, offsets: int) -> bool:
        """True if the batch is postponed until there are more offsets (minOffsetsPerTrigger)."""
        lowest = self._options.min_offsets_per_trigger
        if lowest is None or self._fixed is not None:
            return False
        now_ms = self._now_ms()
        patient = now_ms - self._last_trigger_ms < self._options.max_trigger_delay_ms
        if patient and offsets < lowest:
            return True
        self._last_trigger_ms = now_ms
        return False

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """The limit of the options; only Spark 4.2 and newer call this."""
        options = self._options
        return default_limit(options.max_offsets_per_trigger, options.min_offsets_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Makes the query end where the tier ends now."""
        self._fixed = self._bounds()

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802  Spark's name
        """The newest end seen, for the query's progress."""
        return stream_offsets.to_json(self._newest) if self._newest else None

    @kept_objects()
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """The tasks of one batch, also of one repeated after a restart. Partitions that disappeared
        since the batch before are reported here, too, since Spark 4.1 does not pass the stream's
        position when it asks for the end.
        """
        begins, planned = stream_offsets.parse(start), stream_offsets.parse(end)
        if self._fixed is not None:  # looked up at the start of the query, perhaps hours ago
            self._tier.catalogue.refresh()
        ends, lost = self._identified(planned)
        gone, kept = self._vanished(begins, planned)
        lost += gone
        self._newest = kept | self._newest
        self._kept |= kept
        asked = {partition: self._begin(begins, partition) for partition in ends}
        views = self._tier.partitions({one: begin or 0 for one, begin in asked.items()})
        bounds = {partition: view.bounds for partition, view in views.items()}
        for one in sorted(ends.keys() - views.keys()):
            # With nothing to read, all of it may have expired; once it is back, holes are reported.
            if asked[one] != ends[one] or self._is_deleted(one.topic, one.topic_id):
                lost.append(_gone(one.topic, one.partition))
        starts = {
            one: within.earliest if (begin := asked[one]) is None else begin
            for one, within in bounds.items()
        }
        for one, view in views.items():
            begin = asked[one]
            if begin is None:  # retention may have passed the whole batch
                begin = min(starts[one], ends[one])
            stream_offsets.check_reached(one, begin, ends[one], view)
        readable, missing = ranges(starts, ends, bounds)
        slices = []
        for wanted in readable:
            parts, holes = slices_of(wanted, views[wanted.partition], self._options)
            slices += parts
            missing += holes
        report_lost(lost + missing, fail=self._options.fail_on_data_loss)
        settings, stores = self._tier.settings, self._tier.catalogue.stores
        return [TaskPartition(task, stores, settings) for task in tasks_of(slices, self._options)]

    def _vanished(
        self,
        before: Mapping[tuple[str, int], Position],
        there: Mapping[tuple[str, int], Position],
    ) -> tuple[list[str], dict[TopicIdPartition, int]]:
        """(texts that name the partitions of `before` that were deleted, the positions of those of
        which all may have expired). The stream continues there once they are back: offsets that
        were deleted unread are reported then.
        """
        lost, kept = stream_offsets.created_anew(before, there), {}
        for (topic, number), position in sorted(before.items()):
            if (topic, number) in there:
                continue
            if position.topic_id is None or self._is_deleted(topic, position.topic_id):
                lost.append(f"{_gone(topic, number)}; offsets from {position.offset} on are gone")
                continue
            one = TopicIdPartition(topic, position.topic_id, number)
            kept[one] = position.offset
            if one not in self._told:
                log.warning(
                    "%s has no tiered segment any more: the stream continues at %d once it has one",
                    f"{topic}-{number}",
                    position.offset,
                )
                self._told.add(one)
        return lost, kept

    def _is_deleted(self, topic: str, topic_id: Uuid) -> bool:
        """True if the topic does not exist, or has a different id; False if it only expired."""
        catalogue = self._tier.catalogue
        try:
            return all(one.topic_id != topic_id for one in catalogue.partitions(topic))
        except NotFound:
            return catalogue.tells_deletions

    def _identified(
        self, planned: Mapping[tuple[str, int], Position]
    ) -> tuple[dict[TopicIdPartition, int], list[str]]:
        """(the end of a batch by partition, texts that name missing partitions). Partitions in a
        checkpoint of Spark's Kafka source get their topic id.
        """
        found, lost = {}, []
        for (topic, number), position in planned.items():
            if position.topic_id is not None:
                found[TopicIdPartition(topic, position.topic_id, number)] = position.offset
                continue
            named = Subscription(assign={topic: (number,)})
            there = self._tier.subscribed(named, absent_ok=True)
            found.update(dict.fromkeys(there, position.offset))
            if not there and position.offset:
                lost.append(_gone(topic, number))
        return found, lost

    def _begin(
        self, begins: Mapping[tuple[str, int], Position], partition: TopicIdPartition
    ) -> int | None:
        """The partition's start in the batch; None if it is new: then it is read from its first
        offset on.
        """
        position = begins.get((partition.topic, partition.partition))
        if position is None or position.topic_id not in (None, partition.topic_id):
            return self._kept.get(partition)  # of a batch before the one that had lost it
        return position.offset

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_task(partition)

    def stop(self) -> None:
        """Close the catalogue, if it was ever opened."""
        tier = self.__dict__.pop("_tier", None)
        if tier is not None:
            tier.catalogue.close()


def _gone(topic: str, number: int) -> str:
    return f"{topic}-{number}: is no longer tiered"
