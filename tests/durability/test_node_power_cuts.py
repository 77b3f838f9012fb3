"""The power goes at any system call of a node's lives: log and view agree again, nothing is lost.

The calls of real lives (the log's, the view's, RocksDB's own) are recorded by strace and played
into a medium that keeps what was synced and any part of the rest. A real node then starts on what
is left, and must find everything that was told, with the digest that the rows had at that offset.

Where a directory keeps its changes in order and no file shows another's old bytes, as on every
journaling file system by default, the view is never damaged by a power cut. RocksDB relies on that:
where any subset of the changes may survive, its CURRENT can name a MANIFEST that is missing. That
is noticed, and the view made again.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_formats.errors import StrandlineError
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.view.view import View, digest_of
from sim.ground.medium import Fate, Medium, Survivors, Torn
from tests.durability.log_life import BrokenPromiseError
from tests.durability.quorum_node import open_node
from tests.durability.recorded_node import LIVES, LOG_LIMITS
from tests.durability.syscalls import Call, play, read_calls, record, with_directories
from tests.real.toolbox import REPOSITORY

UNINTERESTING = ("LOG", "OPTIONS", "IDENTITY", "LOCK", "rocksdict-config.json")
"""RocksDB's own log, and files whose content it replaces or never uses."""

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True)
class Told:
    """One line of the witness."""

    applied_offset: int
    digest: str
    flushed_offset: int


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that happened below `root`, where the node's home is `root`/home."""

    root: Path
    calls: tuple[Call, ...]

    @property
    def home(self) -> Path:
        return self.root / "home"

    def told(self, medium: Medium) -> list[Told]:
        try:
            text = medium.file(self.root / "told").live.decode()
        except FileNotFoundError:
            return []
        lines = (line.split() for line in text.splitlines())
        return [Told(int(applied), digest, int(flushed)) for applied, digest, flushed in lines]

    def without(self, wanted: Callable[[Call], bool]) -> Recording:
        """As if these calls had been left out."""
        return Recording(self.root, tuple(call for call in self.calls if not wanted(call)))


def recorded(root: Path, bug: str | None = None) -> Recording:
    (root / "home").mkdir()
    command = [
        sys.executable,
        "-m",
        "tests.durability.recorded_node",
        str(root / "home"),
        str(root / "told"),
        *([] if bug is None else [bug]),
    ]
    trace = root.with_name(f"{root.name}.trace")
    record(command, REPOSITORY, trace, dict(os.environ))
    return Recording(root, tuple(read_calls(trace, root)))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded(tmp_path_factory.mktemp("recorded"))


def states(
    recording: Recording, *, seed: int, samples: int, ordered: bool
) -> Iterator[tuple[Medium, list[Told]]]:
    """What is left after power cuts at sampled calls, each state once, with what was told."""
    choose = random.Random(seed)
    steps = [
        index
        for index, call in enumerate(recording.calls)
        if not call.paths[0].name.startswith(UNINTERESTING)
    ]
    points = sorted(choose.choices([*steps, len(recording.calls)], k=samples))
    medium, played = with_directories(recording.home), 0
    seen: set[bytes] = set()
    for index in points:
        for call in recording.calls[played:index]:
            play(medium, call)
        played = index
        left = medium.after_power_cut(fate(choose, ordered), fate(choose, ordered))
        told = recording.told(medium)
        identity = _identity(left, recording.home, len(told))
        if identity not in seen:
            seen.add(identity)
            yield left, told


def fate(choose: random.Random, ordered: bool) -> Fate:
    """Mostly any subset; now and then everything, or nothing at all."""
    if choose.random() < 0.2:
        return choose.choice((Survivors.NONE, Survivors.ALL))
    return Torn(choose.getrandbits(32), choose.choice((512, 4096)), ordered=ordered)


def _identity(medium: Medium, home: Path, told: int) -> bytes:
    digest = hashlib.blake2b(b"%d" % told)
    for path, file in medium.files(home):
        if not path.name.startswith(UNINTERESTING):
            digest.update(str(path).encode() + b"\0" + (file.live if file else b""))
    return digest.digest()


def reference(recording: Recording) -> list[Told]:
    """All that was ever told: the digest at every offset, from lives that nobody interrupted."""
    medium = with_directories(recording.home)
    for call in recording.calls:
        play(medium, call)
    return recording.told(medium)


