"""A node that holds what local retention takes, beside a broker's log of four segments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kafka_formats import producer_snapshot
from kafka_formats.errors import RetryLater
from kafka_formats.log_names import SNAPSHOT_SUFFIX, segment_file_name
from kafka_formats.producer_snapshot import ProducerState
from rlm.control.run_events import CopyEvent, LostRangeRecorded
from rlm.copy.hold import HoldLimits
from rlm.copy.scanner import BrokerPort
from rlm.local_log.hold_plan import Unit
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import Hook, Node, World, no_hook

ROOM = HoldLimits(bytes_max=2**40, free_bytes_min=1)
A_FEW_SCANS_S = 30.0
AFTER_ANY_BACK_OFF_S = 700.0


def four_segments(tmp_path: Path) -> KafkaLog:
    """From 0 to 34; the last one is active."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    return log


class Outage:
    """A hook: copies fail while it lasts."""

    def __init__(self) -> None:
        self.lasts = True

    async def __call__(self, name: str) -> None:
        if self.lasts and name in ("before put .log", "before put part .log"):
            raise RetryLater("the store is down")


class NoQuorum:
    """A hook: no claim is accepted while it lasts."""

    def __init__(self, *, lasts: bool = True) -> None:
        self.lasts = lasts

    async def __call__(self, name: str) -> None:
        if self.lasts and name == "before claim_partition":
            raise RetryLater("no quorum")


def retention(log: KafkaLog, *bases: int, start: int, epoch: int = 0) -> None:
    """Local retention: segments go, and the head of the checkpoint is cut."""
    for base in bases:
        log.delete_segment(base)
    log.set_epochs((epoch, start))


def still_open(log: KafkaLog, since: int, *offsets: int) -> None:
    """Producer snapshots at these offsets, of a transaction that began at `since`."""
    opened = ProducerState(1, 0, 0, since, 0, TIMESTAMP_MS, 0, since)
    for offset in offsets:
        snapshot = log.directory / segment_file_name(offset, SNAPSHOT_SUFFIX)
        snapshot.write_bytes(producer_snapshot.encode([opened]))


def lost(events: list[CopyEvent]) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in events if isinstance(each, LostRangeRecorded)]


def units(tmp_path: Path) -> list[str]:
    """The base offsets of what is held."""
    return sorted(
        path.name[:20].lstrip("0") or "0" for path in (tmp_path / "hold").glob("*/orders-0/*/*")
    )


@asynccontextmanager
async def holding(
    world: World, hook: Hook = no_hook, *, hold: HoldLimits = ROOM, broker: BrokerPort | None = None
) -> AsyncIterator[Node]:
    """A node that has run for a few scans: what is sealed is held."""
    async with world.boot(hook=hook, data_plane=True, hold=hold, broker=broker) as node:
        await node.remote_log.start()
        await asyncio.sleep(A_FEW_SCANS_S)
        yield node


def all_of_it(unit: Unit) -> int:
    """A proof that all records of a unit were committed."""
    return unit.next_base_offset


def nothing(unit: Unit) -> int:
    """A proof of none of them."""
    return unit.base_offset
