"""Base of the wire models, and fields that they share. Unknown values are null, never -1."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import LostOffsets


class Wire(BaseModel):
    """Base of all wire models: immutable, without undeclared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    @classmethod
    def of(cls, source: object, **rest: object) -> Self:
        """The view of `source`, from its attributes of the same names; `rest` has the other
        fields.
        """
        named = {
            name: getattr(source, name)
            for name in cls.model_fields
            if name not in rest and hasattr(source, name)
        }
        return cls.model_validate(named | rest)


def known(value: int) -> int | None:
    """Map negative numbers, which the dataclasses use for unknown values, to None."""
    return None if value < 0 else value


def _known(value: object) -> object:
    return None if isinstance(value, int) and value < 0 else value


def id_text(value: object) -> object:
    return str(value) if isinstance(value, Uuid) else value


NullBelowZero = BeforeValidator(_known)
"""`known`, as the type of a field that `Wire.of` fills."""
IdText = Annotated[str, BeforeValidator(id_text)]
Offset = Annotated[int, Field(examples=[1200])]
OffsetOrNull = Annotated[int | None, NullBelowZero, Field(examples=[1200])]
EpochOrNull = Annotated[int | None, NullBelowZero, Field(examples=[7])]
TopicIdText = Annotated[
    IdText, Field(description="Topic id, a Kafka Uuid.", examples=["b-Jc1l2sQ1ySHBQ2a4nIlw"])
]
NEXT_CURSOR = Field(description="Pass it as `cursor` for the next page; null on the last one.")
NextCursor = Annotated[str | None, NEXT_CURSOR]
MetadataOffset = Annotated[
    int, Field(description="The answer is valid as of this metadata offset.", examples=[5231])
]


class EpochStart(Wire):
    """An entry of a leader epoch checkpoint: the epoch and its first offset."""

    epoch: Annotated[int, Field(examples=[7])]
    start_offset: Offset

    @classmethod
    def all_of(cls, epochs: Epochs) -> list[EpochStart]:
        """A whole checkpoint."""
        return [cls(epoch=entry.epoch, start_offset=entry.start_offset) for entry in epochs]


class IncarnationView(Wire):
    """One run of a node: its ids and the number of its start."""

    node_id: Annotated[int, Field(examples=[1])]
    directory_id: IdText
    boot_counter: int


class LostRangeView(Wire):
    """Offsets (both inclusive) that were gone from the local log before they were copied."""

    start_offset: Offset
    end_offset: Offset
    why: str

    @classmethod
    def all_of(cls, ranges: tuple[LostOffsets, ...]) -> list[LostRangeView]:
        """The ranges, in order."""
        return [
            cls(start_offset=lost.start, end_offset=lost.end, why=str(lost.why)) for lost in ranges
        ]


class ClaimView(Wire):
    """The claim of a partition that is in force; `token` is its metadata offset."""

    token: Offset
    leader_epoch: Annotated[int, Field(examples=[7])]
    incarnation: IncarnationView
    claim_number: int


class PartitionName(Wire):
    """A partition of one incarnation of a topic."""

    topic: Annotated[str, Field(examples=["payments"])]
    topic_id: TopicIdText
    partition: Annotated[int, Field(examples=[0])]


def name_of(partition: TopicIdPartition) -> dict[str, Any]:
    """The fields of `PartitionName`."""
    return {
        "topic": partition.topic,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
    }


class ProblemDocument(BaseModel):
    """An error in the format of RFC 9457. Decide by `kind`: it is stable, the texts are not."""

    model_config = ConfigDict(frozen=True)

    type: Annotated[str, Field(examples=["urn:strandline:problem:invalid_request"])]
    title: Annotated[str, Field(examples=["The request is wrong"])]
    status: Annotated[int, Field(examples=[400])]
    detail: Annotated[str, Field(examples=["offset: must be a whole number in decimal digits"])]
    instance: Annotated[
        str,
        Field(
            description="The id of this request, which is also in the node's log.",
            examples=["urn:strandline:request:3cN9d0VhQkOZl6yPqWbq1g"],
        ),
    ]
    kind: Annotated[str, Field(examples=["invalid_request"])]
    field: Annotated[
        str | None, Field(description="The input that is wrong.", examples=["offset"])
    ] = None
    reason: Annotated[str | None, Field(description="A stable upper-case word, for conflicts.")] = (
        None
    )
    retry_after_ms: Annotated[int | None, Field(description="For kind retry_later.")] = None
    ask_node: Annotated[
        int | None,
        Field(
            description="For reasons NOT_LEADER and NOT_CLAIMED: id of the node that can do it; "
            "`GET /v1/nodes` has its address.",
            examples=[3],
        ),
    ] = None
    source: Annotated[str | None, Field(description="For kind corrupt_data: which file.")] = None
    position: Annotated[int | None, Field(description="For kind corrupt_data: which byte.")] = None
