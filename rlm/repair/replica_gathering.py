"""Fetches a damaged segment's log from the brokers of the other replicas.

The batches of the segment's offsets are fetched from each assigned replica in turn. They are
written to a file, which is checked like every source (`segment_gathering`): by the recorded length
and CRC32C.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_client.replica_answers import OutOfRange
from rlm.control.pool_port import PoolPort
from rlm.copy.mending import NO_BROKER, ReplicasPort
from rlm.copy.replica_batches import HoleWalk
from rlm.data_plane.repair_jobs import GatherJob, GatherResult, LocalLog, LocalSource
from rlm.data_plane.segment_gathering import require_room, writing_to
from rlm.format.object_keys import ObjectSuffix
from rlm.leadership.leadership import NoAnswer

DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class ReplicaGathering:
    """Gathers a segment's log from replicas. `replicas` None: standalone directories without a
    broker. `deadline_s` bounds the fetches from one replica.
    """

    pool: PoolPort
    replicas: ReplicasPort | None = None
    deadline_s: float = DEADLINE_S

    async def gather(self, job: GatherJob, path: Path) -> GatherResult:
        """Gather a segment as `PoolPort.gather` does, from the first replica that has all of it.
        The file at `path` has the batches of one replica at a time. NoRoom: its disk is full.
        """
        if self.replicas is None:
            return GatherResult("", (f"other replicas: {NO_BROKER}",))
        try:
            nodes = await self.replicas.replicas(job.segment_id.partition)
            if isinstance(nodes, NoAnswer):
                return GatherResult("", (), (f"other replicas: {nodes.reason}",))
            tried: list[str] = []
            unanswered: list[str] = []
            for node_id in nodes:
                found = await self._from(self.replicas, node_id, job, path)
                tried += found.tried
                unanswered += found.unanswered
                if found.source:
                    return replace(found, tried=tuple(tried), unanswered=tuple(unanswered))
            return GatherResult("", tuple(tried), tuple(unanswered))
        finally:
            await self.replicas.close()

    async def _from(
        self, replicas: ReplicasPort, node_id: int, job: GatherJob, path: Path
    ) -> GatherResult:
        name = f"the replica on broker {node_id}"
        try:
            async with asyncio.timeout(self.deadline_s):
                wrong = await _fetch_error(replicas, node_id, job, path)
        except TimeoutError:
            wrong = NoAnswer(f"the fetch did not finish within {self.deadline_s:g} s")
        if isinstance(wrong, NoAnswer):
            return GatherResult("", (), (f"{name}: {wrong.reason}",))
        if wrong:
            return GatherResult("", (f"{name}: {wrong}",))
        log = LocalLog(path, job.start_offset, job.end_offset + 1)
        return await self.pool.gather(replace(job, replica=LocalSource(name, (log,))))


async def _fetch_error(
    replicas: ReplicasPort, node_id: int, job: GatherJob, path: Path
) -> str | NoAnswer:
    """Fetch from one replica into `path`; the reason why it failed, empty if `path` has all of the
    segment.
    """
    size_bytes = job.object(ObjectSuffix.LOG).size_bytes
    await asyncio.to_thread(_begin, path, size_bytes, job.free_bytes_min)
    written = 0
    # Offset gaps are accepted here: length and CRC32C of the whole file are checked afterwards.
    walk = HoleWalk(job.start_offset, job.end_offset, None, "its log", thinned=True)
    while not walk.done:
        answer = await replicas.fetch(node_id, job.segment_id.partition, walk.question)
        if isinstance(answer, NoAnswer):
            return answer
        data = b"" if isinstance(answer, OutOfRange) else answer.data
        taken = await asyncio.to_thread(walk.take, data)
        if walk.wrong:
            return walk.wrong
        written += len(taken.data)
        if written > size_bytes:
            return f"the replica sent more than the recorded {size_bytes} bytes"
        with writing_to(path.parent):
            await asyncio.to_thread(_append, path, taken.data)
    if written == size_bytes:
        return ""
    return f"the replica sent {written} bytes, not the recorded {size_bytes}"


def _begin(path: Path, size_bytes: int, free_bytes_min: int) -> None:
    with writing_to(path.parent):
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        path.write_bytes(b"")
    require_room(path.parent, size_bytes, free_bytes_min)


def _append(path: Path, data: bytes | bytearray) -> None:
    with path.open("ab") as file:
        file.write(data)
