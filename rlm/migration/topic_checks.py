"""Checks that a metadata topic can be imported into the metadata log; failed checks say what to do.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlm.migration.kafka_cache import Ignored

TOPIC = "__remote_log_metadata"
_TOLD_MAX = 5


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap in a partition of the topic: the offset `found` follows, instead of `expected`."""

    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """The read of one partition of the metadata topic, from its first offset `start` to `end`
    (exclusive). `error`: the reason why it could not be read to its end; None if it was.
    `last_record`: the offset of the last record that is no marker, -1 if there is none.
    `misplaced`: sentences about users' partitions whose segments belong into a different partition
    of the topic.
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
        """True if there is no record at the end: Kafka's own manager waits for ever for one."""
        return self.start < self.end != self.last_record + 1


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `detail` says what was found and, if not `ok`, what to do."""

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
        "the move needs each of them, so make them readable first",
    )
    yield _check(
        "each begins at offset 0",
        [f"{one.partition} begins at {one.start}" for one in each if one.start > 0],
        "no record was deleted",
        "earlier records were deleted (retention or DeleteRecords), perhaps of segments that are "
        "still in the store: `strandline pipeline rebuild` finds these in the bucket",
    )
    yield _check(
        "no gap",
        [
            f"{one.partition}: {gap.found} follows {gap.expected - 1}"
            for one in each
            for gap in one.gaps
        ],
        "the offsets are consecutive",
        "the records between were lost (compaction, or a damaged segment of the broker): "
        "`strandline pipeline rebuild` finds their segments in the bucket",
    )
    yield _check(
        "records are where Kafka puts them",
        [text for one in each for text in one.misplaced],
        "each user's partition has one partition of the topic",
        "the topic got more partitions, and Kafka's own manager no longer finds them either: "
        "`strandline pipeline rebuild` finds their segments in the bucket",
    )
    wrong = [text for one in each for text in one.told_unreadable]
    yield _check(
        "every record can be decoded",
        wrong,
        "all in Kafka's format, version 0",
        "a program of a different version, or one that is not Kafka's, wrote to the topic: find it "
        "and stop it",
        count=sum(one.unreadable for one in each),
    )


def check_import(refused: Sequence[str]) -> Check:
    """Check that the metadata log accepts every segment. `refused` are the sentences of
    `import_plan.import_problems` about those that it would refuse.
    """
    return _check(
        "every segment can be imported",
        refused,
        "the metadata log accepts them as they are",
        "a switch would fail; brokers may stay with Kafka's own manager until retention or the "
        "deletion of the topic removes these segments",
    )


def passed_over(read: Iterable[PartitionRead]) -> dict[str, int]:
    """The number of records that Kafka's own manager ignores, by the reason."""
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
