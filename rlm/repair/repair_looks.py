"""Orders the damaged segments for the automatic repair. Pure.

Segments that were never checked come first, then those checked longest ago; after each check
without a repair the pause doubles. So a segment without a whole copy costs little and delays no
other, but is never given up: a disk, an object version or a replica may come back.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace

from kafka_formats.kafka_uuid import Uuid

LOOK_AGAIN_MAX_S = 6 * 3600.0
"""The longest pause between two checks of a segment."""

LOOKS_MAX = 1_000
"""Limit of the segments remembered; the one checked longest ago is forgotten first."""


@dataclass(frozen=True, slots=True)
class Look:
    """The last check of a segment: its time (monotonic, s), the pause after it, and `whole`: the
    segment was found undamaged.
    """

    at_s: float
    pause_s: float
    whole: bool = False


@dataclass(slots=True)
class Looks:
    """The last check of each segment, ascending by time."""

    last: dict[Uuid, Look] = field(default_factory=dict)

    def begin(self, id_: Uuid, now_s: float, first_pause_s: float) -> None:
        """Record a check of a segment; `found_whole` or `forget` record its result."""
        before = self.last.pop(id_, None)
        pause_s = first_pause_s if before is None else 2 * before.pause_s
        if len(self.last) >= LOOKS_MAX:
            del self.last[next(iter(self.last))]
        self.last[id_] = Look(now_s, min(pause_s, LOOK_AGAIN_MAX_S))

    def found_whole(self, id_: Uuid) -> None:
        look = self.last.get(id_)
        if look is not None:
            self.last[id_] = replace(look, whole=True)

    def forget(self, id_: Uuid) -> None:
        """Forget a repaired segment."""
        self.last.pop(id_, None)

    def due(self, ids: Iterable[Uuid], met: Container[Uuid], now_s: float) -> list[Uuid]:
        """Segments to check now, in order. `met`: those that readers found damaged since."""
        ready = []
        for id_ in ids:
            look = self.last.get(id_)
            if look is None:
                ready.append((float("-inf"), id_))
            elif (look.whole and id_ in met) or now_s >= look.at_s + look.pause_s:
                ready.append((look.at_s, id_))
        return [id_ for _, id_ in sorted(ready, key=lambda each: each[0])]
