"""One real node, fed with a captured log directory, for all tests that only ask it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.doctor import host as doctor_host
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS
from tests.strandline.doctor_home import Home

COPY_DEADLINE_S = 60


def sections(tier: Path) -> dict[str, dict[str, object]]:
    """Settings of a node that copies everything captured into the folder `tier`."""
    tier.mkdir(parents=True)
    return {
        "kafka": {"log_dirs": [str(CAPTURED)]},
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(tier)},
        "copier": {"interval_s": 0.5},
    }


def copied_segments(url: str) -> int:
    """Value of the node's counter."""
    for line in PLAIN.get(f"{url}/metrics").text.splitlines():
        name, _, value = line.partition(" ")
        if name == "strandline_remote_copy_segments_total":
            return int(float(value))
    return 0


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that has copied all there is to copy. Ask only; what changes it starts its own."""
    yield from _node_with_everything(tmp_path_factory.mktemp("node"), {})


@pytest.fixture(scope="session")
def changed_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """The same for what changes a topic: each test its own, or as it was. Nothing expires here."""
    changes: dict[str, dict[str, object]] = {
        "http": {"anonymous_role": "admin"},
        "copier": {"interval_s": 0.5, "upload_margin_s": 0.5},
        "retention": {"interval_s": 86_400, "delete_delay_s": 0.5},
    }
    yield from _node_with_everything(tmp_path_factory.mktemp("changed"), changes)


def _node_with_everything(
    home: Path, changes: dict[str, dict[str, object]]
) -> Iterator[NodeProcess]:
    with NodeProcess(home, sections(home / "tier") | changes) as process:
        process.wait_until(
            lambda: copied_segments(process.url) == CAPTURED_SEGMENTS,
            "everything to be copied",
            deadline_s=COPY_DEADLINE_S,
        )
        yield process


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    # The machine of the tests may keep its temporary folder in memory, or be short of room.
    monkeypatch.setattr(doctor_host, "VOLATILE", frozenset())
    monkeypatch.setattr(doctor_host, "DISK_FREE_BYTES_MIN", 0)
    path = tmp_path / "node"
    return Home(path, sections(path / "tier"))


@pytest.fixture
def formatted(home: Home) -> Home:
    home.format()
    return home
