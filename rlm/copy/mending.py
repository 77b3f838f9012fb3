"""Finds the good batches of a damaged segment, and fetches the rest from the other replicas.

One segment at a time on a node, so that memory and disk are bounded: one answer in memory, and the
fetched batches of one step for each damaged partition in `directory`, which is emptied first. A
hole may be as large as a log, so it is fetched in steps, each copied before the next is asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from kafka_client.replica_answers import Batches, Extent, OutOfRange
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.pool_port import PoolPort
from rlm.copy import head_hole
from rlm.copy.held_batches import batches_from
from rlm.copy.replica_batches import HoleWalk, as_runs
from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.segment_survey import SurveyJob
from rlm.leadership.leadership import NoAnswer
from rlm.local_log.damage import Damage, Run, without
from rlm.local_log.gap_rule import Offsets
from rlm.local_log.log_dir import LocalSegment

logger = logging.getLogger(__name__)

DIRECTORY = "mending"
"""In a node's data directory."""

HEAD = ".head"
"""Ends the name of a directory in it for the files that are gone at the head of a log."""

HERE = -1
"""Stands for this machine among the node ids of replicas."""

NO_BROKER = "no broker is configured that could be asked for them"


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
    """Limits of one step: `deadline_s` for all its questions, and `bytes_max` of batches from each
    replica, passed by one answer at most. At either the step ends with what it has.
    """

    deadline_s: float = 300.0
    bytes_max: int = 2**30


