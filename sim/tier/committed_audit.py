"""Invariants of readers of committed records, by a plain model of Kafka: a producer's next marker
in the log that claims tell of decides its records.

aborted_is_not_shown     no record is shown whose transaction was aborted, or is open, in that log
committed_is_not_hidden  all others are, but those whose marker may lie in a lost range, which are
                         counted; a read ends before them only where an open transaction begins
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafka_formats.record_batch import parse_header
from rlmm.partition_state import Mode
from rlmm.rows import queries
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from sim.tier.claimed_logs import log_of_claims
from sim.tier.decided import transactions
from sim.tier.readers import batches_of
from sim.tier.replica import Batch

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.partition import Partition
    from sim.tier.world import World

PLAIN, CONTROL, COMMITTED, ABORTED, OPEN = "plain", "control", "committed", "aborted", "open"
FOREVER = 1 << 62
COPIED = SegmentState.COPY_SEGMENT_FINISHED


class Shown(NamedTuple):
    """A read of the offsets [offset, next_offset) that showed `batches`. `lost` are ranges that it
    skipped, `undecided` counts records whose outcome is lost (None: not told). `at_end`: it ended
    where the tier does, or what it decides.
    """

    offset: int
    next_offset: int
    batches: Sequence[Batch]
    lost: Sequence[tuple[int, int]]
    undecided: int | None
    at_end: bool


class Unit(NamedTuple):
    """A batch as a reader sees it, and what became of its transaction, whose marker is at offset
    `marker`.
    """

    base: int
    last: int
    data: bytes
    kind: str
    marker: int


class Span:
    """A node's view when a read begins, and when it `ends`: where the tier's copies end, the first
    time, and if a segment goes on there with a diverged tail.
    """

    def __init__(self, process: Process, partition: Partition) -> None:
        assert process.view is not None
        self.process, self.partition = process, partition
        self.first = self.last = process.view.applied_offset
        self.holes: list[tuple[int, int]] = []
        self.end = 0
        self.ends_cut = self.is_going = False
        self._look()

    def _look(self) -> None:
        assert self.process.view is not None
        state = queries.partition_state(self.process.view, self.partition.tip)
        if state is not None:
            self.holes += [(each.start, each.end) for each in state.lost_ranges]
            if state.highest_copied is not None:
                self.end = self.end or state.highest_copied[0] + 1
                rows = list(queries.list_segments(self.process.view, self.partition.tip))
                if state.mode is Mode.DELEGATED:
                    self.holes += _gaps(row for row in rows if row.state is COPIED)
                self.is_going |= any(row.state is not COPIED for row in rows)
                self.ends_cut |= any(row.start_offset < self.end <= row.end_offset for row in rows)

    def ends(self) -> None:
        assert self.process.view is not None
        self.last = self.process.view.applied_offset
        self._look()


class CommittedAudit:
    """The checks; `judged` counts reads, `hidden_judged` those of which all is judged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.judged = self.hidden_judged = 0

    def shown(self, span: Span, shown: Shown) -> None:
        """Check a read: nothing aborted is shown, and nothing committed is hidden."""
        if self._world.disaster.is_over:
            return
        logs = list(self._logs(span))
        if not logs or any(log is None for log in logs):
            return
        self.judged += 1
        all_units = [{unit.data: unit for unit in units(log)} for log in logs if log is not None]
        tip = span.partition.tip
        for batch in shown.batches:
            found = [each[batch.data] for each in all_units if batch.data in each]
            header = parse_header(batch.data, 0, source="reader", position=0)
            self._world.auditor.check(
                not header.is_control
                and (not found or any(each.kind in (PLAIN, COMMITTED) for each in found)),
                "aborted_is_not_shown",
                f"a reader of {tip} at {shown.offset} is shown {batch.base} to {batch.last} of "
                f"epoch {batch.epoch}, {[(each.kind, each.marker) for each in found]}",
            )
        if len(logs) == 1 and logs[0] is not None:
            self.hidden_judged += 1
            self._nothing_hidden(span, shown, list(all_units[0].values()))
            if shown.at_end:
                self._reads_to_the_end(span, shown, logs[0])

    def _logs(self, span: Span) -> Iterator[list[Batch] | None]:
        """The logs that the claims told of within a span; None: below its begin the claimant's own
        log was another one, by which the tier can't go.
        """
        truth = span.partition.truth
        claims = self._world.auditor.claims_until(span.partition.tip, span.last)
        for at, claim in enumerate(claims):
            following = claims[at + 1].offset if at + 1 < len(claims) else FOREVER
            if following > span.first:
                log = log_of_claims(truth, claims[: at + 1])
                own = [
                    each for each in truth[claim.leader_epoch] if log and each.base >= log[0].base
                ]
                yield log if log and log == own else None

    def _nothing_hidden(self, span: Span, shown: Shown, of_log: Sequence[Unit]) -> None:
        got = {each.data for each in shown.batches}
        undecided = 0
        for unit in of_log:
            is_within = shown.offset <= unit.last < shown.next_offset
            if unit.data in got or not is_within or unit.kind not in (PLAIN, COMMITTED):
                continue
            if _touches(shown.lost, unit.base, unit.last):
                continue
            undecided += unit.last - unit.base + 1
            is_told = shown.undecided is None or undecided <= shown.undecided
            crosses = _touches(span.holes, unit.base, unit.marker)
            self._world.auditor.check(
                unit.kind == COMMITTED and crosses and is_told,
                "committed_is_not_hidden",
                f"a reader of {span.partition.tip} at {shown.offset} is not shown {unit.base} to "
                f"{unit.last}, {unit.kind} at {unit.marker}: it goes on at {shown.next_offset}, "
                f"skips {shown.lost}, and {shown.undecided} records are undecided",
            )

    def _reads_to_the_end(self, span: Span, shown: Shown, log: Sequence[Batch]) -> None:
        """Check that a read ended only where the tier did, or before what it does not decide. A
        diverged tail at the end tells no state of producers, and a segment that goes ends it, too.
        """
        if span.ends_cut or span.is_going:
            return
        following = next((each for each in log if each.last >= shown.next_offset), None)
        # A lost range at the end of the tier may have the marker that decides what precedes it.
        at_end = [start for start, last in span.holes if span.end <= last + 1]
        end = min((span.end, *at_end))
        if following is None or shown.next_offset >= end:
            return
        waits_for = [
            each
            for each in transactions(log)
            if each.first <= following.last and (each.marker is None or each.marker >= end)
        ]
        self._world.auditor.check(
            bool(waits_for),
            "committed_is_not_hidden",
            f"a reader of {span.partition.tip} at {shown.offset} ends at {shown.next_offset}, and "
            f"the tier goes on to {span.end} without an open transaction",
        )


