"""Runs the real `strandline` command: in a process of its own, or in this one where that shows the
same and is faster.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
import typer.testing
from typer.testing import CliRunner, Result

from strandline.cli import lazy_commands
from strandline.cli.main import app
from tests.real.forked import ForkedProcess

CAPTURED = Path(__file__).resolve().parents[1] / "data" / "kafka-4.3.0" / "log-dir"
CAPTURED_SEGMENTS = 57
"""Those of its segments that are sealed and stable."""

COMMAND = (sys.executable, "-m", "strandline")
RUN_TIMEOUT_S = 180


def environment() -> dict[str, str]:
    """Ours, without settings that would leak into the command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STRANDLINE_")}
    return kept | {"PYTHONUNBUFFERED": "1"}


def strandline(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run to its end, in a process that is forked with all imported; the exit code is the caller's
    to judge.
    """
    command = ["strandline", *map(str, arguments)]
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        process = ForkedProcess(
            "tests.real.node_program", command, output.fileno(), errors.fileno(), environment()
        )
        try:
            code = process.wait(RUN_TIMEOUT_S)
        finally:
            process.kill()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, code, output.read(), errors.read())


def started(*arguments: object) -> subprocess.Popen[str]:
    """Start and return at once; the caller ends it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


_load_command = lazy_commands.load_command
_made_once = functools.cache(typer.main.get_command)
_loaded: dict[tuple[str, str, str], Any] = {}


def _loaded_once(package: str, commands: lazy_commands.Commands, name: str) -> Any:
    key = package, commands[name][0], name
    if key not in _loaded:
        _loaded[key] = _load_command(package, commands, name)
    return _loaded[key]


@contextmanager
def commands_made_once() -> Iterator[None]:
    """Typer makes its commands from their functions once in this process, not for each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", _made_once)
        patch.setattr(lazy_commands, "load_command", _loaded_once)
        yield


def invoke(*arguments: object, env: Mapping[str, str] | None = None) -> Result:
    """Run in this process; exit code, standard output and standard error as a shell sees them."""
    with pytest.MonkeyPatch.context() as patch, commands_made_once():
        for name in [name for name in os.environ if name.startswith("STRANDLINE_")]:
            patch.delenv(name)
        return CliRunner().invoke(app, [*map(str, arguments)], env=env, catch_exceptions=False)
