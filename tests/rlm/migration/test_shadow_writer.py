"""The writer beside a topic that is not what it was."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pytest

from kafka_formats.errors import Conflict, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.migration.shadow_writer import ShadowWriter
from rlmm.metadata_shadow import OutboxRow
from rlmm.records.control_records import ShadowWritten
from tests.rlm.migration.shadow_world import (
    Entry,
    Node,
    SimTopic,
    World,
    partition_of,
    state_of,
)

Result = TypeVar("Result")


def done(work: Coroutine[Any, Any, Result]) -> Result:
    """Its result, with nothing between its steps."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: Result = end.value
            return result


class Scene:
    """One node and a topic that has a few changes, read and reported."""

    def __init__(self) -> None:
        self.world = World(Random(7), calm=True)
        for _ in range(20):
            self.world.accept()
        self.node = Node(self.world, 0)
        self.world.nodes = [self.node]
        self.now = 0.0
        self.writer = self.new_writer()
        self.written()

    def new_writer(self) -> ShadowWriter:
        return ShadowWriter(SimTopic(self.world), self.node, partition_of, lambda: self.now)

    def written(self) -> None:
        self.node.apply(100)
        while done(self.writer.step()):
            pass
        done(self.writer.look())

    def reports(self) -> list[ShadowWritten]:
        return [each for each in self.world.log if isinstance(each, ShadowWritten)]


def test_a_topic_is_brought_after_the_log_and_the_rows_go() -> None:
    scene = Scene()
    assert scene.node.rows == {}
    assert scene.node.state.written_up_to == 19
    assert all(state_of(each.seen) == each.states[-1] for each in scene.world.partitions)
    reports = len(scene.reports())
    scene.written()
    assert len(scene.reports()) == reports, "nothing new is no record of the log"


def test_a_record_of_somebody_else_is_an_alarm_that_stays() -> None:
    scene = Scene()
    value = next(each.value for each in scene.world.log if isinstance(each, OutboxRow))
    scene.world.partitions[1].append(Entry(None, None, 0))
    scene.world.partitions[1].entries.append(Entry(None, value, 0, committed=True))
    done(scene.writer.look())
    assert "partition 1 of the topic has a record at offset" in scene.node.state.foreign
    assert scene.node.state.incomplete == ""
    scene.world.accept()
    scene.written()
    assert scene.node.rows == {}, "it goes on writing"
    assert sum(bool(each.foreign) for each in scene.reports()) == 1
    assert scene.node.known[1].next_offset == len(scene.world.partitions[1].entries)


def test_records_from_before_the_first_look_are_nobody_elses() -> None:
    scene = Scene()
    scene.node.known.clear()
    for each in scene.world.partitions:
        each.entries.insert(0, Entry(None, b"from before the switch", 0, committed=True))
    scene.writer = scene.new_writer()
    scene.written()
    assert scene.node.state.foreign == ""


def test_lost_records_are_believed_after_a_while() -> None:
    scene = Scene()
    scene.world.partitions[0].entries.clear()
    for now in (0.0, 119.0):
        scene.now = now
        with pytest.raises(RetryLater, match="were lost"):
            done(scene.writer.look())
    scene.now = 121.0
    with pytest.raises(Conflict, match="partition 0 of the topic: it ends at offset 0"):
        done(scene.writer.look())
    assert "were lost" in scene.node.state.incomplete


def test_a_broker_that_was_behind_for_a_moment_is_no_loss() -> None:
    scene = Scene()
    kept = list(scene.world.partitions[0].entries)
    scene.world.partitions[0].entries.clear()
    with pytest.raises(RetryLater):
        done(scene.writer.look())
    scene.world.partitions[0].entries.extend(kept)
    scene.now = 100.0
    done(scene.writer.look())
    scene.world.partitions[0].entries.clear()
    scene.now = 200.0
    with pytest.raises(RetryLater):
        done(scene.writer.look())
    assert scene.node.state.incomplete == ""


