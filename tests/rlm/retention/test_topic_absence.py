"""Topics that were deleted in Kafka: marked on the word of several brokers, never by an absence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlm.control.audit import AuditAction, AuditLine
from rlm.control.surroundings import Identity, Surroundings
from rlm.leadership.leadership import NoAnswer
from rlm.retention.topic_absence import LOOK_INTERVAL_S, TopicAbsence
from rlm.retention.topic_absence_plan import ABSENT_FOR_S, LOOKS_MIN, Absence, plan_absence
from rlmm.partition_state import DELETE_GRACE_DEFAULT_MS
from rlmm.records.control_records import PartitionDeleteUndo
from rlmm.segment import PartitionDeleteState
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.planner_facts import ME, uuid
from tests.rlm.virtual_time import run_virtually, virtual_ambient

A, B = uuid(1), uuid(2)
TEN = frozenset(uuid(number) for number in range(1, 11))
LONG_ABSENT = {A: Absence(LOOKS_MIN - 1, 0.0)}
NOW_S = ABSENT_FOR_S


def test_an_id_unknown_to_all_brokers_for_long_is_gone() -> None:
    plan = plan_absence(TEN, {1: {A, B}, 2: {A}}, LONG_ABSENT, NOW_S)
    assert (plan.gone, plan.stopped) == (frozenset({A}), None)
    assert plan.absent == {A: Absence(LOOKS_MIN, 0.0)}


@pytest.mark.parametrize(
    ("answers", "before", "now_s"),
    [
        ({1: {A}}, LONG_ABSENT, NOW_S),  # one broker
        ({1: {A}, 2: set()}, LONG_ABSENT, NOW_S),  # another one knows it
        ({1: {A}, 2: {A}}, {}, NOW_S),  # the first look
        ({1: {A}, 2: {A}}, LONG_ABSENT, NOW_S - 1),  # not for long
        ({1: {A}, 2: {A}}, {A: Absence(1, 0.0)}, NOW_S),  # in too few looks
    ],
)
def test_less_than_that_proves_nothing(
    answers: dict[int, set[Uuid]], before: dict[Uuid, Absence], now_s: float
) -> None:
    assert plan_absence(TEN, answers, before, now_s).gone == frozenset()


def test_an_id_that_somebody_knows_again_begins_anew() -> None:
    assert plan_absence(TEN, {1: {A}, 2: set()}, LONG_ABSENT, NOW_S).absent == {}


def test_many_topics_at_once_are_another_cluster_rather_than_deleted() -> None:
    before = {each: Absence(9, 0.0) for each in TEN}
    some = sorted(TEN)[:3]
    plan = plan_absence(TEN, {1: some, 2: some}, before, NOW_S)
    assert plan.gone == frozenset()
    assert "3 of 10 topics" in str(plan.stopped)


@pytest.mark.parametrize("has", [frozenset({A}), frozenset({A, B})])
def test_while_no_topic_of_the_tier_is_known_none_is_taken_for_deleted(
    has: frozenset[Uuid],
) -> None:
    """A cluster whose metadata was lost, and that was made anew under its old id, knows none."""
    before = {each: Absence(9, 0.0) for each in has}
    plan = plan_absence(has, dict.fromkeys((1, 2), has), before, NOW_S)
    assert plan.gone == frozenset()
    assert "strandline topics delete" in str(plan.stopped)
    assert plan.absent == {each: Absence(10, 0.0) for each in has}


def test_one_of_two_is_deleted_where_the_other_is_known() -> None:
    plan = plan_absence(frozenset({A, B}), {1: {A}, 2: {A}}, LONG_ABSENT, NOW_S)
    assert (plan.gone, plan.stopped) == (frozenset({A}), None)


@dataclass
class Brokers:
    """Two brokers of one mind."""

    unknown: set[Uuid] = field(default_factory=set)
    silent: bool = False

    async def unknown_topic_ids(
        self, ids: Sequence[Uuid]
    ) -> Mapping[int, frozenset[Uuid]] | NoAnswer:
        if self.silent:
            return NoAnswer("broker 2 cannot be asked")
        return dict.fromkeys((1, 2), frozenset(self.unknown.intersection(ids)))


def watcher(node: Node, brokers: Brokers, lines: list[AuditLine]) -> TopicAbsence:
    return TopicAbsence(
        node.metadata, brokers, Surroundings(Identity("c", None, ME), LIMITS, virtual_ambient()),
        node.parts.held_back.deleting, lines.append,
    )  # fmt: skip


async def looks(watch: TopicAbsence, number: int) -> None:
    for _ in range(number):
        await watch.run_pass()
        await watch.around.ambient.sleep(LOOK_INTERVAL_S)


def test_a_deleted_topic_is_marked_with_the_grace_and_once_only(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    other = KafkaLog.create(log.log_dir, "payments", entries=((0, 0),))
    other.write(0, 10, end=15)
    enough = round(ABSENT_FOR_S / LOOK_INTERVAL_S) + 1

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            tip, brokers, lines = log.partition, Brokers(), list[AuditLine]()
            watch = watcher(node, brokers, lines)
            await looks(watch, enough)
            brokers.silent = True
            brokers.unknown = {tip.topic_id}
            await looks(watch, enough)
            brokers.silent = False
            await looks(watch, enough - 1)
            state = node.metadata.partition_state(tip)
            assert state is not None
            assert state.delete_state is None
            await looks(watch, 1)
            state = node.metadata.partition_state(tip)
            assert state is not None
            assert state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED
            assert state.delete_grace_ms == DELETE_GRACE_DEFAULT_MS
            assert [line.action for line in lines] == [AuditAction.PARTITION_MARKED]
            assert "unknown to the brokers 1, 2" in lines[0].why
            await node.metadata.undo_partition_delete(PartitionDeleteUndo(tip, state.delete_offset))
            await looks(watch, 2 * enough)
            state = node.metadata.partition_state(tip)
            assert state is not None
            assert state.delete_state is None, "an admin's word stands"

    run_virtually(main)
