"""Two logs with one beginning: that of a leader whose tail was cut off, and that which went on.

Their transactions are drawn by a seed; the fate of each record of the latter is told.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.rlm.broker_files import ReplicaWriter, write_log_dir


class Fate(NamedTuple):
    """`ends_at`: the offset of its transaction's marker; its own without a transaction.
    `batch_end`: the first offset behind its batch.
    """

    offset: int
    is_committed: bool
    ends_at: int
    batch_end: int


@dataclass
class Log:
    """A replica and the fates of its records."""

    replica: ReplicaWriter
    fates: list[Fate] = field(default_factory=list)
    _open: dict[int, list[int]] = field(default_factory=dict)

    def plain(self) -> None:
        at = self.replica.next_offset
        self.replica.append(2)
        self.fates += [Fate(each, True, each, at + 2) for each in (at, at + 1)]

    def sends(self, producer: int) -> None:
        at = self.replica.next_offset
        self.replica.append(2, producer_id=producer, transactional=True)
        self._open.setdefault(producer, []).append(at)

    def ends(self, producer: int, *, commit: bool) -> None:
        at = self.replica.next_offset
        self.replica.end_transaction(producer, commit=commit)
        for base in self._open.pop(producer):
            self.fates += [Fate(each, commit, at, base + 2) for each in (base, base + 1)]

    def goes_on(self, chance: random.Random, steps: int) -> None:
        for _ in range(steps):
            step, producer = chance.random(), chance.randrange(1, 5)
            if step < 0.2:
                self.plain()
            elif step < 0.55 or producer not in self._open:
                self.sends(producer)
            else:
                self.ends(producer, commit=chance.random() < 0.6)
            if step > 0.9 and self.replica.batches:
                self.replica.roll()

    @property
    def opened(self) -> list[int]:
        """The first offset of each open transaction."""
        return [each[0] for each in self._open.values()]

    def ends_all(self) -> None:
        for producer in sorted(self._open):
            self.ends(producer, commit=producer % 2 == 0)
        if self.replica.batches:
            self.replica.roll()


@dataclass(frozen=True)
class CutLogs:
    """`gone` has a segment at `cut_base` that goes on over `cut`, where `kept` is another log.
    `behind`: where `kept` has the first segment behind the cut. `open_at_cut`: first offsets.
    """

    gone: ReplicaWriter
    kept: ReplicaWriter
    cut_base: int
    cut: int
    behind: int
    open_at_cut: tuple[int, ...]
    fates: tuple[Fate, ...]

    def fates_below_cut(self, offset: int) -> list[Fate]:
        """Those of the records from `offset` on that the cut segments still serve."""
        return [each for each in self.fates if offset <= each.offset < self.cut]


def cut_logs(folder: Path, seed: int) -> CutLogs:
    """The logs by the seed."""
    chance = random.Random(seed)
    both = [Log(ReplicaWriter(write_log_dir(folder / name))) for name in ("gone", "kept")]
    steps = chance.randrange(3, 60)
    for log in both:
        same = random.Random(seed)
        log.sends(7)  # a later snapshot of producers is never empty
        log.ends(7, commit=True)
        log.goes_on(same, steps)
        log.plain()
    gone, kept = both
    cut_base, cut = kept.replica.base_offset, kept.replica.next_offset
    open_at_cut = tuple(kept.opened)
    gone.plain()
    gone.goes_on(chance, chance.randrange(8))
    gone.ends_all()
    kept.replica.new_epoch(1)
    kept.plain()
    kept.goes_on(chance, chance.randrange(12))
    if kept.replica.batches:
        kept.replica.roll()
    behind = kept.replica.base_offset
    kept.goes_on(chance, chance.randrange(20))
    kept.plain()
    kept.ends_all()
    fates = tuple(sorted(kept.fates))
    return CutLogs(gone.replica, kept.replica, cut_base, cut, behind, open_at_cut, fates)
