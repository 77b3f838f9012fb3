"""One Fetch: what comes from the tier, what from the leader, and what is neither's to give now."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_listener.access.rates import DELAY_S_MAX, WAIT_S_MAX, TierRates
from kafka_listener.access.rights import NO_RIGHTS, Rights
from kafka_listener.connections import shares
from kafka_listener.connections.fetching import PAUSE_S_MAX
from kafka_listener.connections.shares import FIRST_BYTES, SLICE
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.reading.read_port import (
    AbortedFrom,
    BrokerLogEnds,
    FetchAnswer,
    GoToBroker,
    LostOffsets,
    NotAvailable,
    OutOfRange,
)
from kafka_listener.virtual_nodes import virtual_id
from rlmm.records.node_facts import NodeFacts, ReadAddress
from rlmm.rows.nodes import RegisteredNode
from tests.kafka_listener.connections.fetch_scene import ENDS, HOLD_UNTIL_S, ID, OTHER_ID, Scene


async def test_old_offsets_come_from_the_tier_alone() -> None:
    scene = Scene()
    scene.tier.aborted = (AbortedFrom(7, 12),)
    (one,) = await scene.fetch(15)
    assert one["records"] == b"batch 1.batch 2.batch 3."
    assert one["aborted_transactions"] == [{"producer_id": 7, "first_offset": 12}]
    assert (one["high_watermark"], one["last_stable_offset"], one["log_start_offset"]) == (
        100, 90, 0,
    )  # fmt: skip
    assert scene.client.asked == []
    assert scene.slept == []
    assert scene.counts.tier_bytes == 24


async def test_a_worker_answers_further_requests_while_the_leaders_word_lasts() -> None:
    scene = Scene()
    scene.tier.goes_on = True
    await scene.fetch(0)
    assert scene.further is not None
    assert (scene.further.until_s, scene.further.bytes_max) == (HOLD_UNTIL_S, 1_000)
    assert scene.counts.tier_bytes == 32 + 4_000
    assert scene.counts.requests == {"FETCH": 3}
    assert scene.room.held_bytes == 0
    for bytes_max in (16, 8):
        await scene.fetch(0, max_bytes=bytes_max)
        assert scene.further.bytes_max == bytes_max


@pytest.mark.parametrize(
    "otherwise",
    [
        "the tier has something to tell",
        "two",
        "rates",
        "TLS",
        "a request is here",
        "the broker's",
        "old",
    ],
)
async def test_but_not_where_more_than_the_offset_counts(otherwise: str) -> None:
    scene = Scene(rates=TierRates(user_bytes_per_s=1 << 20) if otherwise == "rates" else None)
    scene.tier.goes_on = otherwise != "the tier has something to tell"
    scene.now = HOLD_UNTIL_S if otherwise == "old" else 0.0
    scene.client.connection.is_encrypted = otherwise == "TLS"
    scene.client.connection.leaves_requests = otherwise != "a request is here"
    offset = 40 if otherwise == "the broker's" else 0
    await scene.fetch(*[offset] * (2 if otherwise == "two" else 1))
    assert scene.further is None
    assert scene.counts.requests == {}


async def test_new_offsets_come_from_the_leader_which_waits_as_the_client_says() -> None:
    scene = Scene()
    (one,) = await scene.fetch(40)
    assert one["records"] == b"from the broker"
    assert one["log_start_offset"] == 0
    assert scene.answer["throttle_time"] == 7
    (asked,) = scene.client.asked
    assert (asked["max_wait"], asked["min_bytes"]) == (500, 1)
    assert scene.tier.asked == []


async def test_where_the_tier_has_something_the_leader_answers_for_the_rest_at_once() -> None:
    scene = Scene()
    old, new = await scene.fetch(30, 40)
    assert (old["records"], new["records"]) == (b"batch 3.", b"from the broker")
    (asked,) = scene.client.asked
    assert (asked["max_wait"], asked["min_bytes"]) == (0, 0)


async def test_what_the_tier_leaves_to_the_leader_goes_there() -> None:
    scene = Scene()
    scene.tier.answers = {30: GoToBroker(35)}
    (one,) = await scene.fetch(30)
    assert one["records"] == b"from the broker"
    (asked,) = scene.client.asked
    assert asked["topics"][0]["partitions"][0]["fetch_offset"] == 35, "nothing is below"


async def test_a_partition_that_no_answer_has_room_for_has_its_turn_later() -> None:
    scene = Scene()
    first, second = await scene.fetch(0, 0, max_bytes=8)
    assert (first["records"], second["records"]) == (b"batch 0.", b"")
    assert second["error_code"] == 0


@pytest.mark.parametrize("bytes_max", [0, -1])
async def test_a_client_that_wants_no_bytes_gets_a_first_batch_as_of_a_broker(
    bytes_max: int,
) -> None:
    """`fetch.max.bytes=0` is legal, and would else read nothing for ever."""
    scene = Scene()
    first, second = await scene.fetch(0, 10, max_bytes=bytes_max)
    assert (first["records"], second["records"]) == (b"batch 0.", b"")
    assert scene.slept == []


async def test_a_topic_that_is_not_known_is_the_leaders() -> None:
    scene = Scene(error=3, records=b"")
    (one,) = await scene.fetch(0, topic="unknown")
    assert one["error_code"] == 3


async def test_the_leaders_error_is_the_clients() -> None:
    (one,) = await Scene(6).fetch(0)
    assert one["error_code"] == 6


@pytest.mark.parametrize(
    ("epoch", "told", "error"),
    [
        (3, ENDS, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ENDS, ErrorCode.NONE),
        (5, ENDS, ErrorCode.NONE),  # the leader's report is from before that
        (-1, ENDS, ErrorCode.NONE),
        (3, replace(ENDS, is_reachable=False), ErrorCode.NONE),
        (3, None, ErrorCode.NONE),
    ],
)
async def test_a_client_that_knows_an_earlier_leader_alone_is_fenced_as_by_a_broker(
    epoch: int, told: BrokerLogEnds | None, error: ErrorCode
) -> None:
    """It asks where its epoch ends, and learns that an unclean election replaced what it has read:
    the tier has other records at these offsets by now.
    """
    scene = Scene(told)
    (one,) = await scene.fetch(15, leader_epoch=epoch)
    assert one["error_code"] == error
    assert bool(one["records"]) == (error == ErrorCode.NONE)


async def test_a_topic_is_read_by_its_id_as_by_its_name() -> None:
    scene = Scene()
    old, new = await scene.fetch(30, 40, topic=ID)
    assert (old["records"], new["records"]) == (b"batch 3.", b"from the broker")
    assert scene.answer["responses"][0]["topic_id"] == ID


async def test_an_id_that_nobody_knows_is_told_as_the_leader_tells_it() -> None:
    scene = Scene(error=ErrorCode.UNKNOWN_TOPIC_ID, records=b"")
    (one,) = await scene.fetch(0, topic=OTHER_ID)
    assert one["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    assert scene.tier.asked == []


@pytest.mark.parametrize(
    ("topic", "error"),
    [(ID, ErrorCode.UNKNOWN_TOPIC_ID), ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
)
async def test_a_topic_made_anew_under_its_name_is_told_as_the_client_named_it(
    topic: str | Uuid, error: ErrorCode
) -> None:
    """The tier has the one of before, and not a byte of it goes out as the new one's."""
    scene = Scene(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    (one,) = await scene.fetch(0, topic=topic)
    assert (one["error_code"], one["records"]) == (error, b"")
    assert scene.tier.asked == []


LOST = LostOffsets(10, 19, "gone before they were copied")


async def test_a_lost_range_looks_like_a_gap_and_is_counted() -> None:
    scene = Scene()
    scene.tier.answers = {12: LOST}
    (one,) = await scene.fetch(12)
    assert one["records"] == b"batch 2.batch 3."
    assert scene.counts.lost_range_answers == 1


async def test_what_a_leader_has_of_a_lost_range_is_no_gap() -> None:
    """The range was recorded by another one's disk."""
    scene = Scene(BrokerLogEnds(4, 16, 90, 100))
    scene.tier.answers = {12: LOST, 16: GoToBroker(16)}
    (one,) = await scene.fetch(12)
    assert one["records"] == b"from the broker"
    (asked,) = scene.client.asked
    assert asked["topics"][0]["partitions"][0]["fetch_offset"] == 16


async def test_a_gap_between_the_tiers_end_and_the_leaders_disk_is_stepped_over() -> None:
    scene = Scene(BrokerLogEnds(4, 60, 90, 100, log_start_offset=60))
    scene.tier.answers = {40: LostOffsets(40, 59, "gone"), 60: GoToBroker(60)}
    (one,) = await scene.fetch(40)
    assert one["records"] == b"from the broker"
    (asked,) = scene.client.asked
    assert asked["topics"][0]["partitions"][0]["fetch_offset"] == 60
    assert scene.counts.lost_range_answers == 1


async def test_what_a_broker_has_in_its_own_tier_is_asked_of_it() -> None:
    """The node lags, or does not know that tier, as behind a way back: the broker serves it."""
    scene = Scene(BrokerLogEnds(4, 60, 90, 100, log_start_offset=10))
    scene.tier.answers = {40: NotAvailable("neither the tier nor the leader has it")}
    (one,) = await scene.fetch(40)
    assert one["records"] == b"from the broker"
    (asked,) = scene.client.asked
    assert asked["topics"][0]["partitions"][0]["fetch_offset"] == 40


async def test_the_log_names_the_partition_whose_reader_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.tier.answers = {12: NotAvailable("a node has still to copy it")}
    (one,) = await scene.fetch(12)
    assert one["error_code"] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert scene.counts.not_available_answers == 1
    assert "orders-0" in caplog.text
    assert "a node has still to copy it" in caplog.text


async def test_a_lost_range_is_no_gap_before_a_leader_said_what_it_has() -> None:
    scene = Scene(None, reachable=False)
    scene.tier.answers = {12: LOST}
    (one,) = await scene.fetch(12)
    assert one["error_code"] == ErrorCode.OFFSET_NOT_AVAILABLE


async def test_or_it_is_out_of_range() -> None:
    scene = Scene(gaps=False)
    scene.tier.answers = {12: LOST}
    (one,) = await scene.fetch(12)
    assert one["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert scene.counts.lost_range_answers == 1


@pytest.mark.parametrize(
    ("tier", "error", "start"),
    [
        (OutOfRange(20), ErrorCode.OFFSET_OUT_OF_RANGE, 20),
        (NotAvailable("the view lags"), ErrorCode.OFFSET_NOT_AVAILABLE, 0),
    ],
)
async def test_what_is_not_there(tier: FetchAnswer, error: ErrorCode, start: int) -> None:
    scene = Scene()
    scene.tier.answers = {12: tier}
    (one,) = await scene.fetch(12)
    assert (one["error_code"], one["log_start_offset"]) == (error, start)
    # Only what is asked again at once is held back.
    assert scene.slept == ([0.5] if error is ErrorCode.OFFSET_NOT_AVAILABLE else [])


async def test_without_a_leader_the_tier_is_read_on_and_its_end_waited_at() -> None:
    scene = Scene(None, reachable=False)
    (one,) = await scene.fetch(30)
    assert one["records"] == b"batch 3."
    (one,) = await scene.fetch(40)
    assert one["error_code"] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert scene.slept == [0.5]


@pytest.mark.parametrize(
    ("offset", "error"),
    [(45, ErrorCode.OFFSET_NOT_AVAILABLE), (101, ErrorCode.OFFSET_OUT_OF_RANGE)],
)
async def test_out_of_range_of_a_leader_is_believed_above_its_end_alone(
    offset: int, error: ErrorCode
) -> None:
    """Below, it has dropped the records between two questions: the tier may have them by now."""
    scene = Scene(error=1, records=b"")
    (one,) = await scene.fetch(offset)
    assert one["error_code"] == error
    waits = error == ErrorCode.OFFSET_NOT_AVAILABLE
    assert scene.counts.not_available_answers == waits, "who waits is counted"


@pytest.mark.parametrize("caught_up", [True, False])
async def test_out_of_range_is_not_believed_before_it_is_known_what_is_tiered(
    caught_up: bool,
) -> None:
    scene = Scene(error=1, records=b"")
    scene.tier.batches, scene.tier.caught_up = {}, caught_up
    (one,) = await scene.fetch(5)
    expected = ErrorCode.OFFSET_OUT_OF_RANGE if caught_up else ErrorCode.OFFSET_NOT_AVAILABLE
    assert one["error_code"] == expected


async def test_out_of_range_is_not_believed_while_the_topics_id_is_unknown() -> None:
    scene = Scene(error=1, records=b"")
    (one,) = await scene.fetch(5, topic="unknown")
    assert one["error_code"] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert scene.counts.not_available_answers == 1


async def test_a_client_that_its_broker_throttles_gets_an_answer_of_all_partitions() -> None:
    """The broker's names none (KIP-219). With one from the tier alone Java's client drops both."""
    scene = Scene(throttles=True)
    old, new = await scene.fetch(30, 40)
    assert old["records"] == b"batch 3."
    assert (new["error_code"], new["records"], new["high_watermark"]) == (0, b"", 100)
    assert scene.answer["throttle_time"] == 900
    (new,) = await scene.fetch(40)
    assert (new["error_code"], new["records"]) == (0, b"")


async def test_what_a_broker_refuses_as_a_whole_is_not_available() -> None:
    scene = Scene(refused=42)
    old, new = await scene.fetch(30, 40)
    assert old["records"] == b"batch 3."
    assert new["error_code"] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert scene.counts.not_available_answers == 1
    assert scene.slept == []
    await scene.fetch(40)
    assert scene.slept == [0.5], "the client would ask again at once"


async def test_a_session_that_nobody_made_is_not_found() -> None:
    scene = Scene()
    assert await scene.fetch(0, session_id=9, session_epoch=1) == []
    assert scene.answer["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def with_a_replica_in_zone_b(**scene: Any) -> Scene:
    found = Scene(**scene)
    facts = NodeFacts(ReadAddress("there", 19_092, "b"))
    found.replicas.registered((RegisteredNode(101, ID, 1, 5, 5, 0, facts=facts),))
    return found


@pytest.mark.parametrize("offset", [15, 40])
async def test_a_client_of_another_zone_is_sent_to_the_replica_there(offset: int) -> None:
    scene = with_a_replica_in_zone_b()
    for one in await scene.fetch(offset, offset, rack_id="b"):
        assert (one["error_code"], one["records"]) == (0, b"")
        assert one["preferred_read_replica"] == virtual_id(101, 3)
    assert (scene.client.asked, scene.tier.asked, scene.slept) == ([], [], [])


async def test_a_partition_that_cannot_be_is_left_to_the_broker_of_the_zone() -> None:
    scene = with_a_replica_in_zone_b()
    (one,) = await scene.fetch(40, rack_id="b", first=-1)
    assert one["preferred_read_replica"] == virtual_id(101, 3)


@pytest.mark.parametrize("rack", ["", "a", "c"])
async def test_a_client_of_this_zone_or_of_none_where_a_replica_is_stays(rack: str) -> None:
    scene = with_a_replica_in_zone_b()
    (one,) = await scene.fetch(15, rack_id=rack)
    assert one["records"] == b"batch 1.batch 2.batch 3."
    assert one["preferred_read_replica"] == -1


async def test_a_client_that_came_to_no_broker_of_its_own_or_asks_for_the_unknown_stays() -> None:
    scene = with_a_replica_in_zone_b(broker_id=None)
    (one,) = await scene.fetch(15, rack_id="b")
    assert one["preferred_read_replica"] == -1
    scene = with_a_replica_in_zone_b()
    (one,) = await scene.fetch(15, rack_id="b", topic="unknown")
    assert one["preferred_read_replica"] == -1


@pytest.mark.parametrize(
    ("told", "error"), [(Rights(describe=True, read=False), 29), (None, 78), (3, 3)]
)
async def test_nothing_of_the_tier_is_read_without_the_right(
    told: Rights | int | None, error: int
) -> None:
    scene = Scene()
    scene.rights.told["orders"] = told
    (one,) = await scene.fetch(0)
    assert (one["error_code"], one["high_watermark"], one["records"]) == (error, -1, b"")
    assert scene.tier.asked == []
    assert scene.counts.not_available_answers == (error == 78), "who waits is counted"


async def test_a_topic_that_the_settings_keep_back_is_not_asked_of_the_broker() -> None:
    scene = Scene()
    scene.rights.kept_back = frozenset({"orders"})
    assert [one["error_code"] for one in await scene.fetch(0, 50)] == [29, 29]
    assert scene.client.asked == []


async def test_a_long_fetch_leaves_the_loop_to_others_and_is_answered_in_whole() -> None:
    scene = Scene()
    scene.tier.batches |= {("orders", number): [] for number in range(3, 1_000)}
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    found = await scene.fetch(*[0] * 1_000)
    beating.cancel()
    assert len(found) == 1_000
    assert found[999]["records"] == b"from the broker"
    assert beats > 2 * (1_000 // SLICE)


async def test_an_answer_is_smaller_while_others_hold_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shares, "FIRST_BYTES", 100)
    scene = Scene()
    with scene.room.share() as other:
        other.keep(1 << 20)
        await scene.fetch(12)
        await scene.fetch(12, max_bytes=50)
    assert [query.bytes_max for query in scene.tier.asked] == [100, 50]
    await scene.fetch(12, max_bytes=-(2**31))
    await scene.fetch(12)
    assert scene.tier.asked[-1].bytes_max == 1_000
    assert scene.room.held_bytes == 0


async def test_a_connection_that_reads_full_answers_of_the_broker_gets_larger_ones() -> None:
    scene = Scene(records=bytes(60_000))
    scene.fetching = replace(scene.fetching, bytes_max=150_000)
    for expected in (FIRST_BYTES, 2 * FIRST_BYTES):
        await scene.fetch(500, max_bytes=8 << 20)
        assert scene.client.asked[-1]["max_bytes"] == expected
    scene.client.records = b""
    for expected in (FIRST_BYTES, FIRST_BYTES):
        await scene.fetch(500, max_bytes=8 << 20)
        assert scene.client.asked[-1]["max_bytes"] == expected
    assert scene.room.held_bytes == 0


async def test_who_may_not_read_is_not_sent_to_another_zone() -> None:
    scene = with_a_replica_in_zone_b()
    scene.rights.told["orders"] = NO_RIGHTS
    (one,) = await scene.fetch(15, rack_id="b")
    assert (one["error_code"], one["preferred_read_replica"]) == (29, -1)


async def test_who_had_its_bytes_is_told_to_wait_and_held_back() -> None:
    scene = Scene(rates=TierRates(user_bytes_per_s=20))
    scene.fetching.rates.wait_s("", "c", scene.now)
    scene.now = 1.0  # ten bytes are saved up
    (first,) = await scene.fetch(0)
    assert first["records"] == b"batch 0.batch 1."
    assert scene.answer["throttle_time"] == 350, "six bytes are owed, and one is wanted"
    (second,) = await scene.fetch(16)
    assert second["records"]
    assert sum(scene.slept) == pytest.approx(0.35)


async def test_who_would_wait_too_long_gets_nothing_of_the_tier() -> None:
    """The answer comes before clients give up, after 30 s by default: others of the user may have
    its rate for minutes.
    """
    scene = Scene(rates=TierRates(user_bytes_per_s=1))
    scene.fetching.rates.sent("", "c", 100, scene.now)
    (one,) = await scene.fetch(0)
    assert (one["error_code"], one["records"]) == (0, b"")
    assert sum(scene.slept) <= DELAY_S_MAX + PAUSE_S_MAX <= 15
    assert scene.answer["throttle_time"] == 1000 * WAIT_S_MAX, "it waits by itself then"
