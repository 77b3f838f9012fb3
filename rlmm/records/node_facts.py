"""Facts that a node registers beside its incarnation: tagged fields of its registration, which its
row keeps, known to this program or not. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.primitives import Reader, Writer
from rlmm.records.record_fields import Tags, value_of

_TAG_READ = 0


@dataclass(frozen=True, slots=True)
class ReadAddress:
    """The read listener of a node: the host and the first port that Kafka's clients are told, and
    the zone ("" for none) that their `client.rack` is compared with.
    """

    host: str
    port: int
    zone: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """`read` None: the node has no read listener."""

    read: ReadAddress | None = None


NOTHING_TOLD = NodeFacts()


def fact_tags(facts: NodeFacts) -> Tags:
    """The tagged fields of what is known. InvalidRequest: a number does not fit its field."""
    if facts.read is None:
        return ()
    writer = Writer()
    writer.string(facts.read.host)
    writer.int32(facts.read.port)
    writer.string(facts.read.zone)
    return ((_TAG_READ, writer.done()),)


def facts_in(tags: Tags) -> tuple[NodeFacts, Tags]:
    """Known facts among tagged fields, and the other fields. CorruptData: one is malformed."""
    given = dict(tags).get(_TAG_READ)
    read = None if given is None else value_of(given, "read listener of a node", _read_address)
    return NodeFacts(read), tuple(each for each in tags if each[0] != _TAG_READ)


def _read_address(reader: Reader) -> ReadAddress:
    return ReadAddress(reader.string(), reader.int32(), reader.string())
