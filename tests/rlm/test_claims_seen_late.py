"""Claims of a node that sees a restart from a snapshot, or a broken directory, as it claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlm.control.run_events import PartitionClaimed
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.partition_work import PartitionWork
from rlm.leadership.leadership import Leads
from tests.rlm.after_disaster import ANEW
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.reconcile.test_lost_claims import served, snapshot_then_epoch_1
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.state_world import epochs

ORDERS = ("orders", 0)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


@pytest.mark.parametrize("seen_at", ["catch_up", "register"])
def test_a_restart_that_is_seen_as_it_claims_is_adopted_before_the_claim(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch, seen_at: str
) -> None:
    """A node that began empty and gets the snapshot from the others: its claim contains the epochs
    that only the store has.
    """

    async def main() -> None:
        anew, before = await snapshot_then_epoch_1(tmp_path, orders, orders)
        orders.set_epochs((1, 40), (4, 45))
        broker = FakeBroker({ORDERS: Leads(4, 45)})
        async with anew.boot(data_plane=True, directory_id=ANEW, broker=broker) as node:
            metadata, unseen = node.metadata, [True]
            restart, state, catch_up = metadata.restart, metadata.partition_state, metadata.catch_up
            claim = PartitionDriver._claim

            async def caught_up(**deadline: Any) -> None:
                await catch_up(**deadline)
                unseen.clear()

            async def claimed(driver: PartitionDriver, work: PartitionWork, epoch: int) -> None:
                if seen_at == "register":
                    unseen.clear()
                await claim(driver, work, epoch)

            monkeypatch.setattr(metadata, "restart", lambda: None if unseen else restart())
            monkeypatch.setattr(
                metadata, "partition_state", lambda each: None if unseen else state(each)
            )
            monkeypatch.setattr(metadata, "catch_up", caught_up)
            monkeypatch.setattr(PartitionDriver, "_claim", claimed)
            await node.remote_log.run_once()
            now = state(orders.partition)
            assert now is not None
            assert now.lineage == epochs((0, 0), (1, 20), (4, 45))
            assert served(node, orders) == before
            assert not now.adopting

    run_virtually(main)


def test_a_directory_that_broke_as_the_claim_waited_is_not_claimed(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 10)})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            orders.set_epochs((0, 0), (3, 25))
            broker.words[ORDERS] = Leads(3, 10)
            claim, works = PartitionDriver._claim, list[PartitionWork]()

            async def claimed(driver: PartitionDriver, work: PartitionWork, epoch: int) -> None:
                works.append(work)
                await claim(driver, work, epoch)

            async def broke(**_deadline: Any) -> None:
                works[-1].unusable = Wait(WhyNot.UNUSABLE_DIRECTORY, "not readable")

            monkeypatch.setattr(PartitionDriver, "_claim", claimed)
            monkeypatch.setattr(node.metadata, "catch_up", broke)
            report = await node.remote_log.run_once()
            assert report.partitions[0].why_not is WhyNot.UNUSABLE_DIRECTORY
            claims = [each for each in node.events if isinstance(each, PartitionClaimed)]
            assert [each.leader_epoch for each in claims] == [0]

    run_virtually(main)
