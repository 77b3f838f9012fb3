"""Trouble is logged when it begins, changes and ends, and not in between."""

from __future__ import annotations

import logging

import pytest

from kafka_formats.errors import InvalidRequest
from rlm.node_problem import ProblemLog

logger = logging.getLogger(__name__)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger.name)
    return caplog


def test_a_step_that_fails_again_and_again_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    log = ProblemLog(logger)
    log.works("looking")
    for _ in range(3):
        log.failed("looking", InvalidRequest("no such folder"))
    log.failed("looking", InvalidRequest("no such disk"))
    log.works("looking")
    log.works("looking")
    assert lines.messages == [
        "looking failed: no such folder",
        "looking failed: no such disk",
        "looking works again",
    ]
    assert [record.exc_info for record in lines.records] == [None, None, None]


def test_what_nobody_foresaw_brings_its_traceback_once(lines: pytest.LogCaptureFixture) -> None:
    log = ProblemLog(logger)
    for _ in range(2):
        log.failed("looking", ZeroDivisionError())
    (record,) = lines.records
    assert record.getMessage() == "looking failed: ZeroDivisionError"
    assert record.exc_info is not None


def test_standing_trouble_is_told_when_it_comes_and_when_it_goes(
    lines: pytest.LogCaptureFixture,
) -> None:
    log = ProblemLog(logger)
    for standing in (["b", "a"], ["a", "b"], ["b"], []):
        log.standing(standing)
    assert lines.messages == ["a", "b", "over: a", "over: b"]
