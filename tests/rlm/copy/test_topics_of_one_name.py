"""A log directory goes offline for the broker (its disk is full, say), and its files stay readable.
A topic in it is deleted, and made again in another log directory.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import PARTITION_METADATA_FILE
from kafka_formats.properties import encode_partition_metadata
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import Leads, NoAnswer
from rlm.local_log.replica_directory import ProblemKind
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually

NEW_ID = Uuid(b"orders-made-anew")


def made(log_dir: Path, *, again: bool) -> KafkaLog:
    here = log_dir if log_dir.exists() else new_log_dir(log_dir)
    log = KafkaLog.create(here, "orders", entries=((0, 0),))
    if again:
        log = replace(log, partition=TopicIdPartition("orders", NEW_ID, 0))
        metadata = log.directory / PARTITION_METADATA_FILE
        metadata.write_bytes(encode_partition_metadata(NEW_ID))
    log.write(0, 10, 20, 30, end=35)
    return log


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_topic_that_the_broker_has_is_copied(tmp_path: Path, order: tuple[int, int]) -> None:
    old = made(tmp_path / "full", again=False)
    new = made(tmp_path / "other", again=True)
    broker = FakeBroker({("orders", 0): Leads(0, 35)}, ids={"orders": NEW_ID})
    dirs = [(old.log_dir, new.log_dir)[at] for at in order]

    async def main() -> None:
        async with new_world(tmp_path, tuple(dirs)).boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert len(node.finished(new.partition)) == 3
            assert node.finished(old.partition) == []
            (problem,) = report.problems
            assert (problem.path, problem.kind) == (old.directory, ProblemKind.DUPLICATE)
            assert str(old.partition.topic_id) in problem.message

    run_virtually(main)


def test_what_was_copied_of_the_deleted_topic_stays_as_it_is(tmp_path: Path) -> None:
    old = made(tmp_path / "full", again=False)
    broker = FakeBroker({("orders", 0): Leads(0, 35)}, ids={"orders": old.partition.topic_id})
    dirs = (old.log_dir, new_log_dir(tmp_path / "other"))

    async def main() -> None:
        async with new_world(tmp_path, dirs).boot(broker=broker) as node:
            await node.remote_log.run_once()
            before = node.rows(old.partition)
            new = made(tmp_path / "other", again=True)
            broker.ids["orders"] = NEW_ID
            await node.remote_log.run_once()
            assert len(node.finished(new.partition)) == 3
            assert node.rows(old.partition) == before
            status = node.remote_log.status(old.partition)
            assert status is not None
            assert status.why_not_copying is WhyNot.UNUSABLE_DIRECTORY

    run_virtually(main)


@pytest.mark.parametrize("said", [None, Uuid(b"a third topic id"), NoAnswer("it is away")])
def test_neither_is_copied_while_the_broker_does_not_tell(
    tmp_path: Path, said: Uuid | NoAnswer | None
) -> None:
    old = made(tmp_path / "full", again=False)
    new = made(tmp_path / "other", again=True)
    ids = {} if said is None else {"orders": said}
    broker = FakeBroker({("orders", 0): Leads(0, 35)}, ids=ids)

    async def main() -> None:
        async with new_world(tmp_path, (old.log_dir, new.log_dir)).boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert node.finished(new.partition) == node.finished(old.partition) == []
            assert len(report.problems) == 2

    run_virtually(main)


def test_without_a_broker_neither_is_copied(tmp_path: Path) -> None:
    old = made(tmp_path / "full", again=False)
    new = made(tmp_path / "other", again=True)

    async def main() -> None:
        async with new_world(tmp_path, (old.log_dir, new.log_dir)).boot() as node:
            await node.remote_log.run_once()
            assert node.finished(new.partition) == node.finished(old.partition) == []

    run_virtually(main)
