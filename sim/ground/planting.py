"""Planting of bugs in the shipped code, for the length of a run."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Patches = tuple[tuple[object, str, Callable[..., Any]], ...]
"""(owner, attribute, replacement) of one bug."""


@contextmanager
def planting(patches: Patches) -> Iterator[None]:
    """Plant the bug for the length of the block."""
    with ExitStack() as stack:
        for owner, attribute, replacement in patches:
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield


def edited(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """The function with a piece of its source replaced, which is in it once."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{function.__qualname__} has {old!r} {source.count(old)} times"
    code = compile(
        f"from __future__ import annotations\n{source.replace(old, new)}", "planted", "exec"
    )
    found: dict[str, Any] = {}
    exec(code, function.__globals__, found)
    made: Callable[..., Any] = found[function.__name__]
    return made
