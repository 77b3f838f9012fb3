"""Chooses the batches that fill a hole from another source of the same log. Pure.

Kafka's CRC leaves out a batch's base offset: with a flipped bit there the batch passes its check
and claims the offsets of other batches. Replicas have the same bytes. A broker answers a fetch from
the file whose name covers the offset, with all batches from the first one that claims to reach it;
if none does, from the next file. So a batch's offsets are trusted in two cases:

1. The batch directly before or after it in the same response joins it without a gap.
2. The responses to its own first and to its own last offset begin with it, and the next batch in
   its file begins above it, or there is none. If no next batch is seen, the broker's own limit
   (`fetch.max.bytes`, a quota) may have cut it off. It did not if the broker has sent a longer
   response of several batches, and it does not matter if the response to the offset directly below
   the batch does not begin with it. If DeleteRecords put the log start inside the batch, the
   offsets below can't be fetched: its first one is then the log start, no limit may have cut
   anything off, and a batch has to begin directly after it: in the response to that offset, or
   where the hole ends.

Nothing else is trusted: not that two responses seem to join, nor that a batch fills the hole.
A batch is taken if its CRC, its leader epoch and the borders of the hole are right, too.

One fault at a replica is assumed: flipped bits in one batch, or missing batches. All other batches
are then in their places, and a batch with a wrong base offset isn't taken. Not by 1: its neighbours
join its true place only. Not by 2: one of the two offsets lies outside its true place, so a second
batch has that offset. If the second batch is before it, the response begins with the second. If it
is after it in the same file, the next batch does not begin above it, and the responses to all
offsets from its true place to its claimed place begin with it too; if it is in a different file,
the response begins with the second. Two faults at one replica may defeat this: a batch whose wrong
offsets are those of a missing batch. So may a limit below one batch, if DeleteRecords put the log
start just there.

Where the cleaner has worked gaps are legal, so a batch is trusted already if the next one is seen
and both neighbours are in order with it. A batch with a wrong offset within its own gap is then
taken.

A source that sends nothing proves nothing: a batch whose wrong offset is far too low is skipped by
the broker and never sent.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, check_crc, parse_header
from rlm.data_plane.segment_survey import is_abort
from rlm.local_log.batch_places import is_in_order, joins
from rlm.local_log.damage import Run
from rlm.local_log.gap_rule import shows_cleaner


@dataclass(slots=True)
class Taken:
    """The batches taken from one response: their joined bytes, their stretches as (first, last,
    bytes), and the offsets of abort markers.
    """

    data: bytearray = field(default_factory=bytearray)
    stretches: list[tuple[int, int, int]] = field(default_factory=list)
    aborts: list[int] = field(default_factory=list)

    def add(self, header: BatchHeader, data: bytes, source: str) -> None:
        """Add a batch."""
        self.data += data
        if is_abort(header, data, source):
            self.aborts.append(header.last_offset)
        first, size = header.base_offset, 0
        if self.stretches and self.stretches[-1][1] + 1 == first:
            first, _, size = self.stretches.pop()
        self.stretches.append((first, header.last_offset, size + len(data)))


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of a response. `data` empty: the response's limit cut it. `wrong`: its damage."""

    header: BatchHeader
    data: bytes
    wrong: str

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset


@dataclass(frozen=True, slots=True)
class _Answer:
    """The consecutive batches of a response; the last one may be incomplete."""

    batches: list[_Batch]

    @property
    def first(self) -> int | None:
        return self.batches[0].first if self.batches else None

    def before(self, index: int) -> int | None:
        return self.batches[index - 1].last if index else None

    def behind(self, index: int) -> int | None:
        return self.batches[index + 1].first if index + 1 < len(self.batches) else None

    def begins_with(self, batch: _Batch) -> bool:
        """True if the batch is the first, and the one after it is in order."""
        return (
            bool(self.batches)
            and self.batches[0].header == batch.header
            and is_in_order(None, batch.first, batch.last, self.behind(0))
        )


_STEPS = 32
"""The number of fetches in search of a longer response, at distances that double."""

_Questions = Generator[int, bytes]
"""Yields offsets to fetch and is sent the responses' bytes; empty: there is none."""


