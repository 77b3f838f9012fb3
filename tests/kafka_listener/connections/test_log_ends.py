"""The ends of logs by their leader's word, as a connection remembers them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections import log_ends, topic_ids
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.client import Client, ReportedEnds
from kafka_listener.connections.log_ends import ENDS_S, LogEnds
from kafka_listener.connections.topic_ids import CHECKED_S, KNOWN_S, TopicIds
from kafka_listener.protocol.fetch import Ends, Wanted
from kafka_listener.protocol.node_rewriting import TopicNameAndId
from kafka_listener.reading.read_port import BrokerLogEnds, TierEnds

ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))
TIP = TopicIdPartition("orders", Uuid(ID), 0)
TIER = TierEnds(0, 200, 3)
TOLD = BrokerLogEnds(4, 150, 290, 300, log_start_offset=150)


@dataclass
class Leader:
    """Answers ListOffsets by its timestamp and isolation; `topic_id` is what it knows now."""

    offsets: dict[tuple[int, int], int]
    topic_id: bytes = ID
    error: int = 0
    reachable: bool = True
    asked: int = 0
    retained: int | None = None
    """Retention takes all below, right behind the next answer."""
    ends: dict[TopicIdPartition, ReportedEnds] = field(default_factory=dict)
    name: str = "broker-1:9092"

    async def twin(self) -> Leader:
        if not self.reachable:
            raise RetryLater("away")
        return self

    async def versions(self) -> dict[int, tuple[int, int]]:
        await self.twin()
        return {2: (1, 11)}

    async def ask(self, _api: int, body: dict[str, Any], *, version_max: int) -> dict[str, Any]:
        self.asked += 1
        (partition,) = body["topics"][0]["partitions"]
        offset = self.offsets[partition["timestamp"], body["isolation_level"]]
        if self.retained is not None:
            self.offsets |= {(-2, 0): self.retained, (-4, 0): self.retained}
        one = {"partition_index": 0, "error_code": self.error, "offset": offset, "leader_epoch": 4}
        return {"topics": [{"name": "orders", "partitions": [one]}]}


class Scene:
    def __init__(self, **more: Any) -> None:
        offsets = {(-2, 0): 150, (-4, 0): 150, (-1, 1): 290, (-1, 0): 300}
        self.leader = Leader(offsets, **more)
        self.now = 100.0
        self.checks, self.check_fails = 0, False
        self.brokers = Brokers((), "", lambda: self.now, lambda: "nonce")
        cast(Any, self.brokers).learn_topics = self._learn_topics
        self.log_ends = LogEnds(self.brokers, lambda: self.now)
        self.client = cast(Client, self.leader)

    async def _learn_topics(self, twin: Leader, names: list[str], ids: list[bytes]) -> None:
        if not names and not ids:
            return
        self.checks += 1
        if self.check_fails:
            raise RetryLater("lost")
        told = [TopicNameAndId("orders", self.leader.topic_id)]
        self.brokers.topics.learn(told, broker=twin.name)

    async def of(self, client: Leader | None = None) -> BrokerLogEnds | int | None:
        asking = self.client if client is None else cast(Client, client)
        return (await self.log_ends.of(asking, [TIP]))[TIP]


async def test_the_leader_is_asked_once_for_a_while() -> None:
    scene = Scene()
    assert await scene.of() == TOLD
    scene.now += ENDS_S / 2
    await scene.of()
    assert scene.leader.asked == 4
    scene.now += ENDS_S
    await scene.of()
    assert scene.leader.asked == 8


async def test_a_topic_that_brokers_tier_has_a_start_below_its_local_one() -> None:
    scene = Scene()
    scene.leader.offsets[-2, 0] = 20
    assert await scene.of() == BrokerLogEnds(4, 150, 290, 300, log_start_offset=20)


async def test_retention_between_two_answers_makes_no_log_start_below_the_local_one() -> None:
    scene = Scene()
    scene.leader.retained = 200
    assert await scene.of() == BrokerLogEnds(4, 200, 290, 300, log_start_offset=200)


async def test_a_disk_begins_nowhere_below_the_log() -> None:
    """Kafka 4.3 answers EARLIEST_LOCAL with 0 once a topic is to be tiered whose head is gone."""
    scene = Scene()
    scene.leader.offsets[-4, 0] = 0
    assert await scene.of() == TOLD


async def test_a_topic_made_anew_under_its_name_is_not_the_one_that_was_asked_for() -> None:
    scene = Scene(topic_id=OTHER_ID)
    assert await scene.of() == 3


async def test_the_id_of_before_names_nothing_once_the_topic_was_made_anew() -> None:
    scene = Scene()
    asked = [Wanted((0, 0), ID, 0, 5, 100)]
    assert await scene.log_ends.resolve(scene.client, asked) == {(ID, 0): TIP}
    scene.leader.topic_id = OTHER_ID
    scene.now += 1.5 * CHECKED_S
    assert await scene.of() == 3
    assert await scene.log_ends.resolve(scene.client, asked) == {}
    again = [Wanted((0, 0), OTHER_ID, 0, 5, 100)]
    (found,) = (await scene.log_ends.resolve(scene.client, again)).values()
    assert found == TopicIdPartition("orders", Uuid(OTHER_ID), 0)


async def test_the_id_of_a_topic_is_checked_once_for_all_clients() -> None:
    """Its Metadata may be long, and every scanning client asks for ends once a second."""
    scene = Scene()
    clients = [Leader(scene.leader.offsets) for _ in range(100)]
    for second in range(3):
        scene.now = 100 + 1.5 * second
        for client in clients:
            assert await scene.of(client) == TOLD
        assert scene.checks == second + 1
    scene.leader.topic_id = OTHER_ID
    scene.now += 1.5
    assert {await scene.of(client) for client in clients} == {3}


async def test_a_broker_that_lags_does_not_answer_about_the_topic_of_before() -> None:
    """Its leader epochs may be higher, and outdo those of the true leader for good."""
    scene = Scene(topic_id=OTHER_ID)
    told_by_another = [TopicNameAndId("orders", ID)]
    scene.brokers.topics.learn(told_by_another, broker="broker-2:9092")
    assert await scene.of() == 3
    scene.brokers.topics.learn(told_by_another, broker="broker-2:9092")
    assert await scene.of() == 3
    scene.leader.topic_id = ID  # it has caught up
    assert await scene.of() == TOLD
    assert scene.checks == 3


async def test_a_topic_that_is_forgotten_meanwhile_for_others_is_still_known_to_its_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Metadata of more topics than are remembered comes while the leader is asked."""
    monkeypatch.setattr(topic_ids, "TOPICS_MAX", 1)
    scene = Scene()
    asked = scene.leader.ask

    async def ask(api: int, body: dict[str, Any], *, version_max: int) -> dict[str, Any]:
        scene.brokers.topics.learn([TopicNameAndId("plans", OTHER_ID)])
        return await asked(api, body, version_max=version_max)

    monkeypatch.setattr(scene.leader, "ask", ask)
    assert await scene.of() == TOLD


