"""The results of a scrub by partition. Pure: data, its JSON, and lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.jobs.scrub_verdict import Outcome, Verdict

DAMAGE_MAX = 10_000
"""Limit of the damaged segments that the report describes; the rest is counted."""

LINES_MAX = 50
"""Limit of the damaged segments that are printed; the report's JSON has all."""


@dataclass(slots=True)
class PartitionResult:
    """The result for a partition: its segments were scrubbed, could not be read, or are gone."""

    partition: TopicIdPartition
    first_offset: int
    last_offset: int
    segments: int = 0
    read_bytes: int = 0
    unread: int = 0
    why_unread: str | None = None
    deleted: int = 0
    scrubbed_at_ms: int = 0
    damaged: list[Verdict] = field(default_factory=list)
    more_damaged: int = 0
    unverified: int = 0

    def add(self, verdict: Verdict) -> None:
        """Count a verdict; the damage itself is kept up to a bound."""
        self.segments += 1
        self.read_bytes += verdict.read_bytes
        self.unverified += verdict.unverified
        self.scrubbed_at_ms = max(self.scrubbed_at_ms, verdict.scrubbed_at_ms)
        match verdict.outcome:
            case Outcome.UNREAD:
                self.unread += 1
                self.why_unread = self.why_unread or _told(verdict)
            case Outcome.GONE:
                self.deleted += 1
            case Outcome.DAMAGED if len(self.damaged) < DAMAGE_MAX:
                self.damaged.append(verdict)
            case Outcome.DAMAGED:
                self.more_damaged += 1

    @property
    def damaged_segments(self) -> int:
        return len(self.damaged) + self.more_damaged

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.partition.topic,
            "topic_id": str(self.partition.topic_id),
            "partition": self.partition.partition,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "segments": self.segments,
            "read_bytes": self.read_bytes,
            "unread": self.unread,
            "deleted": self.deleted,
            "damaged": self.damaged_segments,
            "scrubbed_at_ms": self.scrubbed_at_ms,
        }


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """The result of a scrub. `known` segments were not read again, since the state file has their
    verdicts. `posted`: a node has the results; otherwise `not_posted` may say why not.
    """

    partitions: Sequence[PartitionResult]
    known: int
    seconds: float
    records: bool
    posted: bool
    not_posted: str | None

    @property
    def ok(self) -> bool:
        """True without damage, if every segment was read."""
        return not any(p.damaged_segments or p.unread for p in self.partitions)

    def as_json(self) -> dict[str, object]:
        return {
            "job": "scrub",
            "ok": self.ok,
            "segments": self._sum("segments"),
            "known": self.known,
            "read_bytes": self._sum("read_bytes"),
            "damaged": self._sum("damaged_segments"),
            "unread": self._sum("unread"),
            "why_unread": self._why_unread(),
            "deleted": self._sum("deleted"),
            "unverified": self._sum("unverified"),
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "posted": self.posted,
            "not_posted": self.not_posted,
            "partitions": [partition.as_json() for partition in self.partitions],
            "damage": [verdict.as_json() for verdict in self._damage()][:DAMAGE_MAX],
        }

    def lines(self) -> Iterable[str]:
        """Totals, then each damaged segment with what to do."""
        segments, read = self._sum("segments"), self._sum("read_bytes")
        rate = f", {read / 1e6 / self.seconds:,.0f} MB/s" if self.seconds > 0 else ""
        known = f" ({self.known} by the state file)" if self.known else ""
        yield (
            f"{segments} segments of {len(self.partitions)} partitions scrubbed{known}: "
            f"{read / 1e9:,.2f} GB in {self.seconds:,.1f} s{rate}"
        )
        if deleted := self._sum("deleted"):
            yield f"{deleted} segments were deleted by retention meanwhile"
        if unread := self._sum("unread"):
            yield f"{unread} segments could not be read, the first: {self._why_unread()}"
        if unverified := self._sum("unverified"):
            yield (
                f"{unverified} aborted transactions may begin below the segment that ends them; "
                "only a missing producer snapshot could prove it: unverified"
            )
        damaged = self._sum("damaged_segments")
        yield f"{damaged} segments are damaged" if damaged else "no damage was found"
        yield from self._damage_lines()
        if self.not_posted is not None:
            yield f"the results could not be sent to the node: {self.not_posted}"

    def _why_unread(self) -> str | None:
        """The reason of the first unread segment, and what to do."""
        return next(filter(None, (each.why_unread for each in self.partitions)), None)

    def _damage(self) -> Iterator[Verdict]:
        return (verdict for partition in self.partitions for verdict in partition.damaged)

    def _damage_lines(self) -> Iterator[str]:
        for number, verdict in enumerate(self._damage()):
            if number == LINES_MAX:
                yield "... the report's JSON has the rest"
                return
            partition = verdict.segment_id.partition
            end = "(unknown)" if verdict.end_offset is None else verdict.end_offset
            yield (
                f"{partition.topic}-{partition.partition}, segment {verdict.segment_id.id}, "
                f"offsets {verdict.start_offset} to {end}:"
            )
            for finding in verdict.findings:
                at = "" if finding.position is None else f" at byte {finding.position}"
                offset = "" if finding.offset is None else f" (offset {finding.offset})"
                yield f"  {finding.key}{at}{offset}: {finding.what}"
            for action in dict.fromkeys(finding.action for finding in verdict.findings):
                yield f"  -> {action}"
            if verdict.more_findings:
                yield f"  and {verdict.more_findings} more findings"

    def _sum(self, name: str) -> int:
        return sum(getattr(partition, name) for partition in self.partitions)


def _told(verdict: Verdict) -> str:
    first = verdict.findings[0]
    return f"{first.key}: {first.what} -> {first.action}"