@dataclass(slots=True)
class HoleWalk:
    """A walk through one source for the hole `first` to `last` (inclusive), from `start` on.

    Until it is `done`, `question` is the offset to fetch next. `wrong`: a sentence about a batch
    that the source has there and that was refused.

    `lineage` None: any leader epoch is accepted, if the bytes are checked as a whole elsewhere.
    `free_from`: this replica has no batch from there to the hole, so the first batch may begin
    there: batches come whole, and DeleteRecords may put a log start inside one. None: it begins at
    `first` or later. `thinned`: gaps are legal.
    """

    first: int
    last: int
    lineage: Epochs | None
    source: str
    free_from: int | None = None
    thinned: bool = False
    start: int = 0
    question: int = -1
    done: bool = False
    wrong: str = ""
    settled_below: int = 0
    """The end (exclusive) of the offsets that were taken or refused."""
    _lowest: int = 0
    _seen_bytes: int = 0
    """The longest response of several batches: the source's own limit is not below that."""
    _taken: Taken = field(default_factory=Taken)
    _asking: _Questions | None = None

    def __post_init__(self) -> None:
        """Begin with the hole."""
        self.settled_below = max(self.first, self.start)
        self._lowest = self.first if self.free_from is None else self.free_from
        self._asking = self._walk()
        self.question = next(self._asking)

    def take(self, data: bytes) -> Taken:
        """Take the fitting batches of the response to `question`; empty: the source has none."""
        assert self._asking is not None, "set at the beginning"
        self._taken = Taken()
        try:
            self.question = self._asking.send(data)
        except StopIteration:
            self.done = True
        return self._taken

    def _walk(self) -> _Questions:
        question = self.settled_below
        while question <= self.last:
            answer = self._answer((yield question))
            whole = [batch for batch in answer.batches if batch.data]
            if not whole:
                self._note(f"{self.source} has no whole batch at {question}")
                return
            for index, batch in enumerate(whole):
                if batch.wrong:
                    self._note(batch.wrong)
                elif batch.last < self.settled_below:
                    continue
                elif (yield from self._is_in_place(answer, index, question)):
                    self._settle(batch)
                    if self.settled_below > self.last:
                        return
                else:
                    self._note(
                        f"{self.source}: no neighbour confirms the batch that claims offsets "
                        f"{batch.first} to {batch.last}"
                    )
            if self.settled_below > question:
                question = self.settled_below
            else:  # skip the first batch's length: the next file may begin after it
                question += max(whole[0].last - max(whole[0].first, question), 0) + 1

    def _is_in_place(
        self, answer: _Answer, index: int, question: int
    ) -> Generator[int, bytes, bool]:
        batch = answer.batches[index]
        before, behind = answer.before(index), answer.behind(index)
        if joins(before, batch.first, batch.last, behind):
            return True
        if not is_in_order(before, batch.first, batch.last, behind):
            return False
        if self.thinned and behind is not None:
            return True
        if index == 0 and not answer.begins_with(batch):
            return False
        lowest = max(batch.first, self.start)
        for offset in sorted({lowest, batch.last} - ({question} if index == 0 else set())):
            if not self._answer((yield offset)).begins_with(batch):
                return False
        if batch.first < self.start:
            ends = batch.last == self.last or (
                self._answer((yield batch.last + 1)).first == batch.last + 1
            )
            return ends and (yield from self._shows_what_is_behind(batch))
        return behind is not None or (yield from self._ends_its_file(batch))

    def _ends_its_file(self, batch: _Batch) -> Generator[int, bytes, bool]:
        """True if no limit of the source hides a later batch whose offsets this one claims."""
        below = 1
        while not self._is_longest_seen(batch) and below <= batch.first:
            found = self._answer((yield batch.first - below)).batches
            if not found or found[0].header != batch.header:
                break
            below *= 2
        return below == 1 or (yield from self._shows_what_is_behind(batch))

    def _shows_what_is_behind(self, batch: _Batch) -> Generator[int, bytes, bool]:
        """True if the source sends responses so long that they would show a batch after this one.

        Such a response is searched at the log's start, and after the batch at growing distances.
        """
        for offset in (self.start, *(batch.last + (1 << step) for step in range(_STEPS))):
            if self._is_longest_seen(batch):
                return True
            if not self._answer((yield offset)).batches and offset > batch.last:
                break
        return self._is_longest_seen(batch)

    def _is_longest_seen(self, batch: _Batch) -> bool:
        return self._seen_bytes >= len(batch.data) + HEADER_BYTES

    def _settle(self, batch: _Batch) -> None:
        """Take or refuse a batch whose offsets are trusted."""
        misfit = self._misfit(batch)
        if misfit:
            self._note(misfit)
            return
        if batch.first <= self.last:
            self._taken.add(batch.header, batch.data, self.source)
        self.settled_below = self._lowest = min(batch.last, self.last) + 1

    def _misfit(self, batch: _Batch) -> str:
        if batch.first > self.last:
            return ""
        if batch.first < self._lowest or batch.last > self.last:
            return f"{self.source}: a batch {batch.first} to {batch.last} does not fit the hole"
        if self.lineage is None:
            return ""
        epoch = batch.header.partition_leader_epoch
        expected = epoch_for_offset(self.lineage, max(self.settled_below, batch.first))
        if epoch == expected:
            return ""
        return (
            f"{self.source}: the batch at {batch.first} has leader epoch {epoch}, but the lineage "
            f"has {expected} there"
        )

    def _note(self, wrong: str) -> None:
        self.wrong = self.wrong or wrong

    def _answer(self, data: bytes) -> _Answer:
        found: list[_Batch] = []
        position = 0
        while len(data) - position >= HEADER_BYTES:
            try:
                header = parse_header(data, position, source=self.source, position=position)
            except CorruptData as error:
                self._note(str(error))
                break
            end = position + header.size_bytes
            if end > len(data):
                found.append(_Batch(header, b"", ""))
                break
            batch = data[position:end]
            found.append(_Batch(header, batch, self._damage_of(header, batch, position)))
            position = end
        if found and len(data) > found[0].header.size_bytes:
            self._seen_bytes = max(self._seen_bytes, len(data))
        return _Answer(found)

    def _damage_of(self, header: BatchHeader, data: bytes, position: int) -> str:
        try:
            check_crc(data, 0, header, source=self.source, position=position)
        except CorruptData as error:
            return str(error)
        if shows_cleaner(header.attributes, header.last_offset_delta, header.record_count):
            self.thinned = True
        return ""


def as_runs(taken: Taken, path: Path, position: int) -> tuple[Run, ...]:
    """The stretches as runs of the file at `path`, into which their bytes go at `position`."""
    runs = []
    for first, last, size in taken.stretches:
        runs.append(Run(first, last, path, position, size))
        position += size
    return tuple(runs)
