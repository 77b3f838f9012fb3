"""A policy that follows DeleteRecords: log start moves with what is proven, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import encode_partition_metadata
from rlm.copy.scanner import TopicPartition
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer, NotLeading
from rlm.node_files.kill_switches import Switch
from rlm.retention.delete_records_follower import DeleteRecordsFollower
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import LogStart, TopicPolicyChange
from tests.rlm.fake_broker import DELETE, FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.test_service_retention import GONE_AFTER_S, log_start, three_segments
from tests.rlm.virtual_time import run_virtually

ORDERS = ("orders", 0)


async def nothing_happens() -> None:
    pass


@dataclass(slots=True)
class AskedBroker(FakeBroker):
    """`between` happens while it is asked where its log starts."""

    between: Callable[[], Awaitable[object]] = field(default=nothing_happens)

    async def local_log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LocalLogStart | NotLeading | NoAnswer]:
        between, self.between = self.between, nothing_happens
        await between()
        return dict.fromkeys(partitions, self.local_start)


@asynccontextmanager
async def copied(
    tmp_path: Path, log: KafkaLog, *, follow: bool = True
) -> AsyncIterator[tuple[Node, AskedBroker, DeleteRecordsFollower]]:
    """A node beside a broker that has copied three segments, [0, 30)."""
    broker = AskedBroker({ORDERS: Leads(0, 100)})
    world = new_world(tmp_path, (log.log_dir,))
    async with world.boot(data_plane=True, broker=broker) as node:
        await node.remote_log.run_once()
        assert node.finished(log.partition) == [(0, 9), (10, 19), (20, 29)]
        policy = TopicPolicy(follow_delete_records=follow)
        await node.metadata.set_topic_policy(TopicPolicyChange("orders", policy, -1))
        parts = node.parts
        yield node, broker, DeleteRecordsFollower(parts.expirer, broker, parts.around.ambient)


def test_log_start_follows_what_was_seen_to_move_into_a_segment(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log) as (node, broker, follower):
            await follower.run_pass()
            broker.local_start = LocalLogStart(15, 1)
            await follower.run_pass()
            assert (log_start(node, log), follower.problems()) == (15, ())
            await node.parts.expirer.run_pass()
            await asyncio.sleep(GONE_AFTER_S)
            assert node.finished(log.partition) == [(10, 19), (20, 29)]

    run_virtually(main)


def test_what_is_not_copied_yet_is_followed_once_it_is(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log) as (node, broker, follower):
            await follower.run_pass()
            broker.local_start = LocalLogStart(33, 1)
            await follower.run_pass()
            assert log_start(node, log) == 30
            assert follower.known[log.partition].proven == 33

    run_virtually(main)


def test_a_log_start_on_the_border_of_a_segment_is_told_and_not_followed(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log) as (node, broker, follower):
            await follower.run_pass()
            broker.local_start = LocalLogStart(20, 1)
            await follower.run_pass()
            (problem,) = follower.problems()
            assert "retention delete-records orders 0 --before 20" in problem.text
            assert log_start(node, log) == 0
            broker.config = replace(DELETE, retention_ms=1000)
            await follower.run_pass()
            assert follower.problems() == (), "the broker's retention moves it all the time"
            broker.config = replace(broker.config, cleanup_policy="")
            await follower.run_pass()
            assert follower.problems() == (problem,), "nothing but DeleteRecords does"
            broker.config = DELETE
            await node.parts.expirer.delete_records(log.partition, 20, apply=True)
            await follower.run_pass()
            assert follower.problems() == ()

    run_virtually(main)


def test_a_log_start_that_was_there_at_the_first_look_is_not_followed(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log) as (node, broker, follower):
            broker.local_start = LocalLogStart(15, 1)
            await follower.run_pass()
            await follower.run_pass()
            assert (log_start(node, log), len(follower.problems())) == (0, 1)

    run_virtually(main)


@pytest.mark.parametrize("said", [Uuid(bytes(15) + b"\x33"), NoAnswer("it is away")])
def test_a_topic_made_again_beside_a_directory_that_stays_says_nothing_about_it(
    tmp_path: Path, said: Uuid | NoAnswer
) -> None:
    """Its log directory is offline and can be read; the new one is not in `kafka.log_dirs`."""
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log) as (node, broker, follower):
            await follower.run_pass()
            broker.ids = {"orders": said}
            broker.local_start = LocalLogStart(15, 1)
            await follower.run_pass()
            assert log_start(node, log) == 0
            broker.ids = {"orders": log.partition.topic_id}
            await follower.run_pass()
            assert log_start(node, log) == 15

    run_virtually(main)


def test_a_topic_that_was_made_again_says_nothing_about_the_one_before(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log) as (node, broker, follower):
            metadata = log.directory / "partition.metadata"
            metadata.write_bytes(encode_partition_metadata(Uuid(bytes(15) + b"\x33")))
            await follower.run_pass()
            broker.local_start = LocalLogStart(15, 1)
            await follower.run_pass()
            assert log_start(node, log) == 0

    run_virtually(main)


def test_what_fails_is_told_until_it_works(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def fails(_: LogStart, *, deadline_s: float) -> None:
        raise RetryLater(f"no majority answered within {deadline_s:g} s")

    async def main() -> None:
        async with copied(tmp_path, log) as (node, broker, follower):
            await follower.run_pass()
            broker.local_start = LocalLogStart(15, 1)
            with pytest.MonkeyPatch.context() as patching:
                patching.setattr(node.parts.expirer.metadata, "record_log_start", fails)
                await follower.run_pass()
                await follower.run_pass()
            (problem,) = follower.problems()
            assert "orders-0: no majority answered" in problem.text
            await follower.run_pass()
            assert (log_start(node, log), follower.problems()) == (15, ())

    run_virtually(main)


def test_a_pass_that_fails_is_told_until_one_works(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log) as (_, broker, follower):

            async def fails() -> None:
                raise RetryLater("the disk hangs")

            broker.between = fails
            running = asyncio.create_task(follower.run())
            await asyncio.sleep(0.1)
            (problem,) = follower.problems()
            assert problem.text.endswith("the disk hangs")
            await asyncio.sleep(2 * follower.expirer.around.limits.retention_interval_s)
            assert follower.problems() == ()
            running.cancel()

    run_virtually(main)


@pytest.mark.parametrize("what", ["epoch", "answer", "policy", "policy by now", "paused", "unread"])
def test_nothing_is_followed_where_something_else_is_so(tmp_path: Path, what: str) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log, follow=what != "policy") as (node, broker, follower):
            await follower.run_pass()
            broker.local_start = LocalLogStart(15, 1)
            if what == "epoch":
                broker.words[ORDERS] = Leads(1, 100)
            if what == "policy by now":
                standing = node.metadata.topic_policy("orders")
                change = TopicPolicyChange("orders", TopicPolicy(), standing.offset)
                broker.between = partial(node.metadata.set_topic_policy, change)
            if what == "answer":
                broker.local_start = NoAnswer("it is down")
            if what == "unread":
                (log.log_dir / "orders-0" / "partition.metadata").write_bytes(b"\0")
                await node.remote_log.run_once()
            if what == "paused":
                await node.parts.given.switches.pause(Switch.DELETING, by="an admin")
            await follower.run_pass()
            assert log_start(node, log) == 0
            if what == "paused":
                await node.parts.given.switches.resume(Switch.DELETING, by="an admin")
                await follower.run_pass()
                assert log_start(node, log) == 15, "it is not forgotten"

    run_virtually(main)


def test_a_look_of_an_earlier_claim_is_not_followed_under_a_later_one(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with copied(tmp_path, log) as (node, broker, follower):
            await follower.run_pass()
            broker.local_start = LocalLogStart(15, 1)
            await node.parts.given.switches.pause(Switch.DELETING, by="an admin")
            await follower.run_pass()
            claim = follower.known[log.partition].last.token
            log.set_epochs((0, 0), (1, 35))
            broker.words[ORDERS] = Leads(1, 100)
            broker.local_start = NoAnswer("it is down")
            await node.remote_log.run_once()
            await node.parts.given.switches.resume(Switch.DELETING, by="an admin")
            await follower.run_pass()
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            assert state.claim is not None
            assert state.claim.token > claim, "its broker leads in a later epoch"
            known = follower.known[log.partition]
            assert (known.last.token, known.proven) == (claim, 15), "nothing was seen since"
            assert log_start(node, log) == 0

    run_virtually(main)
