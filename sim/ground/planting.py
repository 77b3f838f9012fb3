"""Planting of bugs in the shipped code, for the length of a run."""

from __future__ import annotations

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
