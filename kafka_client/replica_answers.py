"""Answers of brokers about replicas, without kio's schemas, which are slow to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replicas:
    """Node ids of all assigned replicas, and (host, port) of their live brokers."""

    nodes: tuple[int, ...]
    addresses: dict[int, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Batches:
    """Whole batches, perhaps with a part of one more; the first may begin below the offset."""

    data: bytes
    high_watermark: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The offset is outside the replica's log, below its start or above its end."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a replica's log: [`start`, `end`)."""

    start: int
    end: int
