"""Every reason has its row, OPERATIONS shows the table, and what stands for long is told."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.control.node_problem import ProblemArea
from rlm.control.reasons import AREAS, WHY_NOT, page
from rlm.control.run_events import SegmentFailed
from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import Leads, NoAnswer
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.virtual_time import run_virtually

OPERATIONS = Path(__file__).resolve().parents[3] / "docs" / "OPERATIONS.md"
BEGIN, END = "<!-- reasons: written by `make golden` -->\n", "<!-- end of reasons -->\n"


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def test_each_reason_and_each_area_has_its_row() -> None:
    assert set(WHY_NOT) == set(WhyNot)
    assert set(AREAS) == set(ProblemArea)


def test_reasons_have_words_of_their_own() -> None:
    said = [reason.says for reason in WHY_NOT.values()]
    assert len(set(said)) == len(said)
    for reason in WHY_NOT.values():
        assert reason.meaning
        assert reason.action
        assert len(reason.says) <= 24  # a column of `strandline partitions`


def test_the_golden_tables_of_operations_are_those_of_the_code() -> None:
    text = OPERATIONS.read_text()
    before, rest = text.split(BEGIN)
    shown, after = rest.split(END)
    if os.environ.get("STRANDLINE_GOLDEN") == "rewrite":
        OPERATIONS.write_text(f"{before}{BEGIN}\n{page()}\n{END}{after}")
        return
    assert shown == f"\n{page()}\n", "run `make golden` and look at the change"


def told(node: Node) -> dict[tuple[str, str | None], str]:
    return {(each.area.value, each.name): each.text for each in node.remote_log.node_problems()}


def test_a_copy_that_fails_before_its_row_is_told_and_counted_within_half_a_minute(
    tmp_path: Path, orders: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        down = False

        async def hook(step: str) -> None:
            if down and step.startswith(("before get", "before head", "before put")):
                raise RetryLater("connection refused")

        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(1)
            orders.write(20, 30, end=35)
            down = True
            await asyncio.sleep(30)
            failed = [each for each in node.events if isinstance(each, SegmentFailed)]
            assert {(each.segment_id, each.kind) for each in failed} == {(None, "retry_later")}
            problems = told(node)
            text = problems["partitions", "back_off"]
            assert text.startswith("1 partition is not copied (backing off): orders-0: segment")
            assert "connection refused" in text
            lines = [each for each in caplog.messages if each.startswith("problem with partitions")]
            assert len(lines) == 1
            await asyncio.sleep(1_200)
            still = [each for each in caplog.messages if each.startswith("still: problem with p")]
            assert len(still) == 2
            await node.remote_log.close()

    run_virtually(main)


def test_a_directory_that_was_unreadable_from_the_start_on_is_told(
    tmp_path: Path, orders: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rlm.control.trouble_report")
    checkpoint = orders.directory / "leader-epoch-checkpoint"
    right = checkpoint.read_bytes()
    internal = KafkaLog.create(orders.log_dir, "__consumer_offsets", entries=((0, 0),))
    internal.write(0, end=5)
    for log in (orders, internal):
        (log.directory / checkpoint.name).write_bytes(b"\x00 nonsense")

    async def main() -> None:
        key = ("partitions", "unusable_directory")
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s * 3)
            text = told(node)[key]
            assert text.startswith("1 partition is not copied (unusable directory): orders-0: ")
            assert checkpoint.name in text
            assert f"problem with partitions unusable_directory: {text}" in caplog.messages
            checkpoint.write_bytes(right)
            await asyncio.sleep(LIMITS.scan_interval_s * 3)
            assert key not in told(node)
            await node.remote_log.close()
        checkpoint.write_bytes(b"\x00 nonsense")
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s * 3)
            assert key in told(node)
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            assert checkpoint.name in page.why_not_text
            await node.remote_log.close()

    run_virtually(main)


def test_a_silent_broker_is_told_and_is_over_once_it_answers(
    tmp_path: Path, orders: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        caplog.set_level("INFO", "rlm.control.trouble_report")
        where = (orders.partition.topic, orders.partition.partition)
        broker = FakeBroker({where: NoAnswer("the broker at :9092 does not answer")})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s * 3)
            key = ("partitions", "broker_unavailable")
            assert told(node)[key] == (
                "1 partition is not copied (broker unavailable): orders-0: the broker at :9092 "
                "does not answer"
            )
            broker.words[where] = Leads(0, 25)
            await asyncio.sleep(LIMITS.scan_interval_s * 2)
            assert key not in told(node)
            assert "over: problem with partitions broker_unavailable" in caplog.messages
            await node.remote_log.close()

    run_virtually(main)
