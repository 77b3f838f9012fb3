"""A restore that goes on keeps its range, whatever the tier has become since."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from kafka_formats.errors import Conflict, NotFound, RetryLater
from pipeline.read.segment_slice import ReadSettings
from pipeline.restore import produce
from pipeline.restore.kafka_target import KafkaAddress, Progress
from pipeline.restore.produce import COLUMNS, PartitionRestore, Produced, Since, produce_partition
from pipeline.restore.produce_plan import ProducePlan, plan_produce
from pipeline.restore.ranges import Wanted
from pipeline.restore.reports import MissedPartition, ProducedPartition, ProduceReport
from pipeline.restore.restore_note import Begun, parse_begun
from pipeline.source import tier_view
from tests.pipeline.source.tiered import MadeUpCatalogue, partition, segment

P0, P1 = partition(number=0), partition(number=1)
ALL = Wanted("orders")
TENS = tuple((first, first + 9) for first in range(0, 60, 10))


def tier(first: int, end: int) -> MadeUpCatalogue:
    """Segments of ten offsets each, the same in both partitions."""
    wanted = [each for each in TENS if first <= each[0] < end]
    return MadeUpCatalogue({one: [segment(*each, of=one) for each in wanted] for one in (P0, P1)})


def plan(
    catalogue: MadeUpCatalogue, wanted: Wanted = ALL, noted: dict[int, Progress] | None = None
) -> ProducePlan:
    with mock.patch.object(tier_view, "stable_end", lambda found, *_: found[-1].last_offset + 1):
        options = {"strandline.store": "file:///nowhere"}
        return plan_produce(catalogue, options, wanted, COLUMNS, noted or {})


def noted(before: ProducePlan, next_offset: int) -> dict[int, Progress]:
    """What the target says of partition 0 when a run with this plan is killed."""
    return {0: Progress(next_offset, before.partitions[P0].begun.text())}


def spans(plan: ProducePlan) -> dict[int, tuple[tuple[int, int], list[tuple[int, int]]]]:
    return {
        source.partition: (
            (each.begun.first_offset, each.begun.end_offset),
            [(part.first_offset, part.last_offset) for part in each.slices],
        )
        for source, each in plan.partitions.items()
    }


def test_what_was_tiered_since_is_not_restored_where_a_run_goes_on() -> None:
    before = plan(tier(0, 20))
    again = plan(tier(0, 30), noted=noted(before, 10))
    assert again.partitions[P0] == before.partitions[P0]
    assert spans(again)[1] == ((0, 30), [(0, 9), (10, 19), (20, 29)])


def test_retention_behind_a_run_does_not_stop_it() -> None:
    before = plan(tier(0, 30))
    assert spans(plan(tier(10, 30), noted=noted(before, 10)))[0] == ((0, 30), [(10, 19), (20, 29)])


def test_limits_that_retention_has_passed_stop_only_what_was_not_begun() -> None:
    limits = '{"orders": {"0": 0, "1": 10}}'
    wanted = replace(ALL, starting_offsets=limits)
    before = plan(tier(0, 30), wanted)
    again = plan(tier(10, 30), wanted, noted(before, 15))
    assert spans(again)[0] == ((0, 30), [(10, 19), (20, 29)])
    with pytest.raises(Conflict, match="orders-0: offsets 0 to 9 are below the first readable"):
        plan(tier(10, 30), wanted)


def test_retention_where_a_run_has_come_to_is_told_by_offsets_or_passed_over() -> None:
    before = plan(tier(0, 40))
    with pytest.raises(
        Conflict, match=r"orders-0.* come to the offset 12.* offsets 12 to 19: give --skip-lost"
    ):
        plan(tier(20, 40), noted=noted(before, 12))
    skipped = plan(tier(20, 40), replace(ALL, skip_lost=True), noted(before, 12))
    assert spans(skipped)[0] == ((0, 40), [(20, 29), (30, 39)])
    assert skipped.partitions[P0].lost == ((12, 19),)


def test_skipped_offsets_are_named_wherever_they_are() -> None:
    """Before what the tier has, in holes, behind it, and of partitions that it has nothing of."""
    wanted = replace(
        ALL,
        starting_offsets='{"orders": {"0": 3, "1": 0}}',
        ending_offsets='{"orders": {"0": 57, "1": 9}}',
        skip_lost=True,
    )
    found = tier(10, 50)
    del found.tier[P0][1]
    skipped = plan(found, wanted)
    assert spans(skipped) == {0: ((10, 50), [(10, 19), (30, 39), (40, 49)])}
    assert skipped.partitions[P0].lost == ((3, 9), (20, 29), (50, 56))
    assert skipped.missed == {P1: ((0, 8),)}
    again = plan(found, wanted, noted(skipped, 35))
    assert again.partitions[P0].lost == skipped.partitions[P0].lost
    row = ProducedPartition(0, 10, 50, 30, 0, None, 30, None, True, None, None, ((3, 9),))
    missed = (MissedPartition(1, ((0, 8),)),)
    told = "\n".join(ProduceReport("orders", "orders", (row,), None, 1.0, missed).lines())
    assert "orders-0: the offsets 3 to 9 are not restored" in told
    assert "orders-1: the offsets 0 to 8 are not restored" in told


def test_a_restore_that_is_done_does_not_need_the_tier_any_more() -> None:
    before = plan(tier(0, 20))
    again = plan(tier(40, 60), replace(ALL, partitions=(0,)), noted(before, 20))
    assert spans(again) == {0: ((0, 20), [])}
    assert again.partitions[P0].lost == ()
    with pytest.raises(NotFound, match="nothing to restore"):
        plan(tier(40, 60), replace(ALL, starting_offsets='{"orders": {"0": 60, "1": 60}}'))


def test_another_range_or_another_topic_of_the_name_is_not_gone_on_with() -> None:
    before = plan(tier(0, 30))
    less = plan(
        tier(0, 40),
        replace(ALL, ending_offsets='{"orders": {"0": 20, "1": 20}}'),
        noted(before, 10),
    )
    assert spans(less)[0] == ((0, 20), [(0, 9), (10, 19)])
    anew = partition(topic_id=2)
    catalogue = MadeUpCatalogue({anew: [segment(0, 39, of=anew)]})
    assert spans(plan(catalogue, noted=noted(before, 10)))[0] == ((0, 40), [(0, 39)])


def test_a_note_is_read_as_it_was_written_and_fits_where_it_goes() -> None:
    begun = Begun("t" * 249, 2**62, 2**63 - 1, ALL.asked)
    assert parse_begun(begun.text()) == begun
    assert len(begun.text()) < 4096, "offset.metadata.max.bytes"
    for strange in ("", "1", "[]", "{}", "orders from 0 to 9", '{"source": 1}'):
        assert parse_begun(strange) is None
    assert begun.goes_on(replace(begun, asked="the same by offsets"))
    assert begun.goes_on(replace(begun, end_offset=0))
    assert not begun.goes_on(replace(begun, asked="", end_offset=0))
    assert not begun.goes_on(replace(begun, source="another"))


class Target:
    """A PartitionWriter that has been told so much already, and keeps what it is told."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress

    def take_over(self) -> Progress | None:
        return self.progress

    def end_offset(self) -> int:
        return 77

    def commit(self, progress: Progress) -> None:
        self.progress = progress

    def close(self) -> None:
        """Nothing is open."""


def produced(work: PartitionRestore, target: Target) -> Produced:
    with mock.patch.object(produce, "PartitionWriter", return_value=target):
        return produce_partition(work)


def work_of(begun: Begun) -> PartitionRestore:
    address = KafkaAddress({"bootstrap.servers": "nowhere:1"})
    return PartitionRestore(P0, begun, (), {}, ReadSettings(), address, {}, "orders", "owner")


def test_what_the_target_says_at_last_decides() -> None:
    begun = Begun("orders", 0, 30, "all")
    target = Target(Progress(20, replace(begun, asked="0 to 30").text()))
    assert produced(work_of(begun), target).resumed == Since(20, 77)
    assert target.progress == Progress(30, replace(begun, asked="0 to 30").text())
    with pytest.raises(RetryLater, match="run it again"):
        produced(work_of(begun), Target(Progress(20, replace(begun, end_offset=20).text())))
    with pytest.raises(RetryLater, match="was emptied while this run began"):
        produced(work_of(begun), Target(None))
    for other in (replace(begun, asked="", end_offset=20).text(), "of another program"):
        with pytest.raises(Conflict, match="holds a restore of"):
            produced(work_of(begun), Target(Progress(20, other)))
