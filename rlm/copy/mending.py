"""Finds the good batches of a damaged segment, and fetches the rest from the other replicas.

A node mends one segment at a time, so that memory and disk are bounded: one response in memory, and
the fetched batches of one step for each damaged partition in `directory`, which is emptied at the
start. A hole may be as large as a log, so it is fetched in steps; each step is copied before the
next is fetched.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from kafka_client.replica_answers import Batches, Extent, OutOfRange
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.log_names import LOG_SUFFIX, segment_file_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.pool_port import PoolPort
from rlm.copy import head_hole
from rlm.copy.held_batches import batches_from
from rlm.copy.replica_batches import HoleWalk, as_runs
from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.segment_survey import SurveyJob
from rlm.leadership.leadership import NoAnswer
from rlm.local_log.damage import Damage, Run, within, without
from rlm.local_log.gap_rule import Offsets, overlaps, ranges_text
from rlm.local_log.log_dir import LocalSegment

logger = logging.getLogger(__name__)

DIRECTORY = "mending"
"""The name of the directory for mended files in a node's data directory."""

HEAD = ".head"
"""Suffix of the directories in it that replace missing files at the head of a log."""

HERE = -1
"""The node id used for this machine's held segments among the ids of replicas."""

Mending = Callable[[], Awaitable[object]]
"""The rest of the work on a damaged segment, done after its copy slot is released."""

NO_BROKER = "no broker is configured from which they could be fetched"


class ReplicasPort(Protocol):
    """The brokers of the cluster (`rlm.copy.replica_fetch.ReplicaFetch`)."""

    async def replicas(self, partition: TopicIdPartition) -> Sequence[int] | NoAnswer:
        """Node ids of all assigned replicas."""
        ...

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange | NoAnswer:
        """The broker's batches from `offset` on."""
        ...

    async def extent(self, node_id: int, partition: TopicIdPartition) -> Extent | NoAnswer:
        """Start and end of the broker's log."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class MendLimits:
    """Limits of one step: `deadline_s` for all its requests, and `bytes_max` of batches from each
    replica, exceeded by one response at most. At either limit the step ends with what it has.
    """

    deadline_s: float = 300.0
    bytes_max: int = 2**30


@dataclass(slots=True)
class Mender:
    """Mends one segment at a time. `replicas` None: standalone directories without a broker;
    `directory` None: nothing is fetched.
    """

    pool: PoolPort
    replicas: ReplicasPort | None = None
    directory: Path | None = None
    limits: MendLimits = field(default_factory=MendLimits)
    _damages: dict[TopicIdPartition, Damage] = field(default_factory=dict)
    _mending: TopicIdPartition | None = None
    _begun: bool = False
    _beginning: asyncio.Lock = field(default_factory=asyncio.Lock)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def _empty(self) -> None:
        """Remove files that an earlier process of this node fetched."""
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            for path in self.directory.glob("*.log"):
                path.unlink(missing_ok=True)
            for path in self.directory.glob(f"*{HEAD}"):
                head_hole.remove(path)

    def known(self, partition: TopicIdPartition, segment: LocalSegment) -> Damage | None:
        """The known damage of the segment as it is now. Damage of a different file is forgotten;
        so is damage found through a different link to this file, since its runs have the path of
        that link, which may be gone.
        """
        damage = self._damages.get(partition)
        if damage is None or damage.base_offset != segment.base_offset:
            return None
        is_same = (damage.next_base_offset, damage.size_bytes) == (
            segment.next_base_offset, segment.size_bytes,
        ) and all(run.path == segment.log_path for run in damage.survey.runs)  # fmt: skip
        if not is_same:
            self.forget(partition)
            return None
        return damage

    def of(self, partition: TopicIdPartition) -> Damage | None:
        """The damage that stops the partition, as last seen."""
        return self._damages.get(partition)

    def is_mending(self, partition: TopicIdPartition) -> bool:
        """True while its damage is surveyed and fetched: `of` may list too many missing offsets."""
        return self._mending == partition

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget the damage and remove its files: the segment is copied, or has been replaced."""
        if self._drop(partition) and self.directory is not None:
            head_hole.remove(self._head(partition, self.directory))

    def _drop(self, partition: TopicIdPartition) -> bool:
        if self._damages.pop(partition, None) is None:
            return False
        if self.directory is not None:
            self._file(partition, self.directory).unlink(missing_ok=True)
        return True

    async def stand_in(
        self, partition: TopicIdPartition, live: Path, lineage: Epochs, hole: Offsets
    ) -> LocalSegment:
        """An empty segment in place of the `hole` at the head of the log in `live`. If damage is
        already known there, it begins where that begins.
        """
        if self.directory is None:
            raise CorruptData(f"no files, and {NO_BROKER}", source=str(live), position=0)
        base, end = hole[0], hole[1] + 1
        known = self._damages.get(partition)
        if known is not None and known.head and known.next_base_offset == end:
            base = min(base, known.base_offset)
        elif known is not None:
            await asyncio.to_thread(self.forget, partition)
        await self._begin()
        head = self._head(partition, self.directory)
        return await asyncio.to_thread(head_hole.stand_in, head, live, lineage, base, end)

    async def _begin(self) -> None:
        async with self._beginning:
            if not self._begun:
                await asyncio.to_thread(self._empty)
                self._begun = True

    async def mend(
        self,
        partition: TopicIdPartition,
        segment: LocalSegment,
        job: CopyJob,
        linked: Sequence[LocalSegment] = (),
        *,
        at: int = 0,
    ) -> Damage:
        """Run one step from offset `at` on: survey the segment again, search its missing batches in
        the `linked` segments of the partition, and fetch the rest from the replicas. Raises the
        survey's errors.
        """
        async with self._one_at_a_time:
            self._mending = partition
            try:
                return await self._mend(partition, segment, job, linked, at)
            finally:
                self._mending = None

    async def _mend(
        self,
        partition: TopicIdPartition,
        segment: LocalSegment,
        job: CopyJob,
        linked: Sequence[LocalSegment],
        at: int,
    ) -> Damage:
        await self._begin()
        self._drop(partition)
        assert segment.next_base_offset is not None, "only sealed segments are copied"
        found = await self.pool.survey(SurveyJob(job, segment.size_bytes))
        damage = Damage(
            segment.base_offset, segment.next_base_offset, segment.size_bytes, found,
            head=self.directory is not None
            and job.directory == self._head(partition, self.directory),
            asked_from=at,
        )  # fmt: skip
        self._damages[partition] = damage
        if damage.missing:
            damage = await self._fetched(partition, damage, job, linked)
            self._damages[partition] = damage
            logger.warning("%s: %s", partition, damage.text)
        return damage

    async def _fetched(
        self,
        partition: TopicIdPartition,
        damage: Damage,
        job: CopyJob,
        linked: Sequence[LocalSegment],
    ) -> Damage:
        if self.directory is None:
            return replace(damage, why=NO_BROKER)
        asking = _Asking(partition, damage, job, self.replicas, self.limits,
                         self._file(partition, self.directory))  # fmt: skip
        try:
            async with asyncio.timeout(self.limits.deadline_s):
                await asking.look_at(linked)
                if asking.damage.missing:
                    await asking.ask_all()
        except TimeoutError:
            asking.out_of_time()
        finally:
            if self.replicas is not None:
                await self.replicas.close()
        return asking.judged()

    @staticmethod
    def _file(partition: TopicIdPartition, directory: Path) -> Path:
        return directory / f"{partition.topic_id}-{partition.partition}.log"

    @staticmethod
    def _head(partition: TopicIdPartition, directory: Path) -> Path:
        return directory / f"{partition.topic_id}-{partition.partition}{HEAD}"


