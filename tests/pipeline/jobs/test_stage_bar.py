"""The bar of what Spark has under way, fed by a tracker of made-up stages."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event

import pytest
from pyspark import SparkStageInfo
from rich.console import Console

from pipeline.jobs import stage_bar as module
from pipeline.jobs.stage_bar import StagesSeen, stage_bar

DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASKED_EVERY_S", 0.001)


def stage(number: int, done: int, tasks: int) -> SparkStageInfo:
    return SparkStageInfo(number, 0, "a stage", tasks, tasks - done, done, 0)


@dataclass
class Tracker:
    """`active`: tasks that are through, and all, by stage. `asked` is set behind each look."""

    active: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    forgotten: tuple[int, ...] = ()
    error: Exception | None = None
    asked: Event = field(default_factory=Event)
    asked_twice: Event = field(default_factory=Event)

    def getActiveStageIds(self) -> list[int]:  # noqa: N802  Spark's name
        if self.asked.is_set():
            self.asked_twice.set()
        self.asked.set()
        if self.error is not None:
            raise self.error
        return [*self.active, *self.forgotten]

    def getStageInfo(self, number: int) -> SparkStageInfo | None:  # noqa: N802  Spark's name
        return stage(number, *self.active[number]) if number in self.active else None


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def drawn(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_stage_that_is_no_longer_active_counts_as_through() -> None:
    seen = StagesSeen()
    assert seen.look(Tracker()) == (0, 0)
    assert seen.look(Tracker({1: (3, 10), 2: (0, 4)})) == (3, 14)
    assert seen.look(Tracker({2: (1, 4)})) == (11, 14)
    assert seen.look(Tracker({2: (2, 4), 3: (0, 6)}, forgotten=(9,))) == (12, 20)
    assert seen.look(Tracker()) == (20, 20)


def test_the_bar_shows_how_many_tasks_are_through() -> None:
    console, tracker = terminal(), Tracker({1: (12, 40)})
    with stage_bar("listing the bucket", lambda: tracker, console):
        assert tracker.asked_twice.wait(DEADLINE_S)
    assert "listing the bucket" in drawn(console)
    assert "12/40" in drawn(console)


def test_nothing_is_asked_or_drawn_where_there_is_no_terminal() -> None:
    def no_tracker() -> Tracker:
        raise AssertionError("asked")

    console = Console(file=io.StringIO())
    with stage_bar("listing the bucket", no_tracker, console):
        pass
    assert drawn(console) == ""


def test_a_tracker_that_fails_stops_the_bar_and_not_the_job() -> None:
    tracker = Tracker(error=ConnectionError("the JVM is gone"))
    results = []
    with stage_bar("listing the bucket", lambda: tracker, terminal()):
        assert tracker.asked.wait(DEADLINE_S)
        results.append("the job goes on")
    assert results == ["the job goes on"]
    assert not tracker.asked_twice.is_set()
