"""What a replica is given to write, and what its followers read."""

from __future__ import annotations

import asyncio
from typing import Protocol

from rlmm.metadata_log import CommittedRecord, Proposal
from rlmm.quorum.quorum_log import QuorumLog


class RunningReplica(Protocol):
    """A replica of a test, with a wire or without."""

    @property
    def log(self) -> QuorumLog: ...


def data(value: bytes) -> tuple[Proposal, ...]:
    return (Proposal(None, value),)


async def collect(replica: RunningReplica, end: int) -> list[CommittedRecord]:
    """Everything committed below `end`, as soon as this replica has it."""
    found: list[CommittedRecord] = []
    async with asyncio.timeout(10):
        async for group in replica.log.follow(0):
            found += group.records
            if group.end_offset >= end:
                return found
    raise AssertionError("follow ended by itself")
