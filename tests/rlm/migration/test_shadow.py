"""The task that keeps the metadata topic up: when it works, and what it tells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from api.metrics.metrics import NodeMetrics
from kafka_formats.errors import Fenced, RetryLater
from rlm.control.node_problem import ProblemArea
from rlm.migration.shadow import ShadowLimits, ShadowTask
from rlmm.metadata_shadow import Shadow, ShadowLag, TopicPosition
from rlmm.migration_phase import MigrationPhase
from rlmm.records.control_records import MigrationPhaseChange, ShadowWritten
from tests.rlm.kafka_logs import new_log_dir
from tests.rlm.migration.shadow_node import Moved, moved
from tests.rlm.migration.shadow_world import PARTITIONS, TOPIC_ID, Entry, SimTopic, World
from tests.rlm.migration.shadow_world import TopicPartition as JudgedPartition
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.metadata_node import NOW_MS

LIMITS = ShadowLimits()


class Partition(JudgedPartition):
    """One whose records are not those of a world's log."""

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)


class Scene:
    def __init__(self, node: Moved) -> None:
        self.node = node
        self.world = World(Random(1), calm=True, partitions=[Partition() for _ in range(3)])
        self.error: Exception | None = None
        self.opened = 0
        self.handed_over: list[int] = []
        self.takes_over = False
        self.task = ShadowTask(node.manager, self.topic, node.around(), self.hand_over)

    def topic(self) -> SimTopic:
        self.opened += 1
        if self.error is not None:
            raise self.error
        return SimTopic(self.world)

    async def hand_over(self, since: int) -> bool:
        self.handed_over.append(since)
        return self.takes_over

    def in_topic(self) -> list[int]:
        entries = [each for some in self.world.partitions for each in some.entries]
        return sorted(each.metadata_offset for each in entries if each.metadata_offset is not None)

    def told(self) -> str:
        problems = self.task.problems()
        assert all((each.area, each.name) == (ProblemArea.MIGRATION, None) for each in problems)
        return "".join(each.text for each in problems)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with moved(tmp_path) as node:
        yield Scene(node)


async def test_changes_are_written_and_the_rows_go(scene: Scene) -> None:
    await scene.node.copy(3)
    manager = scene.node.manager
    assert manager.shadow_lag() == ShadowLag(6, NOW_MS)
    assert await scene.task.round() == LIMITS.poll_s
    assert len(scene.in_topic()) == 6
    assert manager.shadow_lag() == ShadowLag(0, None)
    end = manager.applied_offset
    scene.node.now += 60
    await scene.task.round()
    assert manager.applied_offset == end, "nothing new is no record"
    await scene.node.copy(1)
    await scene.task.round()
    assert len(scene.in_topic()) == 8
    assert manager.shadow_lag() == ShadowLag(2, NOW_MS), "reported a second later, with the next"
    scene.node.now += LIMITS.look_after_s
    await scene.task.round()
    assert manager.shadow_lag() == ShadowLag(0, None)
    assert scene.told() == ""


async def test_a_node_that_does_not_lead_writes_nothing(scene: Scene) -> None:
    await scene.node.copy(1)
    await scene.task.round()
    other = ShadowTask(
        scene.node.manager, scene.topic, scene.node.around(node_id=7), scene.hand_over
    )
    await scene.node.copy(1)
    assert await other.round() == LIMITS.idle_s
    assert (len(scene.in_topic()), scene.opened) == (2, 1)


async def test_in_other_phases_nothing_is_written(tmp_path: Path) -> None:
    async with moved(tmp_path) as node:
        scene = Scene(node)
        await node.copy(1)
        await scene.task.round()
        await node.phase(MigrationPhase.BACK)
        assert await scene.task.round() == LIMITS.poll_s
        await node.phase(MigrationPhase.KAFKA)
        assert await scene.task.round() == LIMITS.idle_s
        assert node.manager.shadow_lag() is None


async def test_what_waits_at_the_end_of_the_move_is_dropped(scene: Scene) -> None:
    await scene.node.copy(2)
    await scene.node.phase(MigrationPhase.DONE)
    await scene.task.round()
    assert list(scene.node.manager.outbox()) == []
    assert scene.node.manager.shadow() is None
    assert scene.in_topic() == []


async def test_trouble_is_told_after_a_while_and_then_over(scene: Scene) -> None:
    await scene.node.copy(1)
    scene.error = RetryLater("no coordinator")
    assert await scene.task.round() == LIMITS.retry_s
    assert scene.told() == ""
    scene.node.now += LIMITS.told_after_s
    await scene.task.round()
    assert scene.told() == "Kafka's metadata topic is not kept up to date: no coordinator"
    scene.error = None
    scene.node.now += LIMITS.retry_s
    await scene.task.round()
    assert (scene.told(), len(scene.in_topic())) == ("", 2)


async def test_a_fenced_writer_waits_and_then_begins_anew(scene: Scene) -> None:
    await scene.node.copy(1)
    scene.error = Fenced("another producer")
    await scene.task.round()
    scene.error = None
    scene.node.now += LIMITS.fenced_s - 1
    await scene.task.round()
    assert scene.opened == 1
    scene.node.now += 1
    await scene.task.round()
    assert len(scene.in_topic()) == 2


async def test_trouble_that_stays_lets_another_node_write(scene: Scene) -> None:
    """Its broker may answer. Once in ten minutes, or the quorum's leadership went round while Kafka
    is away.
    """
    shadow = scene.node.manager.shadow()
    assert shadow is not None
    scene.error = RetryLater("no broker answers")
    await scene.task.round()
    scene.node.now += LIMITS.hand_over_after_s - 1
    await scene.task.round()
    assert scene.handed_over == []
    scene.node.now += 1
    await scene.task.round()
    assert scene.handed_over == [shadow.begun]
    scene.takes_over = True
    for pause_s in (LIMITS.hand_over_retry_s, LIMITS.hand_over_every_s):
        before = len(scene.handed_over)
        scene.node.now += pause_s - 1
        await scene.task.round()
        assert len(scene.handed_over) == before
        scene.node.now += 1
        await scene.task.round()
        assert len(scene.handed_over) == before + 1


