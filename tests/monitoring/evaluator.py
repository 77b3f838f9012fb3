"""Evaluates the expressions of rules over scraped samples, as far as rules here go.

Semantics are Prometheus's (operators match by equal labels, comparisons filter, a look-back of five
minutes), but for extrapolation: what grew within a range is what was seen to grow.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.monitoring.promql import PromqlError, tokens

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Series = list[tuple[float, float]]

LOOK_BACK_S = 300.0
UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
COMPARISONS = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
    ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
LEVELS = {"or": 0, "and": 1, "unless": 1, **dict.fromkeys(COMPARISONS, 2),
          "+": 3, "-": 3, "*": 4, "/": 4}  # fmt: skip
MATCHERS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda value, text: value == text,
    "!=": lambda value, text: value != text,
    "=~": lambda value, text: re.fullmatch(text, value) is not None,
    "!~": lambda value, text: re.fullmatch(text, value) is None,
}


def duration_s(text: str) -> float:
    """`5m` in seconds."""
    return sum(float(n) * UNITS_S[unit] for n, unit in re.findall(r"(\d+)(ms|[smhdwy])", text))


@dataclass(slots=True)
class Samples:
    """What was scraped, ascending in time."""

    of: dict[str, dict[Labels, Series]] = field(default_factory=dict)

    def add(self, at_s: float, name: str, labels: Iterable[tuple[str, str]], value: float) -> None:
        """One sample."""
        self.of.setdefault(name, {}).setdefault(frozenset(labels), []).append((at_s, value))


def evaluate(text: str, samples: Samples, at_s: float) -> Vector:
    """The instant vector at that time; a scalar has no labels."""
    found = _Evaluation(text, samples, at_s).whole()
    return found if isinstance(found, dict) else {frozenset(): found}


Value = Vector | float


class _Evaluation:
    def __init__(self, text: str, samples: Samples, at_s: float) -> None:
        self._tokens = list(tokens(text))
        self._at = 0
        self._samples = samples
        self._at_s = at_s

    def whole(self) -> Value:
        found = self._expression(0)
        if self._at != len(self._tokens):
            raise PromqlError(f"{self._tokens[self._at :]} is left")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, text: str | None = None) -> str:
        taken = self._peek()
        if text is not None and taken != text:
            raise PromqlError(f"{text!r} is missing at {taken!r}")
        self._at += 1
        return taken

    def _expression(self, least: int) -> Value:
        left = self._operand()
        while (level := LEVELS.get(self._peek(), -1)) >= least:
            sign = self._take()
            left = _combined(sign, left, self._expression(level + 1))
        return left

    def _operand(self) -> Value:
        if self._peek() == "(":
            self._take()
            found = self._expression(0)
            self._take(")")
            return found
        token = self._take()
        if token[0].isdigit():
            return float(token)
        if token in ("sum", "max", "min"):
            return self._aggregation(token)
        if token in ("rate", "increase", "delta", "min_over_time"):
            return self._over_range(token)
        if token == "histogram_quantile":
            return self._quantile()
        return self._instant(token)

    def _aggregation(self, name: str) -> Vector:
        by: tuple[str, ...] = ()
        if self._peek() == "by":
            self._take()
            by = self._names()
        self._take("(")
        inner = self._expression(0)
        self._take(")")
        groups: dict[Labels, list[float]] = {}
        for labels, value in _vector(inner).items():
            kept = frozenset(each for each in labels if each[0] in by)
            groups.setdefault(kept, []).append(value)
        of: Callable[[list[float]], float] = {"sum": sum, "max": max, "min": min}[name]  # type: ignore[assignment]  # three overloads
        return {labels: of(values) for labels, values in groups.items()}

    def _names(self) -> tuple[str, ...]:
        self._take("(")
        names = []
        while self._peek() != ")":
            names.append(self._take())
            if self._peek() == ",":
                self._take()
        self._take(")")
        return tuple(names)

    def _over_range(self, name: str) -> Vector:
        self._take("(")
        metric = self._take()
        series = self._selected(metric)
        self._take("[")
        range_s = duration_s(self._take())
        self._take("]")
        self._take(")")
        found = {}
        for labels, values in series.items():
            within = [v for t, v in values if self._at_s - range_s < t <= self._at_s]
            if name == "min_over_time" and within:
                found[labels] = min(within)
            elif len(within) >= 2:
                found[labels] = _growth(name, within) / (range_s if name == "rate" else 1)
        return found

    def _quantile(self) -> Vector:
        self._take("(")
        share = float(self._take())
        self._take(",")
        buckets = _vector(self._expression(0))
        self._take(")")
        of: dict[Labels, list[tuple[float, float]]] = {}
        for labels, count in buckets.items():
            bound = float(dict(labels)["le"].replace("+Inf", "inf"))
            rest = frozenset(each for each in labels if each[0] != "le")
            of.setdefault(rest, []).append((bound, count))
        return {labels: _at_share(sorted(each), share) for labels, each in of.items()}

    def _instant(self, name: str) -> Vector:
        return {
            labels: values[-1]
            for labels, series in self._selected(name).items()
            if (values := [v for t, v in series if self._at_s - LOOK_BACK_S < t <= self._at_s])
        }

    def _selected(self, name: str) -> dict[Labels, Series]:
        matchers = []
        if self._peek() == "{":
            self._take()
            while self._peek() != "}":
                label, sign, text = self._take(), self._take(), self._take().strip('"')
                matchers.append((label, MATCHERS[sign], text))
                if self._peek() == ",":
                    self._take()
            self._take("}")
        return {
            labels: series
            for labels, series in self._samples.of.get(name, {}).items()
            if all(fits(dict(labels).get(label, ""), text) for label, fits, text in matchers)
        }


def _vector(value: Value) -> Vector:
    if not isinstance(value, dict):
        raise PromqlError(f"{value} is no vector")
    return value


def _growth(name: str, values: list[float]) -> float:
    if name == "delta":
        return values[-1] - values[0]
    # A counter that is lower than before began anew.
    return sum(b - a if b >= a else b for a, b in itertools.pairwise(values))


def _at_share(buckets: list[tuple[float, float]], share: float) -> float:
    wanted = share * buckets[-1][1]
    below, lower = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted and buckets[-1][1] > 0:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (wanted - below) / max(count - below, 1e-9)
        below, lower = count, bound
    return math.nan


def _combined(sign: str, left: Value, right: Value) -> Value:
    if sign in ("or", "and", "unless"):
        first, second = _vector(left), _vector(right)
        if sign == "or":
            return second | first
        return {each: v for each, v in first.items() if (each in second) is (sign == "and")}
    if not isinstance(left, dict) and not isinstance(right, dict):
        return float(ARITHMETIC[sign](left, right))
    if not isinstance(left, dict):
        left = dict.fromkeys(_vector(right), left)
    if not isinstance(right, dict):
        right = dict.fromkeys(left, right)
    pairs = {each: (left[each], right[each]) for each in left.keys() & right.keys()}
    if sign in COMPARISONS:
        return {each: a for each, (a, b) in pairs.items() if COMPARISONS[sign](a, b)}
    return {each: ARITHMETIC[sign](a, b) for each, (a, b) in pairs.items()}
