"""Messages between replicas, decoded: KRaft's RPCs, one dataclass a request or response.

Names and meaning are Kafka's (Vote 52, BeginQuorumEpoch 53, EndQuorumEpoch 54, DescribeQuorum 55,
Fetch 1, FetchSnapshot 59, AddRaftVoter 80, RemoveRaftVoter 81, UpdateRaftVoter 82). The core never
sees bytes, cluster id, topic and partition of a request, authorisation, or addresses: the driver
sets and reads `leader_at`, the (host, port) of the leader that a message names (KIP-853), None if
the message has none.

Offsets count records. An *end offset* is exclusive. `NONE_ID` (-1) means "no replica", `NO_OFFSET`
(-1) "not known". Private tagged fields on the wire are marked *private*.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rlmm.metadata_log import SnapshotId as SnapshotId

NONE_ID = -1
NO_OFFSET = -1


class ReplicaKey(NamedTuple):
    """The identity of a replica: node id and the directory id it was formatted with (Kafka's text
    form; empty: not given). A wiped disk is a new replica (KIP-853).
    """

    node_id: int
    directory_id: str = ""


class EpochEnd(NamedTuple):
    """The end of an epoch in a log (exclusive)."""

    epoch: int
    end_offset: int


class Error(Enum):
    """Kafka's error codes, by name."""

    NONE = 0
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    THROTTLING_QUOTA_EXCEEDED = 89
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the voter set. `endpoints` is used by the driver; the core only passes it on."""

    key: ReplicaKey
    endpoints: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters by ascending node id; each node id occurs once, even with different directories."""

    voters: tuple[Voter, ...] = ()

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter.key for voter in self.voters)


NO_VOTERS = VoterSet()


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of every epoch (KIP-595)."""

    leader_id: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """The KRaft version; from version 1 on, voters are in the log (KIP-853)."""

    version: int = 1


@dataclass(frozen=True, slots=True)
class VotersRecord:
    """The voter set from this record's own offset on, committed or not."""

    voters: VoterSet


@dataclass(frozen=True, slots=True)
class NoOp:
    """A private control record: proves at its commit that its writer still led (`barriers.py`)."""


ControlRecord = LeaderChange | KRaftVersion | VotersRecord | NoOp


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch, as the core sees it.

    `payload` is the driver's (encoded bytes). Control batches made by the core have `control` set
    and no payload: the driver encodes one record for each element. A driver that decodes a fetched
    batch must set `control` for every VotersRecord in it.
    """

    base_offset: int
    epoch: int
    record_count: int
    size_bytes: int
    payload: object = None
    control: tuple[ControlRecord, ...] = ()

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count


@dataclass(frozen=True, slots=True)
class LogRead:
    """Bytes for a Fetch response: whole batches of [from_offset, end_offset), at most `bytes_max`,
    at least one batch.

    `generation` is the log's truncation generation: if the log was truncated since, the driver
    answers NOT_LEADER_OR_FOLLOWER instead.
    """

    from_offset: int
    end_offset: int
    bytes_max: int
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """Bytes for a FetchSnapshot response."""

    snapshot: SnapshotId
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A request for a vote. `last_offset` is the candidate's log end offset, `voter` the replica
    that is asked.

    `all_answered` (*private*): every voter has answered this round and no log is longer than the
    candidate's (`damaged_tail.py`). `incarnation` (*private*): see `identity.py`.
    """

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    last_offset: int
    pre_vote: bool
    all_answered: bool = False
    incarnation: int = -1


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer to a VoteRequest. `last_epoch` and `last_offset` are the voter's own log end
    (*private*, -1 if not given; a voter that voted for a different candidate in the epoch gives no
    `last_offset`, `damaged_tail.py`).

    `tail_was_cut` (*private*): the voter refused, or would refuse, because its own tail was cut, or
    because it was formatted and remembers nothing.
    """

    error: Error
    leader_id: int
    leader_epoch: int
    vote_granted: bool = False
    last_epoch: int = -1
    last_offset: int = NO_OFFSET
    tail_was_cut: bool = False
    leader_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """The request of a new leader to every other voter, until that voter fetches."""

    leader_id: int
    leader_epoch: int
    voter: ReplicaKey
    leader_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    error: Error
    leader_id: int
    leader_epoch: int
    leader_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """The request of a leader that resigns. `preferred`: its successors, the best first."""

    leader_id: int
    leader_epoch: int
    preferred: tuple[ReplicaKey, ...]
    leader_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    error: Error
    leader_id: int
    leader_epoch: int
    leader_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica's fetch; the driver serves consumers (replica id -1), not the core.

    `fetch_offset` acknowledges: everything below it is durable at the replica. `high_watermark` is
    the replica's (KIP-1166), -1 if unknown. `incarnation` is Kafka's replica epoch (`identity.py`).
    A voter whose fetch does not `count` (*private*) may have forgotten an epoch: it acknowledges
    nothing (`damaged_tail.py`).
    """

    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    wait_max_ms: int
    bytes_max: int
    high_watermark: int = NO_OFFSET
    incarnation: int = -1
    counts: bool = True


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The answer to a fetch: at most one of records, `diverging` and `snapshot`.

    Outgoing, the core sets `read` and the driver adds the bytes; incoming, the driver sets
    `batches`: whole ones, CRC checked, up to the first bad one. `high_watermark` is -1 while the
    leader has not committed in its own epoch.
    """

    error: Error
    leader_id: int
    leader_epoch: int
    high_watermark: int = NO_OFFSET
    log_start_offset: int = 0
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None
    read: LogRead | None = None
    batches: tuple[Batch, ...] = ()
    leader_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    replica: ReplicaKey
    epoch: int
    snapshot: SnapshotId
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """Outgoing: `read` set. Incoming: `payload` and `payload_bytes` set by the driver."""

    error: Error
    leader_id: int
    leader_epoch: int
    snapshot: SnapshotId | None = None
    size_bytes: int = 0
    position: int = 0
    read: SnapshotRead | None = None
    payload: object = None
    payload_bytes: int = 0
    leader_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """`wait_max_ms` bounds catching up and committing; afterwards the outcome is unknown."""

    voter: Voter
    wait_max_ms: int
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    voter: ReplicaKey
    wait_max_ms: int


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """The request of a voter whose endpoints differ from those in the voter set."""

    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True)
class UpdateVoterResponse:
    """The answer to an UpdateVoterRequest. NONE: the change is in the leader's log, committed or
    not. REQUEST_TIMED_OUT: ask again.
    """

    error: Error
    leader_id: int
    leader_epoch: int
    leader_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class VoterChangeResponse:
    """The answer to a change of the voters. REQUEST_TIMED_OUT: the outcome is unknown; check the
    voters before trying again.
    """

    error: Error
    message: str = ""


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """A request that only the leader answers."""


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """The leader's state of a replica. Times are of the core's clock, milliseconds; -1: never."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
    error: Error
    leader_id: int = NONE_ID
    leader_epoch: int = 0
    high_watermark: int = NO_OFFSET
    voters: tuple[ReplicaDescription, ...] = ()
    observers: tuple[ReplicaDescription, ...] = ()


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | DescribeQuorumRequest
)
"""The requests in a `RequestReceived`."""

PeerRequest = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | UpdateVoterRequest
)
"""The requests in a `SendRequest`."""

PeerResponse = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | UpdateVoterResponse
)
Response = PeerResponse | VoterChangeResponse | DescribeQuorumResponse
