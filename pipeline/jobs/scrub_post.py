"""Sends a scrub's results to the node, which shows them with each partition. A node that does not
accept them does not stop the scrub: the report has the results, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_formats.errors import StrandlineError
from pipeline.catalogue.node_address import node_address
from pipeline.catalogue.node_client import NodeClient
from pipeline.jobs.scrub_report import PartitionResult
from rlmm.segment import RemoteLogSegmentId

PATH = "/v1/jobs/scrub"
PARTITIONS_PER_POST = 100
DAMAGE_PER_POST = 50
"""Damaged segments described in one body; all are counted."""

FINDINGS_PER_SEGMENT = 3
TEXT_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ToldDamage:
    """Damage that a node lists: ids of segments, and partitions (topic id, number) of which it does
    not name all damaged ones.
    """

    segments: frozenset[str] = frozenset()
    partitions: frozenset[tuple[str, int]] = frozenset()

    def may_be(self, segment_id: RemoteLogSegmentId) -> bool:
        """True if the segment is damaged by this list, or may be."""
        partition = segment_id.partition
        whole = str(partition.topic_id), partition.partition
        return str(segment_id.id) in self.segments or whole in self.partitions


class ScrubPost:
    """Posts results to a node. `client` None: no node is named. `posted`: the node accepted all
    results so far.
    """

    def __init__(self, client: NodeClient | None) -> None:
        self._client = client
        self._waiting: list[PartitionResult] = []
        self.why_not: str | None = None

    @property
    def posted(self) -> bool:
        return self._client is not None and self.why_not is None

    def told_damage(self) -> ToldDamage:
        """The damage that the node lists now. Without its answer nothing is posted to it: a result
        ends the damage found earlier.
        """
        if self._client is None:
            return ToldDamage()
        try:
            told = list(self._client.pages(PATH, "partitions", damaged="true"))
        except StrandlineError as error:
            self._client, self.why_not = None, str(error)
            return ToldDamage()
        return ToldDamage(
            frozenset(each["segment_id"] for one in told for each in one["damage"]),
            frozenset(
                (one["topic_id"], one["partition"])
                for one in told
                if one["damaged"] > len(one["damage"])
            ),
        )

    def add(self, result: PartitionResult) -> None:
        """Add the result of a complete partition; it is sent together with those of other
        partitions.
        """
        if self._client is None:
            return
        self._waiting.append(result)
        damage = sum(len(waiting.damaged) for waiting in self._waiting)
        if len(self._waiting) >= PARTITIONS_PER_POST or damage >= DAMAGE_PER_POST:
            self.flush()

    def flush(self) -> None:
        """Send the waiting results."""
        if self._client is None or not self._waiting:
            return
        results, self._waiting = self._waiting, []
        try:
            self._client.post(PATH, {"partitions": [_body(result) for result in results]})
        except StrandlineError as error:
            self.why_not = self.why_not or str(error)


@contextmanager
def open_post(options: Mapping[str, str], wanted: bool) -> Iterator[ScrubPost]:
    """Posts to the node that `options` name, if one is named and posting is `wanted`."""
    address = node_address(options, os.environ) if wanted else None
    client = None if address is None else NodeClient(address)
    try:
        yield ScrubPost(client)
    finally:
        if client is not None:
            client.close()


def _body(result: PartitionResult) -> dict[str, object]:
    """The body in the form of `api.models.scrub.PartitionScrub`."""
    return {
        **result.as_json(),
        "damage": [
            {
                "segment_id": str(verdict.segment_id.id),
                "start_offset": verdict.start_offset,
                "end_offset": verdict.end_offset,
                "findings": [
                    {
                        **finding.as_json(),
                        "what": finding.what[:TEXT_CHARACTERS_MAX],
                        "action": finding.action[:TEXT_CHARACTERS_MAX],
                    }
                    for finding in verdict.findings[:FINDINGS_PER_SEGMENT]
                ],
            }
            for verdict in result.damaged[:DAMAGE_PER_POST]
        ],
    }
