"""Areas of the log: every logger of ours is in one, and a change reaches the loggers."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterator, Mapping

import pytest

from rlm.control.log_levels import LOGGERS, LogArea, LogLevel, LogLevels, area_of, set_levels

PACKAGES = ("strandline", "api", "kafka_listener", "rlm", "rlmm", "kafka_client", "rsm_backends")


@pytest.fixture
def loggers() -> Iterator[None]:
    names = [name for names in LOGGERS.values() for name in names]
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize(
    ("logger", "area"),
    [
        ("strandline", LogArea.NODE),
        ("strandline.node.node", LogArea.NODE),
        ("strandline.api", LogArea.HTTP),
        ("rlmm.quorum.driver", LogArea.QUORUM),
        ("rlmm.wire.peers", LogArea.QUORUM),
        ("rlmm.manager.manager", LogArea.METADATA),
        ("rlm.copy.copier", LogArea.TIER),
        ("rlm.worker.pool", LogArea.WORKERS),
        ("rlm.workerless", LogArea.TIER),
        ("rsm_backends.measured_store", LogArea.STORES),
        ("aiobotocore.credentials", None),
        ("botocore.auth", None),
        ("root", None),
    ],
)
def test_a_logger_belongs_to_the_nearest_area(logger: str, area: LogArea | None) -> None:
    assert area_of(logger) is area


def test_every_logger_of_ours_is_in_an_area() -> None:
    found = set()
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for each in pkgutil.walk_packages(path, f"{package}."):
            if each.name.rpartition(".")[2] != "__main__":
                found |= {
                    value.name
                    for value in vars(importlib.import_module(each.name)).values()
                    if isinstance(value, logging.Logger)
                }
    assert len(found) > 30
    assert {name for name in found if area_of(name) is None} == set()


@pytest.mark.usefixtures("loggers")
def test_an_area_alone_becomes_louder_or_quieter() -> None:
    set_levels(LogLevels({LogArea.STORES: LogLevel.DEBUG}).levels)
    assert logging.getLogger("rsm_backends.s3").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("rlm.copy.copier").isEnabledFor(logging.DEBUG)
    set_levels(LogLevels({LogArea.NODE: LogLevel.ERROR}).levels)
    assert not logging.getLogger("rsm_backends.s3").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("strandline.node.node").isEnabledFor(logging.WARNING)
    assert logging.getLogger("strandline.api").isEnabledFor(logging.INFO)


def test_a_listener_hears_of_what_holds_and_of_changes() -> None:
    heard: list[Mapping[LogArea, LogLevel]] = []
    levels = LogLevels({LogArea.HTTP: LogLevel.WARNING})
    levels.tell(heard.append)
    levels.change(LogArea.HTTP, LogLevel.DEBUG)
    assert [each[LogArea.HTTP] for each in heard] == [LogLevel.WARNING, LogLevel.DEBUG]
    assert all(set(each) == set(LogArea) for each in heard)