@dataclass(frozen=True, slots=True)
class _ReplicaAnswer:
    """A replica's answer: `extent` of its log, None without an answer; `wrong`: the reason for
    that, or for a batch in it that was refused.
    """

    extent: Extent | None
    wrong: str = ""

    def text(self, missing: Sequence[Offsets]) -> str:
        """A sentence about the offsets that are still missing."""
        if self.extent is None:
            return self.wrong
        start, end = self.extent.start, self.extent.end
        there = within(missing, start, end - 1)
        if not there:
            return f"its log has offsets {start} to {end - 1}"
        wrong = f" ({self.wrong})" if self.wrong else ""
        return (
            f"its log goes from {start} to {end - 1}, but it sent no good batch of "
            f"{ranges_text(there)}{wrong}"
        )


@dataclass(slots=True)
class _Asking:
    """The search for one segment's missing batches. `not_all`: the reason why not every replica was
    asked for all of them; empty if all were.
    """

    partition: TopicIdPartition
    damage: Damage
    job: CopyJob
    replicas: ReplicasPort | None
    limits: MendLimits
    path: Path
    not_all: str = ""
    _said: dict[int, _ReplicaAnswer] = field(default_factory=dict)
    _bytes: int = 0
    _bytes_from: Counter[int] = field(default_factory=Counter)
    """Bytes taken from each replica; those from held segments count for `HERE`."""

    async def look_at(self, linked: Sequence[LocalSegment]) -> None:
        """Take batches from held segments. Offsets of these segments that are still missing may be
        in their damaged parts.
        """
        surveyed = self.job.directory / segment_file_name(self.job.start_offset, LOG_SUFFIX)
        for segment in linked:
            end = segment.next_base_offset or 0
            if segment.log_path == surveyed or end <= segment.base_offset:
                continue
            held = (segment.base_offset, end - 1)
            position = 0
            for first, last in self.damage.missing:
                last = min(last, self.damage.asked_below - 1)
                if first <= last and overlaps(first, last, (held,)):
                    position = await self._take_held(segment.log_path, held, first, last, position)
            self.damage = replace(self.damage, held=(*self.damage.held, held))

    async def _take_held(
        self, log: Path, held: Offsets, first: int, last: int, position: int
    ) -> int:
        """Read a held file from `position` on; returns the position reached, where the search for
        the next hole continues: holes ascend as the file does. `held`: the offsets of the file
        according to its name, by which a broker too would choose it.
        """
        walk = self._walk(first, last, str(log), held[0])
        asked, is_full = 0, False
        while not walk.done and not is_full:
            data = b""
            if held[0] <= walk.question <= held[1]:
                position = position if walk.question >= asked else 0
                data, position = await asyncio.to_thread(
                    batches_from, log, walk.question, position, self.job.limits.batch_bytes_max
                )
                asked = walk.question
            is_full = await self._keep(HERE, walk, data)
        return position

    def _walk(self, first: int, last: int, source: str, start: int) -> HoleWalk:
        return HoleWalk(
            first, last, self.job.leader_epochs, source,
            free_from=self._free_from(first), thinned=self.job.gaps_allowed, start=start,
        )  # fmt: skip

    async def ask_all(self) -> None:
        """Ask one replica after the other while batches are missing."""
        if self.replicas is None:
            self.not_all = NO_BROKER
            return
        nodes = await self.replicas.replicas(self.partition)
        if isinstance(nodes, NoAnswer):
            self.not_all = nodes.reason
            return
        for node_id in nodes:
            if not self.damage.missing:
                return
            self._said[node_id] = await self._ask(self.replicas, node_id)
        # This request has the topic's id; an extent is requested by the topic's name.
        if await self.replicas.replicas(self.partition) != nodes:
            self.not_all = "the replicas have changed meanwhile, or are not known now"

    def out_of_time(self) -> None:
        """End the step before the first batch that is missing, if anything was fetched below it."""
        damage = self.damage
        end = damage.missing[0][0] if damage.missing else damage.asked_below
        if end > damage.asked_from and any(run.last < end for run in damage.fetched):
            self.damage = replace(damage, asked_below=end)
        else:
            self.not_all = f"the fetches did not finish within {self.limits.deadline_s:g} s"

    def judged(self) -> Damage:
        """The damage, with the offsets proven lost: those outside the logs of all assigned
        replicas.
        """
        damage = self.damage
        said = [f"broker {id_}: {each.text(damage.missing)}" for id_, each in self._said.items()]
        damage = replace(damage, why="; ".join([*said, self.not_all] if self.not_all else said))
        extents = [each.extent for each in self._said.values() if each.extent is not None]
        if self.not_all or not extents or len(extents) < len(self._said):
            return damage
        gone = without(damage.missing, damage.doubtful)
        return replace(damage, gone=without(gone, ((e.start, e.end - 1) for e in extents)))

    async def _ask(self, replicas: ReplicasPort, node_id: int) -> _ReplicaAnswer:
        """Take the batches that one replica has in any of the remaining holes."""
        extent = await replicas.extent(node_id, self.partition)
        if isinstance(extent, NoAnswer):
            return _ReplicaAnswer(None, extent.reason)
        wrong = ""
        for first, last in self.damage.missing:
            last = min(last, self.damage.asked_below - 1, extent.end - 1)
            if last < max(first, extent.start):
                continue
            walk = self._walk(first, last, "its log", extent.start)
            while not walk.done:
                answer = await replicas.fetch(node_id, self.partition, walk.question)
                if isinstance(answer, NoAnswer):
                    return _ReplicaAnswer(extent, wrong or answer.reason)
                data = b"" if isinstance(answer, OutOfRange) else answer.data
                if await self._keep(node_id, walk, data):
                    break
            wrong = wrong or walk.wrong
        return _ReplicaAnswer(extent, wrong)

    def _free_from(self, at: int) -> int | None:
        """The lowest first offset that a batch containing `at` may have; None if the offsets below
        `at` are missing too.
        """
        begin = max(self.job.start_offset, self.job.log_start_offset, self.damage.asked_from)
        if at > begin:
            return None
        runs = (*self.damage.survey.runs, *self.damage.fetched)
        return max((run.last + 1 for run in runs if run.last < at), default=0)

    async def _keep(self, source: int, walk: HoleWalk, data: bytes) -> bool:
        """Keep the fitting batches of a response; True once this step has `bytes_max` from that
        source. The step ends at that offset, for every source.
        """
        taken = await asyncio.to_thread(walk.take, data)
        runs: tuple[Run, ...] = as_runs(taken, self.path, self._bytes)
        await asyncio.to_thread(_append, self.path, taken.data)
        self._bytes += len(taken.data)
        self._bytes_from[source] += len(taken.data)
        self.damage = self.damage.with_fetched(runs, taken.aborts)
        if not taken.data or self._bytes_from[source] <= self.limits.bytes_max:
            return False
        if any(last >= walk.settled_below for _, last in self.damage.missing):
            self.damage = replace(self.damage, asked_below=walk.settled_below)
        return True


def _append(path: Path, data: bytes | bytearray) -> None:
    with path.open("ab") as file:
        file.write(data)
