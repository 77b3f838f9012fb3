"""Checks that a metadata topic can be moved into the metadata log, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlm.migration.kafka_cache import Ignored

TOPIC = "__remote_log_metadata"
_TOLD_MAX = 5


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap in a partition of the topic: offset `expected` was to follow and `found` did."""

    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """One partition of the metadata topic as it was read, from its first offset `start` up to
    `end`, exclusive. `error`: why it could not be read to its end; None: it was. `last_record`: the
    offset of the last one that is no marker, -1 if there is none. `misplaced`: sentences on the
    users' partitions whose segments belong into another one.
    """

    partition: int
    start: int
    end: int
    records: int = 0
    gaps: Sequence[Gap] = ()
    unreadable: int = 0
    told_unreadable: Sequence[str] = ()
    ignored: Mapping[Ignored, int] = field(default_factory=dict)
    error: str | None = None
    last_record: int = -1
    misplaced: Sequence[str] = ()

    @property
    def ends_with_marker(self) -> bool:
        """True if no record stands at the end: Kafka's own manager then waits for one, for ever."""
        return self.start < self.end != self.last_record + 1


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check; `detail` is what was found and, if not `ok`, what to do."""

    name: str
    ok: bool
    detail: str


def check_reads(read: Iterable[PartitionRead]) -> Iterator[Check]:
    """Check the partitions of the topic: whole, without a gap, and readable."""
    each = tuple(read)
    yield _check(
        "partitions are readable",
        [f"{one.partition}: {one.error}" for one in each if one.error is not None],
        f"{len(each)} partitions, {sum(one.records for one in each)} records",
        "nothing is moved before each was read to its end",
    )
    yield _check(
        "each begins at offset 0",
        [f"{one.partition} begins at {one.start}" for one in each if one.start > 0],
        "no record was deleted",
        "the records before are gone (retention or DeleteRecords), and with them segments that are "
        "still in the store: `strandline pipeline rebuild` finds these in the bucket",
    )
    yield _check(
        "no gap",
        [
            f"{one.partition}: {gap.found} follows {gap.expected - 1}"
            for one in each
            for gap in one.gaps
        ],
        "offsets follow each other",
        "records between were lost (compaction, or a damaged segment of the broker): "
        "`strandline pipeline rebuild` finds their segments in the bucket",
    )
    yield _check(
        "records are where Kafka puts them",
        [text for one in each for text in one.misplaced],
        "each user's partition has one partition of the topic",
        "the topic was widened, and Kafka's own manager does not find them any more, either: "
        "`strandline pipeline rebuild` finds their segments in the bucket",
    )
    wrong = [text for one in each for text in one.told_unreadable]
    yield _check(
        "every record can be decoded",
        wrong,
        "all in Kafka's format, version 0",
        "a program of another version, or that is not Kafka's, wrote to the topic: find it and "
        "stop it",
        count=sum(one.unreadable for one in each),
    )


def check_import(refused: Sequence[str]) -> Check:
    """Check that the metadata log can have every segment: `refused` tells of those that it can't,
    as `import_plan.import_problems`.
    """
    return _check(
        "every segment can be imported",
        refused,
        "the metadata log takes them as they are",
        "a switch would stop there; retention or a deleted topic takes them away, and brokers may "
        "stay with Kafka's own manager until then",
    )


def passed_over(read: Iterable[PartitionRead]) -> dict[str, int]:
    """The number of records that Kafka's own manager passes over, by the reason."""
    found: dict[str, int] = {}
    for one in read:
        for why, count in one.ignored.items():
            found[why.value] = found.get(why.value, 0) + count
    return found


def _check(
    name: str, wrong: Sequence[str], fine: str, advice: str, *, count: int | None = None
) -> Check:
    if not wrong:
        return Check(name, True, fine)
    count = len(wrong) if count is None else count
    more = f" and {count - _TOLD_MAX} more" if count > _TOLD_MAX else ""
    return Check(name, False, f"{'; '.join(wrong[:_TOLD_MAX])}{more}: {advice}")
