"""The command itself: its table of sub-commands, what is imported when, help with examples."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module

import pytest
import typer

from strandline.cli.exit_codes import ExitCode
from strandline.cli.main import COMMANDS, PANELS
from tests.strandline.command import invoke

APPS = (
    "segments", "quorum", "retention", "claims", "mode", "policy", "topics", "stores", "limits",
    "partitions", "log", "nodes", "settings", "trash", "migrate",
)  # fmt: skip
BECOMES_ANOTHER_PROCESS = ("pipeline",)  # tests/pipeline/cli has its help
SLOW = {"aiobotocore", "kio", "confluent_kafka", "fastapi", "rocksdict", "httpx", "uvicorn"}


def target(name: str) -> object:
    module, _, attribute = COMMANDS[name][0].partition(":")
    return getattr(import_module(f"strandline.cli.{module}"), attribute)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_commands_own_help_says(name: str) -> None:
    found = target(name)
    if isinstance(found, typer.Typer) and name in BECOMES_ANOTHER_PROCESS:
        found = found.registered_commands[0].callback
    text = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
    assert isinstance(text, str)
    assert text.splitlines()[0] == COMMANDS[name][1]


@pytest.mark.parametrize(
    "name", [each for each in COMMANDS if each not in (*APPS, *BECOMES_ANOTHER_PROCESS)]
)
def test_help_gives_an_example_of_the_command_itself(name: str) -> None:
    text = inspect.getdoc(target(name)) or ""
    assert re.search(rf"^Example: `.*strandline {name}\b", text, re.MULTILINE)
    shown = invoke(name, "--help")
    assert shown.exit_code == 0
    assert "Example:" in shown.stdout


@pytest.mark.parametrize("name", APPS)
def test_help_gives_an_example_of_each_command_of_a_group(name: str) -> None:
    group = target(name)
    assert isinstance(group, typer.Typer)
    for command in group.registered_commands:
        text = inspect.getdoc(command.callback) or ""
        assert re.search(rf"^Example: `.*strandline {name} {command.name}\b", text, re.MULTILINE)
    assert "--install-completion" not in invoke(name, "--help").stdout


def test_every_command_stands_in_one_panel_of_the_help() -> None:
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COMMANDS)
    shown = invoke("--help")
    assert shown.exit_code == 0
    for text in (*COMMANDS, *PANELS):
        assert text in shown.stdout


def test_the_version_is_told() -> None:
    shown = invoke("--version")
    assert shown.exit_code == 0
    assert re.fullmatch(r"strandline \d+\.\d+\.\d+.*\n", shown.stdout)


def test_an_unknown_command_is_wrong_usage_and_names_the_nearest() -> None:
    shown = invoke("stats")
    assert shown.exit_code == ExitCode.USAGE
    assert "status" in shown.stderr


def test_a_wrong_choice_is_told_with_the_right_ones_and_no_word_of_a_librarys() -> None:
    done = invoke("policy", "set", "orders", "--copying", "maybe")
    assert done.exit_code == ExitCode.USAGE
    assert "'--copying': 'maybe' is not one of 'running', 'paused'" in done.stderr


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("strandline.cli.main", set()),
        ("strandline.cli.query_commands", {"httpx"}),
        ("strandline.cli.quorum_commands", {"httpx"}),
        ("strandline.cli.copy_command", {"rocksdict"}),
        ("strandline.node.worker_process", set()),
        ("strandline.node.running", SLOW - {"aiobotocore", "kio", "confluent_kafka"}),
    ],
)
def test_what_is_slow_to_import_is_imported_only_where_it_is_used(
    module: str, allowed: set[str]
) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    imported = SLOW & {name.partition(".")[0] for name in done.stdout.split()}
    assert imported <= allowed
