"""The results of scrubs of the tier that were posted to this node, by partition.

    <data>/scrub-results.jsonl   one partition per line, the last line of a partition counts

A scrub on Spark reads every byte and posts its result. Damage stays listed until a later scrub
reads the segment and finds it whole, or the segment leaves the tier.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from kafka_formats.errors import InvalidRequest, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.node_files.whole_steps import WholeSteps
from rlmm.log.disk import OsDisk, replace_file

logger = logging.getLogger(__name__)

FILE_NAME = "scrub-results.jsonl"
PARTITIONS_MAX = 20_000
"""The most partitions remembered; the one scrubbed longest ago is dropped first."""

DAMAGE_MAX = 100
"""The most damaged segments described per partition; further ones are only counted."""

SLACK_BYTES = 1024 * 1024
"""The number of bytes by which the file may exceed twice its content before it is rewritten."""


Key = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class ScrubFinding:
    """One fault of an object, and the action to take. `position`: its byte, None if unknown."""

    object: str
    position: int | None
    offset: int | None
    what: str
    action: str


@dataclass(frozen=True, slots=True)
class DamagedSegment:
    """A segment with faults; offsets are inclusive."""

    segment_id: Uuid
    start_offset: int
    end_offset: int
    findings: tuple[ScrubFinding, ...]


@dataclass(frozen=True, slots=True)
class PartitionScrub:
    """The last scrub of a partition: its segments from `first_offset` to `last_offset`, inclusive.

    `unread` segments could not be read, so their state is unknown; `deleted` ones were deleted
    while it ran. `damaged` counts the damaged segments, `damage` describes the first of them.
    """

    partition: TopicIdPartition
    first_offset: int
    last_offset: int
    segments: int
    read_bytes: int
    unread: int
    deleted: int
    damaged: int
    scrubbed_at_ms: int
    damage: tuple[DamagedSegment, ...] = ()

    def damage_of(self, segment_id: Uuid) -> DamagedSegment | None:
        return next((each for each in self.damage if each.segment_id == segment_id), None)

    @property
    def key(self) -> Key:
        return _key(self.partition)


class ScrubResults:
    """The results of scrubs, one per node. `path` None: results are lost when the process ends."""

    def __init__(self, path: Path | None) -> None:
        """Read the file if there is one; unreadable lines are left out and logged."""
        self._path = path
        self._steps = WholeSteps()
        self._known: dict[Key, PartitionScrub] = {}  # in the order of scrubs, the latest last
        self._order: list[Key] = []
        self._due_bytes = 0  # appended since the last rewrite, minus the bytes that it wrote
        if path is not None:
            self._load(path)

    async def add(self, results: Iterable[PartitionScrub]) -> None:
        """Store results; they are on disk on return. RetryLater: they could not be written."""
        await self._steps.run(partial(self._add, tuple(results)))

    async def _add(self, results: Iterable[PartitionScrub]) -> None:
        merged: dict[Key, PartitionScrub] = {}
        for result in results:
            before = merged.get(result.key) or self._known.get(result.key)
            merged[result.key] = _merged(before, result)
        if self._path is not None:
            lines = [_encoded(result) for result in merged.values()]
            try:
                await asyncio.to_thread(_append, self._path, lines)
            except OSError as error:
                raise RetryLater(
                    f"results of a scrub can't be kept: {self._path}: {error.strerror}: "
                    "correct that and post them again"
                ) from error
            self._due_bytes += sum(map(len, lines))
        for result in merged.values():
            self._keep(result)
        await self._compact()

    async def forget_damage(self, partition: TopicIdPartition, segment_id: Uuid) -> None:
        """Forget the damage of a segment that a whole copy has replaced."""
        await self._steps.run(partial(self._forget_damage, partition, segment_id))

    async def _forget_damage(self, partition: TopicIdPartition, segment_id: Uuid) -> None:
        known = self._known.get(_key(partition))
        if known is None or known.damage_of(segment_id) is None:
            return
        left = tuple(each for each in known.damage if each.segment_id != segment_id)
        now = replace(known, damaged=known.damaged - 1, damage=left)
        if self._path is not None:
            line = _encoded(now)
            try:
                await asyncio.to_thread(_append, self._path, [line])
            except OSError as error:
                logger.warning("%s can't be written to: %s", self._path, error)
            self._due_bytes += len(line)
        self._keep(now)

    def of(self, partition: TopicIdPartition) -> PartitionScrub | None:
        return self._known.get(_key(partition))

    def listed(
        self, topic: str | None, *, damaged: bool, after: Key | None, limit: int
    ) -> list[PartitionScrub]:
        """Results after the key `after`, by topic and partition, filtered by topic and damage."""
        begin = (topic or "", -1, "") if after is None else after
        found: list[PartitionScrub] = []
        for key in islice(self._order, bisect_right(self._order, begin), None):
            if len(found) == limit or topic not in (None, key[0]):
                break
            result = self._known[key]
            if result.damaged or not damaged:
                found.append(result)
        return found

    def damaged_segments(self) -> int:
        """The number of damaged segments in all partitions."""
        return sum(result.damaged for result in self._known.values())

    def damage(self) -> Iterator[DamagedSegment]:
        """All damage that is described."""
        for result in self._known.values():
            yield from result.damage

    def problems(self) -> tuple[NodeProblem, ...]:
        """The damage found so far, which an operator has to look at."""
        damaged = [result for result in self._known.values() if result.damaged]
        if not damaged:
            return ()
        count = sum(result.damaged for result in damaged)
        first = min(damaged, key=lambda result: result.key).partition
        text = (
            f"a scrub found {count} damaged segments in {len(damaged)} partitions, the first "
            f"{first.topic}-{first.partition}: `GET /v1/jobs/scrub?damaged=true` says what to do"
        )
        return (NodeProblem(ProblemArea.SCRUB, None, text),)

    def _keep(self, result: PartitionScrub) -> None:
        if self._known.pop(result.key, None) is None:
            insort(self._order, result.key)
        self._known[result.key] = result
        if len(self._known) > PARTITIONS_MAX:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._order.remove(oldest)

    async def _compact(self) -> None:
        if self._path is None or self._due_bytes <= SLACK_BYTES:
            return
        known = list(self._known.values())
        try:
            self._due_bytes = await asyncio.to_thread(_rewrite, self._path, known)
        except OSError as error:
            logger.warning("%s can't be written anew: %s", self._path, error)

    def _load(self, path: Path) -> None:
        lost = 0
        try:
            with path.open("rb") as file:
                for line in file:
                    try:
                        result = _decoded(line)
                    except (KeyError, TypeError, ValueError, InvalidRequest):
                        lost += 1
                        continue
                    self._keep(result)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.error("%s can't be read: %s", path, error)
            return
        if lost:
            logger.warning("%d lines of %s can't be read and are left out", lost, path)
        try:
            self._due_bytes = _rewrite(path, list(self._known.values()))
        except OSError as error:
            logger.warning("%s can't be written anew: %s", path, error)


def _key(partition: TopicIdPartition) -> Key:
    return partition.topic, partition.partition, str(partition.topic_id)


def _merged(before: PartitionScrub | None, now: PartitionScrub) -> PartitionScrub:
    """Keep earlier damage, except in segments that were read again."""
    if before is None:
        return now
    told = {each.segment_id for each in now.damage}
    stands = tuple(
        each
        for each in before.damage
        if each.segment_id not in told
        and (now.unread or not now.first_offset <= each.start_offset <= now.last_offset)
    )
    damage = (now.damage + stands)[:DAMAGE_MAX]
    return replace(now, damaged=now.damaged + len(stands), damage=damage)


def _append(path: Path, lines: Sequence[bytes]) -> None:
    """Append the lines, durably. An earlier call that failed may have left the head of a line."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            file.write(b"\n")
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())


