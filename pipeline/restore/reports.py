"""The report of a restore, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from pipeline.restore.log_directory_plan import RestoredLog


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    """The result for a partition. `source_end` is exclusive. `records` and `bytes` are of this run,
    which continued at `resumed_from` (None: it started at the beginning). `same_records`: number
    found equal in the target, None without a comparison. `compared_from`: an earlier run produced
    the records before this source offset, which the tier no longer has; only the rest is compared
    and mapped. `offsets_kept`: every record has its offset of the source. `unmapped_from`: the
    mapping ends before this source offset, at its limit. `lost`: asked offsets (inclusive) in no
    segment. `undecided` counts records left out because the markers of their transactions are
    lost.
    """

    partition: int
    source_start: int
    source_end: int
    records: int
    bytes: int
    resumed_from: int | None
    same_records: int | None
    compared_from: int | None
    offsets_kept: bool | None
    unmapped_from: int | None
    difference: str | None
    lost: tuple[tuple[int, int], ...] = ()
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class MissedPartition:
    """A partition of which no record was restored: the requested offsets are in no segment."""

    partition: int
    lost: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ProduceReport:
    """See the Report protocol."""

    topic: str
    target: str
    partitions: tuple[ProducedPartition, ...]
    mapping_file: str | None
    took_s: float
    missed: tuple[MissedPartition, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every compared record is in the target exactly once, unchanged."""
        return all(each.difference is None for each in self.partitions)

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "target": self.target,
            "partitions": [asdict(each) for each in self.partitions],
            "missed": [asdict(each) for each in self.missed],
            "mapping_file": self.mapping_file,
            "took_s": round(self.took_s, 3),
            "ok": self.ok,
        }

    def lines(self) -> Iterable[str]:
        for each in self.partitions:
            went_on = "" if each.resumed_from is None else f", continued at {each.resumed_from}"
            yield (
                f"{self.topic}-{each.partition}, offsets {each.source_start} to "
                f"{each.source_end - 1}: {each.records} records produced to {self.target}{went_on}"
                + _compared(each)
            )
            yield from _not_restored(f"{self.topic}-{each.partition}", each.lost)
            if each.undecided:
                yield (
                    f"{self.topic}-{each.partition}: {each.undecided} records were left out: the "
                    "outcome of their transactions is lost"
                )
        for missed in self.missed:
            yield from _not_restored(f"{self.topic}-{missed.partition}", missed.lost)
        if self.mapping_file is not None:
            for each in self.partitions:
                if each.unmapped_from is not None:
                    yield _unmapped(f"{self.topic}-{each.partition}", each.unmapped_from)
            yield f"offsets of source and target: {self.mapping_file}"


def _not_restored(partition: str, lost: Iterable[tuple[int, int]]) -> Iterable[str]:
    for first, last in lost:
        yield f"{partition}: the offsets {first} to {last} are not restored: no segment had them"


def _unmapped(partition: str, offset: int) -> str:
    return (
        f"{partition}: the mapping is CUT before the offset {offset} of the source, where it "
        "reached its limit; move consumer groups at or after that offset by time "
        "(kafka-consumer-groups --reset-offsets --to-datetime)"
    )


def _compared(each: ProducedPartition) -> str:
    if each.difference is not None:
        return f"; DIFFERENT: {each.difference}"
    if each.same_records is None:
        return "; not compared"
    kept = "at the same offsets" if each.offsets_kept else "at other offsets, see the mapping"
    if each.compared_from is not None:
        return (
            f"; {each.same_records} from the offset {each.compared_from} on read back and the "
            f"same, {kept}; earlier ones are no longer in the tier: not compared and not mapped"
        )
    return f"; all {each.same_records} read back and the same, {kept}"


@dataclass(frozen=True, slots=True)
class LogPartition:
    """A restored log, as a broker finds it."""

    directory: str
    topic_id: str
    segments: int
    segments_resumed: int
    log: RestoredLog


@dataclass(frozen=True)
class LogDirsReport:
    """See the Report protocol."""

    topic: str
    partitions: tuple[LogPartition, ...]
    took_s: float

    @property
    def ok(self) -> bool:
        """True if no requested offset is left out; a log that is incomplete for any other reason is
        an error.
        """
        return all(each.log.left_out_last is None for each in self.partitions)

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "partitions": [
                {
                    "directory": each.directory,
                    "topic_id": each.topic_id,
                    "segments": each.segments,
                    "segments_resumed": each.segments_resumed,
                    "log_start_offset": each.log.log_start_offset,
                    "log_end_offset": each.log.end_offset,
                    "left_out_last": each.log.left_out_last,
                    "log_bytes": each.log.log_bytes,
                    "leader_epochs": [list(entry) for entry in each.log.epochs],
                }
                for each in self.partitions
            ],
            "took_s": round(self.took_s, 3),
            "ok": self.ok,
        }

    def lines(self) -> Iterable[str]:
        for each in self.partitions:
            log = each.log
            yield (
                f"{each.directory}: offsets {log.log_start_offset} to {log.end_offset - 1}, "
                f"{each.segments} segments, {log.log_bytes} bytes, topic id {each.topic_id}"
            )
            if log.left_out_last is not None:
                yield (
                    f"{each.directory}: the offsets {log.end_offset} to {log.left_out_last} are "
                    "LEFT OUT: transactions that begin there are open at the end of the range, and "
                    "would block readers of committed records for good; a later end, or a restore "
                    "by producing, includes their committed records"
                )
        yield (
            "do the same on every broker that has a replica, then start them: a broker that "
            "starts empty and leads would make the others truncate their logs to nothing"
        )
