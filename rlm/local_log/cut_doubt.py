"""Decides when the broker's checkpoint of high watermarks counts again behind a cut. Pure.

An unclean election cuts a log, and other records come in place of those. A high watermark of
before the cut says nothing of them, and has perhaps the same value as one of behind it. Nor does an
election tell by itself if it cut anything: the last mark of before it is perhaps written down, and
not seen yet. What tells them apart is that the broker wrote its checkpoint anew, which it does
every five seconds, also where nothing changed. Two things delay that:

- The broker collects the high watermarks of all logs, and writes them down then
  (ReplicaManager.checkpointHighWatermarks), at a slow disk many seconds later: the first write
  behind the cut may have a value of before it. One scheduled task does both, and never beside
  itself, so that the next write was collected behind the one before. No time between could say so
  much: a disk that hangs, or a clock that is set, makes any wrong.
- A look reads the checkpoint before the epochs that show the cut, so that the checkpoint may be
  written in between, also more than once. The first one that another look finds was surely on the
  disk when the log was cut already; it is the one from which writes are counted.

With these, the third checkpoint counts that is another than before. A write is told by its
modification time alone, which only has to be another one, not a later one. That a write goes
unseen (in the same tick of a clock, or between two looks) makes the rule wait longer.

Where nothing tells what a log was before, as of the first look at it, it was perhaps cut when its
epochs were written last. A checkpoint of high watermarks that is older than three writes behind
that (by modification times, here alone) is doubted until the third write from now on.

A broker that was killed behind the cut, before it wrote its checkpoint, begins with the old value
and goes by it itself, until it hears its leader's: this is not told apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_formats.leader_epoch_checkpoint import Epochs

CHECKPOINTS_TO_TRUST = 3
YOUNG_NS = CHECKPOINTS_TO_TRUST * 5_000_000_000
"""The time that these writes take (replica.high.watermark.checkpoint.interval.ms is 5 s)."""


@dataclass(frozen=True, slots=True)
class CutDoubt:
    """A high watermark that is perhaps of before a cut. `written_ns`: the modification time of its
    checkpoint at the last look, None if there was none, or if this process has not looked yet;
    `others`: the checkpoints seen since the look that found the cut; `same_to`: below it the log is
    as it was, and any tells of it.
    """

    written_ns: int | None = None
    others: int = 0
    same_to: int = 0

    def looked(self, written_ns: int | None) -> CutDoubt | None:
        """The doubt behind a further look, whose checkpoint was written then; None: that checkpoint
        is surely of behind the cut. A look that is told again changes nothing.
        """
        if written_ns is None or written_ns == self.written_ns:
            return self
        others = self.others + 1
        if others == CHECKPOINTS_TO_TRUST:
            return None
        return replace(self, written_ns=written_ns, others=others)

    def told(self, offset: int) -> CutDoubt:
        """The doubt once the leader of what came said that it is committed up to there."""
        return self if offset <= self.same_to else replace(self, same_to=offset)

    def joined(self, other: CutDoubt | None) -> CutDoubt:
        """This one, of the last look, and another of the same log: it ends with the later one."""
        if other is None:
            return self
        same_to = min(self.same_to, other.same_to)
        return CutDoubt(self.written_ns, min(self.others, other.others), same_to)


def of_young_epochs(
    written_ns: int | None, epochs_written_ns: int | None, epochs: Epochs
) -> CutDoubt | None:
    """The doubt at the first look at a log, with the modification times of both checkpoints (None:
    there is none); None: the epochs are old enough. It is of the whole log: there may have been
    several elections.
    """
    if not epochs or written_ns is None or epochs_written_ns is None:
        return None
    if written_ns - epochs_written_ns >= YOUNG_NS:
        return None
    return CutDoubt(written_ns, same_to=epochs[0].start_offset)
