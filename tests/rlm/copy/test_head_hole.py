"""Files at the head of the leader's log are gone: by retention, or as damage of this replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_formats.batch_scan import scan
from rlm.control.why_not import WhyNot
from rlm.copy.mending import MendLimits
from rlm.data_plane.read_request import RecordsRequest
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer, NotLeading
from rlmm.records.control_records import OffsetsSkipped
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.replicas import Cluster, cluster, give_up, remove
from tests.rlm.virtual_time import run_virtually

ORDERS = ("orders", 0)
ALL = range(40)


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    """Segments at 0, 10, 20, 30, the active one at 40."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, 40, end=45)
    return log


@dataclass(slots=True)
class Trial:
    """Of a log whose broker says that it starts at 0, until the test says otherwise."""

    path: Path
    log: KafkaLog
    brokers: Cluster | None
    broker: FakeBroker = field(
        default_factory=lambda: FakeBroker({ORDERS: Leads(0, 45)}, local_start=LocalLogStart(0, 0))
    )
    standalone: bool = False
    limits: MendLimits = field(default_factory=MendLimits)

    def run(
        self,
        main: Callable[[Node], Awaitable[None]],
        *,
        after_the_first: Callable[[], object] | None = None,
    ) -> None:
        """`after_the_first`: done to the log once 0 to 9 are copied, and nothing else."""

        async def lived() -> None:
            world = new_world(self.path, (self.log.log_dir,))
            world.replicas = self.brokers
            world.mend_limits = self.limits
            if after_the_first is not None:
                early = FakeBroker({ORDERS: Leads(0, 10)}, local_start=LocalLogStart(0, 0))
                async with world.boot(data_plane=True, broker=early) as node:
                    await node.remote_log.start()
                    await asyncio.sleep(A_FEW_SCANS_S)
                    assert self.finished(node) == [(0, 9)]
                after_the_first()
            broker = None if self.standalone else self.broker
            async with world.boot(data_plane=True, broker=broker) as node:
                await node.remote_log.start()
                await asyncio.sleep(A_FEW_SCANS_S)
                await main(node)

        run_virtually(lived)

    def finished(self, node: Node) -> list[tuple[int, int]]:
        return sorted(node.finished(self.log.partition))

    def lost(self, node: Node) -> list[tuple[int, int]]:
        state = node.metadata.partition_state(self.log.partition)
        assert state is not None
        return [(each.start, each.end) for each in state.lost_ranges]

    def log_start(self, node: Node) -> int:
        state = node.metadata.partition_state(self.log.partition)
        assert state is not None
        return state.log_start_offset

    def why_not(self, node: Node) -> tuple[WhyNot | None, str]:
        page = node.remote_log.status(self.log.partition)
        return page.why_not_copying, page.why_not_text

    async def read(self, node: Node) -> list[int]:
        pieces = node.parts.reads.records(self.log.partition, RecordsRequest(0, 10**9))
        data = b"".join([piece async for piece in pieces])
        return [batch.header.base_offset for batch in scan(data, source="read")]


def retain(log: KafkaLog, *bases: int) -> None:
    for base in bases:
        log.delete_segment(base)


def remove_all(log: KafkaLog, bases: Iterable[int]) -> None:
    for base in bases:
        remove(log, base)


@pytest.mark.parametrize("gone", [(0, 10), (0, 10, 20), (0, 10, 20, 30)])
def test_what_is_gone_at_the_head_is_fetched_where_the_broker_says_its_log_starts_below(
    tmp_path: Path, log: KafkaLog, gone: tuple[int, ...]
) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=ALL))

    async def main(node: Node) -> None:
        assert it.lost(node) == []
        rest = [(base, base + 9) for base in (20, 30) if base not in gone]
        assert it.finished(node) == [(0, 9), (10, gone[-1] + 9), *rest]
        assert await it.read(node) == list(ALL)
        assert list((tmp_path / "mending").iterdir()) == []

    it.run(main, after_the_first=lambda: remove_all(log, gone))


def test_what_is_gone_at_the_head_is_fetched_in_the_epochs_that_began_there_since_the_last_claim(
    tmp_path: Path, log: KafkaLog
) -> None:
    """No batch on this disk proves them; nothing recorded or held contradicts them."""
    log.write(20, end=30, epoch=1)
    log.write(30, 40, end=45, epoch=2)
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=ALL))
    it.broker = FakeBroker({ORDERS: Leads(2, 45)}, local_start=LocalLogStart(0, 0))

    def later() -> None:
        log.set_epochs((0, 0), (1, 20), (2, 30))
        remove_all(log, (0, 10, 20))

    async def main(node: Node) -> None:
        assert it.lost(node) == []
        assert it.finished(node) == [(0, 9), (10, 29), (30, 39)]

    it.run(main, after_the_first=later)


