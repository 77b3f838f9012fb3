"""What brokers answer about a partition's replicas, without the protocol's schemas, which take long
to import.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replicas:
    """Node ids of all assigned replicas, and (host, port) of those brokers that live."""

    nodes: tuple[int, ...]
    addresses: dict[int, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Batches:
    """Whole and, at the end, perhaps half batches; the first one may begin below what was asked."""

    data: bytes
    high_watermark: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The replica's log does not reach the offset, at either end."""
