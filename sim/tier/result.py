"""Figures of a run of the world."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of a run; `events` are steps of nodes, records, and deeds of the world."""

    seed: int
    events: int
    world_ms: int
    records: int
    copied: int
    deleted: int
    claims: int
    reads: int
    read_bytes: int
    followed: int
    rewritten: int
    restored: int
    thrown_away: int
    emptied: int
    marks_cut: int
    consumed_bytes: int
    built: int
    told: int
    struck: int
    heal_ms: int
    situations: tuple[tuple[str, int], ...]
    trace: int
