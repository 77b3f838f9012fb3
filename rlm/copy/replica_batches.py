"""Chooses the batches that fill a hole from another source of the same log. Pure.

Replicas have the same bytes. A batch that crosses the hole's borders, has another leader epoch than
the lineage or a wrong CRC, or lies where no neighbour bears it out, is not the missing one. So the
source is read from below the hole to above it, and each answer begins with the last batch of the
one before: the neighbours of a batch are always seen, and so is an empty place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, check_crc, parse_header
from rlm.data_plane.segment_survey import is_abort
from rlm.local_log.batch_places import Beside, Place, place_of
from rlm.local_log.damage import Run
from rlm.local_log.gap_rule import Offsets, shows_cleaner


@dataclass(slots=True)
class Taken:
    """The batches taken from one answer: their bytes, one behind another, their stretches as
    (first, last, bytes), and the offsets of abort markers.
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
    """A batch of an answer. `data` empty: the answer's limit cut it. `wrong`: why it is damaged."""

    header: BatchHeader
    data: bytes
    wrong: str

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset


NOTHING_BELOW = Beside(-1, near=False)
"""Before a source's first batch."""


@dataclass(slots=True)
class HoleWalk:
    """A walk through one source for the hole `first` to `last` (inclusive).

    Until it is `done`, `question` is the offset to ask for next. Then `lacking` are offsets for
    which the source has no batch, `doubtful` those that its good batches claim though no neighbour
    bears that out. `wrong`: a sentence if the source has something else there, which does not prove
    that a batch is absent.

    `lineage` None: any leader epoch, where the bytes are judged as a whole. `free_from`: this
    replica has nothing from there to the hole, so the first batch may begin there: batches come
    whole, and DeleteRecords may put a log start inside one. None: it begins at `first` or later.
    `thinned`: gaps are legal.
    """

    first: int
    last: int
    lineage: Epochs | None
    source: str
    free_from: int | None = None
    thinned: bool = False
    question: int = -1
    done: bool = False
    lacking: list[Offsets] = field(default_factory=list)
    doubtful: list[Offsets] = field(default_factory=list)
    wrong: str = ""
    _at: int = 0
    _lowest: int = 0
    _before: Beside | None = None
    """The neighbour below the first batch of the next answer."""
    _resumed: BatchHeader | None = None
    _damage: str = ""
    """The damage found behind the last batch believed."""
    _below: int = 0
    """Offsets below the hole at which the first question is."""
    _stray: BatchHeader | None = None
    """The batch out of place that ended an answer."""

    def __post_init__(self) -> None:
        """Begin with the batch before the hole."""
        self._at = self.first
        self._lowest = self.first if self.free_from is None else self.free_from
        if self.question < 0:
            self.question = max(self.first - 1, 0)

    def take(self, data: bytes) -> Taken:
        """Take the fitting batches of the answer to `question`."""
        taken = Taken()
        batches, is_cut = self._batches(data)
        whole = [batch for batch in batches if batch.data]
        if not whole:
            self._stop(f"{self.source} has no whole batch at {self.question}")
            return taken
        if self._resumed not in (None, whole[0].header):
            self._stop(f"{self.source} has two batches that claim offset {self.question}")
            return taken
        if not is_cut and self._begins_unseen(batches):
            self._below = 2 * self._below + 1
            self.question = max(self.first - 1 - self._below, 0)
            return taken
        if self._before is None and self.question == 0:
            self._before = NOTHING_BELOW
        before, resume, before_resume, is_open = self._before, None, None, False
        is_stray = False
        for batch, behind in zip(whole, (*batches[1:], None), strict=False):
            beside = None if behind is None else Beside(behind.first)
            place = place_of(before, batch.first, batch.last, beside)
            joins = place is Place.BORNE_OUT and before is not None and before.near
            is_open = beside is None and is_cut and not joins and place is not Place.CONTRADICTED
            is_stray = not is_open and self._is_out_of_place(batch, place, before, beside)
            if not is_open and not (is_stray and self.thinned and place is Place.ALONE):
                self._settle(batch, is_stray, taken)
                if self.done:
                    return taken
            if is_open or not (is_stray or batch.wrong or place is Place.CONTRADICTED):
                resume, before_resume = batch, before
            before = Beside(batch.last)
        if is_stray and not is_cut and whole[-1].header != self._stray:
            # Its file ends with it: the next one is found by an offset that is wanted.
            self._before = None if resume is None else Beside(resume.last, near=False)
            self._stray, self._resumed, self.question = whole[-1].header, None, self._at
        elif resume is None or (resume.header == self._resumed and (is_open or len(whole) > 1)):
            # The next batch is damaged, or does not fit into an answer.
            self._stop(f"{self.source} has nothing good behind the offset {self._at - 1}")
        elif resume.header == self._resumed:  # its file ends there
            self._before, self._resumed = Beside(resume.last, near=False), None
            self.question = resume.last + 1
        else:
            self._before, self._resumed = before_resume, resume.header
            self.question = resume.last
        return taken

    def _begins_unseen(self, batches: list[_Batch]) -> bool:
        """True if the first answer is one batch, above its question. The source may have the offset
        asked for under another base offset: what stands before shows.
        """
        if self._before is not None or self._resumed or self._stray or self.question == 0:
            return False
        return len(batches) == 1 and batches[0].first > self.question

    @property
    def settled_below(self) -> int:
        """The end (exclusive) of the decided offsets."""
        return self._at

    def begins_at(self, offset: int) -> None:
        """Note that the file of the next answer begins at `offset`, with its first batch."""
        self._before = Beside(offset - 1)

    def out_of_range(self, start: int, end: int) -> None:
        """Note that the source's log has only [`start`, `end`), without `question`."""
        if self.question >= end and self._resumed is not None:
            self._stop(
                f"{self.source} has a batch that claims offset {self.question}, but nothing bears "
                f"that out: its log ends at {end}"
            )
        elif self.question >= end:
            self._lack(self.last)
        elif self.question < start:
            self._lack(min(start - 1, self.last))
            self.begins_at(start)
            self._resumed, self.question = None, start
        else:
            self._stop(f"{self.source} has [{start}, {end}), and nothing at {self.question}")

    def _lack(self, last: int) -> None:
        if self._at <= last:
            if self._damage:
                self.wrong = self.wrong or self._damage
            else:
                self.lacking.append((self._at, last))
        self._at = max(self._at, last + 1)
        self.done = self._at > self.last

    def _settle(self, batch: _Batch, is_stray: bool, taken: Taken) -> None:
        """Take or refuse a batch."""
        wrong = batch.wrong
        if not wrong and is_stray:
            wrong = (
                f"{self.source}: nothing beside the batch that claims offsets {batch.first} to "
                f"{batch.last} bears that out"
            )
            if batch.last >= self._at:
                self.doubtful.append((batch.first, batch.last))
        if not wrong and batch.last >= self._at:
            wrong = self._misfit(batch)
        if wrong:
            self._damage = self._damage or wrong
            return
        if batch.last >= self._at:
            self._lack(min(batch.first - 1, self.last))
        self._damage = ""
        if self._at <= batch.last and batch.first <= self.last:
            taken.add(batch.header, batch.data, self.source)
            self._at = self._lowest = batch.last + 1
            self.done = self._at > self.last

    def _is_out_of_place(
        self, batch: _Batch, place: Place, before: Beside | None, behind: Beside | None
    ) -> bool:
        """True if nothing bears out its offsets. That they are just those of the hole does, unless
        the batch ends a file: a turned bit may have made them so, while the next file has the real
        ones. In a thinned log the end of a file is believed once it is also the answer to an offset
        of the hole: no other file has that.
        """
        if place is not Place.ALONE or batch.last < self._at:
            return place is Place.CONTRADICTED
        ends_a_file = behind is None and before != NOTHING_BELOW
        if self.thinned:
            return ends_a_file and batch.header != self._stray
        fills_it = self._at == self.first >= batch.first >= self._lowest and batch.last == self.last
        return ends_a_file or not fills_it

    def _misfit(self, batch: _Batch) -> str:
        if batch.first > self.last:
            return ""
        if batch.first < self._lowest or batch.last > self.last:
            return f"{self.source}: a batch {batch.first} to {batch.last} does not fit the hole"
        if self.lineage is None:
            return ""
        epoch = batch.header.partition_leader_epoch
        expected = epoch_for_offset(self.lineage, max(self._at, batch.first))
        if epoch == expected:
            return ""
        return (
            f"{self.source}: the batch at {batch.first} has leader epoch {epoch}, the lineage "
            f"{expected}"
        )

    def _stop(self, why: str) -> None:
        self.done, self.wrong = True, self.wrong or why

    def _batches(self, data: bytes) -> tuple[list[_Batch], bool]:
        """The batches of an answer, the last one perhaps without its end; True if bytes follow."""
        found: list[_Batch] = []
        position = 0
        while len(data) - position >= HEADER_BYTES:
            try:
                header = parse_header(data, position, source=self.source, position=position)
            except CorruptData as error:
                self.wrong = self.wrong or str(error)
                break
            end = position + header.size_bytes
            if end > len(data):
                found.append(_Batch(header, b"", ""))
                break
            batch = data[position:end]
            found.append(_Batch(header, batch, self._damage_of(header, batch, position)))
            position = end
        return found, position < len(data)

    def _damage_of(self, header: BatchHeader, data: bytes, position: int) -> str:
        try:
            check_crc(data, 0, header, source=self.source, position=position)
        except CorruptData as error:
            return str(error)
        if shows_cleaner(header.attributes, header.last_offset_delta, header.record_count):
            self.thinned = True
        return ""


def as_runs(taken: Taken, path: Path, position: int) -> tuple[Run, ...]:
    """The stretches as runs of the file at `path`, to which the bytes go at `position`."""
    runs = []
    for first, last, size in taken.stretches:
        runs.append(Run(first, last, path, position, size))
        position += size
    return tuple(runs)
