"""Reads a topic with aiokafka until every wanted record came, and prints their places."""

from __future__ import annotations

import argparse
import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition

POLL_DEADLINE_S = 30


async def read(given: argparse.Namespace) -> None:
    """Print `record PARTITION OFFSET` for each, then `end PARTITION OFFSET`."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=given.group or None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(given.topic, number) for number in range(given.partitions)]
        if given.group:
            consumer.subscribe([given.topic])
        else:
            consumer.assign(partitions)
            for each in partitions:
                consumer.seek(each, 0)
        found = 0
        while found < given.wanted:
            batches = await asyncio.wait_for(consumer.getmany(timeout_ms=1_000), POLL_DEADLINE_S)
            for partition, records in batches.items():
                for record in records:
                    print("record", partition.partition, record.offset)
                    found += 1
        if given.group:
            await consumer.commit()
        for partition, end in (await consumer.end_offsets(partitions)).items():
            print("end", partition.partition, end)
    finally:
        await consumer.stop()


def main() -> None:
    """Read as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "topic", "group"):
        parser.add_argument(f"--{name}", default="")
    for name in ("partitions", "wanted"):
        parser.add_argument(f"--{name}", type=int, default=0)
    asyncio.run(read(parser.parse_args()))


if __name__ == "__main__":
    main()
