"""Each `strandline` command that a document or a message names exists, with the options named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.lazy_commands import load_command
from strandline.cli.main import COMMANDS
from tests.test_tidy import PACKAGES, REPOSITORY, relative, tracked

CODE = re.compile(r"^```[^\n]*\n(.*?)^```|(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`", re.M | re.S)
ENDS = re.compile(r"[|;#&>)]|\$\(|<\(")
"""Ends of a command within a line of shell."""
TYPED = re.compile(r"(?:^|\s)strandline ([a-z][a-z-]*(?: .*)?)$")
NAMED = re.compile(r"`strandline ([a-z][^`]*)`")
OPTION = re.compile(r"--[a-z][a-z0-9-]*")
LISTS = "partitions"
"""A group that lists where no command of its own is named."""


def typed(text: str) -> Iterator[str]:
    """Commands in blocks of code and between backticks, without `strandline`."""
    for block, span in CODE.findall(text):
        for line in block.replace("\\\n", " ").splitlines() or [span.replace("\n", " ")]:
            for part in ENDS.split(line):
                found = TYPED.search(part)
                if found is not None:
                    yield found[1].strip()


def said(path: Path) -> Iterator[str]:
    """Commands that texts of a source file name, docstrings included."""
    text = path.read_text()
    if "`strandline " not in text:
        return
    for node in ast.walk(ast.parse(text)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        whole = "".join(
            str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts
        )
        if isinstance(node, ast.JoinedStr | ast.Constant):
            yield from (found.replace("\n", " ") for found in NAMED.findall(whole))


def options_of(command: Any) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def what_is_wrong(line: str) -> str | None:
    """What `strandline <line>` has that the command has not; None where all is right."""
    line = line.removeprefix("strandline ")  # of the container `strandline`
    name, *words = re.sub(r"[\"']", " ", line).split()
    if name not in COMMANDS:
        return f"there is no command {name}"
    command = load_command("strandline.cli", COMMANDS, name)
    commands = getattr(command, "commands", {})
    options = options_of(command) | {"--help"}
    if words and words[0] in commands:
        options |= options_of(commands[words[0]])
    elif name == LISTS:
        options |= options_of(commands["list"])
    elif commands and words and words[0].islower() and not words[0].startswith("-"):
        return f"{name} has no command {words[0]}"
    if name == "pipeline":
        return None  # its jobs' own tests have their options
    wrong = [word for word in words if OPTION.match(word) and word.split("=")[0] not in options]
    return f"{name} has no {wrong}" if wrong else None


@pytest.mark.parametrize("name", [relative(path) for path in tracked("*.md")])
def test_commands_in_documents_exist(name: str) -> None:
    lines = list(typed((REPOSITORY / name).read_text()))
    assert [(line, wrong) for line in lines if (wrong := what_is_wrong(line))] == []
    assert len(lines) > 60 or name != "docs/OPERATIONS.md"


@pytest.mark.parametrize("package", PACKAGES)
def test_commands_in_messages_exist(package: str) -> None:
    lines = {line for path in tracked(f"{package}/**/*.py") for line in said(path)}
    assert [(line, wrong) for line in sorted(lines) if (wrong := what_is_wrong(line))] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("nothing", "there is no command nothing"),
        ("quorum reset 3", "quorum has no command reset"),
        ("policy set T --follow-delete-records", "policy has no ['--follow-delete-records']"),
        ("partitions --waiting", None),
        ("partitions orders", None),
        ("strandline status --token-file T", None),
    ],
)
def test_what_does_not_exist_is_found(line: str, wrong: str | None) -> None:
    assert what_is_wrong(line) == wrong
