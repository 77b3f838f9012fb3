"""What a replica is given to write, and what its followers read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from rlmm.metadata_log import CommittedRecord, Proposal
from rlmm.quorum.quorum_log import QuorumLog


class RunningReplica(Protocol):
    """A replica of a test, with a wire or without."""

    node_id: int

    @property
    def log(self) -> QuorumLog: ...


def data(value: bytes) -> tuple[Proposal, ...]:
    return (Proposal(None, value),)


async def collect(replica: RunningReplica, end: int) -> list[CommittedRecord]:
    """Everything committed below `end`, as soon as this replica has it."""
    found: list[CommittedRecord] = []
    async with asyncio.timeout(60):
        async for group in replica.log.follow(0):
            found += group.records
            if group.end_offset >= end:
                return found
    raise AssertionError("follow ended by itself")


async def all_propose_and_read_the_same(replicas: Sequence[RunningReplica]) -> None:
    """Each proposes fifty records at once with the others; there is a leader."""
    offsets = await asyncio.gather(
        *(
            replica.log.propose(data(b"%d-%d" % (replica.node_id, each)), deadline_s=10)
            for replica in replicas
            for each in range(50)
        )
    )
    assert len(set(offsets)) == 50 * len(replicas)
    logs = [await collect(replica, max(offsets) + 1) for replica in replicas]
    assert all(log == logs[0] for log in logs)
    assert {record.value for record in logs[0]} == {
        b"%d-%d" % (replica.node_id, each) for replica in replicas for each in range(50)
    }
    by_offset = {record.offset: record.value for record in logs[0]}
    assert by_offset[offsets[0]] == b"%d-0" % replicas[0].node_id
