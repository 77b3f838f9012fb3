"""Time from a leader's move until its new node answers a look-up of the moved partition.

`python -m bench.first_look [--partitions N] [--rounds N]`: a node whose broker tiers its topic by
the plug-in, with the files of N partitions in its log directory. The broker leads a few of them and
follows the others. It is a stand-in that answers at once (a real one takes its time for each
partition asked about), and the metadata log one voter's. A round writes a partition's new leader
epoch, announces that the broker leads it, and looks a tiered segment of it up every few
milliseconds, as consumers do, until there is an answer. At the end the broker leads all partitions
at the same time, as behind the failure of another, and consumers of one wait.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.idle_log_dir import TOPIC, TOPIC_ID, write_log_dir
from bench.table import Measure, write_table
from kafka_formats import leader_epoch_checkpoint
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import Leads, NotLeading
from rlmm.segment import SegmentState
from tests.rlm.delegated.delegating import NO_TOPICS, TIERED, announcement
from tests.rlm.delegated.plugin_client import PluginClient, ToldError, client_of, segment
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.one_node import new_world

SEGMENTS = 4
END_OFFSET = (SEGMENTS - 1) * 1_000
POLL_S = 0.005
PAUSE_S = 5.0
"""The least pause behind a round; they differ, so that rounds meet the looks at any point."""
READY_DEADLINE_S = 600.0


def main() -> None:
    """Run the rounds and write the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--partitions", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=20)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as folder:
        found = asyncio.run(all_rounds(Path(folder), given.partitions, given.rounds))
    moved, committed, taken_over = found
    write_table(
        "First look",
        [
            Measure("leader moved -> tiered look-up answered", "s", moved),
            Measure("the same, look-up of an aborted transaction", "s", committed),
            Measure(f"{given.partitions} moved -> look-up of one answered", "s", taken_over),
        ],
        notes=(
            f"{given.partitions} partitions with {SEGMENTS} segments each, a stand-in broker that "
            f"answers at once; median of moves {median(moved):.3f} s",
        ),
    )


async def all_rounds(
    folder: Path, partitions: int, rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Seconds until a look-up is answered, until one of aborted transactions is, and behind the
    move of all partitions.
    """
    write_log_dir(
        folder / "kafka", cluster_id="kafka-1", node_id=1, partitions=partitions,
        segments=SEGMENTS,
    )  # fmt: skip
    tips = [TopicIdPartition(TOPIC, TOPIC_ID, number) for number in range(partitions)]
    led, followed = tips[:rounds], tips[rounds:]
    broker = FakeBroker({(TOPIC, each.partition): NotLeading() for each in tips}, TIERED)
    (folder / "node").mkdir()
    world = new_world(folder / "node", (folder / "kafka",))
    async with world.boot(broker=broker, topics=NO_TOPICS) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            moves = Moves(folder / "kafka", broker, plugin)
            await moves.announce_all(led, followed)
            for tip in led:
                await moves.until_ready(tip)
                row = segment(tip, 1 + tip.partition, 0, 999)
                await plugin.add(row)
                await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, b"custom")
            moved: list[float] = []
            committed: list[float] = []
            for number, tip in enumerate(led):
                for seconds, with_txn_index in ((moved, False), (committed, True)):
                    await asyncio.sleep(PAUSE_S + (number + with_txn_index / 2) % 5)
                    seconds.append(await moves.one((tip,), tip, with_txn_index=with_txn_index))
            await asyncio.sleep(PAUSE_S)
            taken_over = [await moves.one(tips, led[0], with_txn_index=False)]
        await node.remote_log.close()
    return moved, committed, taken_over


class Moves:
    """The broker: it writes leader epochs, and announces leaderships."""

    def __init__(self, log_dir: Path, broker: FakeBroker, plugin: PluginClient) -> None:
        self._log_dir, self._broker, self._plugin = log_dir, broker, plugin
        self._epoch = 0

    async def until_ready(self, tip: TopicIdPartition) -> None:
        """Wait until the broker's tasks of the partition may run."""
        give_up_s = perf_counter() + READY_DEADLINE_S
        while not (await self._plugin.ready(tip))[0]:
            if perf_counter() >= give_up_s:
                raise TimeoutError(f"{tip} is not ready within {READY_DEADLINE_S:g} s")
            await asyncio.sleep(0.2)

    async def announce_all(
        self, led: Sequence[TopicIdPartition], followed: Sequence[TopicIdPartition]
    ) -> None:
        """The first announcement."""
        for tip in led:
            self._broker.words[tip.topic, tip.partition] = Leads(0, END_OFFSET)
        said = replace(announcement(*led), followers=tuple(followed))
        await self._plugin.say(said)

    async def one(
        self, tips: Sequence[TopicIdPartition], of: TopicIdPartition, *, with_txn_index: bool
    ) -> float:
        """Let the broker lead these anew, after another did; seconds until a look-up answers."""
        self._epoch += 1
        entries = (EpochEntry(0, 0), EpochEntry(self._epoch, END_OFFSET))
        checkpoint = leader_epoch_checkpoint.encode(entries)
        for tip in tips:
            path = self._log_dir / f"{tip.topic}-{tip.partition}" / "leader-epoch-checkpoint"
            aside = path.with_suffix(".tmp")
            aside.write_bytes(checkpoint)
            aside.rename(path)
            self._broker.words[tip.topic, tip.partition] = Leads(self._epoch, END_OFFSET)
        gc.collect()
        await self._say(followers=tips)
        began = perf_counter()
        await self._say(leaders=tips)
        while True:
            try:
                await self._plugin.look_up(of, 0, 5, with_txn_index=with_txn_index)
            except ToldError:
                await asyncio.sleep(POLL_S)
            else:
                return perf_counter() - began

    async def _say(
        self,
        leaders: Sequence[TopicIdPartition] = (),
        followers: Sequence[TopicIdPartition] = (),
    ) -> None:
        plugin = self._plugin
        plugin.seq += 1
        said = replace(
            announcement(*leaders, seq=plugin.seq),
            base_seq=plugin.seq - 1,
            followers=tuple(followers),
        )
        await plugin.say(said)


if __name__ == "__main__":
    main()
