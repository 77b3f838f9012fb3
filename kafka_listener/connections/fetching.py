"""Fetch: old offsets from the tier, new ones from the leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

from kafka_formats.errors import CorruptData, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.access.rates import DELAY_S_MAX, TierRates
from kafka_listener.access.rights import RIGHTS_UNKNOWN, fetch_error
from kafka_listener.connections.client import Client
from kafka_listener.connections.log_ends import NEVER, LogEnds
from kafka_listener.connections.nearer_replica import NearerReplica
from kafka_listener.connections.read_counts import ReadCounts
from kafka_listener.connections.shares import FIRST_BYTES, AnswerRoom, Share, Turns
from kafka_listener.connections.topic_rights import TopicRights
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.protocol import fetch
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import (
    ClientRequest,
    Pieces,
    encode_around,
    encode_response,
    partitions_in,
)
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.protocol.fetch import Ends, Wanted, Where
from kafka_listener.protocol.further_requests import further_requests
from kafka_listener.reading.read_port import (
    BrokerLogEnds,
    FetchAnswer,
    FetchQuery,
    GoToBroker,
    LostOffsets,
    NotAvailable,
    OutOfRange,
    TierBatches,
    TierEnds,
    TierPart,
    TierReads,
)
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import Sent
from rlmm.wire.schema import Elsewhere, Values

TIER_PARTS_MAX = 16
"""The most partitions of one answer that the tier serves; the rest is served by the next answers.
"""
GAPS_MAX = 4
"""The most lost ranges that one answer skips in a partition."""
PAUSE_S_MAX = 5.0
"""The longest time that an answer without records is delayed, within the client's `max_wait`: the
client would repeat its request at once.
"""


Send = Callable[[Pieces, FurtherRequests | None], Awaitable[Sent | None]]
"""Sends an answer and, if given, the rules by which a worker answers the client's next requests."""
InTier = tuple[Wanted, TopicIdPartition, TierEnds]


class TierRecords(Elsewhere):
    """Batches that a worker sends to the client."""

    __slots__ = ("batches",)

    def __init__(self, size_bytes: int, batches: TierBatches) -> None:
        super().__init__(size_bytes)
        self.batches = batches


@dataclass(slots=True)
class FetchRun:
    """One Fetch being answered."""

    client: Client
    request: ClientRequest
    share: Share
    answers: dict[Where, Values] = field(default_factory=dict)
    to_broker: list[Wanted] = field(default_factory=list)
    records: dict[Where, TierRecords] = field(default_factory=dict)
    bytes_left: int = 0
    broker_bytes: int = 0
    throttle_ms: int = 0
    goes_on_until_s: float = NEVER
    """The time until which a worker may answer the client's next requests from the same state of
    the tier and the leader's last report. After it the leader has to be asked again.
    """

    @property
    def read_committed(self) -> bool:
        return bool(self.request.body["isolation_level"] == fetch.READ_COMMITTED)

    @property
    def is_idle(self) -> bool:
        """True if the answers so far have neither records nor a final error: the client would
        repeat its request at once.
        """
        return not self.records and all(map(_is_idle, self.answers.values()))

    @property
    def wait_s(self) -> float:
        return max(float(self.request.body["max_wait"]) / 1000, 0.0)


