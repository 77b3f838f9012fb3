"""The broker's answers about single partitions, as they come over the wire."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets import v9
from kio.schema.offset_for_leader_epoch import v3 as epochs_v3
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from rlm.leadership.leadership import NoAnswer, NotLeading
from tests.kafka_client.fake_broker import NO_THROTTLE, VERSIONS, Reply, fake_broker
from tests.rlm.leadership.test_broker_view import good_script, view_of


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((ErrorCode.none, 42, 5), 42),
        ((ErrorCode.none, 42, -1), 42),
        ((ErrorCode.none, -1, -1), -1),
        ((ErrorCode.not_leader_or_follower, -1, -1), NotLeading()),
    ],
)
async def test_what_a_broker_takes_for_copied_is_asked_as_latest_tiered(
    answer: tuple[ErrorCode, int, int], expected: object
) -> None:
    """A log that was opened anew has none, and then no epoch."""

    def offsets_v9(request: v9.ListOffsetsRequest) -> Reply:
        (asked_for,) = request.topics[0].partitions
        assert asked_for.timestamp == -5
        code, offset, epoch = answer
        partition = v9.response.ListOffsetsPartitionResponse(
            partition_index=i32(0),
            error_code=code,
            offset=i64(offset),
            leader_epoch=i32(epoch),
        )
        topic = v9.response.ListOffsetsTopicResponse(
            name=TopicName("orders"), partitions=(partition,)
        )
        return v9.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=(topic,))

    script = {**good_script(), v9.ListOffsetsRequest: offsets_v9}
    async with fake_broker(script, versions={**VERSIONS, 2: (1, 9)}) as broker:
        view = view_of(broker)
        assert await view.highest_tiered([("orders", 0)]) == {("orders", 0): expected}
        await view.close()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.fenced_leader_epoch, True),
        (ErrorCode.unknown_leader_epoch, False),
        (ErrorCode.not_leader_or_follower, False),
        (ErrorCode.none, False),
    ],
)
async def test_a_follower_tells_by_its_error_if_it_follows_a_later_leader(
    code: ErrorCode, expected: bool
) -> None:
    def ends(request: epochs_v3.OffsetForLeaderEpochRequest) -> Reply:
        (asked_for,) = request.topics[0].partitions
        assert (asked_for.current_leader_epoch, asked_for.leader_epoch) == (5, 5)
        return epoch_ends_of(code)

    script = {**good_script(), epochs_v3.OffsetForLeaderEpochRequest: ends}
    async with fake_broker(script, versions={**VERSIONS, 23: (2, 4)}) as broker:
        view = view_of(broker)
        assert await view.knows_later_epoch(("orders", 0), 5) is expected
        await view.close()


@pytest.mark.parametrize("code", [ErrorCode.kafka_storage_error, None])
async def test_any_other_answer_tells_nothing_of_whom_a_replica_follows(
    code: ErrorCode | None,
) -> None:
    script = {
        **good_script(),
        epochs_v3.OffsetForLeaderEpochRequest: lambda _: epoch_ends_of(code),
    }
    async with fake_broker(script, versions={**VERSIONS, 23: (2, 4)}) as broker:
        view = view_of(broker)
        assert isinstance(await view.knows_later_epoch(("orders", 0), 5), NoAnswer)
        await view.close()


def epoch_ends_of(code: ErrorCode | None) -> epochs_v3.OffsetForLeaderEpochResponse:
    """The answer about `orders`; None: without its partition."""
    partitions: tuple[epochs_v3.response.EpochEndOffset, ...] = ()
    if code is not None:
        partitions = (
            epochs_v3.response.EpochEndOffset(
                error_code=code, partition=i32(0), leader_epoch=i32(-1), end_offset=i64(-1)
            ),
        )
    topic = epochs_v3.response.OffsetForLeaderTopicResult(
        topic=TopicName("orders"), partitions=partitions
    )
    return epochs_v3.OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=(topic,))
