"""What is remembered of a partition from look to look."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlm.control.backoff import BackOff
from rlm.copy.partition_work import PartitionWork
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition, LocalSegment
from rlm.local_log.lost_epochs import FoundEpochs
from rlmm.lineage import merge
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.partition_state import PartitionState
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tests.rlm.planner_facts import NOW_MS, ONE_EPOCH, PARTITION, claim, epochs, state

FAILED = BackOff(1, NOW_MS + 60_000)


def segment(base: int, next_base: int | None) -> LocalSegment:
    return LocalSegment(base, Path("log") / f"{base}.log", 100, next_base)


def replica(*bases: int) -> LocalPartition:
    nexts = (*bases[1:], None)
    segments = tuple(segment(*each) for each in zip(bases, nexts, strict=True))
    return LocalPartition(PARTITION, Path("log"), segments, ONE_EPOCH, b"", None, None, (), 0)


def held(base: int, next_base: int) -> Unit:
    return Unit(PARTITION, segment(base, next_base), ONE_EPOCH, base, True, 0)


def test_a_segment_that_failed_to_fill_a_lost_range_is_forgotten_once_it_is_gone() -> None:
    work = PartitionWork(PARTITION, fills_failed={(0, 9): FAILED, (10, 19): FAILED})
    work.seen(replica(10, 20))
    assert set(work.fills_failed) == {(10, 19)}
    work.seen(None)
    assert work.fills_failed == {}


def test_a_held_one_backs_off_over_looks_as_well() -> None:
    """Its copy was tried at each look."""
    work = PartitionWork(PARTITION, units=(held(0, 10),), fills_failed={(0, 9): FAILED})
    work.seen(replica(10, 20))
    assert set(work.fills_failed) == {(0, 9)}
    assert work.fills_not_now(NOW_MS) == {(0, 9)}
    work.units = ()
    work.seen(replica(10, 20))
    assert work.fills_failed == {}


class Recorded:
    """The metadata know one state, and some segments; `serves`: these serve everything."""

    def __init__(
        self,
        known: PartitionState,
        *segments: RemoteLogSegmentMetadata,
        serves: bool = False,
    ) -> None:
        self._known = known
        self._segments = segments
        self._serves = serves

    def partition_state(self, _partition: object) -> PartitionState:
        return self._known

    def list_remote_log_segments(
        self, _partition: object, epoch: int
    ) -> list[RemoteLogSegmentMetadata]:
        return [each for each in self._segments if epoch in dict(each.leader_epochs)]

    def serves_any(self, *_of: object) -> bool:
        return self._serves


@pytest.mark.parametrize(
    ("start", "known"),
    [
        pytest.param(10, (-1, -1, -1), id="DeleteRecords took nothing of them"),
        pytest.param(13, (13, -1, -1), id="it reached into the first"),
        pytest.param(20, (20, -1, -1), id="it took the first, whose file goes later"),
        pytest.param(24, (24, 24, -1), id="it took the first, and reached into the second"),
        pytest.param(31, (31, 31, 31), id="it reached into the active one"),
    ],
)
def test_segments_tell_what_delete_records_left_of_them(start: int, known: tuple[int, ...]) -> None:
    """By the first epoch, and by the broker's checkpoint only if there are no epochs."""
    cut = replace(held(0, 10), segment=replace(segment(0, 10), first_known_offset=4))
    for log in (
        replace(replica(10, 20, 30), leader_epochs=epochs((0, start)), log_start_offset=12),
        replace(replica(10, 20, 30), leader_epochs=(), log_start_offset=start),
    ):
        work = PartitionWork(PARTITION, local=log, units=(cut,) if log.leader_epochs else ())
        told = [each.first_known_offset for each in work.segments]
        assert told == [*(4 for _ in work.kept), *known]
        assert work.local == log  # what was looked at stays as it was
    assert not work.kept


def test_epochs_found_in_the_batches_bring_back_what_a_lost_checkpoint_hid() -> None:
    log = replace(replica(10, 20), leader_epochs=epochs((3, 24)))
    work = PartitionWork(PARTITION)
    work.seen(log)
    assert [each.first_known_offset for each in work.segments] == [24, 24]
    assert work.learn(FoundEpochs(epochs((2, 12)), log.leader_epochs[0]))
    assert [each.first_known_offset for each in work.segments] == [12, -1]


