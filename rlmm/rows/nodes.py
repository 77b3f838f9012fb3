"""Encodes and decodes rows of registered nodes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.primitives import Reader, Writer
from rlmm.partition_state import Claim
from rlmm.records.node_facts import NO_FACTS, OWN_TAGS_FROM, NodeFacts, fact_tags, facts_in
from rlmm.records.record_fields import Tags, value_of
from rlmm.rows import keys
from rlmm.rows.rows import RowReader, prefix_end, read_decoded

VERSION = 0
_SOURCE = "node row"
_TAG_LIVENESS = OWN_TAGS_FROM


class Liveness(IntEnum):
    """The liveness of a node. LIVE: it registered, and has fetched the metadata log since, as far
    as leaders know. FENCED: it did not fetch for too long, as the quorum's leader found (KIP-631).
    STOPPED: it recorded that it ends. REMOVED: an admin took it off the list. Its next registration
    makes any of them LIVE; the process of a REMOVED node that still runs registers again.

    Liveness shows people and clients which nodes to ask. Claims do not depend on it: writers are
    fenced by their tokens.
    """

    LIVE = 0
    FENCED = 1
    STOPPED = 2
    REMOVED = 3


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """A node id, and the directory whose process has it.

    `offset` is the metadata offset at which this directory took the node id over, `boot_offset`
    that of its latest registration, at `timestamp_ms` (record time). `past` are the directories
    that had the id before, latest first, each with its last boot counter. `contested`: a process of
    one of these was still running when this one registered. `facts` and `unknown_tags` are those of
    the latest registration. `liveness` is in force since record time `liveness_ms`; None: since the
    registration.
    """

    node_id: int
    directory_id: Uuid
    boot_counter: int
    offset: int
    boot_offset: int
    timestamp_ms: int
    contested: bool = False
    past: tuple[tuple[Uuid, int], ...] = ()
    facts: NodeFacts = NO_FACTS
    unknown_tags: Tags = ()
    liveness: Liveness = Liveness.LIVE
    liveness_ms: int | None = None

    def voids(self, claim: Claim) -> bool:
        """True for a claim of this node id whose process has lost the id since, or shares it."""
        if self.contested:
            return True
        moved = bool(self.past) or self.directory_id != claim.incarnation.directory_id
        return moved and claim.token < self.offset


def encode_node(node: RegisteredNode) -> bytes:
    """Encode all fields but the node id, which is in the key."""
    writer = Writer()
    writer.int16(VERSION)
    writer.uuid(node.directory_id)
    for number in (node.boot_counter, node.offset, node.boot_offset, node.timestamp_ms):
        writer.int64(number)
    writer.boolean(node.contested)
    writer.array_length(len(node.past))
    for directory_id, boot_counter in node.past:
        writer.uuid(directory_id)
        writer.int64(boot_counter)
    writer.tagged_fields((*fact_tags(node.facts), *node.unknown_tags, *_liveness_tags(node)))
    return writer.done()


def _liveness_tags(node: RegisteredNode) -> Tags:
    if node.liveness_ms is None:
        return ()
    writer = Writer()
    writer.int8(node.liveness)
    writer.int64(node.liveness_ms)
    return ((_TAG_LIVENESS, writer.done()),)


def _read_liveness(reader: Reader) -> tuple[Liveness, int]:
    number = reader.int8()
    try:
        return Liveness(number), reader.int64()
    except ValueError:
        raise reader.corrupt(f"unknown liveness {number}") from None


@lru_cache(maxsize=1_024)
def decode_node(node_id: int, value: bytes) -> RegisteredNode:
    """Decode a node's row. CorruptData for a row that `encode_node` does not write.

    Results are cached by the bytes, since each claim reads them: a cached one is never outdated.
    """
    reader = Reader(value, _SOURCE)
    version = reader.int16()
    if version != VERSION:
        raise reader.corrupt(f"version {version} is unknown, this program reads {VERSION}")
    directory_id = reader.uuid()
    boot_counter, offset, boot_offset, timestamp_ms = (reader.int64() for _ in range(4))
    contested = reader.boolean()
    past = tuple((reader.uuid(), reader.int64()) for _ in range(reader.array_length()))
    facts, unknown = facts_in(reader.tagged_fields())
    reader.expect_end()
    liveness, liveness_ms = Liveness.LIVE, None
    told = dict(unknown).get(_TAG_LIVENESS)
    if told is not None:
        liveness, liveness_ms = value_of(told, "liveness of a node", _read_liveness)
        unknown = tuple(each for each in unknown if each[0] != _TAG_LIVENESS)
    return RegisteredNode(
        node_id, directory_id, boot_counter, offset, boot_offset, timestamp_ms,
        contested, past, facts, unknown, liveness, liveness_ms,
    )  # fmt: skip


def find_node(rows: RowReader, node_id: int) -> RegisteredNode | None:
    """The registered node; None if no process with this id ever registered."""
    return read_decoded(rows, keys.node_key(node_id), lambda value: decode_node(node_id, value))


def all_nodes(rows: RowReader) -> tuple[RegisteredNode, ...]:
    """Every registered node, ordered by id."""
    found = rows.scan(keys.NODE_PREFIX, prefix_end(keys.NODE_PREFIX))
    return tuple(decode_node(keys.node_of(key), value) for key, value in found)


def is_voided(rows: RowReader, claim: Claim | None) -> bool:
    """True if a registration after the claim voids it."""
    if claim is None or claim.incarnation.node_id < 0:
        return False
    node = find_node(rows, claim.incarnation.node_id)
    return node is not None and node.voids(claim)
