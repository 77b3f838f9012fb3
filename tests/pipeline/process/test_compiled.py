"""What is not compiled is said where somebody looks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.cli.running import Job
from pipeline.process import compiled as compiled_module
from pipeline.process.compiled import MODULES, compiled

ROOT = Path(compiled_module.__file__).parents[1]


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    compiled.cache_clear()
    yield
    compiled.cache_clear()


def test_every_source_is_in_the_list() -> None:
    sources = (source.relative_to(ROOT.parent).with_suffix("") for source in ROOT.rglob("*.pyx"))
    assert sorted(".".join(source.parts) for source in sources) == sorted(MODULES)


def test_a_job_says_it_on_the_driver_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    class OpenedError(Exception):
        pass

    def opened(*_: object, **__: object) -> None:
        raise OpenedError

    monkeypatch.setattr("pipeline.cli.running.open_catalogue", opened)
    monkeypatch.setattr("importlib.import_module", missing)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(OpenedError),
        Job({}).context("scrub"),
    ):
        pass
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(" ")[0] for text in said] == list(MODULES)
    assert all("is not built" in text for text in said)
