"""Claims with a broker: who copies, up to which offset, and what happens when leadership moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest, NotFound, RetryLater
from rlm.control.run_events import ClaimLost, PartitionClaimed, SegmentDeleted
from rlm.control.why_not import WhyNot
from rlm.copy.partition_status import Role
from rlm.fetch.follower_start import FollowerFetchAnswer, FollowerFetchQuery, FollowerPlan
from rlm.fetch.list_offsets import OffsetAnswer, OffsetSpec
from rlm.leadership.leadership import (
    BrokerWord,
    Leads,
    LocalLogStart,
    NoAnswer,
    NotLeading,
    TopicConfig,
)
from rlmm.partition_state import Mode
from rlmm.records.control_records import ClaimReset, PartitionClaim
from rlmm.segment import Incarnation
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import CLEANED_UP_AFTER_S, Node, Steps, new_world
from tests.rlm.planner_facts import epochs, uuid
from tests.rlm.virtual_time import run_virtually

ORDERS = ("orders", 0)
LATEST_TIERED = int(OffsetSpec.LATEST_TIERED)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def test_the_brokers_last_stable_offset_bounds_what_is_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 19)})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert [each.start_offset for each in report.copied] == [0]
            assert report.partitions[0].why_not is WhyNot.WAITING_FOR_LSO
            assert not report.complete
            broker.words[ORDERS] = Leads(0, 20)
            assert len((await node.remote_log.run_once()).copied) == 1

    run_virtually(main)


@pytest.mark.parametrize(
    ("word", "role", "why"),
    [
        (NotLeading(), Role.FOLLOWER, WhyNot.NOT_LEADER),
        (NoAnswer("connection refused"), Role.UNKNOWN, WhyNot.BROKER_UNAVAILABLE),
        (Leads(1, 25), Role.LEADER, WhyNot.EPOCH_NOT_ON_DISK),
        (None, Role.UNKNOWN, WhyNot.BROKER_UNAVAILABLE),
    ],
)
def test_without_the_brokers_word_nothing_is_claimed(
    tmp_path: Path, orders: KafkaLog, word: BrokerWord | None, role: Role, why: WhyNot
) -> None:
    async def main() -> None:
        broker = FakeBroker({} if word is None else {ORDERS: word})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert (report.copied, report.partitions[0].why_not) == ((), why)
            page = node.remote_log.status(orders.partition)
            assert (page.role, page.claim_token) == (role, -1)
            assert node.events == []

    run_virtually(main)


def test_a_leader_replaced_since_the_look_says_nothing_of_where_the_log_begins(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """What it had on its disk says nothing of the log of who leads now."""
    broker = FakeBroker({ORDERS: Leads(0, 25)})

    async def replaced(name: str) -> None:
        if name == "before claim_partition":
            broker.words[ORDERS] = NotLeading()

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(
            broker=broker, hook=replaced
        ) as node:
            report = await node.remote_log.run_once()
            assert report.partitions[0].why_not is WhyNot.NOT_LEADER
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.claim is not None
            assert state.log_start_offset == -1

    run_virtually(main)


def test_a_topic_without_any_cleanup_is_tiered_and_does_not_count_as_compacted(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)}, TopicConfig("", -1, -1, False))
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert report.left_out == ()
            assert report.copied
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.gaps_allowed == ""

    run_virtually(main)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (TopicConfig("compact", -1, -1, False), WhyNot.COMPACTED),
        (TopicConfig("compact,delete", -1, -1, False), WhyNot.COMPACTED),
        (TopicConfig("delete", -1, -1, True), WhyNot.MODE),
    ],
)
def test_compacted_topics_and_those_the_brokers_tier_are_left_out(
    tmp_path: Path, orders: KafkaLog, config: TopicConfig, why: WhyNot
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)}, config)
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert report.copied == ()
            assert [topic for topic, _ in report.left_out] == ["orders"]
            page = node.remote_log.status(orders.partition)
            assert (page.role, page.why_not_copying) == (Role.NOT_TIERED, why)

    run_virtually(main)


def test_an_unknown_topic_configuration_is_no_permission(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)}, NoAnswer("timed out"))
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert report.partitions[0].why_not is WhyNot.BROKER_UNAVAILABLE
            assert report.partitions[0].text == "timed out"

    run_virtually(main)


def test_a_higher_epoch_on_the_same_broker_is_claimed_and_copying_goes_on(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 10)})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            orders.set_epochs((0, 0), (3, 25))
            broker.words[ORDERS] = Leads(3, 25)
            await asyncio.sleep(30)
            claims = [each for each in node.events if isinstance(each, PartitionClaimed)]
            assert [each.leader_epoch for each in claims] == [0, 3]
            assert len(node.finished(orders.partition)) == 2
            assert node.remote_log.status(orders.partition).claim_token == claims[1].token
            await node.remote_log.close()

    run_virtually(main)


def test_an_upload_survives_an_epoch_bump_that_stays_on_the_node(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def hook(name: str) -> None:
        if name == "before put .indexes":
            await asyncio.sleep(30)

    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker, hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(10)
            orders.set_epochs((0, 0), (3, 25))
            broker.words[ORDERS] = Leads(3, 25)
            await asyncio.sleep(100)
            assert len(node.finished(orders.partition)) == 2
            assert len(node.pool.jobs) == 2
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def test_losing_leadership_cancels_the_copy_and_the_next_leadership_cleans_up(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        steps = Steps("before put .indexes")
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker, hook=steps) as node:
            await node.remote_log.start()
            await steps.stopped.wait()
            broker.words[ORDERS] = NotLeading()
            await asyncio.sleep(30)
            page = node.remote_log.status(orders.partition)
            assert (page.role, page.why_not_copying) == (Role.FOLLOWER, WhyNot.NOT_LEADER)
            assert page.copying is None
            assert [type(each) for each in node.events].count(ClaimLost) == 1
            assert len(node.metadata.left_overs(orders.partition)) == 1
            steps.stopped.clear()
            orders.set_epochs((0, 0), (2, 25))
            broker.words[ORDERS] = Leads(2, 25)
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            assert len(node.finished(orders.partition)) == 2
            assert [type(each) for each in node.events].count(SegmentDeleted) == 1
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


async def claim_elsewhere(node: Node, orders: KafkaLog, epoch: int) -> int:
    other = Incarnation(7, uuid(77), 1)
    checkpoint = epochs((0, 0)) if epoch == 0 else epochs((0, 0), (epoch, 20))
    answer = await node.metadata.claim_partition(
        PartitionClaim(orders.partition, Mode.SIDECAR, epoch, other, 1, checkpoint)
    )
    return answer.token


def test_a_node_that_was_overtaken_is_fenced_and_deletes_nothing(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker) as node:

            async def hook(name: str) -> None:
                if name == "after upload":
                    await claim_elsewhere(node, orders, 5)

            node.pool.hook = hook
            report = await node.remote_log.run_once()
            assert report.copied == ()
            assert report.partitions[0].why_not is WhyNot.CLAIMED_ELSEWHERE
            (left,) = node.metadata.left_overs(orders.partition)
            assert len([key for key in await node.keys() if str(left.segment_id.id) in key]) == 3
            assert [type(each) for each in node.events].count(ClaimLost) == 1

    run_virtually(main)


def test_a_claim_that_skips_epochs_sees_all_earlier_claims_first(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim is made from the metadata here, which may lag behind another leader's claim."""

    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 10)})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            awaited: list[int] = []

            async def catch_up(*, deadline_s: float) -> None:
                awaited.append(len(node.events))
                if len(awaited) == 2:  # what was unseen is a claim of an epoch that is newer
                    await claim_elsewhere(node, orders, 8)

            monkeypatch.setattr(node.metadata, "catch_up", catch_up)
            await node.remote_log.run_once()
            for epoch, waits in ((1, 0), (3, 1), (4, 1), (6, 2)):
                orders.set_epochs((0, 0), (epoch, 25))
                broker.words[ORDERS] = Leads(epoch, 10)
                await node.remote_log.run_once()
                assert len(awaited) == waits, epoch
            claims = [each for each in node.events if isinstance(each, PartitionClaimed)]
            assert [each.leader_epoch for each in claims] == [0, 1, 3, 4]
            assert not any(isinstance(each, PartitionClaimed) for each in node.events[awaited[1] :])

    run_virtually(main)


