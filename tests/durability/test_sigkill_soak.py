"""Real processes, killed at random under proposals: every answer that was printed stays true.

SIGKILL keeps the page cache, so this says nothing about fsync (the power cuts do); it is about
everything that a process leaves half done.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlmm.data_directory.data_directory import NewDirectory, format_data_directory
from rlmm.segment import SegmentState
from rlmm.view.view import digest_of
from tests.durability.killed_node import log_limits
from tests.durability.quorum_node import VOTERS, open_node
from tests.real.toolbox import REPOSITORY
from tests.rlmm.metadata_node import DIRECTORY_ID, NODE_ID

KEEP_ALL_BYTES = 1 << 40
START_LINES = 3
REPLAY_EVERY_ROUNDS = 5
BOOT_OF_THE_CHECK = 1_000_000
"""Only its claims would need a real one, and it makes none."""


class Answers:
    """What processes printed, over all their lives."""

    def __init__(self) -> None:
        self.states: dict[Uuid, SegmentState] = {}
        self.last_offset = -1

    def note(self, line: str) -> None:
        words = line.split()
        if len(words) == 3:
            self.states[Uuid.parse(words[0])] = SegmentState[words[1]]
            self.last_offset = max(self.last_offset, int(words[2]))


@contextmanager
def process(data: Path, retained_bytes: int) -> Iterator[Iterator[str]]:
    """A node's lines; it is killed at the end."""
    command = [sys.executable, "-m", "tests.durability.killed_node", str(data)]
    running = subprocess.Popen(
        [*command, str(retained_bytes)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    try:
        yield running.stdout
    finally:
        running.kill()
        _, errors = running.communicate()
        assert "Traceback" not in errors, errors


def one_round(data: Path, answers: Answers, retained_bytes: int, lines_max: int) -> None:
    """Read so many lines, then kill it: further answers may be under way, or in the pipe."""
    with process(data, retained_bytes) as lines:
        for _ in range(lines_max):
            line = next(lines, None)
            assert line is not None, "the process ended by itself"
            answers.note(line)


async def check(data: Path, answers: Answers, retained_bytes: int, *, replay: bool) -> None:
    node = await open_node(data, boot=BOOT_OF_THE_CHECK, log_limits=log_limits(retained_bytes))
    try:
        assert node.manager.applied_offset >= answers.last_offset
        for segment_uuid, state in answers.states.items():
            row = node.manager.find_segment(segment_uuid)
            assert row is not None, f"{segment_uuid} was acknowledged and is gone"
            assert row.state in (state, SegmentState.COPY_SEGMENT_FINISHED)
        assert digest_of(node.view.rows_in_key_order()) == node.manager.digest()
        digest = node.manager.digest()
    finally:
        await node.close()
    if replay and retained_bytes == KEEP_ALL_BYTES:
        assert await replayed_from_zero(data) == digest


async def replayed_from_zero(data: Path) -> bytes:
    """The digest of a new view that saw nothing but the log."""
    copy = data.with_name("replayed")
    shutil.copytree(data / "metadata", copy / "metadata")
    for snapshot in copy.rglob("*.checkpoint"):
        snapshot.unlink()
    node = await open_node(copy, boot=BOOT_OF_THE_CHECK)
    digest = node.manager.digest()
    await node.close()
    shutil.rmtree(copy)
    return digest


def kill_again_and_again(home: Path, *, rounds: int, seed: int, retained_bytes: int) -> Answers:
    data, answers, choose = home / "data", Answers(), random.Random(seed)
    format_data_directory(
        data,
        NewDirectory(Uuid(b"cluster-one....."), "kafka-one", NODE_ID, DIRECTORY_ID, VOTERS),
    )
    for number in range(1, rounds + 1):
        # Sometimes in the middle of its start; the more lines, the more flushes and snapshots.
        lines_max = choose.choice((choose.randrange(START_LINES + 1), choose.randrange(3, 400)))
        one_round(data, answers, retained_bytes, lines_max)
        replay = number % REPLAY_EVERY_ROUNDS == 0 or number == rounds
        asyncio.run(check(data, answers, retained_bytes, replay=replay))
    return answers


@pytest.mark.integration
@pytest.mark.parametrize("retained_bytes", [KEEP_ALL_BYTES, 0])
def test_ten_kills_lose_no_answer(tmp_path: Path, retained_bytes: int) -> None:
    answers = kill_again_and_again(tmp_path, rounds=10, seed=1, retained_bytes=retained_bytes)
    assert len(answers.states) > 200


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("retained_bytes", [KEEP_ALL_BYTES, 0])
def test_hundreds_of_kills_lose_no_answer(tmp_path: Path, retained_bytes: int) -> None:
    answers = kill_again_and_again(tmp_path, rounds=150, seed=2, retained_bytes=retained_bytes)
    assert len(answers.states) > 5_000
