"""Which test files a `-m` expression leaves out as a whole, by their text alone. Pure."""

from __future__ import annotations

import re


def markers_left_out(expression: str) -> frozenset[str]:
    """Those of `not this and not that`; of another expression none."""
    if not re.fullmatch(r"not \w+( and not \w+)*", expression):
        return frozenset()
    return frozenset(re.findall(r"not (\w+)", expression))


def markers_of_all(text: str) -> frozenset[str]:
    """Markers that a file of this text gives to all of its tests, in one line."""
    given = re.search(r"^pytestmark = (.*)$", text, re.MULTILINE)
    return frozenset(re.findall(r"pytest\.mark\.(\w+)", given[1]) if given else ())
