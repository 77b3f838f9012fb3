"""A forked program lives and ends as one that was started: its surroundings, output and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.real.forked import ForkedProcess
from tests.real.process_tree import runs

DEADLINE_S = 60


def main() -> None:
    """The program of these tests. Without a word, a process ends when its main does."""
    match sys.argv[1:]:
        case ["tell"]:
            print(json.dumps([sys.argv, str(Path.cwd()), os.environ["FORKED"]]))
            print("an error", file=sys.stderr)
        case ["exit", code]:
            sys.exit(int(code))
        case ["fail"]:
            raise RuntimeError("it failed")
        case ["wait"]:
            # A shell's background job, and all that it starts, ignores SIGINT.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            print("waiting", flush=True)
            signal.pause()


@contextmanager
def forked(*arguments: str) -> Iterator[tuple[ForkedProcess, BinaryIO]]:
    """It, and what it writes."""
    ours, theirs = os.pipe()
    with open(ours, "rb") as output:
        try:
            process = ForkedProcess(__name__, ["program", *arguments], theirs)
        finally:
            os.close(theirs)
        try:
            yield process, output
        finally:
            process.kill()
            process.wait(DEADLINE_S)


def test_it_has_the_callers_directory_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORKED", "now")
    with forked("tell") as (process, output):
        lines = output.read().decode().splitlines()
        assert process.wait(DEADLINE_S) == 0
    assert sorted(lines) == sorted(
        [json.dumps([["program", "tell"], str(tmp_path), "now"]), "an error"]
    )


def test_its_errors_and_its_environment_may_be_of_their_own(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as output, (tmp_path / "err").open("w+") as errors:
        process = ForkedProcess(
            __name__, ["program", "tell"], output.fileno(), errors.fileno(), {"FORKED": "then"}
        )
        assert process.wait(DEADLINE_S) == 0
        assert json.loads((tmp_path / "out").read_text())[2] == "then"
        assert (tmp_path / "err").read_text() == "an error\n"


def test_its_exit_code_is_told() -> None:
    with forked("exit", "7") as (process, _):
        assert process.wait(DEADLINE_S) == 7
        assert process.poll() == process.returncode == 7
        assert not runs(process.pid)


def test_an_error_ends_it_with_a_traceback() -> None:
    with forked("fail") as (process, output):
        assert b"RuntimeError: it failed" in output.read()
        assert process.wait(DEADLINE_S) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    with forked("wait") as (process, output):
        assert output.readline() == b"waiting\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        code = process.wait(DEADLINE_S)
    # Python makes an exception of SIGINT, and lets it end the process afterwards.
    assert code == -number


def test_its_id_is_no_others_until_its_end_was_heard() -> None:
    with forked("exit", "0") as (process, output):
        assert output.read() == b""
        assert Path(f"/proc/{process.pid}").exists()
        process.wait(DEADLINE_S)


def test_one_that_ended_gets_no_signal() -> None:
    with forked("exit", "0") as (process, _):
        process.wait(DEADLINE_S)
        process.kill()
        assert process.returncode == 0
