"""Clients that are in no other test read two replicas: franz-go (Go) and aiokafka. They are built
and installed here, which takes the registries and a Go toolchain, so `make soak` runs them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_read_replicas import PARTITIONS, A, B, Stage
from tests.e2e.test_read_replicas import stage as stage
from tests.e2e.test_sidecar_beside_kafka import TOPIC
from tests.real.toolbox import require_program

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.timeout(600)]

HERE = Path(__file__).parent / "other_clients"
AIOKAFKA = "aiokafka==0.14.0"
READ_DEADLINE_S = 120


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command of a reader with franz-go."""
    go = require_program("go")
    binary = tmp_path_factory.mktemp("franz-go") / "reader"
    subprocess.run([go, "build", "-o", binary, "."], cwd=HERE / "franz_go", check=True)
    return (str(binary),)


@pytest.fixture(scope="module")
def aiokafka(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command of a reader with aiokafka, in an environment of its own."""
    home = tmp_path_factory.mktemp("aiokafka")
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    codecs = ("lz4", "zstandard", "cramjam")
    subprocess.run([home / "bin" / "pip", "install", "-q", AIOKAFKA, *codecs], check=True)
    return (str(home / "bin" / "python"), str(HERE / "aiokafka_reader.py"))


def assert_reads_everything(stage: Stage, command: tuple[str, ...], *options: str) -> None:
    asked = ("--bootstrap", stage.bootstrap, "--topic", TOPIC, "--partitions", str(PARTITIONS))
    wanted = ("--wanted", str(len(stage.expected)))
    done = subprocess.run(
        [*command, *asked, *wanted, *options],
        capture_output=True,
        text=True,
        timeout=READ_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    places = [(int(number), int(offset)) for kind, number, offset in lines if kind == "record"]
    assert len(places) == len(stage.expected), "one came twice"
    assert set(places) == stage.expected
    ends = {int(number): int(offset) for kind, number, offset in lines if kind == "end"}
    assert all(offset < ends[number] for number, offset in places)


@pytest.mark.parametrize("client", ["franz_go", "aiokafka"])
@pytest.mark.parametrize("group", ["", "others"])
def test_it_reads_from_0_to_the_end(
    stage: Stage, request: pytest.FixtureRequest, client: str, group: str
) -> None:
    command = request.getfixturevalue(client)
    assert_reads_everything(stage, command, *(("--group", f"{client}-{group}") if group else ()))


def test_franz_go_reads_from_the_replica_of_its_zone(
    stage: Stage, franz_go: tuple[str, ...]
) -> None:
    before = {each: stage.tier_bytes(each) for each in (A, B)}
    assert_reads_everything(stage, franz_go, "--rack", "b")
    assert stage.tier_bytes(A) == before[A]
    assert stage.tier_bytes(B) > before[B]