def test_a_claim_at_a_claimed_epoch_tells_no_head_that_came_to_light_since() -> None:
    """The hold was switched off at its first claim: apply refuses another begin at that epoch."""
    log = replace(replica(200, 250), leader_epochs=epochs((7, 200), (8, 300)))
    unit = replace(held(150, 200), leader_epochs=epochs((7, 150)), followed_by=7)
    lineage = epochs((5, 0), (6, 100), (7, 200), (8, 300))
    work = PartitionWork(PARTITION, local=log, units=(unit,), lineage=lineage, next_offset=250)

    def told(last_claimed: int) -> int | None:
        known = state(lineage=lineage, standing=claim(leader_epoch=last_claimed))
        told = work.epochs_to_claim(8, cast(MetadataReads, Recorded(known)))
        return merge(lineage, told, leader_epoch=8, higher_epoch=True).cut_at

    assert told(last_claimed=7) == 150
    assert told(last_claimed=8) is None


def test_a_claim_leaves_an_offset_that_is_served_where_a_held_segment_proves_nothing() -> None:
    log = replace(replica(200, 250), leader_epochs=epochs((8, 240)))
    unit = replace(held(150, 200), leader_epochs=epochs((7, 150)), followed_by=7)
    known = state(lineage=epochs((5, 0), (7, 200), (8, 240)), standing=claim(leader_epoch=7))
    work = PartitionWork(PARTITION, local=log, units=(unit,), lineage=known.lineage)

    def told(*, serves: bool) -> tuple[int, ...]:
        metadata = cast(MetadataReads, Recorded(known, serves=serves))
        return tuple(start for _, start in work.epochs_to_claim(8, metadata))

    assert told(serves=False) == (0, 150, 240)
    assert told(serves=True) == (240,)


def tiered(end: int, *leader_epochs: tuple[int, int]) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, Uuid(bytes(16))), leader_epochs[0][1], end, 1, 1, 1,
        leader_epochs, 100, None, SegmentState.COPY_SEGMENT_FINISHED,
    )  # fmt: skip


@pytest.mark.parametrize("cut_at", [32, 12])
def test_a_claim_unseen_here_takes_nothing_that_the_tier_proves(cut_at: int) -> None:
    """Two unclean elections, and the second leader claims before it sees the first one's claim."""
    log = replace(replica(44, 48), leader_epochs=epochs((2, 44), (4, 54)))
    known = state(lineage=epochs((0, 0), (1, 15), (2, 36)), standing=claim(leader_epoch=2))
    segments = tiered(20, (0, 10), (1, 15)), tiered(39, (1, 21), (2, 36)), tiered(43, (2, 40))
    work = PartitionWork(PARTITION, local=log, lineage=known.lineage, next_offset=44)
    told = work.epochs_to_claim(4, cast(MetadataReads, Recorded(known, *segments)))
    unseen = (
        (*epochs((0, 0), (1, 15)), *epochs((3, 32))) if cut_at == 32 else epochs((0, 0), (3, 12))
    )
    merged = merge(unseen, told, leader_epoch=4, higher_epoch=True).epochs
    assert merged == epochs((0, 0), (1, 15), (2, 36), (4, 54))


def test_the_recorded_start_of_its_first_epoch_stays_where_the_tier_has_nothing_of_it() -> None:
    log = replace(replica(44, 48), leader_epochs=epochs((2, 44), (4, 54)))
    known = state(lineage=epochs((0, 0), (1, 15), (2, 36)), standing=claim(leader_epoch=2))
    work = PartitionWork(PARTITION, local=log, lineage=known.lineage, next_offset=44)
    told = work.epochs_to_claim(4, cast(MetadataReads, Recorded(known)))
    unseen = epochs((0, 0), (1, 15), (3, 32))
    merged = merge(unseen, told, leader_epoch=4, higher_epoch=True).epochs
    assert merged == epochs((0, 0), (1, 15), (2, 36), (4, 54))