def test_another_nodes_left_overs_are_cleaned_up_by_the_new_leader(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        steps = Steps("before put .indexes")
        other = FakeBroker({ORDERS: Leads(0, 25)})
        async with world.boot(broker=other, hook=steps, node_id=2, directory_id=uuid(22)) as node:
            running = asyncio.create_task(node.remote_log.run_once(), name="drive run_once")
            await steps.stopped.wait()
        await asyncio.gather(running, return_exceptions=True)
        orders.set_epochs((0, 0), (1, 25))
        async with world.boot(broker=FakeBroker({ORDERS: Leads(1, 25)})) as node:
            await node.remote_log.start()
            await asyncio.sleep(1_000)
            assert len(node.finished(orders.partition)) == 2
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_a_refused_claim_is_shown_and_made_again_after_an_admins_reset(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            token = await claim_elsewhere(node, orders, 0)
            await node.remote_log.start()
            await asyncio.sleep(30)
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.CLAIMED_ELSEWHERE
            assert page.claimed_by_node == 7
            await node.metadata.reset_claim(ClaimReset(orders.partition, token))
            await asyncio.sleep(30)
            assert len(node.finished(orders.partition)) == 2
            await node.remote_log.close()

    run_virtually(main)


def test_a_followers_question_is_taken_to_the_broker(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)}, local_start=LocalLogStart(20, 0))
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            query = FollowerFetchQuery(orders.partition, 5, 0)
            answer = await node.parts.answers.follower_fetch(query)
            assert (answer.plan, answer.fetch_offset) == (FollowerPlan.BUILD_FROM_TIER, 20)
            broker.local_start = NoAnswer("timed out")
            with pytest.raises(RetryLater, match="timed out"):
                await node.parts.answers.follower_fetch(query)
            broker.local_start = NotLeading()
            with pytest.raises(InvalidRequest, match="does not lead"):
                await node.parts.answers.follower_fetch(query)

    run_virtually(main)