def _rewrite(path: Path, results: Sequence[PartitionScrub]) -> int:
    """Rewrite the file; returns, as a negative number, the bytes that it now has."""
    data = b"".join(map(_encoded, results))
    replace_file(OsDisk(), path, data)
    return -len(data)


def _encoded(result: PartitionScrub) -> bytes:
    partition = result.partition
    plain: dict[str, Any] = asdict(result)
    plain["partition"] = [partition.topic, str(partition.topic_id), partition.partition]
    for each, damaged in zip(plain["damage"], result.damage, strict=True):
        each["segment_id"] = str(damaged.segment_id)
    return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def _decoded(line: bytes) -> PartitionScrub:
    """Decode a line. KeyError, TypeError, ValueError or InvalidRequest for any that `_encoded` does
    not write.
    """
    plain = json.loads(line)
    topic, topic_id, number = plain.pop("partition")
    damage = tuple(
        DamagedSegment(
            Uuid.parse(each["segment_id"]),
            int(each["start_offset"]),
            int(each["end_offset"]),
            tuple(ScrubFinding(**finding) for finding in each["findings"]),
        )
        for each in plain.pop("damage")
    )
    partition = TopicIdPartition(str(topic), Uuid.parse(topic_id), int(number))
    return PartitionScrub(
        partition, damage=damage, **{name: int(value) for name, value in plain.items()}
    )