@dataclass(slots=True)
class Mender:
    """Mends one segment at a time. `replicas` None: a directory without a broker; `directory` None:
    nothing is fetched.
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
        """Remove files that a former life of this node fetched."""
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            for path in self.directory.glob("*.log"):
                path.unlink(missing_ok=True)
            for path in self.directory.glob(f"*{HEAD}"):
                head_hole.remove(path)

    def known(self, partition: TopicIdPartition, segment: LocalSegment) -> Damage | None:
        """The damage of the segment as it is now. Damage of other files is forgotten, also of
        the same file by another link: its runs name the link, which may be gone.
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
        """True while its damage is surveyed and asked for: what `of` tells may yet be found."""
        return self._mending == partition

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget the damage and remove its files: the segment is copied, or is another one now."""
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
        """A segment that stands for the `hole` at the head of the log in `live`. It begins where
        the known damage begins, if there is any.
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
        """Survey the segment anew, look for its missing batches in the `linked` segments of the
        partition, and ask the replicas for the rest, as far as one step goes: beyond the offset
        `at`. Raises what the survey raises.
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


@dataclass(slots=True)
class _Asking:
    """The questions about one damaged segment. `unanswered` are reasons why nothing is given up."""

    partition: TopicIdPartition
    damage: Damage
    job: CopyJob
    replicas: ReplicasPort | None
    limits: MendLimits
    path: Path
    unanswered: list[str] = field(default_factory=list)
    _asked: list[int] = field(default_factory=list)
    _lacking: dict[int, list[Offsets]] = field(default_factory=dict)
    _doubtful: list[Offsets] = field(default_factory=list)
    """Offsets that held batches claim, though nothing beside them bears that out."""
    _bytes: int = 0
    _bytes_from: Counter[int] = field(default_factory=Counter)
    """Bytes taken from each replica; those from held segments count for `HERE`."""

    async def look_at(self, linked: Sequence[LocalSegment]) -> None:
        """Take batches of held segments. Offsets that they lack may still be at a replica."""
        for segment in linked:
            position = 0
            for first, last in self.damage.missing:
                last = min(last, self.damage.asked_below - 1)
                end = segment.next_base_offset or 0
                if first <= last and segment.base_offset <= last and first < end:
                    position = await self._take_held(segment, first, last, position)

    async def _take_held(self, held: LocalSegment, first: int, last: int, position: int) -> int:
        """Read from `position` on; returns the position reached, where the next hole's search goes
        on: holes ascend as the file does.
        """
        log = held.log_path
        walk = self._walk(first, last, str(log))
        is_full = False
        while not walk.done and not is_full:
            data, position = await asyncio.to_thread(batches_from, log, walk.question, position)
            if position == 0:
                walk.begins_at(held.base_offset)
            is_full = await self._keep(HERE, walk, data)
        self._doubtful += walk.doubtful
        return position

    def _walk(self, first: int, last: int, source: str) -> HoleWalk:
        return HoleWalk(
            first, last, self.job.leader_epochs, source,
            free_from=self._free_from(first), thinned=self.job.gaps_allowed,
        )  # fmt: skip

    async def ask_all(self) -> None:
        """Ask one replica after the other while batches are missing. They are asked again after
        each find, since it may bear out batches that another replica has.
        """
        if self.replicas is None:
            self.unanswered.append(NO_BROKER)
            return
        nodes = await self.replicas.replicas(self.partition)
        if isinstance(nodes, NoAnswer):
            self.unanswered.append(nodes.reason)
            return
        self._asked = list(nodes)
        missing: tuple[Offsets, ...] = ()
        while self.damage.missing and self.damage.missing != missing:
            missing = self.damage.missing
            self._lacking = {}
            self.unanswered = []
            for node_id in nodes:
                await self._ask_for_all(node_id)
            if not self.unanswered:
                return

    def out_of_time(self) -> None:
        """End the step before the first batch that is missing, if anything was fetched below it."""
        damage = self.damage
        end = damage.missing[0][0] if damage.missing else damage.asked_below
        if end > damage.asked_from and any(run.last < end for run in damage.fetched):
            self.damage = replace(damage, asked_below=end)
            self.unanswered = []
        else:
            self.unanswered.append(f"no end within {self.limits.deadline_s:g} s")

    async def _ask_for_all(self, node_id: int) -> None:
        """Ask one replica about every present hole."""
        lacking = self._lacking[node_id] = []
        wrong = ""
        for first, last in self.damage.missing:
            last = min(last, self.damage.asked_below - 1)
            if first > last:
                break
            answer = await self._ask(node_id, first, last, lacking)
            if isinstance(answer, NoAnswer):
                wrong = wrong or f"broker {node_id}: {answer.reason}"
                break
            wrong = wrong or answer
        if wrong:
            self.unanswered.append(wrong)

    def judged(self) -> Damage:
        """The damage, with the offsets that no replica has if all of them answered."""
        damage = replace(self.damage, held_doubtful=tuple(self._doubtful))
        if self.unanswered:
            return replace(damage, why="; ".join(self.unanswered))
        gone = without(damage.missing, damage.doubtful)
        for lacking in self._lacking.values():
            gone = without(gone, without(gone, lacking))
        asked = ", ".join(map(str, self._asked))
        return replace(damage, gone=gone, why=f"no replica has them (brokers {asked} were asked)")

    async def _ask(
        self, node_id: int, first: int, last: int, lacking: list[Offsets]
    ) -> str | NoAnswer:
        """Ask about one hole; returns what is wrong in the replica there, or an empty text."""
        walk = self._walk(first, last, f"broker {node_id}")
        while not walk.done:
            answer: Batches | OutOfRange | Extent | NoAnswer
            answer = await self._fetch(node_id, walk.question)
            if isinstance(answer, OutOfRange):
                answer = await self._extent(node_id)
            if isinstance(answer, NoAnswer):
                return answer
            if isinstance(answer, Extent):
                walk.out_of_range(answer.start, answer.end)
                continue
            if await self._keep(node_id, walk, answer.data):
                break
        lacking += walk.lacking
        return walk.wrong

    def _free_from(self, at: int) -> int | None:
        """The lowest first offset of a batch with `at`; None if those below are wanted too."""
        begin = max(self.job.start_offset, self.job.log_start_offset, self.damage.asked_from)
        if at > begin:
            return None
        runs = (*self.damage.survey.runs, *self.damage.fetched)
        return max((run.last + 1 for run in runs if run.last < at), default=0)

    async def _keep(self, source: int, walk: HoleWalk, data: bytes) -> bool:
        """Keep the fitting batches of an answer; True once this step has enough of that source. The
        step ends there, for every source.
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

    async def _fetch(self, node_id: int, offset: int) -> Batches | OutOfRange | NoAnswer:
        assert self.replicas is not None, "ask_all names the replica"
        return await self.replicas.fetch(node_id, self.partition, offset)

    async def _extent(self, node_id: int) -> Extent | NoAnswer:
        assert self.replicas is not None, "ask_all names the replica"
        return await self.replicas.extent(node_id, self.partition)


def _append(path: Path, data: bytes | bytearray) -> None:
    with path.open("ab") as file:
        file.write(data)
