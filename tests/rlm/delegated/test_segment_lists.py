"""A list that is kept by its changes is the whole list, at every state that is answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import segment_lists, wire
from rlm.delegated.segment_lists import SegmentLists
from rlmm.apply.outcome import Verdict
from rlmm.apply.usual_adds import judged
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.metadata_log import CommittedRecord
from rlmm.partition_state import Mode
from rlmm.records.records import MetadataRecord, encode
from rlmm.rows.rows import OverlayRows
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState
from rlmm.view import segment_changes
from rlmm.view.view import View
from sim.tier import plugin_bodies
from sim.tier.plugin_bodies import ListAnswer
from tests.rlm.delegated.kept_list import KeptList
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import virtual_ambient
from tests.rlmm.metadata_node import (
    NOW_MS,
    PARTITION,
    claim,
    finished,
    started,
)

OTHER = TopicIdPartition("payments", Uuid(b"topic-id-paymen."), 3)
EPOCHS = (0, 1, 2, 3)
STARTED, FINISHED = SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED
DELETING, DELETED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED


@dataclass(slots=True)
class World:
    """A node, the segments of two partitions as events change them, and callers that list one."""

    view: View
    chance: Random
    boot: int = 1
    number: int = 0
    token: dict[TopicIdPartition, int] = field(default_factory=dict)
    rows: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    reads: MetadataReads = field(init=False)
    lists: SegmentLists = field(init=False)
    events_in_a_breath: float = 0.0
    own_epochs: Epochs = ()
    counts_deleting: bool = False
    led_from: int = 0

    def is_left_out(self, row: RemoteLogSegmentMetadata, epoch: int | None) -> bool:
        return (self.counts_deleting or epoch is not None) and row.state is DELETING

    def begin_life(self) -> None:
        self.reads = MetadataReads(self.view, states_kept_max=9)
        ambient = replace(virtual_ambient(), sleep=self.breathe)
        self.lists = SegmentLists(
            self.reads, ambient, uuid(self.boot), lambda _: self.own_epochs, self.is_left_out,
            lambda _: self.led_from,
        )  # fmt: skip
        for tip in (PARTITION, OTHER):
            self.claim(tip, ((1, 0),))

    def claim(self, tip: TopicIdPartition, epochs: tuple[tuple[int, int], ...]) -> None:
        """Of the leadership of the last epoch."""
        claimed = claim(epoch=epochs[-1][0], boot=self.boot, epochs=epochs, partition=tip)
        assert self.commit(replace(claimed, mode=Mode.DELEGATED))
        self.token[tip] = self.view.applied_offset

    def commit(self, record: MetadataRecord) -> bool:
        """Apply it as a node does; False: it was refused."""
        proposal, before = encode(record), self.view.applied_offset
        committed = CommittedRecord(before + 1, 1, NOW_MS, proposal.control_type, proposal.value)
        overlay = OverlayRows(self.view)
        (judgement,) = judged(overlay, [committed])
        changes = overlay.changes()
        self.view.commit_changes(changes, applied_offset=before + 1, epoch=1)
        self.reads._changes.committed(changes, before)
        return judgement[1].verdict is Verdict.ACCEPTED

    async def breathe(self, _: float) -> None:
        if self.chance.random() < self.events_in_a_breath:
            self.event()

    def restart(self) -> None:
        self.boot += 1
        self.begin_life()

    def event(self) -> None:
        row = self.chance.choice(self.rows) if self.rows else None
        if row is None or self.chance.random() < 0.4:
            self.add()
            return
        following = {STARTED: (FINISHED, FINISHED, DELETING), FINISHED: (DELETING,)}
        to = self.chance.choice(following.get(row.state, (DELETED,)))
        self.rows.remove(row)
        if self.commit(self.update(row, to)):  # else it was started in an earlier life
            row = replace(row, state=to)
        if row.state is not DELETED:
            self.rows.append(row)

    def update(
        self, row: RemoteLogSegmentMetadata, to: SegmentState
    ) -> RemoteLogSegmentMetadataUpdate:
        token = self.token[row.segment_id.partition]
        update = replace(finished(row, boot=self.boot), state=to, token=token)
        return replace(update, expected_state=row.state if to is DELETING else None)

    def add(self) -> None:
        tip = PARTITION if self.chance.random() < 0.8 else OTHER
        self.number += 1
        start = self.chance.randrange(0, 400, 10)
        epochs = sorted(self.chance.sample(EPOCHS, self.chance.randint(1, 3)))
        starts = sorted(self.chance.sample(range(max(start - 20, 0), start + 99), len(epochs)))
        row = replace(
            started(self.number, self.token[tip], start=start, boot=self.boot),
            leader_epochs=tuple(zip(epochs, starts, strict=True)),
        )
        row = replace(row, segment_id=replace(row.segment_id, partition=tip))
        assert self.commit(row)
        self.rows.append(row)


@dataclass(slots=True)
class Lister:
    """A plug-in with one list."""

    world: World
    kept: KeptList
    found: Counter[int] = field(default_factory=Counter)

    async def ask(self, tag: bytes | None, cursor: bytes | None) -> ListAnswer:
        epoch = wire.ALL_EPOCHS if self.kept.epoch is None else self.kept.epoch
        asked = wire.ListSegments(PARTITION, epoch, tag, cursor)
        body = await self.world.lists.answer(asked, takes_changes=True)
        return plugin_bodies.read_list(body, PARTITION)

    async def refresh(self) -> None:
        before = self.kept.forms[wire.LIST_PAGE]
        await self.kept.refresh(self.ask)
        if self.kept.forms[wire.LIST_PAGE] == before:
            self.check()

    def check(self) -> None:
        """The rows are those of the whole list, as far as they go."""
        kept, epoch = self.kept, self.kept.epoch
        listed = self.world.reads.list_remote_log_segments(PARTITION, epoch)
        whole = kept.within(
            [
                replace(row, size_bytes=0) if row.end_offset < self.world.led_from else row
                for row in listed
                if not self.world.is_left_out(row, epoch)
            ]
        )
        assert list(map(plugin_bodies.row, kept.rows)) == list(map(plugin_bodies.row, whole))

    async def read_on(self, pages: int) -> None:
        while self.kept.cursor is not None and pages > 0 and await self.kept.next_page(self.ask):
            pages -= 1


async def lived(view: View, chance: Random) -> list[int]:
    """Forms of the answers in a life of random events, questions and restarts."""
    world = World(view, chance, events_in_a_breath=chance.choice((0, 0.5)))
    world.counts_deleting = chance.random() < 0.5
    world.begin_life()
    listers = [Lister(world, KeptList(epoch)) for epoch in (None, None, *EPOCHS)]
    for _ in range(120):
        for _ in range(chance.choice((0, 1, 1, 2, 9))):
            world.event()
        lister = chance.choice(listers)
        await lister.refresh()
        await lister.read_on(chance.choice((0, 1, 99)))
        if chance.random() < 0.02:
            world.restart()
        if chance.random() < 0.04:
            world.led_from = chance.choice((0, 100, 200, 400))
    for lister in listers:
        await lister.refresh()
        await lister.read_on(99)
        world.events_in_a_breath = 0
        await lister.refresh()
        await lister.read_on(99)
        lister.check()
        assert lister.kept.cursor is None
    return [sum(counts) for counts in zip(*(each.kept.forms for each in listers), strict=True)]


@pytest.mark.parametrize("seed", range(12))
async def test_a_list_kept_by_changes_is_the_whole_list(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(seed)
    monkeypatch.setattr(segment_lists, "PAGE_ROWS", chance.choice((3, 10, 500)))
    monkeypatch.setattr(segment_lists, "ROWS_PER_BREATH", 2)
    monkeypatch.setattr(segment_changes, "PARTITION_CHANGES_MAX", chance.choice((4, 20, 500)))
    monkeypatch.setattr(segment_changes, "CHANGES_MAX", chance.choice((5, 500)))
    monkeypatch.setattr(segment_changes, "PARTITIONS_MAX", chance.choice((1, 500)))
    view = View.open(tmp_path / "view")
    try:
        forms = await lived(view, chance)
    finally:
        view.close()
    assert forms[wire.LIST_PAGE] > 0
    assert forms[wire.LIST_CHANGES] > 0


async def test_a_list_of_an_epoch_ends_where_the_epoch_does(tmp_path: Path) -> None:
    """Kafka's findLogStartOffset takes the first segment in the list of the broker's first epoch:
    one that lies behind that epoch's end would move the log start over the leader's own records.
    """
    view = View.open(tmp_path / "view")
    try:
        world = World(view, Random(1))
        world.begin_life()
        world.claim(PARTITION, ((1, 0), (2, 120)))
        for number, (start, epochs) in enumerate(
            [(0, ((1, 0),)), (100, ((1, 0), (2, 120))), (200, ((2, 120),))]
        ):
            row = started(number, world.token[PARTITION], start=start)
            world.rows.append(replace(row, leader_epochs=epochs))
            assert world.commit(world.rows[-1])
        listers = {each: Lister(world, KeptList(each)) for each in (None, 1, 2)}
        await _starts(listers, {None: [0, 100, 200], 1: [0, 100], 2: [100, 200]})
        # An unclean leader had up to 100 alone.
        world.claim(PARTITION, ((1, 0), (3, 100)))
        await _starts(listers, {None: [0, 100, 200], 1: [0], 2: [100, 200]})
        assert world.commit(world.update(world.rows[1], FINISHED))
        await _starts(listers, {None: [0, 100, 200], 1: [0], 2: [100, 200]})
        assert listers[1].kept.forms == [2, 0, 1]
        # Its log has no record of epoch 1 any more: now the broker's expiration wants them.
        world.own_epochs = (EpochEntry(3, 100),)
        await _starts(listers, {None: [0, 100, 200], 1: [0, 100], 2: [100, 200]})
        finished = replace(world.rows[1], state=FINISHED)
        assert world.commit(world.update(finished, DELETING))
        await _starts(listers, {None: [0, 100, 200], 1: [0], 2: [200]})
    finally:
        view.close()


async def test_what_a_leaders_log_begins_above_is_listed_with_no_bytes(tmp_path: Path) -> None:
    """Where its log began is in the tag: a list that was kept until it is noted counts too much."""
    view = View.open(tmp_path / "view")
    try:
        world = World(view, Random(1))
        world.begin_life()
        for number, start in enumerate((0, 100, 200)):
            world.rows.append(started(number, world.token[PARTITION], start=start))
            assert world.commit(world.rows[-1])
        whole = world.rows[0].size_bytes
        assert whole > 0
        listers = [Lister(world, KeptList(each)) for each in (None, 1)]
        for lister in listers:
            await _sizes(lister, [whole, whole, whole])
        world.led_from = 199  # its log begins amid the second
        for lister in listers:
            await _sizes(lister, [0, whole, whole])
        assert world.commit(world.update(world.rows[0], FINISHED))
        for lister in listers:
            await _sizes(lister, [0, whole, whole])
            assert lister.kept.forms == [2, 0, 1]
        world.led_from = 200
        for lister in listers:
            await _sizes(lister, [0, 0, whole])
    finally:
        view.close()


async def _sizes(lister: Lister, expected: list[int]) -> None:
    await lister.kept.refresh(lister.ask)
    assert [row.size_bytes for row in lister.kept.rows] == expected


async def _starts(listers: dict[int | None, Lister], expected: dict[int | None, list[int]]) -> None:
    for epoch, lister in listers.items():
        await lister.kept.refresh(lister.ask)
        starts = [row.start_offset for row in lister.kept.rows]
        assert (epoch, starts) == (epoch, expected[epoch])
