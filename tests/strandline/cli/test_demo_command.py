"""The demo as `make demo` runs it: a leader dies, nothing is lost, nothing is left behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_formats.errors import InternalError
from strandline.demo.process import DemoProcess, wait_until
from tests.capture.capture_demo_picture import picture_text, shape, shown
from tests.e2e.http import PLAIN
from tests.strandline.command import COMMAND, environment, strandline

pytestmark = pytest.mark.timeout(240)

DEADLINE_S = 60
NODE_ROW = re.compile(r" +([123])  (.*?) +(leader|follower) +(\d+) +(\d+)  ([0-9a-f]+) +(\d+) *\n")


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`strandline demo` with its temporary directory in `folder`; its output is merged."""
    process = subprocess.Popen(
        [*COMMAND, "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment() | {"TMPDIR": str(folder)},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)


def printed_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if words in line:
            return printed
    raise AssertionError(f"it ended without {words!r}: {printed}")


def assert_nothing_is_left(folder: Path) -> None:
    """No directory, and no process that names it."""
    assert list(folder.iterdir()) == []
    shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True)
    assert str(folder) not in shown.stdout


def test_the_leader_is_killed_half_way_and_nothing_is_lost(tmp_path: Path) -> None:
    with demo(tmp_path, "--keep") as process:
        printed = printed_until(process, "running until Ctrl-C")
        killed = re.search(r"kill -9 of node ([23]), the leader, with (\d+) of 42 seg", printed)
        assert killed, printed
        assert 0 < int(killed[2]) < 41
        led = re.search(r"node ([123]) leads from epoch (\d+) on: [\d.]+ s without a com", printed)
        assert led, printed
        assert led[1] != killed[1]
        assert f"node {killed[1]} was started again and has caught up" in printed
        assert printed.count("identical") == 5
        assert re.search(
            r"^41 segments, .* copied and read back .*: nothing is lost$", printed, re.M
        )

        nodes = NODE_ROW.findall(printed)
        assert [(node_id, did) for node_id, did, *_ in nodes] == [
            (
                node_id,
                {"1": "copied", killed[1]: "was killed and restarted"}.get(
                    node_id, "kept the metadata"
                ),
            )
            for node_id in "123"
        ]
        assert sorted(state for _, _, state, *_ in nodes) == ["follower", "follower", "leader"]
        assert len({(epoch, applied, digest) for *_, epoch, applied, digest, _ in nodes}) == 1
        for *_, pid in nodes:
            os.kill(int(pid), 0)  # it runs
        assert_every_line_to_paste_is_answered(printed)
        assert shape(shown(printed)) == shape(picture_text()), "draw docs/demo.svg anew"
        for secret in tmp_path.glob("*/quorum-secret"):
            assert secret.stat().st_mode & 0o777 == 0o600
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
    assert_nothing_is_left(tmp_path)


def assert_every_line_to_paste_is_answered(printed: str) -> None:
    offered = [line.strip() for line in printed.splitlines() if line.startswith("  curl -s ")]
    assert len(offered) == 7, printed
    for line in offered:
        words = shlex.split(line.partition("|")[0])
        headers = dict(word.split(": ", 1) for before, word in pairwise(words) if before == "-H")
        (url,) = (word for word in words if word.startswith("http://"))
        answer = PLAIN.get(url, headers=headers)
        assert answer.status_code == 200, (line, answer.text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    with demo(tmp_path) as process:
        printed_until(process, "S3 store")
        process.send_signal(number)
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, "interrupted" in said) == (130, True)
    assert_nothing_is_left(tmp_path)


async def test_a_process_that_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    process = DemoProcess("node 7", ("sh", "-c", "echo the disk is full; exit 5"), tmp_path / "log")
    process.start()
    with pytest.raises(InternalError, match=r"(?s)node 7 ended by itself.*the disk is full"):
        await wait_until(nothing, "anything", processes=(process,), deadline_s=DEADLINE_S)
    process.kill()
    assert process.pid is None


async def nothing() -> None:
    """Never there."""


def test_a_directory_that_was_not_captured_is_refused(tmp_path: Path) -> None:
    refused = strandline("demo", "--log-dir", tmp_path)
    assert refused.returncode == 3, refused.stderr
    assert f"{tmp_path} is not a captured log directory" in refused.stderr