def _gaps(rows: Iterable[RemoteLogSegmentMetadata]) -> Iterator[tuple[int, int]]:
    """Offsets between copies: a broker's retention or DeleteRecords took them before it copied
    them, of which nothing is recorded.
    """
    end = None
    for row in sorted(rows, key=lambda row: row.start_offset):
        if end is not None and row.start_offset > end + 1:
            yield end + 1, row.start_offset - 1
        end = row.end_offset if end is None else max(end, row.end_offset)


def units(log: Iterable[Batch]) -> Iterator[Unit]:
    """The batches of a log as readers see them."""
    spans = {(each.producer, each.first): each for each in transactions(log)}
    first: dict[int, int] = {}
    for batch in log:
        if batch.producer < 0:
            yield Unit(batch.base, batch.last, batch.data, PLAIN, batch.last)
        elif batch.aborted:
            for each, kind in zip(batches_of(batch.data), (ABORTED, CONTROL), strict=True):
                yield Unit(each.base, each.last, each.data, kind, batch.last)
        elif batch.marker is not None:
            first.pop(batch.producer, None)
            yield Unit(batch.base, batch.last, batch.data, CONTROL, batch.last)
        else:
            begin = first.setdefault(batch.producer, batch.base)
            whole = spans[batch.producer, begin]
            kind = ABORTED if whole.is_aborted else COMMITTED
            if whole.marker is None:
                yield Unit(batch.base, batch.last, batch.data, OPEN, FOREVER)
            else:
                yield Unit(batch.base, batch.last, batch.data, kind, whole.marker)


def _touches(ranges: Iterable[tuple[int, int]], first: int, last: int) -> bool:
    return any(start <= last and first <= end for start, end in ranges)
