"""The dual write of a move: from a proposal until Kafka's consumer has it, and what it costs.

`python -m bench.metadata_shadow [CHANGES]` (1,000): a stock broker with the metadata topic of 50
partitions, and two nodes in this process: one in phase QUORUM whose shadow writes to the topic, one
in no move. A lone proposer adds and finishes segments by turns, 50 a second: at the one while its
shadow's task works, at the same while that stands still, and at the other. So what a proposal pays
is told apart from what the task takes of the event loop and of the cores that it shares here with
the broker. Latency ends where a consumer of committed records has the change; Kafka's own manager
reads uncommitted ones, which are there earlier.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import uvloop
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.command_line import numbers
from bench.metadata_node import CACHE, MetadataNode, metadata_node
from bench.metadata_set import MetadataSet, finished, make_data_directory
from bench.table import Measure, percentile, write_table
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.migration.shadow import ShadowTask
from rlm.migration.shadow_plan import metadata_offset_in
from rlm.migration.shadow_topic import KafkaTopic, transactional_id
from rlm.migration.topic_checks import TOPIC
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode
from rlmm.records.control_records import MigrationPhaseChange, PartitionClaim
from strandline.node import ambient
from strandline.node.surroundings import AMBIENT
from tests.integration.test_broker_view import connection_settings, view_of
from tests.integration.test_metadata_topic import KEPT
from tests.real.kafka import KafkaBroker

TOPIC_PARTITIONS = 50
PARTITIONS = 20
EVERY_S = 0.02
TURN = 100
"""The number of changes of a kind before as many of the next."""
LAG_MAX_S = 1.0
DRAINED_S = 60.0


@dataclass
class Seen:
    """Moments when a consumer had a change, by metadata offset."""

    at: dict[int, float] = field(default_factory=dict)
    over: bool = False

    def read(self, bootstrap: str) -> None:
        """Consume committed records, on a thread of its own, until it is over."""
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        places = range(TOPIC_PARTITIONS)
        consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in places])
        while not self.over:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                headers: Any = message.headers() or ()
                offset = metadata_offset_in(headers)
                if offset is not None:
                    self.at.setdefault(offset, perf_counter())
        consumer.close()


@dataclass
class Proposer:
    """Changes of one node, and when each began, by metadata offset."""

    node: MetadataNode
    work: MetadataSet
    tokens: list[int] = field(default_factory=list)
    begun: dict[int, float] = field(default_factory=dict)
    segments: int = 0

    async def claim(self) -> None:
        """Delegated partitions: all but the one that the directory was made with."""
        incarnation, lineage = self.node.directory.incarnation, self.work.lineage
        for number in range(PARTITIONS):
            claim = PartitionClaim(
                self.work.partition(number + 1), Mode.DELEGATED, lineage[-1].epoch, incarnation, 1,
                lineage,
            )  # fmt: skip
            self.tokens.append((await self.node.manager.claim_partition(claim)).token)

    async def turn(self, took_ms: list[float]) -> None:
        """Add and finish segments, one change after the other."""
        manager = self.node.manager
        for _ in range(TURN // 2):
            number, index = self.segments % PARTITIONS, self.segments // PARTITIONS
            self.segments += 1
            segment = replace(
                self.work.started(number + 1, index),
                token=self.tokens[number],
                writer=self.node.directory.incarnation,
            )
            await self._timed(manager.add_remote_log_segment_metadata(segment), took_ms)
            await self._timed(
                manager.update_remote_log_segment_metadata(finished(segment)), took_ms
            )

    async def _timed(self, change: Awaitable[int], took_ms: list[float]) -> None:
        begun = perf_counter()
        offset = await change
        took_ms.append((perf_counter() - begun) * 1e3)
        self.begun[offset] = begun
        await asyncio.sleep(max(0.0, begun + EVERY_S - perf_counter()))


async def move(node: MetadataNode) -> None:
    """Make the move to QUORUM."""
    await node.manager.finalise_feature_level(2)
    for phase in (MigrationPhase.KAFKA, MigrationPhase.SWITCHING, MigrationPhase.QUORUM):
        since = node.manager.migration().since
        await node.manager.record_move(MigrationPhaseChange(phase, since, "kafka", "bench", ""))


@asynccontextmanager
async def shadow_of(node: MetadataNode, broker: KafkaBroker) -> AsyncIterator[asyncio.Event]:
    """The node's task, at work while the event is set."""
    identity = Identity("bench", broker.cluster_id, node.directory.incarnation)
    around = Surroundings(identity, CopyLimits(), AMBIENT)
    at_work = asyncio.Event()
    async with view_of(connection_settings(broker)) as view:
        topic = KafkaTopic(view, transactional_id("bench"), ambient.sleep, ambient.now_ms)
        task = ShadowTask(node.manager, lambda: topic, around, to_nobody)

        async def run() -> None:
            while True:
                await at_work.wait()
                await asyncio.sleep(await task.round())

        running = asyncio.create_task(run())
        try:
            yield at_work
        finally:
            running.cancel()