async def check_everything(
    recording: Recording, home: Path, *, seed: int, samples: int, ordered: bool = True
) -> Counter[str]:
    """How many states were checked, and in how many the view was made again."""
    known, cases = reference(recording), Counter[str]()
    for left, told in states(recording, seed=seed, samples=samples, ordered=ordered):
        home.mkdir()
        left.write_out(recording.home, home)
        try:
            check_view(home, told, known, may_be_damaged=not ordered)
            await check_node(home, told, known)
        except (StrandlineError, FileNotFoundError) as error:
            raise BrokenPromiseError(f"the node does not start: {error}") from error
        cases["checked"] += 1
        cases["made again"] += (home / "view.damaged").exists()
        shutil.rmtree(home)
    return cases


def check_view(home: Path, told: list[Told], known: list[Told], *, may_be_damaged: bool) -> None:
    flushed = told[-1].flushed_offset if told else -1
    view = View.open(home / "view")
    applied, log_start = view.applied_offset, first_base(home)
    view.close()
    if (home / "view.damaged").exists():
        if not may_be_damaged:
            raise BrokenPromiseError("a power cut damaged the view")
        return
    if applied >= 0 and applied not in {entry.applied_offset for entry in known}:
        raise BrokenPromiseError(f"the view is at offset {applied}, between two records")
    # Behind an old view that was put back there is a snapshot.
    if log_start > applied + 1 and flushed >= 0:
        raise BrokenPromiseError(f"the log starts at {log_start}, the view ends at {applied}")
    if applied < flushed:
        raise BrokenPromiseError(f"flushed up to {flushed}, found {applied}")


async def check_node(home: Path, told: list[Told], known: list[Told]) -> None:
    last = told[-1].applied_offset if told else -1
    node = await open_node(home, boot=LIVES + 1, log_limits=LOG_LIMITS)
    # The last record is that of this start.
    end, digest = node.log.describe().log_end_offset - 2, node.manager.digest()
    rows = digest_of(node.view.rows_in_key_order())
    await node.close()
    if end < last:
        raise BrokenPromiseError(f"offset {last} was told, the log ends at {end}")
    expected = [entry.digest for entry in known if entry.applied_offset <= end]
    if not digest.hex() == rows.hex() == (expected or ["0" * 32])[-1]:
        raise BrokenPromiseError(f"at offset {end} the rows are others")


def first_base(home: Path) -> int:
    names = sorted((home / "metadata" / PARTITION_DIRECTORY).glob("*.log"))
    return int(names[0].stem) if names else 0


async def test_nothing_told_is_lost_and_the_digest_is_the_same(
    recording: Recording, home: Path
) -> None:
    ordered = await check_everything(recording, home, seed=1, samples=600)
    assert ordered["checked"] > 250
    any_order = await check_everything(recording, home, seed=2, samples=300, ordered=False)
    assert any_order["checked"] > 100
    assert any_order["made again"] < any_order["checked"] / 4


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_thousands_of_power_cuts_lose_nothing_told(recording: Recording, home: Path) -> None:
    cases = Counter[str]()
    for seed in range(10, 50):
        cases += await check_everything(
            recording, home, seed=seed, samples=400, ordered=seed % 2 == 0
        )
    assert cases["checked"] > 8_000


@pytest.mark.parametrize(
    "bug",
    [
        "the view claims a flush",
        "the log is cut before the flush",
        "rows and offset are written apart",
        "the log is never synced",
        "an installed view is never synced",
    ],
)
async def test_a_rule_left_out_is_caught(bug: str, tmp_path: Path, home: Path) -> None:
    (tmp_path / "recorded").mkdir()
    broken = recorded(tmp_path / "recorded", bug)
    with pytest.raises(BrokenPromiseError):
        await check_everything(broken, home, seed=1, samples=250)


@pytest.mark.parametrize("files", ["*.sst", "MANIFEST-*", "*.dbtmp", "view", "*.log", "*.tmp"])
async def test_a_sync_left_out_of_the_recording_is_caught(
    recording: Recording, files: str, home: Path
) -> None:
    def left_out(call: Call) -> bool:
        return call.name in ("fsync", "fdatasync") and call.paths[0].match(files)

    broken = recording.without(left_out)
    assert len(broken.calls) < len(recording.calls)
    with pytest.raises(BrokenPromiseError):
        await check_everything(broken, home, seed=1, samples=250)