def test_that_nothing_is_tiered_is_said_of_no_partition_whose_leadership_just_changed(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 0)}, local_start=LocalLogStart(20, 0))
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            ask, tip = node.parts.answers, orders.partition
            query = FollowerFetchQuery(tip, 5, 0, leader_local_log_start_offset=20)

            async def answered() -> list[object]:
                return await asyncio.gather(
                    ask.follower_fetch(query),
                    *(ask.offsets(tip, each) for each in (LATEST_TIERED, 0)),
                    return_exceptions=True,
                )

            await asyncio.sleep(1)
            assert [type(each) for each in await answered()] == [NotFound] * 3
            await not_ready(node, answered)
            await node.remote_log.run_once()  # claims it, and copies nothing
            await not_ready(node, answered)
            await asyncio.sleep(1)
            follower, *offsets = await answered()
            assert isinstance(follower, FollowerFetchAnswer)
            assert follower.plan is FollowerPlan.TRUNCATE_FULLY
            assert [each.offset for each in offsets if isinstance(each, OffsetAnswer)] == [-1, -1]

    async def not_ready(node: Node, answered: Callable[[], Awaitable[list[object]]]) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(node.metadata, "is_ready", lambda _: False)
            refused = await answered()
        assert [type(each) for each in refused] == [RetryLater] * 3
        assert all("not ready" in str(each) for each in refused)

    run_virtually(main)


def test_the_metadata_hears_of_each_new_leadership_once_and_of_a_silent_broker_never(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 20)})
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            heard: list[BrokerWord] = []
            word: BrokerWord
            node.metadata.on_partition_leadership_changes = (  # type: ignore[method-assign]
                lambda tips: heard.extend([word] * len(list(tips)))
            )
            words = (
                Leads(0, 20), Leads(0, 25), NoAnswer("down"), Leads(0, 25), NotLeading(),
                NotLeading(), NoAnswer("down"), Leads(1, 25), NotLeading(),
            )  # fmt: skip
            for word in words:
                broker.words[ORDERS] = word
                await node.remote_log.run_once()
            assert heard == [Leads(0, 20), NotLeading(), Leads(1, 25), NotLeading()]

    run_virtually(main)