async def test_a_fenced_writer_and_a_way_back_hand_nothing_over(scene: Scene) -> None:
    """Another one writes already; and the attempt of the way back hands over itself."""
    for error in (Fenced("another producer"), RetryLater("no broker answers")):
        scene.error = error
        for _ in range(3):
            await scene.task.round()
            scene.node.now += LIMITS.hand_over_after_s
        if isinstance(error, Fenced):
            await scene.node.phase(MigrationPhase.BACK)
    assert scene.handed_over == []
    assert scene.opened == 6


async def test_whoever_else_writes_freezes_deletes_on_every_node(scene: Scene) -> None:
    await scene.node.copy(1)
    await scene.task.round()
    scene.world.partitions[2].append(Entry(None, b"by a broker", 0, committed=True))
    scene.node.now += LIMITS.look_every_s
    await scene.task.round()
    assert "partition 2 of the topic has a record at offset" in scene.told()
    assert "no segment is deleted" in scene.told()
    follower = ShadowTask(scene.node.manager, scene.topic, scene.node.around(), scene.hand_over)
    assert [each.text for each in follower.problems()] == [scene.told()]


async def test_a_closed_way_back_is_told(scene: Scene) -> None:
    shadow = scene.node.manager.shadow()
    assert shadow is not None
    lost = ShadowWritten(shadow.begun, TOPIC_ID, PARTITIONS, incomplete="partition 1 lost records")
    await scene.node.manager.record_move(lost)
    await scene.node.copy(1)
    await scene.task.round()
    assert "no way back to Kafka's metadata topic" in scene.told()
    assert "partition 1 lost records" in scene.told()
    assert scene.in_topic() == []


async def test_ends_that_the_switch_told_are_where_watching_begins(tmp_path: Path) -> None:
    async with moved(tmp_path) as node:
        scene = Scene(node)
        for each in scene.world.partitions:
            each.append(Entry(None, b"before", 0, committed=True))
        shadow = node.manager.shadow()
        assert shadow is not None
        ends = tuple(TopicPosition(number, 1) for number in range(PARTITIONS))
        report = ShadowWritten(shadow.begun, TOPIC_ID, PARTITIONS, positions=ends)
        await node.manager.record_move(report)
        await scene.task.round()
        assert scene.told() == ""
        scene.world.partitions[0].append(Entry(None, b"behind", 0, committed=True))
        scene.node.now += LIMITS.look_every_s
        await scene.task.round()
        assert "partition 0 of the topic has a record at offset 1" in scene.told()


def test_nothing_is_deleted_while_somebody_else_writes_to_the_topic(tmp_path: Path) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (new_log_dir(tmp_path / "kafka"),))
        async with world.boot() as node:
            await node.metadata.finalise_feature_level(2)
            for phase in (MigrationPhase.KAFKA, MigrationPhase.SWITCHING, MigrationPhase.QUORUM):
                since = node.metadata.migration().since
                change = MigrationPhaseChange(phase, since, "kafka", "ann", "the move")
                await node.metadata.record_move(change)
            held_back = node.parts.held_back
            assert "topic" not in str(held_back.deleting("orders"))
            shadow = node.metadata.shadow()
            assert shadow is not None
            foreign = ShadowWritten(shadow.begun, TOPIC_ID, PARTITIONS, foreign="a broker")
            await node.metadata.record_move(foreign)
            told = "a foreign program writes to Kafka's metadata topic: a broker"
            assert held_back.deleting("orders") == told

    run_virtually(main)


async def test_a_scrape_shows_the_lag() -> None:
    metrics = NodeMetrics()

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"strandline_shadow_{name}")

    metrics.shadow.set(None, None, 5_000)
    assert (value("lag_records"), value("foreign")) == (None, None)
    metrics.shadow.set(Shadow(foreign="a broker"), ShadowLag(7, 2_000), 5_500)
    assert (value("lag_records"), value("lag_seconds")) == (7, 3.5)
    assert value("foreign") == 1
    assert value("incomplete") == 0
    metrics.shadow.set(Shadow(), ShadowLag(0, None), 5_500)
    assert (value("lag_records"), value("lag_seconds")) == (0, 0)


async def test_a_backlog_is_written_and_reported_at_once(scene: Scene) -> None:
    """However many looks that takes: none waits for the next second. What is left then does."""
    manager = scene.node.manager
    await scene.task.round()
    await scene.node.copy(1_001)
    end = manager.applied_offset
    await scene.task.round()
    assert len(scene.in_topic()) == 2_002
    assert manager.shadow_lag() == ShadowLag(2, NOW_MS)
    assert manager.applied_offset == end + 2_000 // LIMITS.transaction.looked_at_max
    scene.node.now += LIMITS.look_after_s
    await scene.task.round()
    assert manager.shadow_lag() == ShadowLag(0, None)


async def test_a_view_that_a_snapshot_replaces_stops_no_round(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that ends is told, and stays ended until the node is started again."""
    await scene.node.copy(3)

    def replaced(_self: object) -> None:
        raise RetryLater("the view is being replaced by a snapshot")

    with monkeypatch.context() as patch:
        patch.setattr(type(scene.node.manager), "shadow", replaced)
        assert await scene.task.round() == LIMITS.idle_s
        assert scene.told() == ""
    await scene.task.round()
    assert len(scene.in_topic()) == 6
