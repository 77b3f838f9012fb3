"""Strandline's own tagged fields in Kafka's messages, from tag 10000 on: stock software skips them.

kio reads field types when a schema is used, so annotations here are types, not text.
"""

from dataclasses import dataclass, field

from kio.schema.fetch.v18 import request as fetch_request
from kio.schema.produce.v13 import request as produce_request
from kio.schema.produce.v13 import response as produce_response
from kio.schema.vote.v2 import request as vote_request
from kio.schema.vote.v2 import response as vote_response
from kio.static.primitive import i32, i64


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequestPartition(vote_request.PartitionData):
    """See `rlmm.raft.messages.VoteRequest`."""

    all_answered: bool = field(metadata={"kafka_type": "bool", "tag": 10000}, default=False)
    incarnation: i64 = field(metadata={"kafka_type": "int64", "tag": 10001}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequestTopic(vote_request.TopicData):
    partitions: tuple[VoteRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(vote_request.VoteRequest):
    topics: tuple[VoteRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponsePartition(vote_response.PartitionData):
    """The voter's own log end, and whether its tail was cut."""

    last_epoch: i32 = field(metadata={"kafka_type": "int32", "tag": 10000}, default=i32(-1))
    last_offset: i64 = field(metadata={"kafka_type": "int64", "tag": 10001}, default=i64(-1))
    tail_was_cut: bool = field(metadata={"kafka_type": "bool", "tag": 10002}, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponseTopic(vote_response.TopicData):
    partitions: tuple[VoteResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(vote_response.VoteResponse):
    topics: tuple[VoteResponseTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest(fetch_request.FetchRequest):
    """See `rlmm.raft.messages.FetchRequest`."""

    counts: bool = field(metadata={"kafka_type": "bool", "tag": 10000}, default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest(produce_request.ProduceRequest):
    """`forwarded`: a node passes it on; then only the leader accepts it."""

    forwarded: bool = field(metadata={"kafka_type": "bool", "tag": 10000}, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponsePartition(produce_response.PartitionProduceResponse):
    """`appended`: the records may be committed despite the error."""

    appended: bool = field(metadata={"kafka_type": "bool", "tag": 10000}, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponseTopic(produce_response.TopicProduceResponse):
    partition_responses: tuple[ProduceResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse(produce_response.ProduceResponse):
    responses: tuple[ProduceResponseTopic, ...]