def test_a_tier_that_never_copied_begins_where_the_broker_says_its_log_starts(
    tmp_path: Path, log: KafkaLog
) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=ALL))
    remove_all(log, (0, 10))

    async def main(node: Node) -> None:
        assert it.log_start(node) == 0
        assert it.finished(node) == [(0, 19), (20, 29), (30, 39)]
        assert it.lost(node) == []

    it.run(main)


@pytest.mark.parametrize("standalone", [False, True])
def test_local_retention_takes_the_head_and_what_was_not_copied_is_lost_at_once(
    tmp_path: Path, log: KafkaLog, standalone: bool
) -> None:
    brokers = cluster(log, b1=ALL, b2=ALL)
    it = Trial(tmp_path, log, brokers)
    it.broker.local_start = LocalLogStart(30, 0)
    it.standalone = standalone

    async def main(node: Node) -> None:
        assert it.lost(node) == [(10, 29)]
        assert it.finished(node) == [(0, 9), (30, 39)]
        assert brokers.asked == []

    it.run(main, after_the_first=lambda: retain(log, 0, 10, 20))


def test_what_retention_took_is_lost_and_what_is_gone_above_it_is_fetched(
    tmp_path: Path, log: KafkaLog
) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=ALL))
    it.broker.local_start = LocalLogStart(20, 0)

    async def main(node: Node) -> None:
        assert it.lost(node) == [(10, 19)]
        assert it.finished(node) == [(0, 9), (20, 29), (30, 39)]

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10, 20)))


def test_nothing_is_decided_while_the_broker_does_not_say_where_its_log_starts(
    tmp_path: Path, log: KafkaLog
) -> None:
    brokers = cluster(log, b1=ALL, b2=ALL)
    it = Trial(tmp_path, log, brokers)
    it.broker.local_start = NoAnswer("it is busy")

    async def main(node: Node) -> None:
        assert it.lost(node) == []
        assert it.why_not(node)[0] is WhyNot.BROKER_UNAVAILABLE
        assert "it is busy" in it.why_not(node)[1]
        assert brokers.asked == []

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10)))


@pytest.mark.parametrize("standalone", [False, True])
def test_the_written_log_start_of_a_deleted_topic_of_the_same_name_loses_nothing(
    tmp_path: Path, log: KafkaLog, *, standalone: bool
) -> None:
    """A broker that was down when the topic was made anew has not written its checkpoint since."""
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=ALL), standalone=standalone)

    def damaged() -> None:
        remove_all(log, (0, 10, 20))
        log.set_log_start(25)

    async def main(node: Node) -> None:
        assert it.lost(node) == []
        assert it.finished(node) == [(0, 9), (10, 29), (30, 39)]

    it.run(main, after_the_first=damaged)


def test_a_tier_does_not_begin_at_the_written_log_start_of_a_deleted_topic(
    tmp_path: Path, log: KafkaLog
) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=ALL))
    remove_all(log, (0,))
    log.set_log_start(10)

    async def main(node: Node) -> None:
        assert it.log_start(node) == 0
        assert await it.read(node) == list(ALL)

    it.run(main)


def test_only_what_no_replica_sends_is_given_up_of_it(tmp_path: Path, log: KafkaLog) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=range(20, 40), b2=[12, 13, *range(18, 40)]))

    async def main(node: Node) -> None:
        await give_up(node)
        await asyncio.sleep(A_FEW_SCANS_S)
        assert it.lost(node) == [(10, 11), (14, 17)]
        assert it.finished(node) == [(0, 9), (12, 13), (18, 19), (20, 29), (30, 39)]
        assert await it.read(node) == [*range(10), 12, 13, *range(18, 40)]

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10)))


def test_a_broker_that_leads_no_more_when_all_have_answered_records_nothing(
    tmp_path: Path, log: KafkaLog
) -> None:
    """Another replica leads since, with another log."""
    it = Trial(tmp_path, log, cluster(log, b1=range(20, 40)))
    assert it.brokers is not None

    def answered(_: int, data: bytes) -> bytes:
        it.broker.words = {ORDERS: NotLeading()}
        return data

    it.brokers.damage = answered

    async def main(node: Node) -> None:
        assert (it.lost(node), it.finished(node)) == ([], [(0, 9)])

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10)))


