"""The port between the listener, which speaks Kafka's protocol, and the tier.

The listener passes what a partition's leader reported (`BrokerLogEnds`); the tier answers what it
can serve itself, or says where else the listener has to ask.
"""

from __future__ import annotations

import socket
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import SendRules, Sent


@dataclass(frozen=True, slots=True)
class BrokerLogEnds:
    """The ends of a partition's log on its leader, as last reported. All of them may have moved up
    since: every user of them allows for that.

    `local_log_start_offset` is the lowest offset on the leader's disk. `log_start_offset` is where
    its log starts: the start of the whole log if the brokers tier it themselves
    (`whole_log_start`), else the start of its disk. `high_watermark` and `last_stable_offset` are
    exclusive. `is_reachable` False: the leader does not answer now, and these are its last ends.
    """

    leader_epoch: int
    local_log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_start_offset: int | None = None
    is_reachable: bool = True


@dataclass(frozen=True, slots=True)
class TierEnds:
    """The ends of the tier. `end_offset` is exclusive, and lies after lost ranges that follow the
    last copied segment; it equals `log_start_offset` where tiering began and nothing is copied yet.
    `leader_epoch` is the last one of the merged lineage.
    """

    log_start_offset: int
    end_offset: int
    leader_epoch: int


class AbortedFrom(NamedTuple):
    """An aborted transaction as Fetch answers list them."""

    producer_id: int
    first_offset: int


class BrokerTransactions(Protocol):
    """The leader's report about transactions whose markers are not tiered yet."""

    async def aborted_at(
        self, partition: TopicIdPartition, offset: int, leader_epoch: int
    ) -> tuple[AbortedFrom, ...] | None:
        """The aborted transactions that are open at `offset`: the list in the answer of the leader
        of `leader_epoch` to a read_committed Fetch from there that returned at least one batch.
        None: that leader is unreachable or leads no longer, returned no batch, or its last stable
        offset is not above `offset`.
        """


class LeaderEpochs(Protocol):
    """The leader's report about the epochs of its log."""

    async def end_of(
        self, partition: TopicIdPartition, epoch: int, leader_epoch: int
    ) -> EpochEnd | None:
        """The answer of the leader of `leader_epoch` to an OffsetForLeaderEpoch for `epoch`. None:
        that leader is unreachable or leads no longer, or its log begins at the end that it reports:
        then `epoch` may have ended earlier, at an offset that its retention has deleted.
        """


@dataclass(frozen=True, slots=True)
class FetchQuery:
    """A client's fetch of one partition. `bytes_max` bounds the answer, which has at least one
    whole batch. `broker` None: the leader has not reported where its log ends.
    """

    partition: TopicIdPartition
    offset: int
    bytes_max: int
    read_committed: bool
    broker: BrokerLogEnds | None


class TierBatches(Protocol):
    """Whole record batches as stored, verified, of a known size; a worker holds them."""

    async def send_to(
        self, client: socket.socket, rules: SendRules, further: FurtherRequests | None = None
    ) -> Sent:
        """Have the worker send the batches to `client`, to which nothing else may write meanwhile;
        nor, with `further`, may anything else read from it. RetryLater if the worker died.
        """

    async def read(self) -> bytes:
        """Return the batches to this process: for a few bytes, or a connection with TLS."""


@dataclass(frozen=True, slots=True)
class TierPart:
    """The batches from the one that contains the offset on: `size_bytes` of them, at least one.

    `next_offset` is the offset to continue at. `aborted` is complete for these batches, in the
    order of first offsets; empty unless read_committed was requested. No batch is at or above the
    border to the broker, outside of the merged lineage, or after a lost range. `goes_on`: no
    aborted transaction has to be reported for these batches, so that more of the same segment may
    follow.
    """

    size_bytes: int
    next_offset: int
    log_start_offset: int
    aborted: tuple[AbortedFrom, ...]
    batches: TierBatches
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class GoToBroker:
    """The leader has the offset, or it alone can tell that the offset does not exist. `offset` is
    the requested one or, where the tier has no batch from that one on, the first that the leader
    may have. If the leader answers OFFSET_OUT_OF_RANGE to an offset below its end, its log start
    has moved: call again with the new one; if it does not answer, with `is_reachable` False.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The offset is below the log's start: the client gets OFFSET_OUT_OF_RANGE."""

    log_start_offset: int


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """The offset can't be read now: the client gets OFFSET_NOT_AVAILABLE and asks again. `why` is
    for the log.
    """

    why: str


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """The offset lies in a recorded lost range, both ends inclusive. A client may continue at
    `next_offset`, by a further fetch.
    """

    start: int
    end: int
    why: str

    @property
    def next_offset(self) -> int:
        return self.end + 1


FetchAnswer = TierPart | GoToBroker | OutOfRange | NotAvailable | LostOffsets


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An answer of ListOffsets; -1 for no timestamp and for an unknown epoch."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An answer to OffsetForLeaderEpoch: the greatest known epoch up to the requested one, and its
    end (exclusive).
    """

    leader_epoch: int
    end_offset: int


class TierReads(Protocol):
    """The tier's part of every answer. No answer is wrong because the view lags."""

    def ends(self, partition: TopicIdPartition) -> TierEnds | None:
        """The ends of the partition's tier; None if nothing of it is tiered or going to be, as far
        as this node knows.
        """

    def is_in_log(
        self, partition: TopicIdPartition, offset: int, broker: BrokerLogEnds | None
    ) -> bool:
        """True if a Fetch from this offset is neither below the log's start nor above its end, as
        far as this node knows both.
        """

    def fetch(self, query: FetchQuery) -> AbstractAsyncContextManager[FetchAnswer]:
        """The answer; leaving the block ends the worker's part, sent or not. Errors of the store or
        the workers become a NotAvailable.
        """

    async def list_offsets(
        self, partition: TopicIdPartition, timestamp: int, broker: BrokerLogEnds | None
    ) -> FoundOffset | None:
        """The tier's answer for a timestamp, or for EARLIEST (-2), MAX_TIMESTAMP (-3) and
        LATEST_TIERED (-5): the first hit at or above the log's start. None: only the leader can
        tell. The leader's largest timestamp may be larger than the tier's: both have to be asked.
        StrandlineError: the answer can't be given now, as by RetryLater, or until an admin acts.
        """

    def epoch_end(
        self, partition: TopicIdPartition, leader_epoch: int, broker: BrokerLogEnds
    ) -> EpochEnd | None:
        """The merged lineage's answer for an epoch that ended below the leader's epoch cache; None:
        the leader answers.
        """
