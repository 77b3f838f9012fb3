"""Measures the time from the roll of a segment until it is readable remotely, for our plug-in and
Kafka's managers.

`python -m bench.broker_roll [ROLLS]` (60 a side). Two stock brokers run at once and roll segments
of 1 MiB by turns, at random moments of their remote log managers' interval (500 ms). The clock runs
from the acknowledgement of the batch that rolled until the broker names the last offset before it
as its latest tiered one (ListOffsets with -5), asked every 2 ms.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.command_line import numbers
from bench.table import Measure, percentile, write_table
from bench.tiering_brokers import MIB, TIERED, Offsets, Side, kafkas, ours
from tests.real.kafka_clients import NewRecord, flush, open_producer, send

TOPIC = "rolls"
VALUE_BYTES = 100_000
VALUES = 10
"""The number of values in a segment: the next one rolls it."""
INTERVAL_S = 0.5
POLL_S = 0.002
DEADLINE_S = 60.0
ALLOWED_S = 0.1


class Roller:
    """Rolls segments of one broker, and times them."""

    def __init__(self, side: Side, offsets: Offsets) -> None:
        self._offsets = offsets
        self._producer = open_producer(side.broker.bootstrap)
        self._end = 0
        self.took_s: list[float] = []

    async def roll(self) -> None:
        """One segment."""
        fresh = VALUES - (1 if self._end else 0)
        self._send(fresh)
        await asyncio.sleep(random.uniform(0, INTERVAL_S))
        last = self._end - 1
        self._send(1)
        began = perf_counter()
        while await self._offsets.latest_tiered(TOPIC, 0) < last:
            if perf_counter() - began > DEADLINE_S:
                raise TimeoutError(f"offset {last} is not in the tier after {DEADLINE_S} s")
            await asyncio.sleep(POLL_S)
        self.took_s.append(perf_counter() - began)

    def _send(self, count: int) -> None:
        values = (NewRecord(random.randbytes(VALUE_BYTES)) for _ in range(count))
        send(self._producer, TOPIC, 0, values)
        flush(self._producer)
        self._end += count


async def measure(sides: tuple[Side, Side], rolls: int) -> list[list[float]]:
    """Seconds of every roll but the first, of each side."""
    rollers = []
    for side in sides:
        side.broker.create_topic(TOPIC, config={**TIERED, "segment.bytes": str(MIB)})
        rollers.append(Roller(side, await Offsets.open(side.broker)))
    for _ in range(rolls + 1):
        for roller in rollers:
            await roller.roll()
    return [roller.took_s[1:] for roller in rollers]


def main() -> None:
    """Run as many rolls as the command line says."""
    (rolls,) = numbers(__doc__, rolls=60)
    with (
        tempfile.TemporaryDirectory() as folder,
        ours(Path(folder) / "ours") as first,
        kafkas(Path(folder) / "kafkas") as second,
    ):
        mine, theirs = asyncio.run(measure((first, second), rolls))
    bound = median(theirs) + ALLOWED_S
    write_table(
        "Roll until readable remotely",
        [
            Measure("ours", "s", mine, f"median <= {bound:.2f}", median(mine) <= bound),
            Measure("Kafka's, LocalTieredStorage", "s", theirs),
            Measure("ours, p95", "s", [percentile(mine, 95)]),
            Measure("Kafka's, p95", "s", [percentile(theirs, 95)]),
        ],
        packages=("confluent-kafka",),
        notes=(f"remote.log.manager.task.interval.ms = {1000 * INTERVAL_S:.0f}",),
    )


if __name__ == "__main__":
    main()
