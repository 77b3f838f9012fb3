"""The verdict of a scrub on one segment. Pure: data, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pipeline.catalogue.tiered_segment import TieredSegment
from rlmm.segment import RemoteLogSegmentId

FINDINGS_MAX = 20
"""Limit of the findings kept for one segment; the rest is counted. The first ones show the cause.
"""

MISSING = "the object is missing"
"""The text of a finding that may only mean that retention has deleted the segment meanwhile."""


class Outcome(StrEnum):
    """The outcome for a segment. `gone`: all its objects are missing, or some, and it was deleted
    meanwhile. `unread`: the store gave no answer, so its state is unknown.
    """

    OK = "ok"
    DAMAGED = "damaged"
    GONE = "gone"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `position` is a byte position in the object, `offset` that of its records; both
    may be None.
    """

    key: str
    what: str
    action: str
    position: int | None = None
    offset: int | None = None

    def as_json(self) -> dict[str, object]:
        return {
            "object": self.key,
            "position": self.position,
            "offset": self.offset,
            "what": self.what,
            "action": self.action,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a segment. `end_offset` None: the manifest does not have it. `read_bytes`
    counts all objects. `records`: every record was decoded as well. `checksums`: the bytes were
    compared with checksums from the copy, not only with those of batches. `more_findings` were left
    out. `unverified`: entries of the transaction index that begin below the segment, without a
    producer snapshot to verify them. `refused`: it is unread, and a repeated request does not help.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int | None
    outcome: Outcome
    read_bytes: int
    scrubbed_at_ms: int
    records: bool = False
    checksums: bool = False
    findings: tuple[Finding, ...] = ()
    more_findings: int = 0
    unverified: int = 0
    refused: bool = False

    @property
    def lacks_object(self) -> bool:
        """True if one of the segment's objects was missing."""
        return any(finding.what == MISSING for finding in self.findings)

    def as_json(self) -> dict[str, object]:
        """The verdict for the report, the state file and the node."""
        partition = self.segment_id.partition
        return {
            "topic": partition.topic,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            "segment_id": str(self.segment_id.id),
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "outcome": self.outcome.value,
            "read_bytes": self.read_bytes,
            "scrubbed_at_ms": self.scrubbed_at_ms,
            "records": self.records,
            "checksums": self.checksums,
            "findings": [finding.as_json() for finding in self.findings],
            "more_findings": self.more_findings,
            "unverified": self.unverified,
        }


def verdict_of(segment: TieredSegment, line: Mapping[str, Any]) -> Verdict:
    """The verdict that `as_json` wrote. KeyError, TypeError or ValueError if it is not one."""
    findings = tuple(
        Finding(f["object"], f["what"], f["action"], f["position"], f["offset"])
        for f in line["findings"]
    )
    return Verdict(
        segment.segment_id,
        segment.start_offset,
        segment.end_offset,
        Outcome(line["outcome"]),
        int(line["read_bytes"]),
        int(line["scrubbed_at_ms"]),
        records=bool(line["records"]),
        checksums=bool(line["checksums"]),
        findings=findings,
        more_findings=int(line["more_findings"]),
        unverified=int(line["unverified"]),
    )
