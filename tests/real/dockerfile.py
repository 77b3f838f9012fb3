"""Reads a Dockerfile and a .dockerignore as far as ours use them. Pure.

What they don't use is refused, so that a new instruction is not passed over in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

INSTRUCTIONS = frozenset(
    {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK"}
    | {"ENTRYPOINT", "CMD"}
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name in capitals and the rest of its line."""

    name: str
    text: str

    @property
    def words(self) -> tuple[str, ...]:
        """The text split at white space."""
        return tuple(self.text.split())

    @property
    def command(self) -> tuple[str, ...]:
        """The exec form of ENTRYPOINT, CMD or a health check's CMD."""
        return tuple(json.loads(self.text[self.text.index("[") :]))


def instructions(text: str) -> list[Instruction]:
    """All instructions in order; comments and continued lines as Docker reads them."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = []
    for logical in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if not logical.strip():
            continue
        name, _, rest = logical.strip().partition(" ")
        if name not in INSTRUCTIONS:
            raise ValueError(f"the emulated build knows no instruction {name}")
        found.append(Instruction(name, rest.strip()))
    return found


def assignments(text: str) -> dict[str, str]:
    """The variables of an ENV instruction."""
    return dict(word.split("=", 1) for word in text.split())


def is_in_context(path: str, ignore: Sequence[str]) -> bool:
    """Whether .dockerignore leaves `path` in: the last pattern that matches it or a parent decides.

    `path` is relative, with `/`. Patterns are those of a .dockerignore without `**` in the middle.
    """
    parts = path.split("/")
    parents = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    kept = True
    for line in ignore:
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        keeps, pattern = pattern.startswith("!"), pattern.lstrip("!").rstrip("/")
        if any(_matches(parent, pattern) for parent in parents):
            kept = keeps
    return kept


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatchcase(path.rpartition("/")[2], pattern.removeprefix("**/"))
    same_depth = path.count("/") == pattern.count("/")
    return same_depth and fnmatchcase(path, pattern)