async def test_an_id_that_could_not_be_checked_is_checked_by_the_next_client() -> None:
    scene = Scene()
    assert await scene.of() == TOLD
    scene.leader.topic_id = OTHER_ID
    scene.now += 1.5
    scene.check_fails = True
    await scene.of()
    scene.check_fails = False
    assert await scene.of(Leader(scene.leader.offsets)) == 3


def test_while_somebody_asks_for_an_id_the_others_believe_one_of_two_seconds() -> None:
    now = 0.0
    ids = TopicIds(lambda: now)
    assert ids.claim_checks(["orders"]) == ["orders"]
    assert ids.claim_checks(["orders"]) == ["orders"], "nobody knows it yet"
    ids.learn([TopicNameAndId("orders", ID)])
    now = 1.5 * CHECKED_S
    assert ids.claim_checks(["orders", "plans"]) == ["orders", "plans"]
    assert ids.claim_checks(["orders"]) == []
    now = 2.1 * CHECKED_S
    assert ids.claim_checks(["orders"]) == ["orders"], "the answer does not come"


async def test_the_leaders_error_is_handed_on() -> None:
    assert await Scene(error=6).of() == 6


@pytest.mark.parametrize("asked_before", [True, False])
async def test_ends_that_were_told_do_not_fall_while_the_leader_is_away(asked_before: bool) -> None:
    scene = Scene()
    if asked_before:
        await scene.of()
    answer = {"error_code": 0, "high_watermark": 320, "last_stable_offset": 310}
    scene.log_ends.saw(scene.client, TIP, answer)
    scene.leader.reachable = False
    scene.now += 2 * ENDS_S
    told = BrokerLogEnds(4, 150, 310, 320, 150, is_reachable=False)
    assert await scene.of() == (told if asked_before else None)
    assert scene.log_ends.shown(scene.client, TIP, TIER) == Ends(320, 310, 0)


async def test_an_end_that_is_doubted_is_shown_until_the_leader_answers() -> None:
    """A consumer that sees a lower one may begin anew."""
    scene = Scene()
    await scene.of()
    scene.log_ends.doubt(scene.client, TIP)
    scene.leader.reachable = False
    assert await scene.of() is None
    assert scene.log_ends.shown(scene.client, TIP, TIER) == Ends(300, 290, 0)
    scene.leader.reachable = True
    assert await scene.of() == TOLD


async def test_while_no_broker_answers_a_topic_has_the_id_that_was_told_last() -> None:
    scene = Scene()
    asked = [Wanted((0, 0), "orders", 0, 5, 100)]
    assert await scene.log_ends.resolve(scene.client, asked) == {("orders", 0): TIP}
    scene.now += 2 * KNOWN_S
    assert scene.log_ends.resolved(asked) == {}
    scene.leader.reachable = False
    assert await scene.log_ends.resolve(scene.client, asked) == {("orders", 0): TIP}


async def test_more_partitions_than_are_remembered_are_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_ends, "PARTITIONS_MAX", 0)
    scene = Scene()
    assert await scene.of() == TOLD
    assert scene.leader.ends == {}


async def test_without_a_word_of_a_leader_the_tiers_end_is_shown() -> None:
    scene = Scene(reachable=False)
    assert await scene.of() is None
    assert scene.log_ends.shown(scene.client, TIP, TIER) == Ends(200, 200, 0)
    assert scene.log_ends.shown(scene.client, TIP, None) == Ends()


async def test_a_log_is_known_to_begin_above_an_offset_once_its_leader_said_so() -> None:
    scene = Scene()
    answer = {"error_code": 0, "high_watermark": 300, "last_stable_offset": 290}
    scene.log_ends.saw(scene.client, TIP, answer)
    assert not scene.log_ends.begins_above(scene.client, TIP, 149)
    await scene.of()
    assert scene.log_ends.begins_above(scene.client, TIP, 149)
    assert not scene.log_ends.begins_above(scene.client, TIP, 150)
    scene.log_ends.doubt(scene.client, TIP)
    assert not scene.log_ends.begins_above(scene.client, TIP, 149)


async def test_a_log_whose_broker_tiers_does_not_begin_with_its_disk() -> None:
    scene = Scene()
    scene.leader.offsets[-2, 0] = 20
    await scene.of()
    assert not scene.log_ends.begins_above(scene.client, TIP, 149)
    assert scene.log_ends.begins_above(scene.client, TIP, 19)
