"""Trouble is logged when it begins, at intervals, and when it ends."""

from __future__ import annotations

import logging

import pytest

from kafka_formats.errors import InvalidRequest
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog, StandingProblems, by_key

logger = logging.getLogger(__name__)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger.name)
    return caplog


def test_what_was_foreseen_is_a_problem_of_the_node_and_no_line_of_its_own(
    lines: pytest.LogCaptureFixture,
) -> None:
    log = ProblemLog(logger)
    log.failed("looking", InvalidRequest("no such folder"))
    log.works("looking")
    assert lines.messages == []


def test_what_nobody_foresaw_brings_its_traceback_once(lines: pytest.LogCaptureFixture) -> None:
    log = ProblemLog(logger)
    for _ in range(2):
        log.failed("looking", ZeroDivisionError())
    (record,) = lines.records
    assert record.getMessage() == "looking failed: ZeroDivisionError"
    assert record.exc_info is not None


def test_standing_trouble_is_told_when_it_comes_at_intervals_and_when_it_goes(
    lines: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    standing = StandingProblems(logger, lambda: now[0], repeat_s=600.0)
    store = NodeProblem(ProblemArea.STORE, "main", "no answer in 9 s")
    later = NodeProblem(ProblemArea.STORE, "main", "no answer in 11 s")
    clock = NodeProblem(ProblemArea.CLOCK, None, "an hour ahead")
    standing.tell(by_key([store, clock]))
    for now[0] in (5.0, 599.0):
        standing.tell(by_key([clock, later]))
    now[0] = 600.0
    standing.tell(by_key([later]))
    standing.tell({})
    assert lines.messages == [
        "problem with clock: an hour ahead",
        "problem with store main: no answer in 9 s",
        "still: problem with store main: no answer in 11 s",
        "over: problem with clock",
        "over: problem with store main",
    ]