def test_a_replica_that_is_down_keeps_it_waiting_and_told_until_an_admin_skips(
    tmp_path: Path, log: KafkaLog
) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=None))

    async def main(node: Node) -> None:
        assert (it.lost(node), it.finished(node)) == ([], [(0, 9)])
        why, text = it.why_not(node)
        assert why is WhyNot.BLOCKED
        assert "offsets 10 to 19" in text
        assert "broker 2: it is down" in text
        assert "allow-gaps" not in text
        state = node.metadata.partition_state(log.partition)
        damage = node.remote_log.damage_of(log.partition)
        assert state is not None
        assert state.claim is not None
        assert damage is not None
        assert damage.missing == ((10, 19),)
        await node.metadata.skip_offsets(
            OffsetsSkipped(log.partition, state.claim.token, 10, 19, "skipped by ann: no copy")
        )
        node.remote_log.try_again(log.partition)
        await asyncio.sleep(A_FEW_SCANS_S)
        assert it.lost(node) == [(10, 19)]
        assert it.finished(node) == [(0, 9), (20, 29), (30, 39)]

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10)))


def test_retention_that_passes_the_hole_ends_the_waiting(tmp_path: Path, log: KafkaLog) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=None))

    async def main(node: Node) -> None:
        assert it.why_not(node)[0] is WhyNot.BLOCKED
        it.broker.local_start = LocalLogStart(20, 0)
        await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
        assert it.lost(node) == [(10, 19)]
        assert it.finished(node) == [(0, 9), (20, 29), (30, 39)]

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10)))


def test_a_directory_alone_tells_it_by_its_first_leader_epoch(
    tmp_path: Path, log: KafkaLog
) -> None:
    it = Trial(tmp_path, log, None, standalone=True)
    remove_all(log, (0, 10))

    async def main(node: Node) -> None:
        assert (it.lost(node), it.log_start(node), it.finished(node)) == ([], 0, [])
        assert it.why_not(node)[0] is WhyNot.BLOCKED
        assert "no broker is configured" in it.why_not(node)[1]

    it.run(main)


def turn_to_zeros(log: KafkaLog, base: int) -> None:
    path = log.directory / f"{base:020d}.log"
    path.write_bytes(bytes(path.stat().st_size))


def swap(log: KafkaLog, one: int, other: int) -> None:
    paths = [log.directory / f"{base:020d}.log" for base in (one, other)]
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)


def cut(log: KafkaLog, base: int, *, bytes_more: int) -> None:
    path = log.directory / f"{base:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 10 * 4 + bytes_more])


def rename(log: KafkaLog, base: int, to: int) -> None:
    for path in log.directory.glob(f"{base:020d}.*"):
        if path.suffix != ".snapshot":
            path.rename(path.with_name(f"{to:020d}{path.suffix}"))


DAMAGES: dict[str, Callable[[KafkaLog], object]] = {
    "head": lambda log: remove(log, 0),
    "several first": lambda log: remove_all(log, (0, 10, 20)),
    "middle": lambda log: remove(log, 10),
    "last sealed": lambda log: remove(log, 30),
    "two at once": lambda log: remove_all(log, (10, 30)),
    "head and middle": lambda log: remove_all(log, (0, 20)),
    "all sealed": lambda log: remove_all(log, (0, 10, 20, 30)),
    "an index left in the middle": lambda log: (log.directory / f"{20:020d}.log").unlink(),
    "an index left at the head": lambda log: (log.directory / f"{0:020d}.log").unlink(),
    "cut at a batch": lambda log: cut(log, 30, bytes_more=0),
    "cut in a batch": lambda log: cut(log, 30, bytes_more=30),
    "head cut": lambda log: cut(log, 0, bytes_more=0),
    "zeros": lambda log: turn_to_zeros(log, 20),
    "zeros at the head": lambda log: turn_to_zeros(log, 0),
    "swapped": lambda log: swap(log, 10, 20),
    "swapped with the head": lambda log: swap(log, 0, 30),
    "a name too high": lambda log: rename(log, 10, 13),
    "a name too low": lambda log: rename(log, 20, 17),
    "the head's name too high": lambda log: rename(log, 0, 4),
    "an empty file": lambda log: (log.directory / f"{20:020d}.log").write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_wherever_it_is_damaged_every_record_comes_from_the_other_replica(
    tmp_path: Path, log: KafkaLog, damage: str
) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=ALL))
    DAMAGES[damage](log)

    async def main(node: Node) -> None:
        await asyncio.sleep(A_FEW_SCANS_S)
        assert it.lost(node) == []
        assert it.log_start(node) == 0
        assert await it.read(node) == list(ALL)

    it.run(main)


@pytest.mark.parametrize("damage", DAMAGES)
def test_wherever_it_is_damaged_nothing_is_lost_while_a_replica_is_down(
    tmp_path: Path, log: KafkaLog, damage: str
) -> None:
    it = Trial(tmp_path, log, cluster(log, b1=[], b2=None))
    DAMAGES[damage](log)

    async def main(node: Node) -> None:
        assert it.lost(node) == []
        assert it.log_start(node) in (-1, 0)
        assert it.why_not(node)[0] is WhyNot.BLOCKED

    it.run(main)
