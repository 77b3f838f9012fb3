"""Decides when the broker's checkpoint of high watermarks can be trusted again after a truncation
(a cut) of the log. Pure.

An unclean election truncates a log, and different records replace the removed ones. A high
watermark from before the cut says nothing about the new records, though it may have the same value
as one from after it. Nor does an election show by itself that it cut anything: the last high
watermark from before it may be in the file and not read by us yet. The proof is that the broker
wrote its checkpoint again, which it does every five seconds, even if nothing changed. Two things
delay that proof:

- The broker first collects the high watermarks of all logs, then writes them
  (ReplicaManager.checkpointHighWatermarks), on a slow disk many seconds later: the first write
  after the cut may have a value from before it. One scheduled task does both and never runs twice
  at once, so the values of the next write were collected after the previous write. No waiting time
  could prove as much: a disk that hangs, or a clock that is set, makes any time wrong.
- A scan reads the checkpoint before the epochs that show the cut, so the checkpoint may be written
  in between, even several times. The first checkpoint that a later scan finds was on the disk when
  the log was cut already; writes are counted from that one.

So the third checkpoint that differs from the one before is trusted. A write is recognized by its
modification time alone, which only has to differ, not to be later. A write that no scan notices
(in the same tick of a clock, or between two scans) only makes the rule wait longer.

Where the earlier state of a log is unknown, as at the first scan of it, it may have been cut when
its epochs were written last. A checkpoint of high watermarks that is less than three writes younger
than that (by modification times, only here) is doubted until the third write from now on.

A broker that was killed after the cut, before it wrote its checkpoint, starts with the old value
and uses it itself until it receives its leader's: this case is not recognized.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_formats.leader_epoch_checkpoint import Epochs

CHECKPOINTS_TO_TRUST = 3
YOUNG_NS = CHECKPOINTS_TO_TRUST * 5_000_000_000
"""The time that these writes take (replica.high.watermark.checkpoint.interval.ms is 5 s)."""


@dataclass(frozen=True, slots=True)
class CutDoubt:
    """A high watermark that may be from before a cut. `written_ns`: the modification time of its
    checkpoint at the last scan, None if there was none, or if this process has not scanned yet;
    `others`: the number of new checkpoints since the scan that found the cut; `same_to`: the log is
    unchanged below this offset, so a high watermark from before the cut holds there too.
    """

    written_ns: int | None = None
    others: int = 0
    same_to: int = 0

    def looked(self, written_ns: int | None) -> CutDoubt | None:
        """The doubt after a further scan, whose checkpoint was written at that time; None: that
        checkpoint is surely from after the cut. The same scan passed again changes nothing.
        """
        if written_ns is None or written_ns == self.written_ns:
            return self
        others = self.others + 1
        if others == CHECKPOINTS_TO_TRUST:
            return None
        return replace(self, written_ns=written_ns, others=others)

    def told(self, offset: int) -> CutDoubt:
        """The doubt once the leader of the new records reported them committed up to `offset`."""
        return self if offset <= self.same_to else replace(self, same_to=offset)

    def joined(self, other: CutDoubt | None) -> CutDoubt:
        """This doubt, of the last scan, joined with another of the same log: it ends when the later
        of the two ends.
        """
        if other is None:
            return self
        same_to = min(self.same_to, other.same_to)
        return CutDoubt(self.written_ns, min(self.others, other.others), same_to)


def of_young_epochs(
    written_ns: int | None, epochs_written_ns: int | None, epochs: Epochs
) -> CutDoubt | None:
    """The doubt at the first scan of a log, with the modification times of both checkpoints (None:
    the file does not exist); None: the epochs are old enough. It covers the whole log: there may
    have been several elections.
    """
    if not epochs or written_ns is None or epochs_written_ns is None:
        return None
    if written_ns - epochs_written_ns >= YOUNG_NS:
        return None
    return CutDoubt(written_ns, same_to=epochs[0].start_offset)
