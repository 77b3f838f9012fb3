"""The metadata quorum, and requests to change it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from api.http.validation import INT32_MAX, parse_uuid
from api.models.base import NullBelowZero, Offset, OffsetOrNull, Wire
from kafka_formats.errors import InvalidRequest
from kafka_formats.host_names import is_host
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.metadata_log import LogDescription, ReplicaState
from rlmm.quorum.config import LISTENER_NAME

NodeId = Annotated[int, Field(examples=[2])]
NodeIdGiven = Annotated[StrictInt, Field(ge=0, le=INT32_MAX, examples=[2])]
DirectoryId = Annotated[
    str,
    Field(
        description="Id of the data directory, a Kafka Uuid: a node with a new disk is a different "
        "voter.",
        examples=["b-Jc1l2sQ1ySHBQ2a4nIlw"],
    ),
]


class ReplicaView(Wire):
    """A voter or observer. On nodes other than the leader, values that only the leader knows are
    null.
    """

    node_id: NodeId
    directory_id: DirectoryId
    address: Annotated[
        str | None,
        Field(description="Address at which a voter listens.", examples=["strand-2:9481"]),
    ]
    log_end_offset: OffsetOrNull
    lag: Annotated[
        int | None,
        Field(
            description="Offsets that the replica has not fetched from the leader yet.",
            examples=[0],
        ),
    ]
    last_fetch_ms: Annotated[
        int | None, NullBelowZero, Field(description="Time of its last fetch.")
    ]
    last_caught_up_ms: Annotated[
        int | None,
        NullBelowZero,
        Field(description="Time when the replica last had all of the leader's log."),
    ]

    @classmethod
    def of_replica(cls, replica: ReplicaState, leader_end_offset: int) -> ReplicaView:
        """The view of a replica; its lag is counted from the leader's log end."""
        end = replica.log_end_offset
        lag = None if end < 0 else max(leader_end_offset - end, 0)
        return cls.of(replica, address=replica.address or None, lag=lag)


class QuorumView(Wire):
    """The metadata log and this node's state in the quorum."""

    node_id: Annotated[int, Field(description="The queried node.", examples=[1])]
    state: Annotated[
        str,
        Field(
            description="State of this node: `leader`, `follower`, `observer` (follows without a "
            "vote), `prospective` or `candidate` (in an election), `unattached` (looks for a "
            "leader), `resigned`, `stopped`.",
            examples=["leader"],
        ),
    ]
    leader_id: Annotated[
        int | None,
        NullBelowZero,
        Field(description="The last known leader; valid while this node leads or follows."),
    ]
    leader_epoch: Annotated[int, Field(examples=[12])]
    high_watermark: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    applied_offset: Annotated[
        int, Field(description="Metadata offset of this node's view.", examples=[5231])
    ]
    digest: Annotated[
        str,
        Field(
            description="Digest of the view's rows, in hex; equal on all nodes at the same "
            "applied offset."
        ),
    ]
    feature_level: Annotated[int, Field(description="The finalised feature level.", examples=[1])]
    uncommitted_voter_change: Annotated[
        bool, Field(description="A voter is being added or removed.")
    ]
    cut_end_offset: Annotated[
        int | None,
        NullBelowZero,
        Field(
            description="The damaged tail of this node's log was cut: it does not become a "
            "candidate until it has fetched past this offset again. Null: nothing is missing."
        ),
    ]
    remembers_nothing: Annotated[
        bool,
        Field(
            description="This voter was formatted and has followed no leader since: it may have "
            "lost records that it acknowledged, and is elected only if every voter answers."
        ),
    ]
    voters: list[ReplicaView]
    observers: list[ReplicaView]

    @classmethod
    def of_log(
        cls, log: LogDescription, applied_offset: int, digest: bytes, feature_level: int
    ) -> QuorumView:
        """The view of the log as this node describes it, with its applied state."""
        end = log.log_end_offset
        return cls.of(
            log,
            applied_offset=applied_offset,
            digest=digest.hex(),
            feature_level=feature_level,
            voters=[ReplicaView.of_replica(voter, end) for voter in log.voters],
            observers=[ReplicaView.of_replica(observer, end) for observer in log.observers],
        )


class VoterRequest(Wire):
    """An observer to make a voter: its ids as in its data directory, and its address."""

    node_id: NodeIdGiven
    directory_id: Annotated[
        str,
        Field(max_length=1_000, description="A Kafka Uuid.", examples=["b-Jc1l2sQ1ySHBQ2a4nIlw"]),
    ]
    host: Annotated[
        str,
        Field(
            min_length=1,
            max_length=255,
            pattern=r"^[0-9A-Za-z._:-]+$",
            description="A host name or IP address that all other nodes reach.",
            examples=["strand-4"],
        ),
    ]
    port: Annotated[StrictInt, Field(ge=1, le=65_535, examples=[9481])]

    def voter(self) -> Voter:
        """The voter for the quorum's records. InvalidRequest: the directory id or host is
        invalid.
        """
        if not is_host(self.host):
            raise InvalidRequest(
                f"{self.host[:80]!r} is not a valid host name or IP address", field="host"
            )
        endpoint = Endpoint(LISTENER_NAME, self.host, self.port)
        return Voter(self.node_id, parse_directory_id(self.directory_id), (endpoint,))


class TransferRequest(Wire):
    """The next leader."""

    node_id: Annotated[NodeIdGiven | None, Field(description="Null: the most caught-up voter.")]


class FeatureLevelRequest(Wire):
    """The feature level to finalise."""

    feature_level: Annotated[StrictInt, Field(ge=1, le=32_767, examples=[2])]
    observers_upgraded: Annotated[
        StrictBool,
        Field(
            description="Confirm that the observers, which the leader can't ask, support the level."
        ),
    ] = False


class CanStopView(Wire):
    """The answer whether a node may be stopped without stopping the quorum."""

    node_id: NodeId
    allowed: bool
    reason: Annotated[str, Field(examples=["2 other voters keep up, 2 are needed"])]


def parse_directory_id(text: str) -> Uuid:
    """Parse a directory id. InvalidRequest: not a Uuid, or the zero Uuid, which means none."""
    found = parse_uuid(text, "directory_id")
    if found == Uuid(bytes(16)):
        raise InvalidRequest(
            "the zero Uuid is not a directory id: use the one in the node's data directory",
            field="directory_id",
        )
    return found
