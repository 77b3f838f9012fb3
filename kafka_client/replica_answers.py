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
    """Whole batches and perhaps half a last one; the first may begin below the asked offset."""

    data: bytes
    high_watermark: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The replica's log does not reach the offset, at either end."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A replica's log has [`start`, `end`)."""

    start: int
    end: int
