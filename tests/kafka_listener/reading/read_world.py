"""A world in small for `where`: a leader, a tier, a view that lags, and a consumer that reads on.

Contents are (leader epoch, serial number), so that a record of a diverged tail is told from the one
that replaced it. The consumer checks every record, every skip and every refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from kafka_formats.leader_epoch_checkpoint import (
    EpochEntry,
    Epochs,
    append_entry,
    end_offset_for,
    truncate_from_end,
    truncate_from_start,
)
from kafka_listener.reading.fetch_target import (
    FromTier,
    Prefer,
    TierAt,
    Where,
    leader_is_newer,
    waits_for_barrier,
)
from kafka_listener.reading.leaders import agreed_until
from kafka_listener.reading.read_port import (
    BrokerLogEnds,
    EpochEnd,
    GoToBroker,
    LostOffsets,
    NotAvailable,
    OutOfRange,
    TierEnds,
)
from rlmm.lineage import merge

WhereRule = Callable[[int, TierAt, BrokerLogEnds | None, Prefer], Where]
BATCH_RECORDS = 3

Content = tuple[int, int]


@dataclass
class Tier:
    """The metadata and the objects. `segments` are (first, last, contents), in order."""

    segments: list[tuple[int, int, dict[int, Content]]] = field(default_factory=list)
    lost: list[LostOffsets] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    lineage: Epochs = (EpochEntry(0, 0),)

    @property
    def epoch(self) -> int:
        return self.lineage[-1].epoch

    def at(self, offset: int, *, is_current: bool) -> TierAt:
        ends = TierEnds(self.log_start, self.end, self.epoch) if self.segments else None
        served = next(
            ((max(first, offset), last) for first, last, _ in self.segments if last >= offset), None
        )
        lost = next((each for each in self.lost if each.start <= offset <= each.end), None)
        return TierAt(ends, served, lost, is_current)

    def content(self, offset: int) -> Content:
        return next(data[offset] for _, _, data in self.segments if offset in data)


@dataclass
class World:
    chance: Random
    rule: WhereRule
    prefer: Prefer
    truth: dict[int, Content] = field(default_factory=dict)
    tier: Tier = field(default_factory=Tier)
    view: Tier = field(default_factory=Tier)
    epoch: int = 0
    local_start: int = 0
    gone_below: int = 0
    """No replica has older records any more."""
    end: int = 0
    serial: int = 0
    checkpoint: Epochs = (EpochEntry(0, 0),)
    agreed: dict[tuple[int, Epochs], int] = field(default_factory=dict)
    told: BrokerLogEnds | None = None
    position: int = 0
    barrier_works: float = 0.8
    sources: list[str] = field(default_factory=list)

    def step(self) -> None:
        events = (
            self.append, self.append, self.copy, self.copy, self.retain_local, self.retain_tier,
            self.elect, self.claim, self.apply, self.tell, self.fall_silent,
            self.read, self.read, self.read, self.read,
        )  # fmt: skip
        self.chance.choice(events)()

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            self.serial += 1
            self.truth[self.end] = (self.epoch, self.serial)
            self.end += 1

    def copy(self) -> None:
        tier = self.tier
        if tier.epoch != self.epoch:
            return  # only the claimant copies
        if tier.end < self.local_start:
            tier.lost.append(LostOffsets(tier.end, self.local_start - 1, "retention"))
            tier.end = self.local_start
        last = min(tier.end + self.chance.randint(0, 5), self.end - 1)
        if last >= tier.end:
            offsets = range(tier.end, last + 1)
            tier.segments.append((tier.end, last, {each: self.truth[each] for each in offsets}))
            tier.end = last + 1

    def retain_local(self) -> None:
        """Now and then before all is copied, or before the claim that would tell of a cut."""
        bound = self.end if self.chance.random() < 0.3 else min(self.tier.end, self.end)
        if bound > self.local_start and self.tier.segments:
            self.local_start = self.chance.randint(self.local_start, bound)

    def retain_tier(self) -> None:
        if self.chance.random() < 0.3 and self.tier.segments:
            self.tier.log_start = self.chance.randint(self.tier.log_start, self.tier.end)
            kept = [each for each in self.tier.segments if each[1] >= self.tier.log_start]
            self.tier.segments = kept or self.tier.segments[-1:]

    def elect(self) -> None:
        """Of a replica that lacks some of the newest records, perhaps tiered ones, and may have
        older ones than the leader before.
        """
        if self.chance.random() < 0.5:
            return
        self.epoch += 1
        cut = self.chance.randint(max(self.local_start, self.end - 8), self.end)
        for offset in range(cut, self.end):
            del self.truth[offset]
        self.end = cut
        self.local_start = self.chance.randint(
            max(self.gone_below, self.local_start - 4), self.local_start
        )
        self.checkpoint = append_entry(truncate_from_end(self.checkpoint, cut), self.epoch, cut)
        self.told = self.ends()  # while no leader says more, the tier is as its lineage says

    def known_epochs(self) -> Epochs:
        """The leader's checkpoint, whose head goes with its retention."""
        return truncate_from_start(self.checkpoint, self.local_start)

    def claim(self) -> None:
        if self.tier.epoch == self.epoch:
            return
        merged = merge(
            self.tier.lineage, self.known_epochs(), leader_epoch=self.epoch, higher_epoch=True
        )
        self.tier.lineage = merged.epochs
        cut = self.tier.end if merged.cut_at is None else merged.cut_at
        kept = []
        for first, last, data in self.tier.segments:
            if first < cut:
                last = min(last, cut - 1)
                kept.append((first, last, {each: data[each] for each in range(first, last + 1)}))
                self.adopt(kept[-1][2])
        self.tier.segments = kept
        self.tier.end = max(min(self.tier.end, cut), self.tier.log_start)

    def adopt(self, data: dict[int, Content]) -> None:
        """What no leader can tell from its own log any more is the log from its claim on."""
        for at, content in data.items():
            if at < self.local_start and self.truth[at] != content:
                self.truth[at] = content
                self.gone_below = self.local_start

    def apply(self) -> None:
        self.view = deepcopy(self.tier)

    def ends(self) -> BrokerLogEnds:
        start = self.local_start
        return BrokerLogEnds(self.epoch, start, self.end, self.end, log_start_offset=start)

    def tell(self) -> None:
        self.told = self.ends()

    def fall_silent(self) -> None:
        """The leader's word is not known, as after a start of the listener."""
        if self.chance.random() < 0.3:
            self.told = None

    async def end_of(self, epoch: int) -> EpochEnd | None:
        assert self.told is not None
        if self.told.leader_epoch != self.epoch or self.chance.random() < 0.2:
            return None
        end = EpochEnd(*end_offset_for(self.known_epochs(), epoch, self.end))
        return end if self.local_start < end.end_offset else None

    def agree(self, tier: TierAt) -> TierAt:
        """The tier with what the leader said lately, or says now, about its own log."""
        told, lineage = self.told, self.view.lineage
        if told is None or tier.ends is None or not leader_is_newer(tier.ends, told):
            return tier
        question = told.leader_epoch, lineage
        if question not in self.agreed:
            try:
                agreed_until(lineage, self.end_of).send(None)
            except StopIteration as done:
                if done.value is not None:
                    self.agreed[question] = done.value
        return replace(tier, agreed_until=self.agreed.get(question))

    def read(self) -> None:
        found, tier = self.ask(is_current=False)
        if waits_for_barrier(tier, found) and self.chance.random() < self.barrier_works:
            self.apply()
            found, tier = self.ask(is_current=True)
        match found:
            case FromTier(until):
                assert until > self.position
                for offset in range(self.position, min(until, self.position + BATCH_RECORDS)):
                    self.take(offset, self.view.content(offset))
                self.sources.append("tier")
            case GoToBroker(offset):
                assert offset == self.position
                self.read_leader()
            case OutOfRange(start):
                assert self.position < min(self.tier.log_start, self.local_start)
                self.position = start
            case LostOffsets():
                self.skip(found)
            case NotAvailable():
                self.sources.append("nowhere")

    def ask(self, *, is_current: bool) -> tuple[Where, TierAt]:
        tier = self.agree(self.view.at(self.position, is_current=is_current))
        return self.rule(self.position, tier, self.told, self.prefer), tier

    def read_leader(self) -> None:
        if self.position < self.local_start:
            if not self.tier.segments:  # a claim cut off all there was: out of range
                self.position = self.local_start
                return
            assert self.told is None or self.told.local_log_start_offset < self.local_start, (
                "sent to a leader that has said that it has no such offset"
            )
            self.tell()
        elif self.position > self.end:
            self.position = self.end  # the client sees the truncation
            self.tell()
        else:
            for offset in range(self.position, min(self.end, self.position + BATCH_RECORDS)):
                self.take(offset, self.truth[offset])
            self.sources.append("leader")

    def take(self, offset: int, content: Content) -> None:
        assert offset == self.position, "an offset twice, or one skipped"
        assert self.truth.get(offset) == content, "a record of a diverged tail"
        self.position = offset + 1

    def skip(self, lost: LostOffsets) -> None:
        assert lost in self.tier.lost, "skipped, and not recorded as lost"
        assert lost.start <= self.position <= lost.end
        assert self.position < self.local_start, "skipped, and the leader has it"
        self.position = lost.end + 1

    def settle_and_read_all(self) -> None:
        """Everything is told and applied: the consumer comes to the end, from the start again."""
        self.claim()
        self.copy()
        self.apply()
        self.tell()
        self.position = min(self.tier.log_start, self.local_start)
        self.sources.clear()
        self.barrier_works = 1.0
        for _ in range(3 * self.end + 10):
            if self.position == self.end:
                break
            self.read()
            assert self.sources[-1:] != ["nowhere"], "not available, and somebody has it"
        assert self.position == self.end
        changes = sum(one != other for one, other in pairwise(self.sources))
        below = self.local_start < self.tier.log_start  # the leader has an older head, too
        between = sum(self.local_start <= lost.end for lost in self.tier.lost)
        assert changes <= 1 + below + 2 * between, "back and forth between tier and leader"
