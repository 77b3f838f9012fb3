"""A reader that goes away: a node goes on, and a command that prints ends without a word."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.real.process_tree import descendants
from tests.strandline.command import (
    CAPTURED,
    CAPTURED_SEGMENTS,
    COMMAND,
    RUN_TIMEOUT_S,
    environment,
)

REQUESTS = 80
"""Of 335 kB each: more than the sockets between node and client take."""

READ_BYTES = 100_000
"""By then the node has written more, and waits to write the rest."""


def ask_and_go_away(port: int) -> None:
    """Ask for much, read a little and close: ^C on curl."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * REQUESTS)
        read = 0
        while read < READ_BYTES:
            read += len(client.recv(65536))


def ignored_signals(pid: int) -> set[int]:
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigIgn:")
    ]
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_a_node_outlives_clients_that_go_away_before_they_have_read(node: NodeProcess) -> None:
    port = int(node.url.rpartition(":")[2])
    pid = node.pid
    for _ in range(3):
        ask_and_go_away(port)
        urllib.request.urlopen(f"{node.url}/v1/openapi.json", timeout=10).read()
        node.assert_alive()
    assert node.pid == pid


def test_no_process_of_a_node_ends_by_writing_to_a_closed_socket(node: NodeProcess) -> None:
    processes = [node.pid, *descendants(node.pid)]
    assert len(processes) > 1, "its workers, too"
    for pid in processes:
        assert signal.SIGPIPE in ignored_signals(pid), Path(f"/proc/{pid}/cmdline").read_bytes()


def with_closed_output(*command: object) -> subprocess.CompletedProcess[str]:
    """Run with a standard output that nobody reads any more: `| true`."""
    reading, writing = os.pipe()
    os.close(reading)
    buffered = {k: v for k, v in environment().items() if k != "PYTHONUNBUFFERED"}
    try:
        return subprocess.run(
            [*map(str, command)],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=RUN_TIMEOUT_S,
            env=buffered,
            check=False,
        )
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("random-uuid",), id="a line"),
        pytest.param(("config",), id="a document"),
        pytest.param(("topics", "list", "--url"), id="a table"),
        pytest.param(("records", "codecs", 0, "--url"), id="bytes"),
    ],
)
def test_a_command_whose_output_is_closed_ends_without_a_word(
    node: NodeProcess, arguments: tuple[object, ...]
) -> None:
    if arguments[-1] == "--url":
        arguments = (*arguments, node.url)
    if arguments == ("config",):
        arguments = (*arguments, "--config", node.config)
    done = with_closed_output(*COMMAND, *arguments)
    assert (done.returncode, done.stderr) == (ExitCode.OUTPUT_CLOSED, "")


def test_so_does_the_process_of_the_spark_jobs() -> None:
    done = with_closed_output(sys.executable, "-m", "pipeline", "usage", "--print-prices")
    assert (done.returncode, done.stderr) == (ExitCode.OUTPUT_CLOSED, "")


def test_help_is_quiet_too() -> None:
    done = with_closed_output(*COMMAND, "--help")
    assert done.returncode != 0
    assert done.stderr == ""


def copy_of_captured(home: Path) -> tuple[object, ...]:
    return (
        *COMMAND, "copy", "--once", "--log-dir", CAPTURED,
        "--store", f"file://{home}/tier", "--data-dir", home / "data",
    )  # fmt: skip


def test_a_copy_whose_progress_nobody_reads_is_made_and_reported(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*map(str, copy_of_captured(tmp_path))],
            stdout=subprocess.PIPE,
            stderr=writing,
            text=True,
            timeout=RUN_TIMEOUT_S,
            env=environment(),
            check=False,
        )
    finally:
        os.close(writing)
    assert done.returncode == ExitCode.INCOMPLETE  # one captured partition waits for its LSO
    assert f"{CAPTURED_SEGMENTS} segments" in done.stdout


def test_files_do_not_take_the_place_of_a_closed_standard_error(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from strandline.cli.closed_at_start import open_what_is_closed\n"
        "open_what_is_closed()\n"
        "opened = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
        "print(os.readlink('/proc/self/fd/2'), opened > 2, sys.stderr.write('nothing'))\n"
    )
    closed = 'exec "$@" 2>&-'
    done = subprocess.run(
        ["sh", "-c", closed, "sh", sys.executable, "-c", script, str(tmp_path / "file")],
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env=environment(),
        check=False,
    )
    assert done.stdout.split() == ["/dev/null", "True", "7"]


def test_an_error_is_told_all_the_same() -> None:
    done = with_closed_output(*COMMAND, "status", "--url", "http://127.0.0.1:9")
    assert done.returncode == ExitCode.RETRY_LATER
    assert "error:" in done.stderr


def test_a_closed_connection_is_not_taken_for_closed_output() -> None:
    script = (
        "from strandline.cli import main\n"
        "def command(): raise BrokenPipeError(32, 'a connection of ours')\n"
        "main.app.command('broken')(command)\n"
        "main.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "broken"],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env=environment(),
        check=False,
    )
    assert done.returncode == ExitCode.INTERNAL
    assert "BrokenPipeError: [Errno 32] a connection of ours" in done.stderr
