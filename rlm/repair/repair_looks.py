"""Which damaged segments the automatic repair looks at, and in which order. Pure.

What was never looked at comes first, then what was looked at longest ago; after each look that did
not mend it a segment is left alone for longer. So what has no whole copy anywhere takes little, and
keeps no other from its turn, but is never given up: a disk, a version, a replica may come back.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace

from kafka_formats.kafka_uuid import Uuid

LOOK_AGAIN_MAX_S = 6 * 3600.0
"""The longest pause between two looks at a segment."""

LOOKS_MAX = 1_000
"""Segments remembered; the ones that were looked at longest ago are forgotten first."""


@dataclass(frozen=True, slots=True)
class Look:
    """The last one: when (monotonic, s), and for how long it stays the last. `whole`: the objects
    were what was uploaded.
    """

    at_s: float
    pause_s: float
    whole: bool = False


@dataclass(slots=True)
class Looks:
    """The last look at each segment, ascending by time."""

    last: dict[Uuid, Look] = field(default_factory=dict)

    def begin(self, id_: Uuid, now_s: float, first_pause_s: float) -> None:
        """A segment is looked at now; what comes of it is told by `found_whole` and `forget`."""
        before = self.last.pop(id_, None)
        pause_s = first_pause_s if before is None else 2 * before.pause_s
        if len(self.last) >= LOOKS_MAX:
            del self.last[next(iter(self.last))]
        self.last[id_] = Look(now_s, min(pause_s, LOOK_AGAIN_MAX_S))

    def found_whole(self, id_: Uuid) -> None:
        """By the look that was begun."""
        look = self.last.get(id_)
        if look is not None:
            self.last[id_] = replace(look, whole=True)

    def forget(self, id_: Uuid) -> None:
        """It is mended."""
        self.last.pop(id_, None)

    def due(self, ids: Iterable[Uuid], met: Container[Uuid], now_s: float) -> list[Uuid]:
        """Those to be looked at, in order. `met`: readers found these damaged since they were last
        found whole.
        """
        ready = []
        for id_ in ids:
            look = self.last.get(id_)
            if look is None:
                ready.append((float("-inf"), id_))
            elif (look.whole and id_ in met) or now_s >= look.at_s + look.pause_s:
                ready.append((look.at_s, id_))
        return [id_ for _, id_ in sorted(ready, key=lambda each: each[0])]
