"""Facts that a node registers with its incarnation: tagged fields of its registration, which its
row keeps even if this program does not know them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_formats.primitives import Reader, Writer
from rlmm.records.record_fields import Tags, value_of

OWN_TAGS_FROM = 1_000
"""Tags from here on are the row's own, and no registration has them."""


@dataclass(frozen=True, slots=True)
class ReadAddress:
    """The read listener of a node: the host and the first port that it announces to Kafka's
    clients, and the zone ("" for none) that is compared with their `client.rack`.
    """

    host: str
    port: int
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A node's release, and the lowest and highest feature level that it can apply (KIP-584)."""

    release: str
    lowest_level: int
    highest_level: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about a node. None: the node has no such thing, or its program is older than the fact.
    `http` is the URL of its HTTP interface for other nodes, `quorum` the `host:port` of its quorum
    listener, `log_dirs` the number of its log directories.
    """

    read: ReadAddress | None = None
    program: Program | None = None
    http: str | None = None
    quorum: str | None = None
    log_dirs: int | None = None


NO_FACTS = NodeFacts()


def _write_read_address(writer: Writer, at: ReadAddress) -> None:
    writer.string(at.host)
    writer.int32(at.port)
    writer.string(at.zone)


def _read_read_address(reader: Reader) -> ReadAddress:
    return ReadAddress(reader.string(), reader.int32(), reader.string())


def _write_program(writer: Writer, program: Program) -> None:
    writer.string(program.release)
    writer.int16(program.lowest_level)
    writer.int16(program.highest_level)


def _read_program(reader: Reader) -> Program:
    return Program(reader.string(), reader.int16(), reader.int16())


_FACTS: dict[int, tuple[str, Callable[[Writer, Any], None], Callable[[Reader], Any]]] = {
    0: ("read", _write_read_address, _read_read_address),
    1: ("program", _write_program, _read_program),
    2: ("http", Writer.string, Reader.string),
    3: ("quorum", Writer.string, Reader.string),
    4: ("log_dirs", Writer.int32, Reader.int32),
}
"""The facts by tag number, which is in the log and never reused."""


def fact_tags(facts: NodeFacts) -> Tags:
    """The tagged fields of the known facts. InvalidRequest: a number does not fit its field."""
    tags = []
    for tag, (name, write, _) in _FACTS.items():
        fact = getattr(facts, name)
        if fact is not None:
            writer = Writer()
            write(writer, fact)
            tags.append((tag, writer.done()))
    return tuple(tags)


def facts_in(tags: Tags) -> tuple[NodeFacts, Tags]:
    """The known facts among tagged fields, and the other fields. CorruptData: one is malformed."""
    given = {
        name: value_of(value, f"{name} of a node", read)
        for tag, value in tags
        if tag in _FACTS
        for name, _, read in (_FACTS[tag],)
    }
    return NodeFacts(**given), tuple(each for each in tags if each[0] not in _FACTS)