def ten_acknowledged(scene: Scene) -> list[list[Entry]]:
    """Written and not read back; an unclean election takes them from the topic. Returns them."""
    before = [len(each.entries) for each in scene.world.partitions]
    for _ in range(10):
        scene.world.accept()
    scene.node.apply(100)
    while done(scene.writer.step()):
        pass
    gone = []
    for each, length in zip(scene.world.partitions, before, strict=True):
        gone.append(each.entries[length:])
        del each.entries[length:]
    return gone


def test_acknowledged_changes_that_are_lost_before_they_are_read_back_are_written_again() -> None:
    scene = Scene()
    assert any(ten_acknowledged(scene))
    for now in (0.0, 119.0):
        scene.now = now
        for work in (scene.writer.look, scene.writer.step):
            with pytest.raises(RetryLater, match="was acknowledged: it is written again"):
                done(work())
        assert len(scene.node.rows) == 10
    scene.now = 121.0
    scene.written()
    scene.node.apply(100)
    assert (scene.node.rows, scene.node.state.incomplete) == ({}, "")
    for each in scene.world.partitions:
        offsets = [entry.metadata_offset for entry in each.entries if entry.value is not None]
        assert offsets == sorted(set(offsets), key=lambda offset: offset or -1)


def test_acknowledged_changes_that_a_deposed_broker_lacked_are_not_written_twice() -> None:
    scene = Scene()
    gone = ten_acknowledged(scene)
    with pytest.raises(RetryLater):
        done(scene.writer.look())
    lengths = []
    for each, entries in zip(scene.world.partitions, gone, strict=True):
        each.entries.extend(entries)
        lengths.append(len(each.entries))
    scene.now = 121.0
    scene.written()
    scene.node.apply(100)
    assert (scene.node.rows, scene.node.state.incomplete) == ({}, "")
    assert [len(each.entries) for each in scene.world.partitions] == lengths


def test_another_history_in_the_topic_is_told() -> None:
    scene = Scene()
    scene.world.partitions[0].entries.append(Entry(5_000, b"lost", 0))
    with pytest.raises(Conflict, match="metadata offset 5000 that is not in this metadata log"):
        done(scene.writer.look())


def test_another_change_at_the_same_offset_is_told() -> None:
    scene = Scene()
    scene.world.accept()
    scene.node.apply(10)
    (row,) = scene.node.rows.values()
    scene.world.partitions[0].entries.append(Entry(row.offset, b"another", 0))
    with pytest.raises(Conflict, match=f"metadata offset {row.offset} that is not in this"):
        done(scene.writer.look())


def test_a_topic_made_anew_is_told() -> None:
    scene = Scene()
    scene.node.state = replace(scene.node.state, topic_id=Uuid(b"another-topic-id"))
    with pytest.raises(Conflict, match="it was recreated, or widened"):
        done(scene.writer.look())


def test_once_given_up_nothing_is_written_and_the_rows_go() -> None:
    scene = Scene()
    scene.node.state = replace(scene.node.state, incomplete="lost")
    before = [len(each.entries) for each in scene.world.partitions]
    for _ in range(5):
        scene.world.accept()
    scene.written()
    assert scene.node.rows == {}
    assert [len(each.entries) for each in scene.world.partitions] == before


def test_a_partition_without_leader_keeps_only_its_own_changes_waiting() -> None:
    scene = Scene()
    scene.world.partitions[0].has_leader = False
    for _ in range(30):
        scene.world.accept()
    scene.writer = scene.new_writer()
    scene.written()
    assert scene.writer.unread == {0}
    for number, each in enumerate(scene.world.partitions):
        assert (state_of(each.seen) == each.states[-1]) is (number != 0)
    scene.world.partitions[0].has_leader = True
    done(scene.writer.look())
    scene.written()
    assert scene.node.rows == {}