async def to_nobody(_since: int) -> bool:
    """There is no other node."""
    return False


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until `is_so` says yes; TimeoutError if not within DRAINED_S."""
    end = perf_counter() + DRAINED_S
    while not is_so():
        if perf_counter() > end:
            raise TimeoutError(f"the topic was not brought after the log within {DRAINED_S:g} s")
        await asyncio.sleep(0.05)


async def drained(node: MetadataNode) -> None:
    """Return once all is in the topic, and reported."""

    def is_drained() -> bool:
        shadow = node.manager.shadow()
        return shadow is not None and not shadow.rows

    await until(is_drained)


@dataclass
class Samples:
    """Milliseconds of proposals, by what stands; seconds from a proposal to the consumer."""

    kept_up_ms: list[float] = field(default_factory=list)
    still_ms: list[float] = field(default_factory=list)
    no_move_ms: list[float] = field(default_factory=list)
    lag_s: list[float] = field(default_factory=list)


async def measure(home: Path, changes: int) -> Samples:
    """See the module."""
    work, seen, samples = MetadataSet(PARTITIONS, changes), Seen(), Samples()
    for name in ("moved", "other"):
        make_data_directory(home / name, MetadataSet(1, 1), count=0)
    with KafkaBroker(home / "broker") as broker:
        broker.create_topic(TOPIC, partitions=TOPIC_PARTITIONS, config=KEPT)
        reader = threading.Thread(target=seen.read, args=(broker.bootstrap,))
        reader.start()
        try:
            async with metadata_node(home / "moved") as one, metadata_node(home / "other") as two:
                moved, other = Proposer(one, work), Proposer(two, work)
                await move(one)
                await moved.claim()
                await other.claim()
                async with shadow_of(one, broker) as at_work:
                    at_work.set()
                    await moved.turn([])  # the first session begins, and is not counted
                    await drained(one)
                    for _ in range(changes // TURN):
                        at_work.clear()
                        await other.turn(samples.no_move_ms)
                        await moved.turn(samples.still_ms)
                        at_work.set()
                        await drained(one)
                        moved.begun.clear()
                        await moved.turn(samples.kept_up_ms)
                        await drained(one)
                        await until(lambda: moved.begun.keys() <= seen.at.keys())
                        samples.lag_s += [seen.at[at] - then for at, then in moved.begun.items()]
        finally:
            seen.over = True
            await asyncio.to_thread(reader.join)
    return samples


def main() -> None:
    (changes,) = numbers(__doc__, changes=1_000)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=CACHE) as home,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        samples = runner.run(measure(Path(home), changes))
    p99_s = percentile(samples.lag_s, 99)
    base = median(samples.no_move_ms)
    write_table(
        "A change in Kafka's metadata topic, too",
        [
            Measure("proposal to consumer", "s", samples.lag_s),
            Measure("proposal to consumer, p99", "s", [p99_s], f"< {LAG_MAX_S:g}",
                    p99_s < LAG_MAX_S),
            Measure("proposal, no move", "ms", samples.no_move_ms),
            Measure("proposal, in QUORUM, the writer stands still", "ms", samples.still_ms),
            Measure("proposal, in QUORUM, the writer works", "ms", samples.kept_up_ms),
            Measure("medians, still by no move", "", [median(samples.still_ms) / base]),
            Measure("medians, at work by no move", "", [median(samples.kept_up_ms) / base]),
        ],
        packages=("rocksdict", "uvloop"),
        notes=(f"{len(samples.lag_s)} changes, one each {EVERY_S * 1e3:g} ms; one broker",),
    )  # fmt: skip


if __name__ == "__main__":
    main()
