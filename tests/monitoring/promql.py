"""Reads PromQL expressions: as much of the grammar as rules and dashboards here use, and no more.

`parse` returns what an expression selects; everything it does not know is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<duration>\d+(?:ms|[smhdwy])\b)
    | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?\b)
    | (?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){}\[\],=<>])
    )""",
    re.VERBOSE,
)
AGGREGATIONS = {"sum", "max", "min", "avg", "count", "topk", "bottomk"}
OF_RANGES = {
    "rate", "irate", "increase", "delta", "max_over_time", "min_over_time", "avg_over_time",
}  # fmt: skip
FUNCTIONS = OF_RANGES | {"histogram_quantile", "abs", "clamp_min", "time", "absent"}
_BINARY = {
    "or": 0, "and": 1, "unless": 1, "==": 2, "!=": 2, ">": 2, "<": 2, ">=": 2, "<=": 2,
    "+": 3, "-": 3, "*": 4, "/": 4, "%": 4, "^": 5,
}  # fmt: skip


class PromqlError(ValueError):
    """The text is no expression."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A metric by the name of its samples, with the labels that matchers or groupings name."""

    name: str
    labels: frozenset[str]
    is_range: bool


def parse(text: str) -> list[Selected]:
    """What the expression selects."""
    reader = _Reader(text)
    reader.expression(0)
    if reader.token is not None:
        raise PromqlError(f"{text!r}: {reader.token[1]!r} was not expected")
    return reader.selected


def grouped_by(text: str) -> set[str]:
    """Labels that aggregations and matchings of the expression name."""
    reader = _Reader(text)
    reader.expression(0)
    return reader.grouped


def tokens(text: str) -> Iterator[str]:
    """Its words and signs, in order."""
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise PromqlError(f"{text!r}: not understood at {text[at:]!r}")
        at = found.end()
        yield found[found.lastgroup]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.selected: list[Selected] = []
        self.grouped: set[str] = set()
        self.token: tuple[str, str] | None = None
        self._next()

    def _next(self) -> tuple[str, str]:
        """Take the token, and look at the one after it."""
        taken = self.token or ("", "")
        if not self._text[self._at :].strip():
            self.token = None
            return taken
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            raise PromqlError(f"{self._text!r}: not understood at {self._text[self._at :]!r}")
        self._at = found.end()
        self.token = (found.lastgroup, found[found.lastgroup])
        return taken

    def _is(self, *texts: str) -> bool:
        return self.token is not None and self.token[1] in texts

    def _take(self, text: str) -> None:
        if not self._is(text):
            raise PromqlError(f"{self._text!r}: {text!r} is missing before {self.token}")
        self._next()

    def _take_kind(self, kind: str) -> str:
        if self.token is None or self.token[0] != kind:
            raise PromqlError(f"{self._text!r}: a {kind} is missing before {self.token}")
        return self._next()[1]

    def expression(self, least: int) -> bool:
        """Whether it is a range vector, which nothing but a function takes."""
        is_range = self._operand()
        while self.token is not None and (level := _BINARY.get(self.token[1], -1)) >= least:
            self._next()
            if self._is("bool"):
                self._next()
            if self._is("on", "ignoring"):
                self._next()
                self._labels()
            if is_range | self.expression(level + 1):
                raise PromqlError(f"{self._text!r}: an operator on a range")
        return is_range

    def _operand(self) -> bool:
        if self._is("-", "+"):
            self._next()
            return self._operand()
        if self._is("("):
            self._next()
            is_range = self.expression(0)
            self._take(")")
            return is_range
        if self.token is not None and self.token[0] == "number":
            self._next()
            return False
        name = self._take_kind("name")
        if name in AGGREGATIONS and self._is("(", "by", "without"):
            return self._aggregation()
        if self._is("("):
            return self._call(name)
        return self._selector(name)

    def _aggregation(self) -> bool:
        if self._is("by", "without"):
            self._next()
            self._labels()
        self._arguments(wants_range=False)
        if self._is("by", "without"):
            self._next()
            self._labels()
        return False

    def _call(self, name: str) -> bool:
        if name not in FUNCTIONS:
            raise PromqlError(f"{self._text!r}: {name} is no function known here")
        self._arguments(wants_range=name in OF_RANGES)
        return False

    def _arguments(self, *, wants_range: bool) -> None:
        self._take("(")
        while not self._is(")"):
            if self.expression(0) is not wants_range:
                raise PromqlError(f"{self._text!r}: a range where none belongs, or none")
            if not self._is(")"):
                self._take(",")
        self._take(")")

    def _labels(self) -> None:
        self._take("(")
        while not self._is(")"):
            self.grouped.add(self._take_kind("name"))
            if not self._is(")"):
                self._take(",")
        self._take(")")

    def _selector(self, name: str) -> bool:
        labels = set()
        if self._is("{"):
            self._next()
            while not self._is("}"):
                labels.add(self._take_kind("name"))
                if not self._is("=", "!=", "=~", "!~"):
                    raise PromqlError(f"{self._text!r}: no matcher at {self.token}")
                self._next()
                self._take_kind("string")
                if not self._is("}"):
                    self._take(",")
            self._take("}")
        is_range = self._is("[")
        if is_range:
            self._next()
            self._take_kind("duration")
            self._take("]")
        self.selected.append(Selected(name, frozenset(labels), is_range))
        return is_range