@dataclass(frozen=True, slots=True)
class Fetching:
    """`lost_ranges_are_gaps`: an offset in a recorded lost range is answered with the next existing
    batch, not with OFFSET_OUT_OF_RANGE. `bytes_max` bounds one answer, except for its first batch,
    and `room` all answers together.
    """

    tier: TierReads
    ends: LogEnds
    counts: ReadCounts
    sleep: Callable[[float], Awaitable[None]]
    turns: Turns
    room: AnswerRoom
    bytes_max: int
    lost_ranges_are_gaps: bool
    replicas: LiveReplicas
    rights: TopicRights
    rates: TierRates = field(default_factory=TierRates)

    @property
    def _nearer(self) -> NearerReplica:
        return NearerReplica(self.tier, self.ends, self.rights, self.replicas, self.turns)

    async def answer(self, client: Client, request: ClientRequest, send: Send) -> bytes:
        """The answer; b"" if it was sent already, as answers with the tier's bytes are."""
        if fetch.names_a_session(request.body):
            refused = fetch.refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return encode_response(request.head, refused)
        count = partitions_in(request.body)
        wanted = await self.turns.apart(count, partial(fetch.wanted_in, request.body))
        async with AsyncExitStack() as reading:
            run = FetchRun(client, request, reading.enter_context(self.room.share()))
            run.answers = await self._nearer.answers(client, request, wanted)
            if run.answers:
                return _whole(await self.turns.apart(count, partial(_pieces, run)))
            await self._from_tier(run, wanted, reading)
            await self._from_broker(run)
            # If the broker was asked, it has waited for `max_wait` already.
            if run.is_idle and run.answers and not run.to_broker:
                await self.sleep(min(run.wait_s, PAUSE_S_MAX))
            self._charge(run)
            pieces = await self.turns.apart(count, partial(_pieces, run))
            if not run.records and not run.broker_bytes:
                return _whole(pieces)
            run.answers.clear()  # the records are in the pieces now
            # Send the answer before its room is given to a different one.
            sent = await send(pieces, self._further(run, wanted, pieces))
            if sent is not None:
                self.counts.requests[Api.FETCH.name] += sent.further_answers
                self.counts.sent_from_tier(sent.further_bytes)
            return b""

    def _further(
        self, run: FetchRun, wanted: Sequence[Wanted], pieces: Pieces
    ) -> FurtherRequests | None:
        """The rules for the client's next requests, if it scans one partition of the tier."""
        connection = run.client.connection
        if (
            run.goes_on_until_s <= self.ends.monotonic()
            or len(wanted) > 1
            or not self.rates.are_unlimited
            or connection.is_encrypted
            or not connection.leave_requests()
        ):
            return None
        size = sum(len(records) for records in run.records.values())
        most = min(run.request.body["max_bytes"], self.bytes_max, wanted[0].bytes_max)
        bytes_max = size + run.share.more(max(most - size, 0))
        until_s = run.goes_on_until_s
        return further_requests(run.request, pieces, bytes_max=bytes_max, until_s=until_s)

    async def _has_its_turn(self, run: FetchRun) -> bool:
        """Delay a client that did not wait for its throttle time. False: it has to wait longer
        still, and the answer says so.
        """
        who = run.client.user, run.request.client_id or ""
        until = self.ends.monotonic() + DELAY_S_MAX
        while (wait_s := self.rates.wait_s(*who, now := self.ends.monotonic())) > 0:
            if now >= until:
                run.throttle_ms = ceil(wait_s * 1000)
                return False
            await self.sleep(min(wait_s, until - now))
        return True

    def _charge(self, run: FetchRun) -> None:
        """Charge the bytes of the tier to the client, and set the answer's throttle time."""
        size = sum(len(records) for records in run.records.values())
        who = run.client.user, run.request.client_id or ""
        wait_s = self.rates.sent(*who, size, self.ends.monotonic()) if size else 0.0
        run.throttle_ms = max(run.throttle_ms, ceil(wait_s * 1000))

    async def _from_tier(
        self, run: FetchRun, wanted: Sequence[Wanted], reading: AsyncExitStack
    ) -> None:
        """Answer the partitions that the tier serves; the rest goes to `to_broker`."""
        bytes_max = self.rates.bytes_max(self.bytes_max) if await self._has_its_turn(run) else 0
        # As at a broker, a client that wants no bytes gets one batch all the same.
        granted = run.share.more(min(max(run.request.body["max_bytes"], 1), bytes_max))
        run.bytes_left = granted
        await self.turns.in_slices(wanted, partial(self._from_tier_some, run, reading))
        run.share.keep(granted - run.bytes_left)

    async def _from_tier_some(
        self, run: FetchRun, reading: AsyncExitStack, some: Sequence[Wanted]
    ) -> None:
        below: list[InTier] = []
        ids = await self.ends.resolve(run.client, some)
        for wanted in some:
            tip = ids.get((wanted.topic, wanted.partition))
            if not self._allows(run, wanted, tip):
                continue
            ends = None if tip is None else self.tier.ends(tip)
            if tip is None or ends is None or self._is_behind(run, wanted, tip, ends):
                run.to_broker.append(wanted)
            else:
                below.append((wanted, tip, ends))
        below = await self._readable(run, below)
        told = await self.ends.of(run.client, [tip for _, tip, _ in below])
        for wanted, tip, ends in below:
            broker = told[tip]
            if isinstance(broker, int):
                run.answers[wanted.where] = fetch.error_answer(wanted, broker)
                continue
            if _is_fenced(wanted, broker):
                error = ErrorCode.FENCED_LEADER_EPOCH
                run.answers[wanted.where] = fetch.error_answer(wanted, error)
                continue
            shown = self.ends.shown(run.client, tip, ends)
            if len(run.records) >= TIER_PARTS_MAX or run.bytes_left <= 0:
                run.answers[wanted.where] = fetch.records_answer(wanted, shown)
                continue
            await self._from_tier_one(run, wanted, FetchQuery(
                tip,
                wanted.offset,
                max(min(wanted.bytes_max, run.bytes_left), 1),
                run.read_committed,
                broker,
            ), shown, reading)  # fmt: skip

    def _is_behind(
        self, run: FetchRun, wanted: Wanted, tip: TopicIdPartition, ends: TierEnds
    ) -> bool:
        """True if the offset is at or above the tier's end, unless the leader's log is known to
        begin higher still.
        """
        is_behind = wanted.offset >= ends.end_offset
        return is_behind and not self.ends.begins_above(run.client, tip, wanted.offset)

    def _allows(self, run: FetchRun, wanted: Wanted, tip: TopicIdPartition | None) -> bool:
        """True if the settings allow the client to read the topic; else the partition is answered
        with an error.
        """
        told = wanted.topic if isinstance(wanted.topic, str) else None
        name = tip.topic if tip is not None else told
        if self.rights.allows(run.client, name):
            return True
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if name else ErrorCode.UNKNOWN_TOPIC_ID
        run.answers[wanted.where] = fetch.error_answer(wanted, error)
        return False

    async def _readable(self, run: FetchRun, below: list[InTier]) -> list[InTier]:
        """The partitions that the client may read; the rest is answered with errors. Partitions in
        `to_broker` are not checked here: the broker does that.
        """
        rights = await self.rights.of(run.client, {tip.topic for _, tip, _ in below})
        kept = []
        for each in below:
            wanted, tip, _ = each
            error = fetch_error(rights.get(tip.topic))
            if error == ErrorCode.OFFSET_NOT_AVAILABLE:
                self.counts.not_available(RIGHTS_UNKNOWN % tip.topic)
            if error:
                run.answers[wanted.where] = fetch.error_answer(wanted, error)
            else:
                kept.append(each)
        return kept

    async def _from_tier_one(
        self, run: FetchRun, wanted: Wanted, query: FetchQuery, shown: Ends, reading: AsyncExitStack
    ) -> None:
        found = await self._found(run, query, reading)
        match found:
            case TierPart():
                records = TierRecords(found.size_bytes, found.batches)
                run.records[wanted.where] = records
                run.bytes_left -= found.size_bytes
                if found.goes_on:
                    run.goes_on_until_s = self.ends.hold_until_s(run.client, query.partition)
                ends = Ends(shown.high_watermark, shown.last_stable_offset, found.log_start_offset)
                aborted = found.aborted if run.read_committed else None
                run.answers[wanted.where] = fetch.records_answer(wanted, ends, records, aborted)
                self.counts.sent_from_tier(found.size_bytes)
            case GoToBroker():
                run.to_broker.append(replace(wanted, offset=found.offset))
            case OutOfRange():
                ends = Ends(shown.high_watermark, shown.last_stable_offset, found.log_start_offset)
                error = ErrorCode.OFFSET_OUT_OF_RANGE
                run.answers[wanted.where] = fetch.error_answer(wanted, error, ends)
            case LostOffsets():
                error = ErrorCode.OFFSET_OUT_OF_RANGE
                run.answers[wanted.where] = fetch.error_answer(wanted, error, shown)
            case NotAvailable():
                self.counts.not_available(f"{query.partition}: {found.why}")
                error = ErrorCode.OFFSET_NOT_AVAILABLE
                run.answers[wanted.where] = fetch.error_answer(wanted, error, shown)

    async def _found(
        self, run: FetchRun, query: FetchQuery, reading: AsyncExitStack
    ) -> FetchAnswer:
        """The tier's answer; after skipping lost ranges, if these are to look like gaps. A leader
        may have the end of a lost range on its disk.
        """
        for _ in range(GAPS_MAX):
            found = await reading.enter_async_context(self.tier.fetch(query))
            if not isinstance(found, LostOffsets):
                return found
            self.counts.lost_range(run.client.name, run.request.client_id, query.partition, found)
            if not self.lost_ranges_are_gaps:
                return found
            if query.broker is None:
                why = (
                    "the partition's leader has not reported where its log begins, which may be "
                    "inside this lost range; clients try again"
                )
                return NotAvailable(why)
            on_leader = max(query.broker.local_log_start_offset, query.offset + 1)
            query = replace(query, offset=min(found.next_offset, on_leader))
        return NotAvailable(f"more than {GAPS_MAX} lost ranges in a row; clients try again")

    async def _from_broker(self, run: FetchRun) -> None:
        """Request the rest from the broker; without waiting for records if there is something else
        to answer.
        """
        if not run.to_broker:
            return
        # A connection that waits for records reserves little room, and more after each full answer.
        window = run.client.window_bytes
        left = min(run.request.body["max_bytes"], self.bytes_max) - run.share.held_bytes
        granted = run.share.more(max(min(left, window), 1))
        count, at_once = len(run.to_broker), not run.is_idle
        asked = partial(fetch.for_broker, run.request.body, run.to_broker)
        body = await self.turns.apart(count, partial(asked, bytes_max=granted, at_once=at_once))
        try:
            answer = await run.client.exchange(
                run.request.head, run.request.client_id, body, wait_s=run.wait_s
            )
        except (RetryLater, CorruptData) as error:
            self.counts.not_available(str(error))
            code = ErrorCode.OFFSET_NOT_AVAILABLE
            run.answers |= {each.where: fetch.error_answer(each, code) for each in run.to_broker}
            run.to_broker.clear()
            run.share.keep(run.share.held_bytes - granted)
            return
        run.throttle_ms = max(run.throttle_ms, answer.get("throttle_time", 0))
        found = await self.turns.apart(count, partial(fetch.answers_in, answer, run.to_broker))
        run.broker_bytes = sum(len(each["records"] or b"") for each in found.values())
        run.share.keep(run.share.held_bytes - granted + run.broker_bytes)
        is_full = 2 * run.broker_bytes >= window
        window = min(2 * window, self.bytes_max) if is_full else window // 2
        run.client.window_bytes = max(window, FIRST_BYTES)
        self.counts.sent_from_broker(run.broker_bytes)
        run.answers |= found
        await self._answer_left_out(run, found, answer.get("error_code", ErrorCode.NONE))
        await self._correct(run, found)

    async def _answer_left_out(
        self, run: FetchRun, found: Mapping[Where, Values], error: int
    ) -> None:
        """Answer the partitions that the broker's answer lacks: all of them for a client that is
        throttled (KIP-219), or after an error. Java's consumer drops an answer that lacks a
        partition.
        """
        left = [each for each in run.to_broker if each.where not in found]
        if error:
            self.counts.not_available(f"a broker answered a Fetch with error {error}")
            if not found:
                run.to_broker.clear()  # the broker has not waited for records then
        code = ErrorCode.OFFSET_NOT_AVAILABLE if error else ErrorCode.NONE

        async def answer(some: Sequence[Wanted]) -> None:
            ids = self.ends.resolved(some)
            for each in some:
                tip = ids.get((each.topic, each.partition))
                shown = Ends() if tip is None else self.ends.shown(run.client, tip, None)
                run.answers[each.where] = fetch.error_answer(each, code, shown)

        await self.turns.in_slices(left, answer)

    async def _correct(self, run: FetchRun, found: dict[Where, Values]) -> None:
        """Replace the broker's log start by the whole log's. An offset that the broker deleted
        between two requests is not out of range.
        """
        await self.turns.in_slices(run.to_broker, partial(self._correct_some, run, found))

    async def _correct_some(
        self, run: FetchRun, found: dict[Where, Values], some: Sequence[Wanted]
    ) -> None:
        ids = self.ends.resolved(some)
        for wanted in some:
            answer = found.get(wanted.where)
            if answer is None:
                continue
            tip = ids.get((wanted.topic, wanted.partition))
            tier = None if tip is None else self.tier.ends(tip)
            is_out = answer["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
            if tip is None or tier is None:
                if is_out and not await self._is_not_tiered(run.client, tip, wanted):
                    self._wait_for_tier(wanted, tip, answer)
                continue
            self.ends.saw(run.client, tip, answer)
            if answer.get("log_start_offset", -1) > tier.log_start_offset:
                answer["log_start_offset"] = tier.log_start_offset
            if is_out and tier.log_start_offset <= wanted.offset:
                await self._judge_out_of_range(run.client, tip, wanted, answer)

    async def _is_not_tiered(
        self, client: Client, tip: TopicIdPartition | None, wanted: Wanted
    ) -> bool:
        """True if it is certain that the partition is not tiered: False while the topic's id is
        unknown, or while this node's view lags.
        """
        broker = None if tip is None else (await self.ends.of(client, [tip]))[tip]
        if tip is None or not isinstance(broker, BrokerLogEnds):
            return False
        query = FetchQuery(tip, wanted.offset, 1, read_committed=False, broker=broker)
        async with self.tier.fetch(query) as found:
            return isinstance(found, GoToBroker)

    async def _judge_out_of_range(
        self, client: Client, tip: TopicIdPartition, wanted: Wanted, answer: Values
    ) -> None:
        self.ends.doubt(client, tip)
        broker = (await self.ends.of(client, [tip]))[tip]
        if (
            isinstance(broker, BrokerLogEnds)
            and broker.is_reachable
            and wanted.offset > broker.high_watermark
        ):
            return  # above the end: an unclean election took what the client had read
        self._wait_for_tier(wanted, tip, answer)

    def _wait_for_tier(self, wanted: Wanted, tip: TopicIdPartition | None, answer: Values) -> None:
        where = f"partition {wanted.partition} of an unknown topic" if tip is None else tip
        self.counts.not_available(
            f"{where}: offset {wanted.offset} is not on the leader's disk, and may be in the tier"
        )
        answer["error_code"] = ErrorCode.OFFSET_NOT_AVAILABLE


def _is_fenced(wanted: Wanted, broker: BrokerLogEnds | None) -> bool:
    """True if the client knows an earlier leader alone, by the present one's report. As at a broker
    it has to find out first whether what it has read is still in the log (KIP-320).
    """
    if broker is None or not broker.is_reachable:
        return False
    return fetch.UNKNOWN < wanted.leader_epoch < broker.leader_epoch


def _is_idle(answer: Values) -> bool:
    nothing = answer["error_code"] == ErrorCode.NONE and not answer["records"]
    return nothing or answer["error_code"] == ErrorCode.OFFSET_NOT_AVAILABLE


def _whole(pieces: Pieces) -> bytes:
    """An answer of which no worker holds a part."""
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def _pieces(run: FetchRun) -> Pieces:
    """The answer, split where records come from the tier."""
    body = fetch.answer_of(run.request.body, run.answers, throttle_ms=run.throttle_ms)
    return encode_around(
        run.request.head, body, tuple(run.records[where] for where in sorted(run.records))
    )
